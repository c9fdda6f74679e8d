"""`deepops-slurmmetrics` as a process: commands that hang or say too much, the file that it writes, and any text."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from deepopsctl.node_programs.services.slurm_metrics import jobs, nodes, statistics
from deepopsctl.node_programs.services.slurm_metrics.asking import FIELD, RECORD, AskingError, ask, marked, unmarked
from deepopsctl.node_programs.services.slurm_metrics.snapshot import SlurmReader
from tests.data.slurm_metrics_samples import recorded, samples
from tests.support.cluster import wait_until

bounded = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
any_text = st.text(max_size=40)
# what people can write into names and reasons; Slurm hands out all of it but the separators
written = st.text(st.characters(exclude_characters=FIELD + RECORD), max_size=40)


def config(tmp_path: Path) -> Path:
    path = tmp_path / "slurmmetrics.json"
    reported = {
        "schema": 1,
        "path": str(tmp_path / "slurm.prom"),
        "interval_s": 0.05,
        "address": "127.0.0.1",
        "port": 1,
    }
    path.write_text(json.dumps({**reported, "native": False}))
    return path


def started(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    code = "import sys; from deepopsctl.node_programs.services.slurm_metrics.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, "--config", str(config(tmp_path)), *arguments],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(AskingError, match=r"^sh: first Connection refused$"):
        ask(["sh", "-c", "echo first >&2; echo Connection refused >&2; exit 3"], 20)


def test_commands_see_nothing_of_a_sites_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")

    result = dict(line.split("=", 1) for line in ask(["env"], 20).splitlines())

    assert result.keys() - {"PWD", "SHLVL", "_"} == {"PATH", "LC_ALL", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN"}


without_slurm = pytest.mark.skipif(bool(shutil.which("sdiag")), reason="this machine has Slurm, which would be asked")


@without_slurm
def test_it_writes_until_it_is_reported_to_stop_and_leaves_nothing(tmp_path: Path) -> None:
    process = started(tmp_path)
    wait_until("it writes", (tmp_path / "slurm.prom").exists)
    text = (tmp_path / "slurm.prom").read_text()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)

    assert samples(text)["deepops_slurm_up"] == 0
    assert samples(text)["deepops_slurmdbd_up"] == 0
    assert process.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slurmmetrics.json"]
    # once, not with each look
    assert errors == "sdiag is not installed; sacctmgr is not installed\n"


def test_systemd_hears_that_it_is_ready_and_alive(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(60)
        process = started(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify"))
        first, second = channel.recv(100), channel.recv(100)
        process.terminate()
        process.communicate(timeout=60)

    # ready is what has said something
    assert first == b"READY=1\nWATCHDOG=1"
    assert second == b"WATCHDOG=1"


@without_slurm
def test_one_look_is_printed(tmp_path: Path) -> None:
    process = started(tmp_path, "once")
    text, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert samples(text)["deepops_slurm_up"] == 0
    assert "error: sdiag is not installed" in errors


def test_a_broken_configuration_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("[]")
    process = started(tmp_path, "--config", str(tmp_path / "broken.json"))
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 3
    assert errors == f"error: {tmp_path}/broken.json: not a JSON object\n"


@bounded
@given(any_text, any_text, any_text)
def test_no_output_of_slurm_ends_the_program(squeue: str, sinfo: str, sdiag: str) -> None:
    answers = {"squeue": squeue, "sinfo": sinfo, "sdiag": sdiag}

    SlurmReader(None, recorded("24.11", but=answers)).read_snapshot(1000.0)  # type: ignore[arg-type]  # a stand-in, or any of its fields
    jobs.parse(squeue)
    nodes.parse(sinfo)
    statistics.parse(sdiag)


@bounded
@given(
    st.lists(written, min_size=len(jobs.FIELDS), max_size=len(jobs.FIELDS)), st.text("0123456789[]-,:%_", max_size=20)
)
def test_any_text_in_a_job_is_one_job(fields: list[str], number: str) -> None:
    result, unreadable = jobs.parse(FIELD.join([number, *fields[1:]]) + RECORD + "\n")

    assert (len(result), unreadable) == (1, 0)
    assert result[0].count >= 1


def test_separators_in_a_users_text_are_none() -> None:
    """Without AccountingStorageEnforce, `sbatch --account` takes any text."""
    argv, environment, mark = marked(jobs.COMMAND)
    forged = f"x{FIELD}root{RECORD}7{FIELD}RUNNING"
    record = (FIELD + mark).join(["5", "PENDING", "p", forged, "ada", "1", "", "", "0", "0", "None"]) + RECORD + mark

    (job,), unreadable = jobs.parse(unmarked(record, mark))

    assert (job.id, job.user, job.account, unreadable) == ("5", "ada", "x?root?7?RUNNING", 0)
    # nor can a user read the mark from the arguments, and type it
    assert environment["SQUEUE_FORMAT2"].endswith(RECORD + mark)
    assert mark not in "".join(argv)
    assert marked(jobs.COMMAND)[2] != mark
