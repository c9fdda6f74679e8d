"""Several playbooks as one: after a failed node Ansible continues with the next play, but not with the next playbook.

Events name the combined playbook; a play without hosts marks where each of the original playbooks begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from deepopsctl.files import write_atomic

_JOINED = "together"
_NAME = "Begin: "
# an empty group; summaries omit Ansible's warning about it
EMPTY_GROUP = "deepops_nobody"


def join(playbooks: Sequence[Path], together: Sequence[Path], directory: Path) -> tuple[Path, ...]:
    """The playbooks to run; those of `together` are replaced by one combined playbook in `directory`."""
    if len(together) < 2:
        return tuple(playbooks)
    path = directory / f"{_JOINED}.yml"
    _write(together, path)
    first = list(playbooks).index(together[0])
    return (*playbooks[:first], path, *playbooks[first + len(together) :])


def _write(playbooks: Sequence[Path], path: Path) -> None:
    plays: list[dict[str, object]] = []
    for playbook in playbooks:
        plays.append({"name": f"{_NAME}{playbook.stem}", "hosts": EMPTY_GROUP, "gather_facts": False})
        plays.append({"name": playbook.stem, "ansible.builtin.import_playbook": str(playbook)})
    write_atomic(path, json.dumps(plays), mode=0o600)


class PlaybookTracker:
    """Tracks which of the original playbooks the events of a run belong to."""

    def __init__(self) -> None:
        self._now = ""

    def update(self, raw: Mapping[str, object]) -> bool:
        """Process an event; True if it only marks the beginning of a playbook."""
        data = raw.get("event_data")
        play = str(data.get("play") or "") if isinstance(data, Mapping) else ""
        if raw.get("event") == "playbook_on_play_start" and play.startswith(_NAME):
            self._now = play.removeprefix(_NAME)
        return play.startswith(_NAME)

    def playbook_of(self, raw: Mapping[str, object]) -> str:
        """The name of the original playbook of an event."""
        data = raw.get("event_data")
        stem = PurePath(str(data.get("playbook") or "")).stem if isinstance(data, Mapping) else ""
        return self._now if stem == _JOINED else stem
