"""A cluster's nodes: for people as folded groups, for programs as one object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

import click

from deepopsctl.cluster.import_report import FILE_NAME, Carryover, Note
from deepopsctl.cluster.inventory import group_members
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.json_objects import SCHEMA, InventoryObject
from deepopsctl.text.node_sets import fold_in_order

# where there is no terminal
WIDTH = 100
_INDENT = "    "


def cluster_object(command: str, directory: Path, cluster: Cluster) -> InventoryObject:
    """The JSON object of `init` and `inventory` (DESIGN, section 5)."""
    return {
        "schema": SCHEMA,
        "command": command,
        "ok": True,
        "directory": str(directory),
        "nodes": len(cluster.nodes),
        "components": None if cluster.components is None else list(cluster.components),
        "groups": {group: list(names) for group, names in group_members(cluster).items()},
    }


def group_lines(cluster: Cluster) -> list[str]:
    """A line for each group that has nodes: its name, how many, which."""
    return [
        f"{group:<17}{len(names):>6}  {fold_in_order(names)}"
        for group, names in group_members(cluster).items()
        if names
    ]


def import_lines(carryover: Carryover, directory: Path) -> Iterator[str]:
    """A heading, then each reason with its names; the hints are in the report."""
    if not carryover:
        return
    yield from _section("not carried over", carryover.not_carried, "yellow")
    yield from _section("carried over, to be checked", carryover.to_check, "cyan")
    if carryover.changed:
        names = ", ".join(note.name for note in carryover.changed)
        yield from wrap(f"set by deepopsctl: {names}", _width(), subsequent_indent=_INDENT, break_on_hyphens=False)
    if carryover.not_carried or carryover.to_check or carryover.changed:
        yield f"where, and what to do about each: {directory / FILE_NAME}"


def _width() -> int:
    return get_terminal_size((WIDTH, 24)).columns


def _section(title: str, notes: Sequence[Note], colour: str) -> Iterator[str]:
    if not notes:
        return
    yield click.style(f"{title}: {len(notes)}", fg=colour)
    by_reason: dict[str, list[str]] = {}
    for note in notes:
        by_reason.setdefault(note.reason, []).append(note.name)
    for reason, names in by_reason.items():
        yield f"  {reason}:"
        yield from wrap(
            ", ".join(dict.fromkeys(names)), _width(), initial_indent=_INDENT, subsequent_indent=_INDENT,
            break_on_hyphens=False,
        )  # fmt: skip
