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


def before_start(port: int, limit: int) -> list[str]:
    """The command that waits for slurmdbd, as systemd takes it apart, with a limit of the test (seconds)."""
    text = render("slurmctld", "slurmctld.service.j2", ansible_managed="", slurmctld_accounting_port=port)
    (command,) = re.findall(r"^ExecStartPre=-(.*)$", text, re.MULTILINE)
    # systemd would put something else in their place
    assert not set("$%\\") & set(command)
    program, own_limit, *rest = shlex.split(command)
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
        # it looks again, as nobody listens yet
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
    text = render("slurmctld", "slurmctld.service.j2", ansible_managed="", slurmctld_accounting_port=0)

    assert "ExecStartPre" not in text
