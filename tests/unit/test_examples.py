"""The jobs in examples/, run by bash as Slurm's batch shell does: they print what `validate environment` expects."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_environment import examples
from tests.support.cluster import wait_until
from tests.support.paths import ROOT

SCRIPTS = sorted((ROOT / "examples").glob("*.sh"))
PAGE = (ROOT / "docs/users/jobs.md").read_text(encoding="utf-8")
EXAMPLES = {example.script: example for example in examples.EXAMPLES}


def start(script: str, directory: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start an example in a directory, with variables that Slurm sets."""
    # not with -l: the profile of this machine is not a part of it
    return subprocess.Popen(
        ["bash", str(ROOT / "examples" / script), *arguments],
        cwd=directory,
        env={**os.environ, "SLURM_JOB_ID": "7", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output(script: str, directory: Path, *arguments: str, **variables: str) -> str:
    return start(script, directory, *arguments, **variables).communicate(timeout=120)[0]


def catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return bool(int(re.findall(r"^SigCgt:\s+(\w+)$", status, re.MULTILINE)[0], 16) >> (number - 1) & 1)


def test_every_example_has_a_check_and_a_line_in_the_page_for_users() -> None:
    of_chain = {"chain-first.sh", "chain-second.sh"}

    assert {path.name for path in SCRIPTS} == EXAMPLES.keys() | of_chain
    assert [path.name for path in SCRIPTS if f"`{path.name}`" not in PAGE and path.name not in of_chain] == []


def test_the_page_shows_examples_as_they_are() -> None:
    shown = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)

    assert len(shown) > 3
    assert set(shown) <= {path.read_text(encoding="utf-8") for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_job_starts_like_a_new_login_and_names_no_account(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert "--account" not in text
    assert subprocess.run(["bash", "-n", path], capture_output=True).stderr == b""
    if path.name != "chain.sh":
        assert text.startswith("#!/bin/bash -l\n# ")
        assert "#SBATCH --export=NONE\nunset SLURM_EXPORT_ENV\n" in text


def test_the_simplest_job_passes_its_check(tmp_path: Path) -> None:
    texts = {"serial-7.out": output("serial.sh", tmp_path)}

    assert EXAMPLES["serial.sh"].evaluate(texts, ["7"]) == ("500000500000", True)


def test_tasks_of_the_array_pass_its_check_and_fewer_do_not(tmp_path: Path) -> None:
    texts = {f"array-7_{task}.out": output("array.sh", tmp_path, SLURM_ARRAY_TASK_ID=str(task)) for task in (1, 2, 3)}

    assert EXAMPLES["array.sh"].evaluate(texts, ["7"]) == ("tasks 1, 2, 3", True)
    del texts["array-7_2.out"]
    assert EXAMPLES["array.sh"].evaluate(texts, ["7"]) == ("tasks 1, 3", False)


def test_the_second_job_of_the_chain_reads_what_the_first_has_written(tmp_path: Path) -> None:
    too_early = output("chain-second.sh", tmp_path)
    first, second = output("chain-first.sh", tmp_path), output("chain-second.sh", tmp_path)

    evaluate = EXAMPLES["chain.sh"].evaluate
    assert evaluate({"chain-first-7.out": first, "chain-second-8.out": second}, ["7", "8"])[1]
    assert not evaluate({"chain-first-7.out": first, "chain-second-8.out": too_early}, ["7", "8"])[1]


def test_a_checkpoint_is_saved_at_the_signal_and_the_next_start_goes_on_from_it(tmp_path: Path) -> None:
    steps = str(examples.STEPS)
    job = start("checkpoint.sh", tmp_path, steps)
    assert job.stdout
    first_line = job.stdout.readline()
    # until the shell waits for its program, the signal would end it
    wait_until("the shell has its trap", lambda: catches(job.pid, signal.SIGUSR1))
    job.send_signal(signal.SIGUSR1)
    rest = job.communicate(timeout=120)[0]
    saved = int(re.findall(r"^saved step (\d+)$", rest, re.MULTILINE)[0])
    checkpoint = tmp_path / "checkpoint-7.txt"
    assert checkpoint.read_text() == f"{saved}\n"
    assert saved < examples.STEPS
    # nearly done
    checkpoint.write_text(f"{examples.STEPS - 1}\n")
    second = output("checkpoint.sh", tmp_path, steps, SLURM_RESTART_COUNT="1")

    assert first_line == "start 1 from step 0\n"
    assert second == f"start 2 from step {examples.STEPS - 1}\nsaved step {examples.STEPS}\nended with status 0\n"
