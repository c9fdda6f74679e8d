from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import ControlMachineError, ExitCode
from deepopsctl.run.events import Event, HostResult
from deepopsctl.run.request import RunRequest
from deepopsctl.run.runner import Interrupts, _Run, mechanism_for, require_ssh
from deepopsctl.run.workspace import RunDir


@pytest.mark.parametrize("version", ["OpenSSH_9.2p1 Debian-2", "OpenSSH_8.4p1", "OpenSSH_10.0p2", "some other ssh"])
def test_a_current_ssh_takes_the_password_without_sshpass(version: str) -> None:
    assert mechanism_for(version, has_sshpass=False) == "ssh_askpass"


def test_an_old_ssh_uses_sshpass_or_says_what_to_install() -> None:
    assert mechanism_for("OpenSSH_8.0p1", has_sshpass=True) == "sshpass"
    with pytest.raises(ControlMachineError) as caught:
        mechanism_for("OpenSSH_8.0p1", has_sshpass=False)
    assert caught.value.exit_code == ExitCode.CONTROL_MACHINE
    assert "install sshpass" in caught.value.hint


def test_without_ssh_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ControlMachineError) as caught:
        require_ssh()
    assert "openssh-client" in caught.value.hint


def test_what_is_ignored_from_outside_does_not_stop_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """`nohup deepopsctl deploy &`, and then the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupts.reason is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_full_disk_loses_no_result_of_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event] = []
    run = _Run(RunRequest(ClusterDir(tmp_path), "slurm"), RunDir(tmp_path), seen.append, tmp_path / "lock")
    result = {"msg": "broken", "deepops": {"checks": []}}
    data = {"playbook": "slurm.yml", "host": "gpu01", "task": "Install", "res": result}
    full = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(full, "wb", buffering=0) as run._log, os.fdopen(os.dup(full), "wb", buffering=0) as run._events:
        run._on_raw_event({"event": "runner_on_failed", "stdout": "fatal: broken", "event_data": data})

    summary = run.tally.summary()
    assert [failure.message for failure in summary.failures] == ["broken"]
    assert len(summary.results) == 1
    assert [type(event) for event in seen] == [HostResult]
    assert caplog.text == ""
