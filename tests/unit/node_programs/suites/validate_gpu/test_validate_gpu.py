"""The GPU suite on the submit host, from what jobs printed to checks; and what it asks Slurm for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, cast

import pytest

from deepopsctl.node_programs import shipping
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs._slurm_jobs import placement, probe, probe_jobs, session, slurm, snapshot
from deepopsctl.node_programs.suites.gpu_check import across
from deepopsctl.node_programs.suites.validate_gpu import gpucheck, inputs, isolation, measurement, multi_node, suite
from tests.data.slurm_samples import node, partition

RESULT = {"schema": 1, "node": "host-a", "gpus": [], "group": {}}
PRINTED = json.dumps({"schema": 1, "command": "gpucheck", "results": [RESULT]}, indent=1)


def settings(*names: str, **declared: Any) -> Any:
    cards = inputs.declared({name: {"cards": 2, **declared} for name in names})
    return inputs.Inputs("hpc", "ubuntu", list(names), cards, "packed", 120.0, 1.0)


def output(index: int | None, opened: Sequence[int] = (), uuids: list[str] | None = None, total: int = 2) -> Any:
    """What a job with that GPU tells; None is the job without."""
    env = {} if index is None else {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": str(index)}
    mine = {*opened, *([] if index is None else [index])}
    tried = {f"nvidia{number}": "ENXIO" if number in mine else "EPERM" for number in range(total)}
    return {"node": "gpu01", "gpus": tried, "env": env, "uuids": uuids}


def verdicts(reported: Any, confined: bool = True, sliced: bool = False) -> dict[str, dict[str, str]]:
    return {
        check["name"]: check
        for check in isolation.evaluate("gpu01", reported, len(reported.ones), confined=confined, sliced=sliced)
    }


class TestIsolation:
    @pytest.mark.parametrize(
        ("without", "ones", "name", "status", "text"),
        [
            ({}, [output(0), output(1)], "gpu-allocation", "pass", ""),
            ({}, [output(0), output(1)], "gpu-isolation", "pass", ""),
            ({}, [output(0), output(1)], "gpu-visible", "skip", ""),
            ({}, [output(0), output(1, opened=[0])], "gpu-isolation", "fail", "/dev/nvidia0"),
            ({"opened": [1]}, [output(0), output(1)], "gpu-isolation", "fail", "asked for no GPU"),
            ({}, [output(1), output(1)], "gpu-allocation", "fail", "jobs at the same time got the same GPU: 1"),
            # no GPU was named to the job
            ({}, [{**output(0), "env": {}}], "gpu-allocation", "fail", ""),
            ({"uuids": []}, [output(0, uuids=["a"]), output(1, uuids=["b"])], "gpu-visible", "pass", ""),
            ({"uuids": []}, [output(0, uuids=["a", "b"])], "gpu-visible", "fail", "job 1 sees 2 GPUs by NVML: a, b"),
            ({"uuids": []}, [output(0, uuids=["a"]), output(1, uuids=["a"])], "gpu-visible", "fail", ""),
            ({"uuids": ["a"]}, [output(0, uuids=["a"])], "gpu-visible", "fail", "the job without GPUs sees 1"),
        ],
    )
    def test_each_job_gets_a_gpu_of_its_own_and_sees_and_opens_no_other(
        self, without: Any, ones: list[Any], name: str, status: str, text: str
    ) -> None:
        check = verdicts(isolation.JobAnswers(output(None, **without), ones))[name]

        assert check["status"] == status
        assert text in check["message"]

    def test_what_cannot_be_tried_is_skipped_with_the_reason(self) -> None:
        reported = isolation.JobAnswers(output(None), [output(0, uuids=["GPU-a"])])

        loose, cut = verdicts(reported, confined=False), verdicts(reported, sliced=True)

        assert {loose[name]["status"] for name in ("gpu-isolation", "gpu-visible")} == {"skip"}
        assert "not confined" in loose["gpu-visible"]["message"]
        assert "MIG" in cut["gpu-isolation"]["message"]
        assert cut["gpu-allocation"]["status"] == "pass"
        trouble = isolation.JobAnswers({}, [], probe_jobs.Trouble("skip", "Slurm's reason: Resources"))
        assert {check["status"] for check in verdicts(trouble).values()} == {"skip"}

    @pytest.mark.parametrize(
        ("changes", "jobs"),
        [
            ({}, 2),
            ({"AllocTRES": "gres/gpu=1"}, 1),
            ({"CPUTot": "2", "ThreadsPerCore": "2"}, 1),
            ({"CPUAlloc": "8"}, 0),
        ],
    )
    def test_as_many_jobs_as_there_are_gpus_and_cores_free(self, changes: dict[str, str], jobs: int) -> None:
        assert isolation.room(node(**changes)) == jobs


class TestMeasuring:
    def test_the_job_asks_for_all_gpus_and_the_free_cpus(self) -> None:
        place = placement.Placement("gpu", ["gpu01"])

        assert measurement.options(place, [node(CPUAlloc="2", CPUEfctv="7")]) == [
            "--partition=gpu", "--nodelist=gpu01", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1",
            "--cpus-per-task=5", "--mem=8192M", "--gres=gpu:2",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({}, ""),
            ({"AllocTRES": "cpu=1,gres/gpu=1,gres/gpu:h100=1"}, "busy: other jobs have 1 of its 2 GPUs"),
            ({"AllocMem": "31500"}, "busy: jobs have left 500 MiB of its memory, measuring takes 1024"),
        ],
    )
    def test_a_node_that_others_use_is_not_measured(self, changes: dict[str, str], reason: str) -> None:
        assert measurement.obstacle(node(**changes)) == reason

    def test_its_time_limit_grows_with_the_gpus_and_stays_within_the_partitions(self) -> None:
        assert settings("gpu01").minutes(8, partition()) == 21
        assert settings("gpu01").minutes(8, partition(MaxTime="00:10:00")) == 10

    @pytest.mark.parametrize(
        ("out", "actual"),
        [
            # a prolog prints something as well
            ("Welcome {to} gpu01\n" + PRINTED + "\nbye\n", RESULT),
            *((text, None) for text in ("", "Killed", PRINTED[:40], '{\n "schema": 1,\n "results": []\n}')),
        ],
    )
    def test_the_result_is_found_and_nothing_else_is_one(self, out: str, actual: dict[str, Any] | None) -> None:
        assert gpucheck.result(out) == actual

    def test_gpucheck_runs_from_memory_and_leaves_nothing(self, tmp_path: Any) -> None:
        done = subprocess.run(
            [sys.executable, *gpucheck.argv(["--json"])[1:]],
            input=b64encode(shipping.archive("validate_gpu")) + b"\n",
            capture_output=True,
            check=False,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )

        actual = gpucheck.result(done.stdout.decode())
        assert actual is not None, done.stderr
        assert actual["schema"] == 1
        assert list(tmp_path.iterdir()) == []


class Queue:
    """Our session's seam: what every job prints, and what was asked for."""

    queue_timeout = 1.0

    def __init__(self, outcomes: dict[str, Any]) -> None:
        self.outcomes = outcomes
        self.jobs: list[str] = []

    def start(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Queue:
        del options, argv
        self.jobs.append(what)
        return self

    def srun(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Any:
        return self.start(what, options, argv).finish(what, self)

    def finish(self, what: str, _running: object) -> Any:
        kind = what.partition("-")[0].rstrip("0123456789")
        return self.outcomes.get(kind, session.Outcome("ended", 1, "", "lost"))

    def wait_for(self, *_options: object) -> bool:
        return True

    def send(self, text: str) -> None:
        assert text == "packed\n"

    def release(self) -> None:
        pass


def line(data: Any) -> Any:
    return session.Outcome("ended", 0, probe.MARK + json.dumps(data), "")


class Jobs:
    """What the suite takes its sessions from."""

    def __init__(self, queue: Queue) -> None:
        self.trials, self.closed = queue, 0

    def long(self, *_options: object) -> Queue:
        return self.trials

    def close(self) -> None:
        self.closed += 1


def run(monkeypatch: pytest.MonkeyPatch, jobs: Jobs, wanted: Any, **records: dict[str, str]) -> Any:
    config = {"TaskPlugin": "task/cgroup,task/affinity"}
    seen = snapshot.SlurmSnapshot(config, records, {"gpu": partition(Default="YES")}, {})
    monkeypatch.setattr(snapshot, "read_snapshot", lambda: seen)
    return suite.verify_gpus(wanted, cast(suite.Jobs, jobs))


class TestSuite:
    def test_the_result_has_the_nodes_name_in_slurm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reported = {"none": line(output(None)), "one": line(output(0)), "all": session.Outcome("ended", 5, PRINTED, "")}
        jobs = Jobs(Queue(reported))

        actual = run(monkeypatch, jobs, settings("gpu01"), gpu01=node(CPUTot="1"))

        assert jobs.trials.jobs == ["none-gpu01", "one0-gpu01", "all-gpu01"]
        assert [result["node"] for result in actual.results] == ["gpu01"]
        assert {check["suite"] for check in actual.checks} == {"gpu"}
        assert {check["name"]: check["status"] for check in actual.checks}["gpu-job"] == "pass"
        assert jobs.closed == 1

    @pytest.mark.parametrize(
        ("record", "status", "text"),
        [
            (node(State="IDLE+DRAIN", Reason="bad [root@x]"), "skip", "the node is idle+drain (bad [root@x])"),
            (node(State="DOWN*"), "skip", "the node is down*"),
            (node(AllocTRES="gres/gpu=2"), "skip", "busy: no GPU is free"),
            # one thread of a core
            (node(CPUTot="4", CPUAlloc="3", ThreadsPerCore="2"), "skip", "busy: no whole core is free"),
            (node(Gres="(null)"), "fail", "Slurm schedules no GPU here, cluster.yml declares 2"),
        ],
    )
    def test_a_node_that_can_run_no_job_is_named_and_gets_none(
        self, monkeypatch: pytest.MonkeyPatch, record: dict[str, str], status: str, text: str
    ) -> None:
        jobs = Jobs(Queue({}))

        actual = run(monkeypatch, jobs, settings("gpu01"), gpu01=record)

        assert jobs.trials.jobs == []
        assert {check["status"] for check in actual.checks} == {status}
        assert all(check["message"].startswith(text) for check in actual.checks)

    @pytest.mark.parametrize(
        ("outcome", "status", "text"),
        [
            (session.Outcome("waiting", -1, "", "", "Resources"), "skip", "did not start in time"),
            (session.Outcome("hung", -1, "", ""), "fail", "did not end in time"),
            (session.Outcome("ended", 1, "", "srun: error: launch failed"), "fail", "launch failed"),
            (session.Outcome("ended", 0, "hello", ""), "fail", "gpucheck printed no result: hello"),
        ],
    )
    def test_a_job_without_a_result_says_why(
        self, monkeypatch: pytest.MonkeyPatch, outcome: Any, status: str, text: str
    ) -> None:
        reported = {"none": line(output(None)), "one": line(output(0)), "all": outcome}

        actual = run(monkeypatch, Jobs(Queue(reported)), settings("gpu01"), gpu01=node(CPUTot="1"))

        (check,) = [check for check in actual.checks if check["name"] == "gpu-job"]
        assert check["status"] == status
        assert text in check["message"]
        assert actual.results == []

    def test_trouble_of_our_own_on_one_node_stays_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = Jobs(Queue({"none": line({"node": "gpu01"}), "one": line(output(0))}))
        records = {"gpu01": node(CPUTot="1"), "gpu02": node("gpu02", State="DOWN")}

        actual = run(monkeypatch, broken, settings("gpu01", "gpu02"), **records)

        assert {check["target"] for check in actual.checks} == {"gpu01", "gpu02", "hpc"}
        assert [check["status"] for check in actual.checks if check["target"] == "gpu01"] == ["fail"]

    def test_a_cluster_without_gpus_is_skipped_with_the_reason(self) -> None:
        (check,) = suite.verify_gpus(settings(), cast(suite.Jobs, None)).checks

        assert (check["name"], check["target"], check["status"]) == ("gpu-nodes", "hpc", "skip")
        assert "none of these nodes has GPUs" in check["message"]

    def test_a_controller_that_does_not_answer_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answer = Result("scontrol", 1, "", "Connection refused", 0.1)
        silent = snapshot.SlurmSnapshot({}, {}, {}, {"nodes": answer, "ping": answer})
        monkeypatch.setattr(snapshot, "read_snapshot", lambda: silent)

        (check,) = suite.verify_gpus(settings("gpu01"), cast(suite.Jobs, None)).checks

        assert check["status"] == "fail"
        assert "Connection refused" in check["message"]

    def test_nothing_is_started_once_nobody_waits_for_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(suite, "_SUBMITTING_S", 0)
        monkeypatch.setattr(session.Session, "close", lambda _self: [])
        jobs = suite.Jobs("abc", settings("gpu01"))
        jobs.abandon()

        with pytest.raises(suite.StoppedError):
            jobs.long(2, partition()).start("all-gpu01", [], ["true"])


def answered(rank: int, status: str = "measured", **more: Any) -> str:
    return str(across.RESULT_MARK) + json.dumps({"rank": rank, "status": status, **more})


class Talking(Queue):
    """A job over nodes: its first node tells an id, and all of them get it."""

    run_timeout = 1.0

    def __init__(self, outcome: Any, reported: str = "ab12") -> None:
        super().__init__({"across": outcome})
        self.reported, self.sent, self.options = reported, [""], [""]

    def start(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Queue:
        self.options = [*options, *argv[4:]]
        return super().start(what, options, argv)

    def send(self, text: str, *, more: bool = False) -> None:
        self.sent += [text, str(more)]

    def text(self, _name: str) -> str:
        return f"Welcome\n{across.ID_MARK}{self.reported}\n"


class TestBetweenNodes:
    @pytest.fixture(autouse=True)
    def no_scontrol(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(slurm, "ask", lambda _argv: Result("scontrol", 0, "gpu[01-02]\n", "", 0.1))

    def measure(self, out: str, **more: Any) -> tuple[dict[str, Any], Talking]:
        job = Talking(session.Outcome(**{"state": "ended", "rc": 0, "out": out, "err": "", **more}))
        nodes = {name: node(name, CPUAlloc=cpus) for name, cpus in (("gpu01", "0"), ("gpu02", "3"))}
        wanted = settings("gpu01", "gpu02")._replace(nccl="/lib/nccl")
        actual = multi_node.measure(cast(session.Session, job), wanted, placement.Placement("gpu", list(nodes)), nodes)
        return actual, job

    def test_the_first_nodes_id_reaches_all_of_them_and_its_result_counts(self) -> None:
        points = [{"bytes": 4, "gb_s": 1.5}]

        actual, job = self.measure("\n".join([answered(1), "noise", answered(0, ranks=4, all_reduce=points)]))

        assert actual == {"nodes": "gpu[01-02]", "status": "measured", "rank": 0, "ranks": 4, "all_reduce": points}
        assert job.sent == ["", "packed\n", "True", "ab12\n", "False"]
        assert {"--nodes=2", "--gres=gpu:2", "--cpus-per-task=5", "--across=2", "--nccl=/lib/nccl"} <= set(job.options)

    @pytest.mark.parametrize(
        ("out", "more", "status", "text"),
        [
            (answered(0) + "\n" + answered(1, "wrong", message="rank 3"), {}, "wrong", "rank 3"),
            (answered(0, "skip", message="no libcuda"), {}, "skip", "no libcuda"),
            (answered(0), {}, "error", "1 of 2 nodes answered"),
            ("", {"rc": 1, "err": "srun: error: launch failed"}, "error", "launch failed"),
            ("", {"rc": -1, "state": "waiting", "reason": "Resources"}, "skip", "Resources"),
        ],
    )
    def test_anything_less_than_all_nodes_is_reported(
        self, out: str, more: dict[str, Any], status: str, text: str
    ) -> None:
        actual, _ = self.measure(out, **more)

        assert actual["status"] == status
        assert text in actual["message"]

    def test_the_most_nodes_that_are_identical_go_together(self) -> None:
        nodes = {name: node(name, Gres=f"gpu:{count}") for name, count in (("a", 2), ("b", 8), ("c", 8), ("d", 8))}
        partitions = {"a": "p", "b": "p", "c": "p", "d": "q"}

        assert multi_node.choose(partitions, nodes) == placement.Placement("p", ["b", "c"])
        assert multi_node.choose({"a": "p", "b": "p"}, nodes) is None
        assert multi_node.choose({}, nodes) is None

    def test_without_nccl_or_without_two_measured_nodes_it_is_skipped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        records = {name: node(name, State="DOWN") for name in ("gpu01", "gpu02")}
        reported = []
        for wanted in (settings("gpu01", "gpu02"), settings("gpu01", "gpu02")._replace(nccl="/lib/nccl")):
            actual = run(monkeypatch, Jobs(Queue({})), wanted, **records)
            reported += [check["message"] for check in actual.checks if check["name"] == "gpu-all-reduce-nodes"]

        assert reported == [multi_node.NO_NCCL, multi_node.TOO_FEW]
