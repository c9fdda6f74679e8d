"""The daemons of a Slurm that is there already, as a node without the rights to see everything has them, too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node_modules import COLLECTIONS

NOBODY = "65534"
# this machine may have labs, whose daemons it sees
ASK = """
import json, sys
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import detect
detect.os.listdir = lambda _: [sys.argv[1]]
print(json.dumps(detect.daemons()))
"""
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can give rights up")


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A process that is called as Slurm's controller, of another user."""
    path = tmp_path_factory.mktemp("sbin") / "slurmctld"
    shutil.copy("/bin/sleep", path)
    for part in path.parents:
        part.chmod(part.stat().st_mode | 0o055)
        if part.parent == Path("/tmp"):
            break
    with subprocess.Popen(["setpriv", "--reuid", NOBODY, "--clear-groups", path, "60"]) as process:
        while Path(f"/proc/{process.pid}/comm").read_text() != "slurmctld\n":
            time.sleep(0.01)
        yield str(process.pid), path
        process.kill()


def program_of(pid: str) -> str:
    argv = ["setpriv", "--bounding-set=-sys_ptrace", sys.executable, "-c", ASK, pid]
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
    result: dict[str, str] = json.loads(subprocess.run(argv, env=environment, capture_output=True, check=True).stdout)
    return result["slurmctld"]


def test_a_daemon_is_found_where_a_container_hides_its_program(daemon: tuple[str, Path]) -> None:
    pid, path = daemon

    assert program_of(pid) == str(path)


def test_what_a_user_can_write_is_no_program_of_slurms(daemon: tuple[str, Path]) -> None:
    pid, path = daemon
    path.chmod(0o777)

    assert program_of(pid) == ""
