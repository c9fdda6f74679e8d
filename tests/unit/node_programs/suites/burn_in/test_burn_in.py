"""The burn-in around the load: which nodes, which jobs, what becomes of them, and how they are watched."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs import shipping
from deepopsctl.node_programs._shared import archive, command
from deepopsctl.node_programs._shared.command import TIMED_OUT, Result
from deepopsctl.node_programs._slurm_jobs import slurm, snapshot
from deepopsctl.node_programs.suites.burn_in import follow, jobs, main, plan, results, script
from deepopsctl.node_programs.suites.gpu_check.burn.cli import document
from deepopsctl.node_programs.suites.gpu_check.burn.evaluation import evaluate_burn
from tests.data.burn_samples import burn_result
from tests.data.slurm_samples import node, partition

TEN_MINUTES = plan.LoadRequest(600.0, 0.7)
PARTS = {"gpu": partition("gpu", Default="YES"), "long": partition("long", MaxTime="2-00:00:00")}


class TestPlan:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"State": "IDLE"}, ""),
            ({"State": "IDLE+PLANNED"}, ""),
            ({"State": "MIXED", "CPUAlloc": "1"}, "busy: jobs run here (mixed)"),
            ({"State": "IDLE+COMPLETING"}, "busy: jobs run here (idle+completing)"),
            ({"State": "IDLE+DRAIN", "Reason": "bad DIMM"}, "the node is idle+drain (bad DIMM)"),
            ({"State": "IDLE+RESERVED"}, "the node is reserved"),
            ({"State": "IDLE+POWERED_DOWN"}, "the node is idle+powered_down"),
            ({"Partitions": ""}, "no partition that is up has this node"),
        ],
    )
    def test_only_nodes_that_are_idle_now_are_loaded(self, changes: dict[str, str], reason: str) -> None:
        actual = plan.plan(["gpu01"], TEN_MINUTES, {"gpu01": node(**changes)}, PARTS, 1000)

        assert actual.left.get("gpu01", "") == reason
        assert bool(actual.batches) is not bool(reason)
        # one that is reserved is loaded within the reservation
        reserved = TEN_MINUTES._replace(reservation="trial")
        within = plan.plan(["gpu01"], reserved, {"gpu01": node(**changes)}, PARTS, 1000)
        assert within.left.get("gpu01", "") == ("" if "RESERVED" in changes.get("State", "") else reason)

    def test_there_is_one_array_for_each_partition_and_number_of_gpus(self) -> None:
        nodes = {
            "gpu01": node("gpu01"), "gpu02": node("gpu02"), "cpu01": node("cpu01", Gres="(null)"),
            "old01": node("old01", Partitions="long"),
        }  # fmt: skip

        actual = plan.plan([*nodes, "new01"], TEN_MINUTES, nodes, PARTS, 1000)

        assert [tuple(batch) for batch in actual.batches] == [
            ("gpu", 2, ["gpu01", "gpu02"]), ("gpu", 0, ["cpu01"]), ("long", 2, ["old01"]),
        ]  # fmt: skip
        assert actual.left == {"new01": "Slurm does not know this node"}
        # an array is not larger than Slurm allows
        many = {f"n{number}": node(f"n{number}") for number in range(5)}
        actual = plan.plan(list(many), TEN_MINUTES, many, PARTS, plan.most_tasks({"MaxArraySize": "2"}))
        assert [len(batch.nodes) for batch in actual.batches] == [2, 2, 1]

    def test_a_partition_that_is_asked_for_decides(self) -> None:
        nodes = {"a": node("a", Partitions="gpu,long"), "b": node("b", Partitions="gpu")}

        actual = plan.plan(["a", "b"], TEN_MINUTES._replace(partition="long"), nodes, PARTS, 1000)

        assert [(batch.partition, batch.nodes) for batch in actual.batches] == [("long", ["a"])]
        assert actual.left == {"b": "the node is not in partition long"}

    def test_a_load_longer_than_the_partition_allows_is_reported_before_slurm_refuses_it(self) -> None:
        parts = {"gpu": partition(MaxTime="60")}

        actual = plan.plan(["gpu01"], plan.LoadRequest(7200.0, 0.7), {"gpu01": node()}, parts, 9)

        assert "partition gpu allows jobs of 01:00:00, this takes 02:04:00" in actual.left["gpu01"]

    def test_the_jobs_take_whole_nodes_behind_everybody_else_and_only_once(self) -> None:
        nodes = {name: node(name) for name in ("gpu01", "gpu02", "gpu03")}

        actual = plan.options(plan.Batch("gpu", 2, ["gpu01", "gpu03"]), TEN_MINUTES._replace(qos="low"), nodes, "/x")

        assert {"--array=0-1", "--exclude=gpu02", "--exclusive", "--mem=0", "--no-requeue", "--qos=low"} <= set(actual)
        assert {"--nice=1000000", "--gres=gpu:2"} <= set(actual)


class TestQueue:
    def test_every_task_is_read_with_the_time_it_has_used(self) -> None:
        actual = jobs.tasks("12_0|gpu01|RUNNING|None|10:05\n12_1||PENDING|Resources|0:00\nslurm_load_jobs error\n")

        assert actual == [
            jobs.Task("12_0", "gpu01", "RUNNING", "None", 605), jobs.Task("12_1", "", "PENDING", "Resources", 0),
        ]  # fmt: skip

    def test_what_was_submitted_before_its_answer_was_lost_is_found_again(self) -> None:
        sent = plan.Plan([plan.Batch("gpu", 2, ["gpu03"])], {"gpu01": "jobs run here", "gpu02": "the node is down"})

        actual = jobs.resumed(sent, [jobs.Task("12_0", "gpu01", "RUNNING", "None", 3)])

        assert actual.left == {"gpu02": "the node is down"}
        assert [batch.nodes for batch in actual.batches] == [["gpu01"], ["gpu03"]]

    @pytest.mark.parametrize(
        ("answer", "sent", "left"),
        [
            (Result("sbatch", 0, "12\n", "", 0.1), [["gpu01"]], {}),
            (Result("sbatch", TIMED_OUT, "", "no answer within 15 s", 15.0), [["gpu01"]], {}),
            (Result("sbatch", 1, "", "Invalid qos", 0.1), [], {"gpu01": "Slurm refused the job: Invalid qos"}),
        ],
    )
    def test_what_slurm_may_have_taken_is_followed(
        self, monkeypatch: pytest.MonkeyPatch, answer: Result, sent: list[list[str]], left: dict[str, str]
    ) -> None:
        queue = Queue(monkeypatch)
        cluster = snapshot.SlurmSnapshot({}, {"gpu01": node()}, PARTS, {})
        monkeypatch.setattr(snapshot, "read_snapshot", lambda: cluster)
        monkeypatch.setattr(archive, "own", lambda: "")
        monkeypatch.setattr(command, "run", lambda *_arguments: answer)
        own = jobs.session("abc", "alice")

        actual = jobs.submit(own, ["gpu01"], TEN_MINUTES)

        assert ([batch.nodes for batch in actual.batches], actual.left) == (sent, left)
        # an earlier call may have submitted them
        queue.tasks = "no answer within 15 s"
        with pytest.raises(SystemExit, match="scancel --name=deepopsctl-burnin-abc-load"):
            jobs.submit(own, ["gpu01"], TEN_MINUTES)

    def test_slurm_s_times_are_seconds(self) -> None:
        lines = (f"7|gpu01|RUNNING|None|{text}" for text in ("0:07", "2-01:00:00", "INVALID"))
        assert [task[-1] for task in jobs.tasks("\n".join(lines))] == [7, 176_400, 0]


class TestProgram:
    def test_the_batch_script_carries_gpucheck_and_runs_it(self, tmp_path: Path) -> None:
        file = tmp_path / "slurm_script"
        values = script.arguments(1.0, 0.002, 0)
        file.write_text(script.script(b64encode(shipping.archive("burn_in")).decode(), values))

        done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=600, cwd=tmp_path)

        actual = script.document("prolog says hello\n" + done.stdout + "epilog\n")
        assert actual, done.stdout + done.stderr
        # cores and memory of this machine were loaded and verified
        checks = {check["name"]: check["status"] for check in actual["checks"]}
        assert [checks[name] for name in ("burn-completed", "burn-cpu", "burn-memory")] == ["pass"] * 3
        assert "burn-gpu" not in checks
        # an output that was cut off has none
        assert script.document('{"schema": 1, "command": "gpucheck-burn", "ok"') is None
        assert actual["result"]["asked_s"] == 1.0
        assert list(tmp_path.iterdir()) == [file]
        assert "--without-gpus" in values
        assert "--expect=8" in script.arguments(600, 0.7, 8)


def output(**changes: Any) -> str:
    """What a job wrote whose node calls itself otherwise than Slurm does."""
    actual = burn_result(node="ip-10-0-0-1", **changes)
    return "30 of 600 s\n" + json.dumps(document(actual, evaluate_burn(actual, 2))) + "\n"


class TestResults:
    def test_gpucheck_s_checks_come_under_slurm_s_name_of_the_node(self) -> None:
        job = results.Job("12_0", "COMPLETED", 603)

        actual = results.evaluate("gpu01", 600.0, [job], {"12_0": output()}, {})

        assert {check["target"] for check in actual} == {"gpu01", "gpu01/0", "gpu01/1"}
        assert {check["status"] for check in actual} == {"pass"}
        # of two jobs on a node the worse counts
        jobs = [job, results.Job("12_1", "NODE_FAIL", 9)]
        assert results.evaluate("gpu01", 600.0, jobs, {"12_0": output()}, {})[0]["status"] == "fail"

    @pytest.mark.parametrize(
        ("written", "ended", "log", "status"),
        [
            ({"obstacle": "closed"}, "", {"lines": ["NVRM: Xid 79"]}, "fail"),
            ({"obstacle": "closed"}, "", {"lines": []}, "pass"),
            ({"obstacle": "closed"}, "cancelled", {"lines": []}, "skip"),
            ({"obstacle": "closed"}, "", {"obstacle": "no sudo"}, "skip"),
            # the load's own reading is of exactly its time
            ({"lines": []}, "", {"lines": ["NVRM: Xid 79"]}, "pass"),
        ],
    )
    def test_the_kernel_log_that_the_load_could_not_read_is_read_by_root(
        self, written: dict[str, Any], ended: str, log: dict[str, Any], status: str
    ) -> None:
        out = output(kernel_log=written, ended=ended)

        actual = results.evaluate("gpu01", 600.0, [results.Job("12_0", "COMPLETED", 603)], {"12_0": out}, log)

        (check,) = [check for check in actual if check["name"] == "burn-kernel-log"]
        assert (check["status"], check["target"], check["suite"]) == (status, "gpu01", "burnin")

    def test_what_the_kernel_said_stands_next_to_a_load_that_was_lost(self) -> None:
        job, log = results.Job("12_0", "FAILED", 40), {"lines": ["NVRM: Xid 79"]}

        actual = results.evaluate("gpu01", 600.0, [job], {"12_0": ""}, log)

        assert [(check["name"], check["status"]) for check in actual] == [
            ("burn-completed", "fail"), ("burn-kernel-log", "fail"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("state", "status", "says"),
        [
            ("CANCELLED", "skip", "ended after 40 of 600 s: cancelled in Slurm"),
            ("PREEMPTED", "skip", "ended after 40 of 600 s: preempted in Slurm"),
            ("NODE_FAIL", "fail", "the node went down under load"),
            ("OUT_OF_MEMORY", "fail", "want of memory"),
            ("TIMEOUT", "fail", "the load hung"),
            ("FAILED", "fail", "job 12_0 left no result (Slurm: failed): ModuleNotFoundError"),
            ("", "fail", "left no result (Slurm: not seen)"),
        ],
    )
    def test_a_job_without_a_result_never_passes(self, state: str, status: str, says: str) -> None:
        job = results.Job("12_0", state, 40)

        (check,) = results.evaluate("gpu01", 600.0, [job], {"12_0": "ModuleNotFoundError: x"}, {})

        assert (check["status"], check["suite"], check["name"]) == (status, "burnin", "burn-completed")
        assert says in check["message"]


def task(number: int, state: str, used_s: int = 0, at: str = "") -> dict[str, Any]:
    (actual,) = jobs.as_dicts([jobs.Task(f"12_{number}", at, state, "Resources", used_s)])
    return dict(actual)


class Queue:
    """Slurm's queue and the clock, as successive calls of the program see them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 600.0) -> None:
        self.commands: list[list[str]] = []
        self.tasks: list[dict[str, Any]] | str = []
        self.clock = 1_000.0
        self.request = {
            "phase": "load", "token": "abc", "tested": ["gpu01", "gpu02"], "seconds": seconds, "memory_share": 0.7,
            "queue_timeout": 120, "partition": "", "qos": "", "reservation": "",
        }  # fmt: skip
        monkeypatch.setattr(slurm, "ask", self._ask)
        monkeypatch.setattr(time, "time", lambda: self.clock)
        self.state = {"began": 1_000.0, "sent": ["gpu01", "gpu02"], "left": {}, "seen": {}, "dropped": False}

    def _ask(self, argv: list[str], **_more: object) -> Result:
        self.commands.append(argv)
        if isinstance(self.tasks, str):
            return Result("squeue", 1, "", self.tasks, 0.1)
        rows = ("{id}|{node}|{state}|{reason}|0:{used_s:02d}".format(**task) for task in self.tasks)
        return Result("squeue", 0, "\n".join(rows), "", 0.1)

    def call(self, elapsed: float, tasks: list[dict[str, Any]] | str) -> dict[str, Any]:
        """One call of the program, as node_program repeats it."""
        self.clock, self.tasks = 1_000.0 + elapsed, tasks
        result = main.main({**self.request, "state": json.loads(json.dumps(self.state))})
        if "again" in result:
            self.state = result["again"]["input"]["state"]
        return result


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(monkeypatch)


class TestFollowing:
    def test_it_is_called_again_until_its_jobs_have_ended(self, queue: Queue) -> None:
        first = queue.call(0.0, [])
        second = queue.call(20.0, [task(0, "RUNNING", 5, "gpu01"), task(1, "RUNNING", 5, "gpu02")])
        last = queue.call(640.0, [task(0, "COMPLETED", 40, "gpu01"), task(1, "NODE_FAIL", 9, "gpu02")])

        assert (first["again"]["progress"], first["again"]["after_s"]) == ("burn-in: 2 waiting", 20.0)
        # where the results are if the submit host stays away
        assert "deepopsctl-burnin-abc-*.out" in first["again"]["lost"]
        assert second["again"]["progress"] == "burn-in: 2 nodes under load, 0 of 600 s"
        assert last["jobs_by_node"] == {
            "gpu01": [{"id": "12_0", "state": "COMPLETED", "used_s": 40}],
            "gpu02": [{"id": "12_1", "state": "NODE_FAIL", "used_s": 9}],
        }
        assert (last["token"], last["seconds"], last["deepops"]) == ("abc", 600.0, {"checks": []})

    def test_a_queue_that_cannot_be_asked_is_a_failure_that_is_tried_again(self, queue: Queue) -> None:
        queue.call(20.0, [task(0, "RUNNING", 5, "gpu01")])

        with pytest.raises(SystemExit, match="slurmctld is away"):
            queue.call(40.0, "slurmctld is away")

    def test_what_waits_too_long_is_given_up_once_and_its_node_is_skipped(self, queue: Queue) -> None:
        waiting = [task(0, "RUNNING", 5, "gpu01"), task(1, "PENDING")]
        queue.call(20.0, waiting)
        queue.call(121.0, waiting)
        queue.call(141.0, waiting)

        last = queue.call(640.0, [task(0, "COMPLETED", 40, "gpu01"), task(1, "CANCELLED")])

        assert sum("--state=PENDING" in argv for argv in queue.commands) == 1
        (check,) = last["deepops"]["checks"]
        assert (check["target"], check["status"]) == ("gpu02", "skip")
        text = "another job was quicker, or Slurm kept this one waiting; Slurm's reason: Resources"
        assert check["message"] == text

    def test_jobs_that_slurm_has_forgotten_have_ended(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        queue.call(20.0, [task(0, "RUNNING", 5, "gpu01")])

        last = queue.call(640.0, [])

        assert last["jobs_by_node"] == {"gpu01": [{"id": "12_0", "state": "", "used_s": 5}]}
        # those that the queue has never known
        assert Queue(monkeypatch).call(121.0, [])["jobs_by_node"] == {}

    @pytest.mark.parametrize(
        ("tasks", "why"),
        [("slurmctld is away", "slurmctld is away"), ([task(0, "COMPLETING")], "still there: 12_0 (COMPLETING)")],
    )
    def test_a_burn_in_that_is_stopped_does_not_pass_over_jobs_that_stay(
        self, queue: Queue, monkeypatch: pytest.MonkeyPatch, tasks: list[dict[str, Any]] | str, why: str
    ) -> None:
        monkeypatch.setattr(jobs, "_LEAVING_S", -1.0)
        queue.tasks = tasks

        assert main.main({"phase": "stop", "token": "abc"}) == {"left": why}

    def test_jobs_that_do_not_end_are_ended(self, queue: Queue) -> None:
        queue.call(20.0, [task(0, "RUNNING", 5, "gpu01")])

        queue.call(1_021.0, [])

        assert ["scancel", "--user=" + getpass.getuser(), "--name=deepopsctl-burnin-abc-load"] in queue.commands

    @pytest.mark.parametrize(
        ("tasks", "text"),
        [
            ([task(0, "RUNNING", 67, "a"), task(1, "PENDING")], "burn-in: 1 node under load, 60 of 600 s; 1 waiting"),
            ([task(0, "RUNNING", 999, "a"), task(1, "RUNNING", 5, "b")], "burn-in: 2 nodes under load, 600 of 600 s"),
            ([task(0, "COMPLETED", 600, "a"), task(1, "COMPLETED", 600, "b")], "burn-in: 2 ended"),
        ],
    )
    def test_it_says_how_far_it_is(self, tasks: list[dict[str, Any]], text: str) -> None:
        assert follow.progress({entry["id"]: entry for entry in tasks}, 2, 600.0) == text
