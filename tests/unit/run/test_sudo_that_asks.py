"""Which sudo gets a password: the node's own shell chooses. sudo and sudo.ws are programs of the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deepopsctl.run.hints import hint_for
from deepopsctl.run.runner import SUDO_THAT_ASKS
from tests.support.files import write_program

RS = 'case $1 in --version) echo "sudo-rs 0.2.8" >&2 ;; -n) exit {passwordless} ;; *) echo "rs $*" ;; esac'
CLASSIC = 'case $1 in --version) echo "Sudo version 1.9.16" ;; -n) exit 1 ;; *) echo "classic $*" ;; esac'


def asked(directory: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """What a node's shell makes of it, as Ansible's plugin writes the command."""
    for name, text in programs.items():
        write_program(directory / "bin" / name.replace("_", "."), text)
    command = f"{SUDO_THAT_ASKS} -H -S -u root id"
    path = f"{directory / 'bin'}:/nowhere"
    (directory / "bin" / "grep").symlink_to(shutil.which("grep") or "/usr/bin/grep")
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env={"PATH": path})


@pytest.mark.parametrize(
    ("programs", "output"),
    [
        ({"sudo": CLASSIC}, "classic -H -S -u root id\n"),
        ({"sudo": RS.format(passwordless=1), "sudo_ws": CLASSIC}, "classic -H -S -u root id\n"),
        # it needs none, whatever was typed
        ({"sudo": RS.format(passwordless=0)}, "rs -H -S -u root id\n"),
    ],
)
def test_the_sudo_that_ansible_can_answer_is_called(tmp_path: Path, programs: dict[str, str], output: str) -> None:
    assert asked(tmp_path, **programs).stdout == output


def test_where_there_is_none_the_error_is_at_once_and_has_the_way_out(tmp_path: Path) -> None:
    done = asked(tmp_path, sudo=RS.format(passwordless=1))

    assert done.returncode == 127
    assert "sudo-rs-with-a-password" in done.stderr
    assert "NOPASSWD" in hint_for(done.stderr)
