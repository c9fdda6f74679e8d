"""import-report.md: what an import carried over, what to check, and everything that it left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from deepopsctl.cluster.import_notes import Carryover, Note
from deepopsctl.model.cluster import Cluster
from deepopsctl.text.node_sets import fold_in_order

FILE_NAME = "import-report.md"


def render_report(source: str, cluster: Cluster, carryover: Carryover) -> str:
    """The text of the report; without secrets or values of variables that were left out."""
    return "\n".join(_lines(source, cluster, carryover)) + "\n"


def _lines(source: str, cluster: Cluster, carryover: Carryover) -> Iterator[str]:
    yield f"# What was imported from {source}"
    yield ""
    yield "Written by `deepopsctl init --from`; read it, keep it or delete it: nothing depends on it."
    yield ""
    yield f"* nodes: {len(cluster.nodes)}, of which {len(cluster.compute)} for jobs"
    for partition in cluster.partitions:
        yield f"* partition {partition.name}: {fold_in_order(partition.nodes)}"
    for name, value in carryover.settings.items():
        for key in _keys(value):
            yield f"* setting {name}{key}"
    for name in carryover.secrets:
        yield f"* secret {name}, into the vault"
    yield from _section("Not carried over", carryover.not_carried, "Everything was carried over.")
    yield from _section("Carried over, to be checked", carryover.to_check, "")
    yield from _section("Set by deepopsctl", carryover.changed, "")


def _keys(value: object) -> list[str]:
    return [f".{key}" for key in value] if isinstance(value, Mapping) else [""]


def _section(title: str, notes: Iterable[Note], otherwise: str) -> Iterator[str]:
    listed = list(notes)
    if not listed and not otherwise:
        return
    yield ""
    yield f"## {title}"
    yield ""
    if not listed:
        yield otherwise
        return
    yield "| what | where | why | what to do |"
    yield "|---|---|---|---|"
    for note in listed:
        yield "| " + " | ".join(_cell(text) for text in (note.name, note.where, note.reason, note.hint)) + " |"


def _cell(text: str) -> str:
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line.replace("|", "\\|").replace("<", "&lt;")
