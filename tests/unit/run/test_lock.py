from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepopsctl.errors import ExitCode
from deepopsctl.run import lock
from deepopsctl.run.lock import ClusterBusyError, ansible_lock, cluster_lock, is_held_by

HOLD_CLUSTER = """
import sys, time
from pathlib import Path
from deepopsctl.run.lock import cluster_lock
with cluster_lock(Path(sys.argv[1]), "deepopsctl deploy"):
    print("held", flush=True)
    time.sleep(60)
"""
HOLD_FILE = """
import fcntl, sys, time
stream = open(sys.argv[1], "w")
fcntl.flock(stream, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def another_process(program: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_one_process_may_hold_the_lock_over_several_runs_again_and_again(tmp_path: Path) -> None:
    for _ in range(2):
        with cluster_lock(tmp_path / "runs", "deepopsctl node add"):
            with cluster_lock(tmp_path / "runs", "deepopsctl deploy"):
                assert is_held_by(tmp_path / "runs", os.getpid())
            assert is_held_by(tmp_path / "runs", os.getpid())
    assert not is_held_by(tmp_path / "runs", os.getpid())


def test_the_second_learns_who_holds_it_and_since_when(tmp_path: Path) -> None:
    with another_process(HOLD_CLUSTER, tmp_path) as process, pytest.raises(ClusterBusyError) as caught:  # noqa: SIM117 (taking the lock raises)
        with cluster_lock(tmp_path, "deepopsctl deploy"):
            pass
    assert caught.value.exit_code == ExitCode.FAILED
    assert f"(pid {process.pid})" in caught.value.message
    assert "deepopsctl deploy, started by" in caught.value.message
    assert " at 20" in caught.value.message


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    with another_process(HOLD_CLUSTER, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with cluster_lock(tmp_path, "deepopsctl deploy"):
            pass


def test_an_ansible_that_is_left_over_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "ENDING_S", 0.2)
    with another_process(HOLD_FILE, ansible_lock(tmp_path)) as process:
        with pytest.raises(ClusterBusyError, match="the Ansible of an earlier run"):  # noqa: SIM117 (as above)
            with cluster_lock(tmp_path, "deepopsctl deploy"):
                pass
        process.kill()
        process.wait()
        with cluster_lock(tmp_path, "deepopsctl deploy"):
            pass


def test_one_who_asks_whether_it_is_held_keeps_no_run_out(tmp_path: Path) -> None:
    with cluster_lock(tmp_path, "deepopsctl deploy"):
        pass
    # as `status` and `runs list` have it for a moment
    asking = os.open(tmp_path / ".lock", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    done = threading.Timer(0.05, os.close, [asking])
    done.start()
    with cluster_lock(tmp_path, "deepopsctl deploy"):
        assert is_held_by(tmp_path, os.getpid())
    done.join()
