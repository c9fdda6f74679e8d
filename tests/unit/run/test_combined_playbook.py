"""Several playbooks as one, and the events of each told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deepopsctl.run.command_line import PlaybookTracker, join

FIRST, NVIDIA, SLURM, LAST = (Path(f"/content/playbooks/{name}.yml") for name in ("first", "nvidia", "slurm", "jobs"))


def event(kind: str, play: str, playbook: Path) -> dict[str, Any]:
    return {"event": kind, "event_data": {"play": play, "playbook": str(playbook)}}


def test_those_that_belong_together_are_one_in_their_place(tmp_path: Path) -> None:
    found = join((FIRST, NVIDIA, SLURM, LAST), (NVIDIA, SLURM), tmp_path)

    assert (found[0], found[2:]) == (FIRST, (LAST,))
    plays = json.loads(found[1].read_text(encoding="utf-8"))
    imported = [play["ansible.builtin.import_playbook"] for play in plays if "ansible.builtin.import_playbook" in play]
    assert imported == [str(NVIDIA), str(SLURM)]


def test_one_alone_is_run_as_it_is(tmp_path: Path) -> None:
    assert join((SLURM, LAST), (SLURM,), tmp_path) == (SLURM, LAST)
    assert join((FIRST,), (), tmp_path) == (FIRST,)
    assert list(tmp_path.iterdir()) == []


def test_the_events_of_each_are_told_apart(tmp_path: Path) -> None:
    together = join((NVIDIA, SLURM), (NVIDIA, SLURM), tmp_path)[0]
    names = [play["name"] for play in json.loads(together.read_text(encoding="utf-8")) if "hosts" in play]
    tracker, found = PlaybookTracker(), []
    for name in names:
        assert tracker.update(event("playbook_on_play_start", name, together))
        assert not tracker.update(event("runner_on_ok", "Nodes", together))
        found.append(tracker.playbook_of(event("runner_on_ok", "Nodes", together)))

    assert found == ["nvidia", "slurm"]
    # a playbook of its own comes after them
    assert tracker.playbook_of(event("runner_on_ok", "Jobs", LAST)) == "jobs"
