"""The result as lines for people and as a JSON object."""

from __future__ import annotations

from collections import Counter

from deepopsctl.ssh.results import NodeResult, SetupResult
from deepopsctl.text.node_sets import fold_in_order

_HEAD = ("NODES", "STATUS", "SUDO", "NOTE")


def table_lines(result: SetupResult) -> list[str]:
    """One row for all nodes with the same result; failures last."""
    hosts = [*([result.jump_host] if result.jump_host else []), *result.nodes]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in sorted(hosts, key=lambda host: not host.ok):
        groups.setdefault((node.status, node.sudo or "-", node.message or "-"), []).append(node.name)
    rows = [_HEAD, *((fold_in_order(names), *key) for key, names in groups.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]


def hints(result: SetupResult) -> list[str]:
    """Every hint once, with its nodes."""
    hosts = [*([result.jump_host] if result.jump_host else []), *result.nodes]
    groups: dict[str, list[str]] = {}
    for node in hosts:
        if node.hint:
            groups.setdefault(node.hint, []).append(node.name)
    return [f"{fold_in_order(names)}: {hint}" for hint, names in groups.items()]


def summary_line(result: SetupResult) -> str:
    """The last line: number of nodes by status."""
    counts = Counter(node.status for node in result.nodes)
    changed = sum(node.changed for node in result.nodes)
    parts = [f"{count} {status}" for status, count in counts.items()]
    return f"{', '.join(parts)}; {changed or 'nothing'} changed" if parts else "no nodes"


def result_object(result: SetupResult) -> dict[str, object]:
    """The JSON object of `ssh setup`."""
    document: dict[str, object] = {
        "schema": 1,
        "command": "ssh setup",
        "ok": result.ok,
        "nodes": [_node_object(node) for node in result.nodes],
        "warnings": list(result.warnings),
    }
    if result.jump_host:
        document["jump_host"] = _node_object(result.jump_host)
    return document


def _node_object(node: NodeResult) -> dict[str, object]:
    return {
        "name": node.name,
        "ok": node.ok,
        "changed": node.changed,
        "status": str(node.status),
        "sudo": str(node.sudo),
        "message": node.message,
        "hint": node.hint,
    }
