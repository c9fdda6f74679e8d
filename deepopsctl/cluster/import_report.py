"""What an import carries over besides nodes, and import-report.md: what to check, and everything that was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deepopsctl.model.cluster import Cluster
from deepopsctl.model.json_objects import NoteEntry
from deepopsctl.text.answers import mapping
from deepopsctl.text.node_sets import fold_in_order

FILE_NAME = "import-report.md"


@dataclass(frozen=True, slots=True)
class Note:
    """A note on one item of the source: its name, where it is, what happened to it, what to do."""

    name: str
    where: str
    reason: str
    hint: str = ""

    def to_dict(self) -> NoteEntry:
        """The object of `init --json`."""
        return {"name": self.name, "where": self.where, "reason": self.reason, "hint": self.hint}


@dataclass(slots=True)
class Carryover:
    """Filled by the readers; `settings` are Ansible variables for settings.yml, `secrets` for the vault."""

    settings: dict[str, object] = field(default_factory=dict)
    # `settings` of a node list, for settings.yml: not translated, so not reported
    direct_settings: dict[str, object] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    not_carried: list[Note] = field(default_factory=list)
    to_check: list[Note] = field(default_factory=list)
    changed: list[Note] = field(default_factory=list)

    def leave(self, name: str, where: str, reason: str, hint: str = "") -> None:
        """Add a note: not carried over."""
        self.not_carried.append(Note(name, where, reason, hint))

    def check(self, name: str, where: str, reason: str, hint: str = "") -> None:
        """Add a note: carried over, but to be checked."""
        self.to_check.append(Note(name, where, reason, hint))

    def change(self, name: str, reason: str, hint: str = "") -> None:
        """Add a note: deepopsctl sets it differently from the source."""
        self.changed.append(Note(name, "", reason, hint))

    def has_slurm(self, key: str) -> bool:
        """Whether `slurm_config` has a key, even without a value."""
        return key in mapping(self.settings.get("slurm_config"))

    def set_slurm(self, key: str, value: str | None) -> None:
        """Set a key of `slurm_config`; None removes deepopsctl's own value."""
        config = self.settings.setdefault("slurm_config", {})
        if isinstance(config, dict):
            config[key] = value

    def unset_slurm(self, key: str) -> None:
        """Remove a key of `slurm_config`: deepopsctl's own value stays."""
        config = self.settings.get("slurm_config")
        if isinstance(config, dict):
            config.pop(key, None)
            if not config:
                del self.settings["slurm_config"]

    def slurm(self, key: str) -> str | None:
        """The value of a key of `slurm_config`, None for none."""
        value = mapping(self.settings.get("slurm_config")).get(key)
        return None if value is None else str(value)

    def __bool__(self) -> bool:
        return bool(self.settings or self.secrets or self.not_carried or self.to_check or self.changed)


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
