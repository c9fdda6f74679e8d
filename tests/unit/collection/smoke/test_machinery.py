"""Where probes run, what starts them, and what reads their answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.data.slurm_samples import node, partition
from tests.support.node_modules import load

probe_jobs = load("deepops_smoke.probe_jobs")
command = load("deepops_smoke.command")
job_placement = load("deepops_smoke.job_placement")
probe = load("deepops_smoke.probe")
session = load("deepops_smoke.session")
terminal = load("deepops_smoke.terminal")


def test_threads_that_ask_for_the_packed_probe_at_once_all_get_it(tmp_path: Path) -> None:
    """On a node the modules are in Ansible's archive, where `inspect` looks for them in ways of its own."""
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in Path(probe_jobs.__file__).parent.glob("*.py"):
            packed.write(path, f"deepops_smoke/{path.name}")
    asking = (
        "import linecache, sys; from concurrent.futures import ThreadPoolExecutor\n"
        "from deepops_smoke import probe_jobs\n"
        "sys.setswitchinterval(1e-6)\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    for _ in range(300):\n"
        "        linecache.clearcache()  # what is asked for first is what goes wrong\n"
        "        list(threads.map(lambda _: probe_jobs.argv('x'), range(8)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    subprocess.run([sys.executable, "-c", asking], env=environment, check=True, timeout=60)


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
        assert job_placement.obstacle(node(**changes), {"gpu": partition(**part)}) == reason

    def test_free_gpus_are_those_no_job_holds(self) -> None:
        assert job_placement.free_gpus(node(AllocTRES="cpu=1,mem=100M,gres/gpu=1,gres/gpu:h100=1")) == 1

    def test_the_default_partition_is_preferred_and_others_serve_their_own_nodes(self) -> None:
        nodes = {"a": node("a", Partitions="all,gpu"), "b": node("b", Partitions="all")}
        parts = {"all": partition("all"), "gpu": partition("gpu", Default="YES")}

        found = job_placement.place(["a", "b"], nodes, parts)

        assert [(place.partition, place.nodes) for place in found] == [("gpu", ["a"]), ("all", ["b"])]

    def test_a_job_is_no_larger_than_its_partition_allows(self) -> None:
        nodes = {f"n{number}": node(f"n{number}") for number in range(5)}

        found = job_placement.place(list(nodes), nodes, {"gpu": partition(MaxNodes="2")})

        assert [len(place.nodes) for place in found] == [2, 2, 1]


class TestAnswers:
    def test_lines_of_the_probe_are_found_among_anything_else(self) -> None:
        out = 'Welcome!\nmotd DEEPOPS {"node": "gpu01", "held": 10}\nDEEPOPS {broken\nDEEPOPS {"node": "gpu01"}\n'

        assert probe_jobs.parse(out) == {"gpu01": [{"node": "gpu01", "held": 10}, {"node": "gpu01"}]}

    @pytest.mark.parametrize(
        ("state", "reason", "status"),
        [
            ("waiting", "(Resources)", "skip"),
            ("waiting", "Priority", "skip"),
            ("waiting", "QOSMaxCpuPerUserLimit", "skip"),
            ("waiting", "PartitionTimeLimit", "fail"),
            ("hung", "", "fail"),
            ("ended", "", "fail"),
        ],
    )
    def test_waiting_for_resources_is_no_failure_anything_else_is(self, state: str, reason: str, status: str) -> None:
        assert probe_jobs.trouble(session.Outcome(state, 1, "", "srun: error: x", reason)).status == status

    def test_the_probe_reaches_the_node_as_plain_text(self) -> None:
        argv = probe_jobs.argv("answer", "")

        assert "from ." not in argv[2]
        assert len(argv[2]) < 20_000


class TestProbe:
    """The probe on this machine: it needs nothing but Python."""

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        argv = [sys.executable, *probe_jobs.argv(*arguments)[1:]]
        answer = command.run(argv, timeout=300)
        assert answer.rc == 0, answer.err
        return [json.loads(line[len(probe.MARK) :]) for line in answer.out.splitlines()]

    def test_it_tells_cpus_gpus_and_the_credential(self) -> None:
        said = self.run("answer", "")[0]

        assert said["host"] == os.uname().nodename
        assert said["cpus"]["own"] == sorted(os.sched_getaffinity(0))
        assert set(said) >= {"cpus", "gpus", "munge", "node", "job", "user"}

    def test_it_takes_memory_step_by_step(self) -> None:
        said = self.run("memory", "30")

        assert [line["held"] for line in said] == [0, 10, 20, 30]
        assert said[-1]["end"] is True
        assert said[-1]["resident"] >= 30

    def test_a_list_of_cpus_is_read(self) -> None:
        assert probe.cpu_list("0-2,5\n") == [0, 1, 2, 5]


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

    def test_it_does_not_wait_for_a_tool_that_has_ended(self) -> None:
        # the test itself has less time than this
        assert not self.start("exit 3").wait_for("DEEPOPS", 1, 3600)

    def test_it_is_stopped_even_when_it_does_not_want_to(self) -> None:
        running = self.start("trap '' TERM; while :; do sleep 0.1; done")
        running.stop()

        assert running.ended(120) is not None


class TestTerminal:
    ENVIRONMENT = os.environ | {"PS1": "$ "}

    def talk(self, argv: list[str], typed: str, answer: str, timeout: float = 120) -> Any:
        return terminal.type_into(argv, typed, answer, dict(self.ENVIRONMENT), timeout)

    def test_a_command_is_typed_into_a_real_terminal(self) -> None:
        talk = self.talk(["bash", "--norc", "-i"], 'echo "deepops $((6*7)) here"; tty; exit\n', "deepops 42 ")

        assert "deepops 42 here" in talk.text
        assert "/dev/" in talk.text
        assert talk.rc == 0

    def test_what_is_typed_is_not_taken_for_the_answer(self) -> None:
        talk = self.talk(["sh", "-c", "printf '$ '; cat"], 'echo "deepops $((6*7))"\n', "deepops 42", timeout=2)

        assert "deepops 42" not in talk.text

    def test_a_shell_that_ends_at_once_is_no_hang(self) -> None:
        talk = self.talk(["sh", "-c", "echo no; exit 1"], "x\n", "never")

        assert talk.rc == 1
        assert "no" in talk.text


class TestCommand:
    def test_a_tool_that_is_missing_or_slow_is_an_answer_too(self) -> None:
        assert command.run(["no-such-tool-here"]).rc == 127
        slow = command.run(["sleep", "5"], timeout=0.2)
        assert slow.rc == 124
        assert "no answer" in slow.error_text

    def test_settings_that_steer_slurms_tools_do_not_leak_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SBATCH_PARTITION", "other")
        monkeypatch.setenv("SQUEUE_FORMAT", "%i")
        monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")

        kept = command.clean_environment()

        assert "SBATCH_PARTITION" not in kept
        assert "SQUEUE_FORMAT" not in kept
        assert kept["SLURM_CONF"] == "/etc/slurm/slurm.conf"
