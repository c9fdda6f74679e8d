"""The one command runner: commands that fail, hang, print too much or are missing, each as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs._shared.command import (
    MISSING,
    TIMED_OUT,
    TOO_LONG,
    CommandError,
    require,
    run,
    run_merged,
)
from tests.support.cluster import wait_until
from tests.support.processes import runs


def test_output_and_errors_come_apart() -> None:
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"], 20)

    assert (result.status, result.ok, result.output, result.errors) == (3, False, "out\n", "err\n")
    assert (result.message, result.failure) == ("err", "sh: err")
    # without error text the output is the message
    assert run(["sh", "-c", "echo out; exit 1"], 20).message == "out"
    assert run(["sh", "-c", "exit 3"], 20).failure == "sh: exits 3"


def test_merged_output_keeps_its_order() -> None:
    result = run_merged(["sh", "-c", "echo 1; echo 2 >&2; echo 3"])

    assert (result.status, result.output, result.errors) == (0, "1\n2\n3\n", "")


def test_a_command_that_is_missing_or_may_not_run_is_reported(tmp_path: Path) -> None:
    missing = run(["no-such-command"], 20)
    refused = run([str(tmp_path)], 20)

    assert (missing.status, missing.message, missing.failure) == (MISSING, *["no-such-command is not installed"] * 2)
    assert (refused.status, refused.message, refused.failure) == (MISSING, *[f"{tmp_path}: Permission denied"] * 2)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 1000 & echo $! > pid; wait", id="the command hangs"),
        pytest.param("sleep 1000 & echo $! > pid", id="its child keeps the output open"),
        pytest.param("echo $$ > pid; exec >&- 2>&-; exec sleep 1000", id="it closes its output and continues"),
    ],
)
def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path, script: str) -> None:
    result = run(["sh", "-c", f"cd {tmp_path}; {script}"], 0.3)

    assert (result.status, result.message) == (TIMED_OUT, "no answer within 0.3 s")
    assert result.failure == "sh: no answer within 0.3 s"
    wait_until("nothing of it is left", lambda: not runs(int((tmp_path / "pid").read_text())))


def test_a_command_that_prints_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OUTPUT_LIMIT", 1 << 20)

    result = run(["sh", "-c", "head -c 8M /dev/zero; exec sleep 1000"], 20)

    assert (result.status, result.message) == (TOO_LONG, "printed more than 1 MiB")


def test_input_that_is_longer_than_a_pipe_takes_arrives_whole() -> None:
    text = "x" * (1 << 20) + "\n\udcff"

    assert run(["cat"], 60, text, undecodable="surrogateescape").output == text
    assert run(["cat"], 60).output == ""
    assert run(["printf", r"a\377b"], 20).output == "a\ufffdb"


def test_messages_are_in_english_and_system_programs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    assert run(["/bin/sh", "-c", "echo $LC_ALL $PATH"]).output == f"C.UTF-8 /opt/bin:{command.PATH}\n"
    # an environment that is passed is the whole
    assert run(["/usr/bin/env"], 20, env={"A": "b"}).output == "A=b\n"


def test_nothing_of_a_site_steers_slurms_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")

    kept = command.slurm_environment(SLURM_TIME_FORMAT="%s")

    assert "SQUEUE_FORMAT" not in kept
    assert (kept["SLURM_CONF"], kept["SLURM_TIME_FORMAT"]) == ("/etc/other.conf", "%s")


def test_a_command_that_must_succeed_raises_its_command_and_output() -> None:
    assert require(["echo", "x"]) == "x\n"
    with pytest.raises(CommandError, match=r"^sh -c echo no >&2; exit 1: no$"):
        require(["sh", "-c", "echo no >&2; exit 1"])
    with pytest.raises(CommandError, match=r"^false: exits 1$"):
        require(["false"])
