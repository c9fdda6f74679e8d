"""Where probes run, what starts them, and what reads their answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs import shipping
from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs._slurm_jobs import placement, probe, probe_jobs, session
from tests.data.slurm_samples import node, partition


def test_threads_that_ask_for_the_packed_probe_at_once_all_get_it(tmp_path: Path) -> None:
    """On a node the programs are in an archive, where `inspect` looks for them in ways of its own."""
    packed = tmp_path / "packed.zip"
    packed.write_bytes(shipping.archive("burn_in"))
    asking = (
        "import linecache, sys; from concurrent.futures import ThreadPoolExecutor\n"
        "from deepopsctl.node_programs._slurm_jobs import probe_jobs\n"
        "assert 'packed.zip' in probe_jobs.__file__\n"
        "sys.setswitchinterval(1e-6)\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    for _ in range(300):\n"
        "        linecache.clearcache()  # what is asked for first is what goes wrong\n"
        "        list(threads.map(lambda _: probe_jobs.argv('x'), range(8)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(packed)}
    subprocess.run([sys.executable, "-c", asking], env=environment, check=True, timeout=60, cwd=tmp_path)


def test_a_session_s_jobs_run_in_its_reservation_and_not_by_the_user_s_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "other")

    kept = session.Session("smoke", "abc", "ann", reservation="trial").environment(SLURM_JOB_NAME="x")

    assert kept["SBATCH_RESERVATION"] == kept["SLURM_RESERVATION"] == kept["SALLOC_RESERVATION"] == "trial"
    assert kept["SLURM_JOB_NAME"] == "x"
    assert "SBATCH_PARTITION" not in kept


class TestPlacement:
    @pytest.mark.parametrize(
        ("changes", "part", "reason"),
        [
            ({}, {}, ""),
            ({"CPUAlloc": "7"}, {}, ""),
            ({"CPUAlloc": "8"}, {}, "busy: other jobs have all 8 CPUs"),
            ({"AllocMem": "31950"}, {}, "busy: other jobs have all its memory"),
            ({"CPUAlloc": "1"}, {"OverSubscribe": "EXCLUSIVE"}, "busy: another job has the whole node"),
            ({"State": "DOWN*"}, {}, "the node is down*"),
            ({}, {"State": "DOWN"}, "no partition that is up has this node"),
        ],
    )
    def test_only_nodes_with_room_get_a_job(self, changes: dict[str, str], part: dict[str, str], reason: str) -> None:
        assert placement.obstacle(node(**changes), {"gpu": partition(**part)}) == reason

    def test_the_default_partition_is_preferred_and_others_serve_their_own_nodes(self) -> None:
        nodes = {"a": node("a", Partitions="all,gpu"), "b": node("b", Partitions="all")}
        parts = {"all": partition("all"), "gpu": partition("gpu", Default="YES")}

        result = placement.place(["a", "b"], nodes, parts)

        assert [(place.partition, place.nodes) for place in result] == [("gpu", ["a"]), ("all", ["b"])]
        # a job is not larger than its partition allows
        many = {f"n{number}": node(f"n{number}") for number in range(5)}
        result = placement.place(list(many), many, {"gpu": partition(MaxNodes="2")})
        assert [len(place.nodes) for place in result] == [2, 2, 1]


class TestAnswers:
    def test_lines_of_the_probe_are_found_among_anything_else(self) -> None:
        out = 'Welcome!\nmotd DEEPOPS {"node": "gpu01", "held": 10}\nDEEPOPS {broken\nDEEPOPS {"node": "gpu01"}\n'

        assert probe_jobs.parse(out) == {"gpu01": [{"node": "gpu01", "held": 10}, {"node": "gpu01"}]}

    @pytest.mark.parametrize(
        ("state", "reason", "status"),
        [
            ("waiting", "(Resources)", "skip"),
            ("waiting", "QOSMaxCpuPerUserLimit", "skip"),
            ("waiting", "PartitionTimeLimit", "fail"),
            ("hung", "", "fail"),
            ("ended", "", "fail"),
        ],
    )
    def test_waiting_for_resources_is_no_failure_anything_else_is(self, state: str, reason: str, status: str) -> None:
        assert probe_jobs.trouble(session.Outcome(state, 1, "", "srun: error: x", reason)).status == status


class TestProbe:
    """The probe on this machine: it needs nothing but Python."""

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        argv = [sys.executable, *probe_jobs.argv(*arguments)[1:]]
        answer = command.run(argv, 300)
        assert answer.ok, answer.errors
        return [json.loads(line[len(probe.MARK) :]) for line in answer.output.splitlines()]

    def test_it_tells_cpus_gpus_and_the_credential(self) -> None:
        message = self.run("answer", "")[0]

        assert message["host"] == os.uname().nodename
        assert message["cpus"]["own"] == sorted(os.sched_getaffinity(0))
        assert set(message) >= {"cpus", "gpus", "munge", "node", "job", "user"}
        assert probe.cpu_list("0-2,5\n") == [0, 1, 2, 5]

    def test_it_takes_memory_step_by_step(self) -> None:
        message = self.run("memory", "30")

        assert [line["held"] for line in message] == [0, 10, 20, 30]
        assert message[-1]["end"] is True
        assert message[-1]["resident"] >= 30


class TestRunning:
    """A started tool, tried with a shell."""

    def start(self, script: str) -> Any:
        return session.Running(["sh", "-c", script], dict(os.environ))

    def test_it_waits_for_lines_holds_and_lets_go(self) -> None:
        running = self.start("echo DEEPOPS 1; cat; echo over")

        assert running.wait_for("DEEPOPS", 1, 120)
        assert running.ended(0.2) is None
        running.release()
        assert running.ended(120) == 0
        assert running.text("out") == "DEEPOPS 1\nover\n"
        # nothing waits for a tool that has ended
        assert not self.start("exit 3").wait_for("DEEPOPS", 1, 3600)

    def test_a_line_counts_that_is_read_after_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read = session.Running._read

        def late(running: Any, *arguments: Any) -> None:
            running._process.wait()
            time.sleep(0.3)
            read(running, *arguments)

        monkeypatch.setattr(session.Running, "_read", late)

        running = self.start("echo DEEPOPS 1")

        running._process.wait(120)
        assert running.wait_for("DEEPOPS", 1, 120)

    def test_it_is_stopped_even_when_it_does_not_want_to(self) -> None:
        running = self.start("trap '' TERM; while :; do sleep 0.1; done")
        running.stop()

        assert running.ended(120) is not None
