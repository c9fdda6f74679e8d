"""Whether the units of what was deployed stay up: the end of a component's deploy on a node."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    record as node_record,
    services as node_services,
)

LINES = 5


class NotConvergedError(Exception):
    """Units that do not stay up, with the last that each has logged; `hint` says where more is."""

    def __init__(self, problems: dict[str, str]) -> None:
        super().__init__("\n".join(_sentence(name, why) for name, why in problems.items()))
        self.hint = f"see `journalctl -u {' -u '.join(problems)}` on the node; the next deploy checks it again"


def watch(component: str, steps: Sequence[str], timeout: int, excused: Sequence[str] = ()) -> list[str]:
    """Watch the units of the steps' records for at most so many seconds, but for the excused ones; their names.

    Raises NotConvergedError. Then the records of their steps are gone, so that the next deploy does them again.
    """
    loaded = {step: node_record.load(component, step) for step in steps}
    records = {step: record["items"] for step, record in loaded.items() if record}
    units = {
        name: step
        for step, items in records.items()
        for name, running in items["units"].items()
        if running and name not in excused
    }
    ports = {name: port for items in records.values() for name, port in items.get("ports", {}).items()}
    problems = node_services.Watch(sorted(units), ports).problems(timeout)
    for step in {units[name] for name in problems}:
        node_record.save(component, step, "", {})
    if problems:
        raise NotConvergedError(problems)
    return sorted(units)


def _sentence(unit: str, why: str) -> str:
    words = node_services.own_journal_tail(unit, LINES) or node_services.journal_tail(unit, LINES)
    return f"{unit} {why}" + (f":\n{words}" if words else "")
