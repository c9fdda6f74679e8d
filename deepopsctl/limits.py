"""`--limit`: node sets and group names, turned into what Ansible understands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from deepopsctl.errors import InputError
from deepopsctl.inventory import group_members
from deepopsctl.model import Cluster
from deepopsctl.nodelist import expand, fold

# `!gpu03`, `&slurm_login`, `gpu*`, `~gpu\d+`, `@file`, `a:b`, `group[0]`: Ansible's own language
_PATTERN = re.compile(r"[!&~@*?:]|^\w+\[\d*(:\d*)?\]$")


@dataclass(frozen=True, slots=True)
class Limit:
    """Which nodes a run is for. `hosts` is None where only Ansible can tell; `text` is Ansible's own form."""

    text: str
    hosts: tuple[str, ...] | None


def resolve_limit(text: str, cluster: Cluster) -> Limit:
    """Node sets are expanded, group names kept; a name that the cluster does not have is refused."""
    names = {node.name: None for node in cluster.nodes}
    if not text.strip():
        return Limit("", tuple(names))
    groups = {**group_members(cluster), "all": tuple(names), "slurm_cluster": tuple(names)}
    patterns: list[str] = []
    hosts: dict[str, None] | None = {}
    for piece in _pieces(text):
        found = groups[piece] if piece in groups else None if _PATTERN.search(piece) else _nodes(piece, names, groups)
        patterns += (piece,) if piece in groups or found is None else found
        hosts = None if hosts is None or found is None else hosts | dict.fromkeys(found)
    if hosts is not None and not hosts:
        raise InputError.single("--limit", f"{text} has no nodes", f"nodes: {fold(names)}")
    return Limit(",".join(patterns), None if hosts is None else tuple(name for name in names if name in hosts))


def _pieces(text: str) -> list[str]:
    """Parts between the commas that stand outside brackets."""
    return [piece.strip() for piece in re.split(r",(?![^\[]*\])", text) if piece.strip()]


def _nodes(piece: str, names: dict[str, None], groups: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    try:
        found = expand(piece)
    except ValueError as error:
        raise InputError.single("--limit", str(error), "give node sets such as gpu[01-04], or groups") from error
    unknown = [name for name in found if name not in names]
    if unknown:
        near = list(dict.fromkeys(word for name in unknown for word in get_close_matches(name, [*groups, *names], n=1)))
        meant = f"did you mean {', '.join(near)}? " if near else ""
        known = f"{meant}nodes: {fold(names)}; groups: {', '.join(sorted(groups))}"
        raise InputError.single("--limit", f"the cluster has no node or group {fold(unknown)}", known)
    return found
