"""What this machine needs to reach the nodes, checked before a run begins."""

from __future__ import annotations

import re
import shutil
import subprocess

from deepopsctl.errors import ControlMachineError

# ssh supports SSH_ASKPASS_REQUIRE since this version
ASKPASS_SINCE = (8, 4)


def require_ssh() -> None:
    """Refuse to begin without an ssh client."""
    if shutil.which("ssh") is None:
        raise ControlMachineError(
            "this machine has no ssh client",
            "install openssh-client (Debian, Ubuntu) or openssh-clients (RHEL, Rocky)",
        )


def password_mechanism() -> str:
    """Ansible's name of the way to pass a login password to the ssh of this machine."""
    version = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    return mechanism_for(version, has_sshpass=shutil.which("sshpass") is not None)


def mechanism_for(version: str, *, has_sshpass: bool) -> str:
    """The same from the output of `ssh -V`; an older ssh without sshpass is an error."""
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) >= ASKPASS_SINCE:
        return "ssh_askpass"
    if not has_sshpass:
        raise ControlMachineError(f"the ssh of this machine ({match[0]}) needs sshpass for -k", "install sshpass")
    return "sshpass"
