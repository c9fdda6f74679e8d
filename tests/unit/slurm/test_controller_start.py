"""What slurmctld's drop-in does before the daemon starts: the rendered command itself, with a systemctl of the test."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import wait_until
from tests.support.role_templates import render

# timeout(1) of a command that was ended
ENDED = 124


def commands(**variables: object) -> list[list[str]]:
    """What may fail before the start, as systemd takes it apart."""
    values = {"slurmctld_accounting_port": 0, **variables}
    text = render("slurmctld", "slurmctld.service.j2", ansible_managed="", **values)
    lines = re.findall(r"^ExecStartPre=-(.*)$", text, re.MULTILINE)
    # systemd would put something else in their place
    assert not set("$%\\") & set("".join(lines).replace("$$", ""))
    return [shlex.split(line.replace("$$", "$")) for line in lines]


def before_start(port: int, limit: int) -> list[str]:
    """The command that waits for slurmdbd, with a limit of the test (seconds)."""
    _, (program, own_limit, *rest) = commands(slurmctld_accounting_port=port)
    assert (program, own_limit) == ("/usr/bin/timeout", "30")
    return [program, str(limit), *rest]


@pytest.fixture
def systemctl(tmp_path: Path) -> Path:
    """A systemctl in place of the host's, which notes that it was asked; slurmdbd runs."""
    program = tmp_path / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\ntest "$*" = "--quiet is-active slurmdbd.service"\n')
    program.chmod(0o755)
    return program


def start(argv: list[str], systemctl: Path) -> subprocess.Popen[bytes]:
    """The command, started."""
    return subprocess.Popen(argv, env={"PATH": f"{systemctl.parent}:{os.environ['PATH']}"})


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_slurmctld_starts_once_slurmdbd_listens(systemctl: Path, family: socket.AddressFamily, address: str) -> None:
    asked = systemctl.parent / "asked"
    with socket.socket(family) as slurmdbd:
        slurmdbd.bind((address, 0))
        waiting = start(before_start(slurmdbd.getsockname()[1], 600), systemctl)
        # it looks again, as nothing listens yet
        wait_until("it waits", lambda: asked.exists() and len(asked.read_text().splitlines()) > 1)
        assert waiting.poll() is None
        slurmdbd.listen()

        assert waiting.wait(60) == 0


def test_slurmctld_waits_for_no_slurmdbd_that_is_off_and_not_for_ever(systemctl: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        assert start(before_start(port, 1), systemctl).wait(60) == ENDED
        systemctl.write_text("#!/bin/sh\nexit 3\n")
        assert start(before_start(port, 600), systemctl).wait(60) == 0


def test_slurmctld_waits_for_nothing_where_slurmdbd_is_elsewhere() -> None:
    assert not [command for command in commands() if "slurmdbd" in " ".join(command)]


def test_a_job_whose_files_a_power_cut_lost_is_taken_from_slurmctld_and_no_other(tmp_path: Path) -> None:
    state = tmp_path / "the state"
    whole, no_script, no_environment, nothing = (state / f"hash.{n % 10}" / f"job.{n}" for n in (8, 19, 20, 21))
    for job in (whole, no_script, no_environment, nothing):
        job.mkdir(parents=True)
    for job in (whole, no_script, no_environment):
        (job / "script").write_text("" if job == no_script else "#!/bin/sh\n")
        (job / "environment").write_text("" if job == no_environment else "HOME=/\0")
    (state / "job_state").touch()
    (command,) = commands(slurmctld_state_directory=str(state))

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert sorted(state.rglob("job*")) == [whole, state / "job_state"]
    assert [str(job) in done.stdout for job in (whole, no_script)] == [False, True]


def test_a_state_without_jobs_is_nothing_to_look_at(tmp_path: Path) -> None:
    (command,) = commands(slurmctld_state_directory=str(tmp_path))

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_jobs_of_a_state_that_controllers_share_are_left_to_the_one_in_control() -> None:
    shared = {"unit": "srv-slurm.mount", "program": "/usr/local/sbin/guard"}

    assert commands(slurmctld_shared=shared) == []
