"""The burn-in around the load: which nodes, which jobs, what becomes of them, and how it is followed and ended."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from click.testing import CliRunner, Result

from deepopsctl.cli.main import cli
from deepopsctl.node_programs.gpu_check.burn_evaluation import evaluate_burn
from deepopsctl.node_programs.gpu_check.burncli import document
from deepopsctl.node_programs.gpu_check.pack import packed
from deepopsctl.run.event_parser import parse
from deepopsctl.run.events import ModuleMessage
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.progress import Progress
from deepopsctl.run.summary import RunSummary, TaskResult
from deepopsctl.run.workspace import RunDir
from deepopsctl.validation.burn_in import Burnin, save_results
from tests.data.burn_samples import burn_result
from tests.data.slurm_samples import node, partition
from tests.support.node_modules import load
from tests.support.paths import ROOT

plan = load("deepops_burnin.plan")
program = load("deepops_burnin.program")
queue = load("deepops_burnin.queue")
results = load("deepops_burnin.results")

TEN_MINUTES = plan.LoadRequest(600.0, 0.7)
PARTS = {"gpu": partition("gpu", Default="YES"), "long": partition("long", MaxTime="2-00:00:00")}


def action() -> Any:
    """The action plugin; Ansible loads it by its path as well."""
    spec = importlib.util.spec_from_file_location("slurm_burnin", ROOT / "plugins/action/slurm_burnin.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ACTION = action()


class TestPlan:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"State": "IDLE"}, ""),
            ({"State": "IDLE+PLANNED"}, ""),
            ({"State": "MIXED", "CPUAlloc": "1"}, "busy: jobs run here (mixed)"),
            ({"State": "ALLOCATED", "CPUAlloc": "8"}, "busy: jobs run here (allocated)"),
            ({"State": "IDLE+COMPLETING"}, "busy: jobs run here (idle+completing)"),
            ({"State": "IDLE+DRAIN", "Reason": "bad DIMM"}, "the node is idle+drain (bad DIMM)"),
            ({"State": "DOWN*", "Reason": "Not responding"}, "the node is down* (Not responding)"),
            ({"State": "IDLE+RESERVED"}, "the node is reserved"),
            ({"State": "IDLE+POWERED_DOWN"}, "the node is idle+powered_down"),
            ({"Partitions": ""}, "no partition that is up has this node"),
        ],
    )
    def test_only_nodes_that_are_idle_now_are_loaded(self, changes: dict[str, str], reason: str) -> None:
        found = plan.plan(["gpu01"], TEN_MINUTES, {"gpu01": node(**changes)}, PARTS, 1000)

        assert found.left.get("gpu01", "") == reason
        assert bool(found.batches) is not bool(reason)

    def test_a_reserved_node_is_loaded_within_the_reservation(self) -> None:
        wish = TEN_MINUTES._replace(reservation="trial")

        assert plan.plan(["gpu01"], wish, {"gpu01": node(State="IDLE+RESERVED")}, PARTS, 1000).left == {}

    def test_there_is_one_array_for_each_partition_and_number_of_gpus(self) -> None:
        nodes = {
            "gpu01": node("gpu01"), "gpu02": node("gpu02"), "cpu01": node("cpu01", Gres="(null)"),
            "old01": node("old01", Partitions="long"),
        }  # fmt: skip

        found = plan.plan([*nodes, "new01"], TEN_MINUTES, nodes, PARTS, 1000)

        assert [tuple(batch) for batch in found.batches] == [
            ("gpu", 2, ["gpu01", "gpu02"]), ("gpu", 0, ["cpu01"]), ("long", 2, ["old01"]),
        ]  # fmt: skip
        assert found.left == {"new01": "Slurm does not know this node"}

    def test_an_array_is_no_larger_than_slurm_allows(self) -> None:
        nodes = {f"n{number}": node(f"n{number}") for number in range(5)}

        found = plan.plan(list(nodes), TEN_MINUTES, nodes, PARTS, plan.most_tasks({"MaxArraySize": "2"}))

        assert [len(batch.nodes) for batch in found.batches] == [2, 2, 1]

    def test_a_partition_that_is_asked_for_decides(self) -> None:
        nodes = {"a": node("a", Partitions="gpu,long"), "b": node("b", Partitions="gpu")}

        found = plan.plan(["a", "b"], TEN_MINUTES._replace(partition="long"), nodes, PARTS, 1000)

        assert [(batch.partition, batch.nodes) for batch in found.batches] == [("long", ["a"])]
        assert found.left == {"b": "the node is not in partition long"}

    def test_a_load_longer_than_the_partition_allows_is_told_before_slurm_refuses_it(self) -> None:
        found = plan.plan(
            ["gpu01"], plan.LoadRequest(7200.0, 0.7), {"gpu01": node()}, {"gpu": partition(MaxTime="60")}, 9
        )

        assert "partition gpu allows jobs of 01:00:00, this takes 02:04:00" in found.left["gpu01"]

    def test_the_jobs_take_whole_nodes_behind_everybody_else_and_only_once(self) -> None:
        nodes = {name: node(name) for name in ("gpu01", "gpu02", "gpu03")}

        found = plan.options(plan.Batch("gpu", 2, ["gpu01", "gpu03"]), TEN_MINUTES._replace(qos="low"), nodes, "/x")

        assert {"--array=0-1", "--exclude=gpu02", "--exclusive", "--mem=0", "--no-requeue", "--qos=low"} <= set(found)
        assert {"--nice=1000000", "--gres=gpu:2"} <= set(found)


class TestQueue:
    def test_every_task_is_read_with_the_time_it_has_used(self) -> None:
        found = queue.tasks("12_0|gpu01|RUNNING|None|10:05\n12_1||PENDING|Resources|0:00\nslurm_load_jobs error\n")

        assert found == [
            queue.Task("12_0", "gpu01", "RUNNING", "None", 605), queue.Task("12_1", "", "PENDING", "Resources", 0),
        ]  # fmt: skip

    def test_what_was_submitted_before_its_answer_was_lost_is_found_again(self) -> None:
        sent = plan.Plan(
            [plan.Batch("gpu", 2, ["gpu03"])], {"gpu01": "busy: jobs run here", "gpu02": "the node is down"}
        )

        found = queue.resumed(sent, [queue.Task("12_0", "gpu01", "RUNNING", "None", 3)])

        assert found.sent.left == {"gpu02": "the node is down"}
        assert [batch.nodes for batch in found.sent.batches] == [["gpu01"], ["gpu03"]]
        assert found.jobs == ["12"]

    @pytest.mark.parametrize(
        ("text", "total"), [("0:07", 7), ("1:00:00", 3600), ("2-01:00:00", 176_400), ("INVALID", 0)]
    )
    def test_slurm_s_times_are_seconds(self, text: str, total: int) -> None:
        assert queue.seconds(text) == total


class TestProgram:
    def test_the_batch_script_carries_gpucheck_and_runs_it(self, tmp_path: Path) -> None:
        script = tmp_path / "slurm_script"
        given = program.arguments(1.0, 0.002, 0)
        script.write_text(program.script(b64encode(packed()).decode(), given))

        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600, cwd=tmp_path)

        found = program.document("prolog says hello\n" + done.stdout + "epilog\n")
        assert found, done.stdout + done.stderr
        assert found["result"]["asked_s"] == 1.0
        assert list(tmp_path.iterdir()) == [script]

    def test_a_node_without_gpus_is_not_asked_for_any(self) -> None:
        assert "--without-gpus" in program.arguments(600, 0.7, 0)
        assert "--expect=8" in program.arguments(600, 0.7, 8)

    def test_an_output_that_was_cut_off_has_no_result(self) -> None:
        assert program.document('{"schema": 1, "command": "gpucheck-burn", "ok"') is None
        assert program.document("slurmstepd: error: *** JOB 7 CANCELLED ***") is None


def said(**changes: Any) -> str:
    """What a job wrote whose node calls itself otherwise than Slurm does."""
    found = burn_result(node="ip-10-0-0-1", **changes)
    return "30 of 600 s\n" + json.dumps(document(found, evaluate_burn(found, 2))) + "\n"


class TestResults:
    def test_gpucheck_s_checks_come_under_slurm_s_name_of_the_node(self) -> None:
        job = results.Job("12_0", "COMPLETED", 603)

        found = results.evaluate("gpu01", 600.0, [job], {"12_0": said()})

        assert {check["target"] for check in found} == {"gpu01", "gpu01/0", "gpu01/1"}
        assert {check["status"] for check in found} == {"pass"}

    @pytest.mark.parametrize(
        ("state", "status", "says"),
        [
            ("CANCELLED", "skip", "ended after 40 of 600 s: cancelled in Slurm"),
            ("PREEMPTED", "skip", "ended after 40 of 600 s: preempted in Slurm"),
            ("NODE_FAIL", "fail", "the node went down under load"),
            ("OUT_OF_MEMORY", "fail", "want of memory"),
            ("TIMEOUT", "fail", "the load hung"),
            ("FAILED", "fail", "job 12_0 left no result (Slurm: failed): ModuleNotFoundError"),
            ("COMPLETED", "fail", "left no result"),
            ("", "fail", "left no result (Slurm: not seen)"),
        ],
    )
    def test_a_job_without_a_result_never_passes(self, state: str, status: str, says: str) -> None:
        job = results.Job("12_0", state, 40)

        (check,) = results.evaluate("gpu01", 600.0, [job], {"12_0": "ModuleNotFoundError: x"})

        assert (check["status"], check["suite"], check["name"]) == (status, "burnin", "burn-completed")
        assert says in check["message"]

    def test_of_two_jobs_on_a_node_the_worse_counts(self) -> None:
        jobs = [results.Job("12_0", "COMPLETED", 603), results.Job("12_1", "NODE_FAIL", 9)]

        assert results.evaluate("gpu01", 600.0, jobs, {"12_0": said()})[0]["status"] == "fail"

    def test_an_output_is_read_once_and_leaves_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "x.out"
        path.write_text("hello")

        assert results.collect(str(path)) == "hello"
        assert results.collect(str(path)) == ""


def task(number: int, state: str, used_s: int = 0, at: str = "") -> dict[str, Any]:
    (found,) = queue.as_dicts([queue.Task(f"12_{number}", at, state, "Resources", used_s)])
    return dict(found)


class Follower:
    """The action plugin's loop with answers given beforehand, and no pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any], seconds: float = 600.0) -> None:
        self.steps: list[str] = []
        self.clock = 0.0
        self._answers = iter(answers)
        monkeypatch.setattr(ACTION.time, "sleep", self._sleep)
        monkeypatch.setattr(ACTION.time, "monotonic", lambda: self.clock)
        self.plugin = ACTION.ActionModule.__new__(ACTION.ActionModule)
        self.plugin._seen, self.plugin._token = {}, {"token": "abc"}
        self.plugin._queue_timeout, self.plugin._seconds = 120.0, seconds
        self.plugin._call = self._call

    def _sleep(self, pause: float) -> None:
        self.clock += pause

    def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self.steps.append(arguments["phase"])
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return {"tasks": answer} if isinstance(answer, list) else dict(answer)

    def follow(self, sent: int = 1) -> dict[str, dict[str, Any]]:
        self.plugin._wait(sent)
        return dict(self.plugin._seen)


class TestFollowing:
    def test_a_connection_that_is_lost_meanwhile_loses_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lost = AnsibleConnectionFailure("ssh: gone")
        answers = [[task(0, "RUNNING", 5, "gpu01")], lost, {"problem": "slurmctld is away"}, {"unreachable": True}]

        found = Follower(monkeypatch, [*answers, [task(0, "COMPLETED", 600, "gpu01")]]).follow()

        assert ACTION.by_node(found) == {"gpu01": [{"id": "12_0", "state": "COMPLETED", "used_s": 600}]}

    def test_a_submit_host_that_stays_away_is_an_error_that_says_where_the_results_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = [[task(0, "RUNNING", 5, "gpu01")], *[AnsibleConnectionFailure("gone")] * 1000]

        with pytest.raises(AnsibleConnectionFailure, match=r"deepopsctl-burnin-abc-\*\.out"):
            Follower(monkeypatch, answers, seconds=86_400.0).follow()

    def test_an_answer_that_was_lost_is_asked_for_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lost = AnsibleConnectionFailure("ssh: gone")
        follower = Follower(monkeypatch, [lost, {"unreachable": True}, {"sent": ["gpu01"]}])

        assert follower.plugin._start({"phase": "start"}) == {"sent": ["gpu01"]}
        assert follower.steps == ["start"] * 3

    def test_what_waits_too_long_is_given_up_and_its_node_is_skipped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waiting = [task(0, "RUNNING", 5, "gpu01"), task(1, "PENDING")]
        follower = Follower(monkeypatch, [*[waiting] * 7, [waiting[0], task(1, "CANCELLED")], [
            task(0, "COMPLETED", 600, "gpu01"), task(1, "CANCELLED"),
        ]])  # fmt: skip

        found = follower.follow(2)

        assert follower.steps == ["look"] * 7 + ["drop", "look"]
        left = ACTION.not_started(["gpu01", "gpu02"], ACTION.by_node(found), found)
        assert left == {"gpu02": "another job was quicker, or Slurm kept ours waiting; Slurm's reason: Resources"}

    def test_jobs_that_slurm_has_forgotten_have_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = Follower(monkeypatch, [[task(0, "RUNNING", 5, "gpu01")], []]).follow()

        assert found["12_0"]["state"] == ""

    def test_jobs_that_do_not_end_are_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        follower = Follower(monkeypatch, [*[[task(0, "RUNNING", 5, "gpu01")]] * 52, []])

        follower.follow()

        assert follower.steps[-1] == "stop"

    @pytest.mark.parametrize(
        ("tasks", "text"),
        [
            ([], "burn-in: 2 waiting"),
            ([task(0, "RUNNING", 67, "a"), task(1, "PENDING")], "burn-in: 1 node under load, 60 of 600 s; 1 waiting"),
            (
                [task(0, "RUNNING", 9, "a"), task(1, "FAILED", 9, "b")],
                "burn-in: 1 node under load, 0 of 600 s; 1 ended",
            ),
            ([task(0, "RUNNING", 999, "a"), task(1, "RUNNING", 5, "b")], "burn-in: 2 nodes under load, 600 of 600 s"),
            ([task(0, "COMPLETED", 600, "a"), task(1, "COMPLETED", 600, "b")], "burn-in: 2 ended"),
        ],
    )
    def test_it_says_how_far_it_is(self, tasks: list[dict[str, Any]], text: str) -> None:
        assert ACTION.progress({entry["id"]: entry for entry in tasks}, 2, 600.0) == text

    def test_a_line_of_the_plugin_is_shown_at_once(self) -> None:
        raw = {"event": "verbose", "stdout": ACTION.MARK + "burn-in: 1 ended", "event_data": {}}

        event = parse(raw)

        assert event == ModuleMessage("burn-in: 1 ended")
        assert Progress().add(event) == ["burn-in: 1 ended"]
        assert parse({**raw, "stdout": "anything else"}) is None


class TestCommandLine:
    def run(self, tmp_path: Path, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["-C", str(tmp_path), "validate", *arguments])

    @pytest.mark.parametrize("text", ["soon", "5s", "8d", "10 m", ""])
    def test_a_duration_that_makes_no_sense_is_refused(self, tmp_path: Path, text: str) -> None:
        assert self.run(tmp_path, "burnin", "--duration", text).exit_code == 2

    @pytest.mark.parametrize("option", ["--duration", "--qos", "--partition"])
    def test_its_options_are_refused_where_no_burn_in_is_wanted(self, tmp_path: Path, option: str) -> None:
        result = self.run(tmp_path, "smoke", option, "90s")

        assert result.exit_code == 2
        assert "is for the burn-in only" in result.output

    def test_the_jobs_have_a_name_that_a_person_can_cancel(self) -> None:
        burnin = Burnin(600, qos="low")

        assert burnin.cancel_command == f"scancel --name=deepopsctl-burnin-{burnin.token}-load"
        assert queue.session(burnin.token, "ubuntu").name("load") in burnin.cancel_command

    def test_a_burn_in_is_never_part_of_all(self) -> None:
        from deepopsctl.cli.commands.validate import SUITES, _wanted

        assert "burnin" not in _wanted(()) + _wanted(("all",)) + _wanted(("smoke",))
        assert _wanted(("burnin",)) == ("burnin",)
        assert _wanted(("burnin", "all"))[-1] == "burnin"
        assert "burnin" in SUITES

    def test_what_was_measured_is_kept_with_the_run(self, tmp_path: Path) -> None:
        measured = results.documents("gpu01", {"12_0": said(), "12_1": "nothing"})
        summary = RunSummary({}, (), (), (), (TaskResult("gpu01", "Fetch", {"burnin": measured}),))

        save_results(RunOutcome(RunDir(tmp_path), "validate", summary, 3.1, 0))

        (kept,) = json.loads((tmp_path / "burnin.json").read_text())["results"]
        assert (kept["node"], kept["asked_s"]) == ("gpu01", 600.0)

    def test_what_is_not_asked_for_stays_as_the_site_has_it(self) -> None:
        assert set(Burnin(600, qos="low").variables()) == {
            "validate_burnin_seconds", "validate_burnin_token", "validate_burnin_qos",
        }  # fmt: skip
