"""What slurmctld's drop-in does before the daemon starts: the rendered command itself, with a systemctl of the test."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support.role_templates import render


def before_start(port: int) -> list[str]:
    """The command that waits for slurmdbd, as systemd takes it apart, with a limit that a test has time for."""
    text = render("slurmctld", "slurmctld.service.j2", ansible_managed="", slurmctld_accounting_port=port)
    (command,) = re.findall(r"^ExecStartPre=-(.*)$", text, re.MULTILINE)
    # systemd would put something else in their place
    assert not set("$%\\") & set(command)
    program, limit, *rest = shlex.split(command)
    assert (program, limit) == ("/usr/bin/timeout", "30")
    return [program, "3", *rest]


@pytest.fixture
def systemctl(tmp_path: Path) -> Path:
    """A systemctl in place of the host's; slurmdbd runs."""
    program = tmp_path / "systemctl"
    program.write_text('#!/bin/sh\ntest "$*" = "--quiet is-active slurmdbd.service"\n')
    program.chmod(0o755)
    return program


def run(argv: list[str], systemctl: Path) -> float:
    """For how long it waits (seconds)."""
    started = time.monotonic()
    subprocess.run(argv, env={"PATH": f"{systemctl.parent}:{os.environ['PATH']}"}, check=False, timeout=60)
    return time.monotonic() - started


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_slurmctld_starts_once_slurmdbd_listens(systemctl: Path, family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as slurmdbd:
        slurmdbd.bind((address, 0))
        argv = before_start(slurmdbd.getsockname()[1])
        listen = threading.Timer(1, slurmdbd.listen)
        listen.start()

        waited = run(argv, systemctl)

        listen.join()
    assert 0.9 < waited < 2.8


def test_slurmctld_waits_for_no_slurmdbd_that_is_off_and_not_for_ever(systemctl: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        argv = before_start(unused.getsockname()[1])

        converting = run(argv, systemctl)
        systemctl.write_text("#!/bin/sh\nexit 3\n")
        off = run(argv, systemctl)

    assert off < 1 < 2.9 < converting


def test_slurmctld_waits_for_nothing_where_slurmdbd_is_elsewhere() -> None:
    text = render("slurmctld", "slurmctld.service.j2", ansible_managed="", slurmctld_accounting_port=0)

    assert "ExecStartPre" not in text
