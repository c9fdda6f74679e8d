"""One control machine at a time, and no older cluster.yml: what the first controller answers, and who is dead."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.errors import DeepOpsError
from deepopsctl.model.people import Group, People, Person
from deepopsctl.node_programs._shared import deployed
from deepopsctl.node_programs.operations.cluster_claim import claim as control, main as program
from deepopsctl.run.claim import (
    RELEASE,
    TASK,
    Answer,
    OutdatedError,
    claim,
    died_here,
    pack,
    parse_answer,
    record_applied,
    result_of_node,
)
from deepopsctl.run.events import HostResult, Status
from deepopsctl.run.lock import ClusterBusyError, cluster_lock

OLD, NEW = ["node ctl1", "node gpu01", "partition gpu"], ["node ctl1", "node gpu01", "node gpu02", "partition gpu"]
TEXT = """\
schema: 1
cluster: {name: hpc}
nodes:
  - {names: ctl1, roles: [controller]}
  - {names: gpu01, roles: [compute]}
partitions:
  - {name: gpu, nodes: gpu01}
qos:
  - {name: long}
"""


@pytest.fixture(autouse=True)
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state directory of a controller."""
    monkeypatch.setattr(control, "STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def asked(
    clone: str, text: str = "old", names: list[str] | None = None, values: Mapping[str, str] = {}, **change: Any
) -> dict[str, Any]:
    """The claim of a clone of the cluster directory, each on a control machine of its own."""
    return {
        "id": clone, "machine": clone, "token": f"{clone}-run", "directory": "/srv/hpc", "user": "alice", "host": clone,
        "pid": 7, "command": "deepopsctl deploy", "since": "2026-11-24T08:00:00+00:00", "hash": text,
        "parts": pack(dict.fromkeys(names or (NEW if text == "new" else OLD), "1") | dict(values)), "dead": [],
        "break_lock": False, "replace_newer": False, "seen": [], **change,
    }  # fmt: skip


def run(clone: str, *options: Any, **change: Any) -> None:
    """A whole run of a clone."""
    mine = asked(clone, *options, **change)
    control.acquire(mine)
    control.release(mine, ["slurm"])


def refused(clone: str, *options: Any, **change: Any) -> Any:
    with pytest.raises(control.RefusedError) as caught:
        control.acquire(asked(clone, *options, **change))
    return caught.value


class TestAnUpgrade:
    def test_no_deploy_mixes_releases_while_one_is_under_way_and_the_same_command_goes_on(
        self, controller: Path
    ) -> None:
        (controller / "upgrade").mkdir(parents=True)
        record = {"from": "24.11", "to": "26.05", "since": "2026-11-25 22:00 UTC", "phase": "nodes"}
        (controller / "upgrade" / "slurm.json").write_text(json.dumps(record))

        refusal = refused("a")
        assert str(refusal) == "an upgrade of Slurm from 24.11 to 26.05 is under way since 2026-11-25 22:00 UTC"
        assert "`deepopsctl upgrade slurm --to 26.05` continues" in refusal.hint
        assert control.acquire(asked("a", command="deepopsctl upgrade-slurm")) == []


class TestTheLock:
    def test_the_second_learns_who_where_since_when_and_what_to_do(self) -> None:
        control.acquire(asked("a"), now=1000)
        with pytest.raises(control.RefusedError) as caught:
            control.acquire(asked("b"), now=1060)

        assert str(caught.value) == (
            "another control machine works on this cluster: deepopsctl deploy, started by alice on a "
            "(pid 7, in /srv/hpc) at 2026-11-24T08:00:00+00:00; its last sign was 60 s ago"
        )
        assert "--break-lock" in caught.value.hint
        assert (caught.value.reason, caught.value.holder["token"]) == ("busy", "a-run")

    def test_one_run_may_claim_for_each_of_its_components_and_keeps_its_beginning(self, controller: Path) -> None:
        control.acquire(asked("a"), now=1000)
        control.acquire(asked("a", since="later"), now=1060)

        lock = json.loads((controller / "cluster" / "lock.json").read_text())
        assert (lock["since"], lock["last"]) == ("2026-11-24T08:00:00+00:00", 1060)

    def test_the_next_run_of_the_same_directory_passes_over_one_that_was_killed(self) -> None:
        control.acquire(asked("a"))

        assert control.acquire(asked("a", token="the-next-run")) == []

    @pytest.mark.parametrize("change", [{"dead": ["a-run"]}, {"break_lock": True}])
    def test_a_dead_holder_is_passed_over(self, change: dict[str, Any]) -> None:
        control.acquire(asked("a"))
        control.acquire(asked("b", **change))

        # it was not dead after all: it leaves the other's lock alone, and says so
        (warning,) = control.release(asked("a"), [])
        assert "started by alice on b" in warning
        assert refused("a").reason == "busy"

    def test_nobody_waits_for_ever_for_one_that_gives_no_sign(self) -> None:
        control.acquire(asked("a"), now=1000)

        (warning,) = control.acquire(asked("b"), now=1001 + control.STALE_S)

        assert "no sign of it for 2 h" in warning

    def test_a_clock_that_was_set_back_locks_nobody_out_for_longer(self) -> None:
        control.acquire(asked("a"), now=10**9)
        assert "was 0 s ago" in str(control.inspect(asked("b"), now=1000)[0][0])

    @pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"token": "x"}'])
    def test_a_torn_file_stops_nobody_for_ever(self, controller: Path, text: str) -> None:
        directory = controller / "cluster"
        directory.mkdir(parents=True)
        for name in ("lock.json", "applied.json"):
            (directory / name).write_text(text)

        control.acquire(asked("a", break_lock=True))


class TestTheAppliedClusterYml:
    @pytest.mark.parametrize(
        ("applied", "mine", "words"),
        [
            ([("old",), ("new",)], ("old",), "older than the one that alice on a applied from /srv/hpc"),
            ([("old",), ("new",)], ("old",), "it would remove node gpu02"),
            ([("new",), ("old",)], ("mine", [*NEW, "node gpu09"]), "it would bring back node gpu02"),
            ([("new",)], ("mine", OLD), "not a successor of the one that alice on a applied"),
            (
                [("old",), ("other values", OLD)],
                ("old",),
                "the same nodes and partitions, with older values of other keys",
            ),
            (
                [("old",), ("moved", OLD, {"node gpu01": "2", "partition gpu": "2"})],
                ("mine", [*OLD, "node gpu09"], {"partition gpu": "3"}),
                "it would undo changes of node gpu01",
            ),
        ],
    )
    def test_a_clone_learns_what_it_would_undo(
        self, applied: list[tuple[Any, ...]], mine: tuple[Any, ...], words: str
    ) -> None:
        for text in applied:
            run("a", *text)

        error = refused("b", *mine)
        assert words in str(error)
        assert (error.reason, "--replace-newer" in error.hint) == ("outdated", True)

    def test_a_clone_that_has_all_of_it_and_more_goes_on(self) -> None:
        run("a", "new")
        run("b", "more", [*NEW, "node gpu03"])

        assert refused("a", "new").reason == "outdated"

    def test_who_has_the_same_text_may_edit_it_as_they_like(self) -> None:
        run("a", "new")
        run("b", "new")
        run("b", "old")
        run("b", "new")
        run("b", "old")

    def test_who_only_asked_while_it_had_the_same_text_may_edit_it_too(self) -> None:
        run("a", "new")
        control.note_clone(asked("b", "new"))
        control.note_clone(asked("c", "old"))

        assert refused("c", "old", seen=["x"]).reason == "outdated"
        run("b", "mine", OLD)

    def test_who_applied_it_last_or_saw_it_applied_may_go_back(self) -> None:
        run("a", "old")
        run("a", "new")
        run("a", "old")
        run("b", "mine", ["node ctl1"], seen=["", "old"])

    def test_an_option_applies_it_all_the_same_and_is_the_newest_from_then_on(self) -> None:
        run("a", "old")
        run("a", "new")
        run("b", "old", replace_newer=True)

        run("b", "old")
        assert refused("a", "new").reason == "outdated"

    def test_a_run_that_was_refused_changes_nothing(self, controller: Path) -> None:
        run("a", "new")
        before = (controller / "cluster" / "applied.json").read_bytes()

        refused("b", "mine", OLD)

        assert (controller / "cluster" / "applied.json").read_bytes() == before
        assert not (controller / "cluster" / "lock.json").exists()

    def test_looking_changes_nothing_and_finds_all_of_it(self, controller: Path) -> None:
        run("a", "new")
        control.acquire(asked("a", "new"))

        refusals, _ = control.inspect(asked("b", "mine", OLD))

        assert [refusal.reason for refusal in refusals] == ["busy", "outdated"]
        assert (controller / "cluster" / "lock.json").exists()

    def test_what_is_deployed_is_what_runs_noted_and_what_left_records(self, controller: Path) -> None:
        (controller / "records").mkdir(parents=True)
        (controller / "records" / "monitoring.node.json").write_text("{}")
        mine = asked("a")
        control.acquire(mine)
        assert deployed.components(str(controller)) == ["monitoring"]

        control.release(mine, ["slurm", "nvidia"])

        assert deployed.components(str(controller)) == ["monitoring", "nvidia", "slurm"]


class TestTheProgram:
    def answer(self, state: str, *, check_mode: bool = False, **change: Any) -> dict[str, Any]:
        claimed = asked("b", "mine", OLD, command="deepopsctl plan", **change)
        return program.main({"state": state, "claim": claimed, "check_mode": check_mode})

    def test_a_plan_names_what_a_deploy_would_be_blocked_by_and_changes_nothing(self, controller: Path) -> None:
        run("a", "new")

        answer = self.answer("taken", check_mode=True)["deepops"]

        assert (answer["claim"]["state"], answer["claim"]["refused"]) == ("shown", "outdated")
        assert [entry["message"] for entry in answer["blocked"]] == [answer["claim"]["message"]]
        assert not (controller / "cluster" / "lock.json").exists()

    def test_a_refusal_is_an_answer_and_no_failure(self) -> None:
        run("a", "new")

        answer = self.answer("taken")["deepops"]["claim"]

        assert (answer["state"], answer["refused"]) == ("refused", "outdated")

    def test_a_run_takes_and_releases_the_cluster(self, controller: Path) -> None:
        assert self.answer("taken")["deepops"]["claim"]["state"] == "taken"
        assert (controller / "cluster" / "lock.json").exists()

        assert self.answer("released")["deepops"]["claim"]["state"] == "released"
        assert not (controller / "cluster" / "lock.json").exists()

    def test_a_record_that_cannot_be_written_fails_with_its_path(self, controller: Path) -> None:
        controller.mkdir()
        (controller / "cluster").touch()

        assert self.answer("taken") == {
            "failed": True, "msg": f"cannot write {controller}/cluster: File exists", "hint": "is its disk full?"
        }  # fmt: skip


class TestTheControlMachine:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> ClusterDir:
        (tmp_path / "hpc").mkdir()
        (tmp_path / "hpc" / "cluster.yml").write_text(TEXT)
        return ClusterDir.open(tmp_path / "hpc")

    def made(self, directory: ClusterDir) -> dict[str, Any]:
        return claim(directory, parse_spec(TEXT, "cluster.yml"), "deploy", {})

    def test_a_claim_has_what_the_controller_asks_for_people_included(self, directory: ClusterDir) -> None:
        people = People((Group("def-x", 60001),), (Person("alice", 60002, ("def-x",)),))

        mine = claim(directory, replace(parse_spec(TEXT, "cluster.yml"), people=people), "deploy", {})

        assert mine.keys() == {*asked("a"), "controller"}
        assert [*control.unpack(str(mine["parts"]))] == [
            "node ctl1", "node gpu01", "partition gpu", "QOS long", "group def-x", "person alice",
        ]  # fmt: skip
        assert json.loads(json.dumps(mine)) == mine

    def test_people_yml_is_part_of_what_is_known(self, directory: ClusterDir) -> None:
        def git(*words: str) -> None:
            name = ("-c", "user.name=alice", "-c", "user.email=alice@example.com")
            subprocess.run(["git", *name, *words], cwd=directory.path, check=True, capture_output=True)

        git("init", "--quiet")
        hashes = []
        for file, text in (
            (directory.spec, TEXT), (directory.people, "schema: 1\n"), (directory.spec, f"{TEXT}# 2\n"),
            (directory.people, "schema: 1\n# 3\n"),
        ):  # fmt: skip
            file.write_text(text)
            git("add", file.name)
            git("commit", "--quiet", "--message", file.name)
            hashes.append(self.made(directory)["hash"])
        record_applied(directory)
        directory.people.write_text("schema: 1\n# being edited\n")

        mine = self.made(directory)

        assert len({*hashes, mine["hash"]}) == 5
        assert mine["seen"] == [hashes[3], *reversed(hashes)]

    def test_two_copies_of_a_directory_are_two(self, directory: ClusterDir, tmp_path: Path) -> None:
        other = tmp_path / "copy"
        other.mkdir()
        (other / "cluster.yml").write_text(TEXT)
        one, two = self.made(directory), self.made(ClusterDir.open(other))

        assert one["id"] != two["id"]
        assert (one["hash"], one["machine"]) == (two["hash"], two["machine"])

    def test_each_hold_on_the_cluster_has_a_word_of_its_own(self, directory: ClusterDir) -> None:
        words = []
        for _ in range(2):
            with cluster_lock(directory.runs, "deepopsctl deploy"), cluster_lock(directory.runs, "deepopsctl deploy"):
                words.append(self.made(directory)["token"])

        assert len({*words, ""}) == 3

    def test_a_holder_on_this_machine_is_dead_when_its_lock_is_free(self, directory: ClusterDir) -> None:
        mine = self.made(directory)
        with cluster_lock(directory.runs, "deepopsctl deploy"):
            assert not died_here(mine)
        assert died_here(mine)
        assert not died_here({**mine, "machine": "another"})

    def test_a_holder_whose_directory_is_gone_is_dead_when_its_process_is(self, directory: ClusterDir) -> None:
        gone = {**self.made(directory), "directory": "/nowhere"}

        assert not died_here({**gone, "pid": os.getpid()})
        assert died_here({**gone, "pid": 2**22 + 1})

    @pytest.mark.parametrize(("kind", "error"), [("busy", ClusterBusyError), ("outdated", OutdatedError)])
    def test_a_refusal_is_an_error_with_its_hint(self, kind: str, error: type[DeepOpsError]) -> None:
        answer = parse_answer({"claim": {"state": "refused", "refused": kind, "message": "m", "hint": "h"}})
        assert isinstance(answer, Answer)
        with pytest.raises(error) as caught:
            answer.raise_if_refused()
        assert (caught.value.message, caught.value.hint) == ("m", "h")
        replace(answer, refused="").raise_if_refused()

    @pytest.mark.parametrize("data", [{}, {"claim": None}, {"claim": []}, {"slurm": {}}])
    def test_other_answers_are_none(self, data: dict[str, Any]) -> None:
        assert parse_answer(data) is None


@pytest.mark.parametrize(
    ("task", "status"),
    [(TASK, Status.IGNORED), (RELEASE, Status.IGNORED), ("Install packages", Status.UNREACHABLE)],
)
def test_a_controller_that_does_not_answer_makes_no_other_node_unreachable(task: str, status: Status) -> None:
    event = HostResult("gpu01", "slurm", "Nodes", task, Status.UNREACHABLE, 3.0, message="no route to ctl1")

    assert result_of_node(event).status is status
