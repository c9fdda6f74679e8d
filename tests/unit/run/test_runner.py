from __future__ import annotations

import pytest

from deepopsctl.errors import ControlMachineError, ExitCode
from deepopsctl.run.runner import mechanism_for, password_mechanism, require_ssh


@pytest.mark.parametrize("version", ["OpenSSH_9.2p1 Debian-2", "OpenSSH_8.4p1", "OpenSSH_10.0p2", "some other ssh"])
def test_a_current_ssh_takes_the_password_without_sshpass(version: str) -> None:
    assert mechanism_for(version, has_sshpass=False) == "ssh_askpass"


def test_an_old_ssh_uses_sshpass_or_says_what_to_install() -> None:
    assert mechanism_for("OpenSSH_8.0p1", has_sshpass=True) == "sshpass"
    with pytest.raises(ControlMachineError) as caught:
        mechanism_for("OpenSSH_8.0p1", has_sshpass=False)
    assert caught.value.exit_code == ExitCode.CONTROL_MACHINE
    assert "install sshpass" in caught.value.hint


def test_this_machine_can_give_a_password() -> None:
    assert password_mechanism() in ("ssh_askpass", "sshpass")


def test_without_ssh_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ControlMachineError) as caught:
        require_ssh()
    assert "openssh-client" in caught.value.hint
