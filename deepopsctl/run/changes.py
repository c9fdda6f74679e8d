"""What a run changed, or in check mode would change: one entry for each thing, for plan and deploy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Raw = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that changes on one host; `host` is empty where it is a file of the cluster directory itself.

    `diff` is a complete unified diff; only check mode has one. `new` marks a file that did not exist.
    """

    host: str
    component: str
    kind: str
    name: str
    action: str
    detail: str = ""
    policy: str = ""
    diff: str = ""
    new: bool = False

    @property
    def what(self) -> tuple[str, str, str]:
        """Kind, name and action: nodes with equal ones have the same change."""
        return (self.kind, self.name, self.action)

    def as_object(self) -> dict[str, object]:
        """The JSON object; optional fields only if set."""
        names = ("host", "component", "kind", "name", "action")
        entry: dict[str, object] = {name: getattr(self, name) for name in names}
        return entry | {name: value for name in ("detail", "policy", "diff", "new") if (value := getattr(self, name))}


def parse_changes(result: Raw, host: str, component: str, task: str, *, changed: bool) -> tuple[Change, ...]:
    """The changes of one task's result; a task that reports no list counts as one change, by its name."""
    if not changed:
        return ()
    listed = result.get("changes")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return tuple(_changes(listed, host, component))
    return (Change(host, component, "task", task.rpartition(" : ")[2], "change"),)


def _changes(listed: Sequence[object], host: str, component: str) -> Iterator[Change]:
    for entry in listed:
        if isinstance(entry, Mapping):
            words = {
                name: str(entry.get(name) or "") for name in ("kind", "name", "action", "detail", "policy", "diff")
            }
            yield Change("" if entry.get("local") else host, component, **words, new=bool(entry.get("new")))
