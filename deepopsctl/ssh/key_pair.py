"""The key pair of the control machine: made once, by ssh-keygen, without a passphrase."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.errors import ControlMachineError, InputError
from deepopsctl.files import read_text
from deepopsctl.ssh.host_keys import parse_host_key


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key's path and its public line (`TYPE BASE64 COMMENT`)."""

    private: Path
    public: str
    created: bool = False


def ensure_key_pair(private: Path, comment: str) -> KeyPair:
    """The pair at `private`, made if it is missing; modes are corrected, because ssh requires them."""
    directory = private.parent
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    created = not private.exists()
    if created:
        _create(private, comment)
    private.chmod(0o600)
    return KeyPair(private, public_line(private), created)


def public_line(private: Path) -> str:
    """The public key: from the `.pub` file next to the private key, else computed from it."""
    public_file = private.with_name(private.name + ".pub")
    if public_file.is_file():
        line = read_text(public_file, "replace").strip()
        if parse_host_key(line) and "\n" not in line:
            return line
    # an empty passphrase: ssh-keygen must fail, not ask, where the key is encrypted
    completed = _keygen("-y", "-P", "", "-f", str(private))
    if completed.returncode != 0:
        raise InputError.single(
            str(private),
            f"ssh-keygen can't read this key: {_last_line(completed.stderr)}",
            f"save its public key next to it as {public_file.name}, or remove the file: `ssh setup` makes a new pair",
        )
    return completed.stdout.strip()


def _create(private: Path, comment: str) -> None:
    # made in a temporary directory and moved, the private key last: an interrupted run leaves no incomplete pair
    with tempfile.TemporaryDirectory(dir=private.parent, prefix=".new-") as scratch:
        fresh = Path(scratch) / private.name
        made = _keygen("-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(fresh))
        if made.returncode != 0:
            raise ControlMachineError(
                f"ssh-keygen can't make a key in {private.parent}: {_last_line(made.stderr)}",
                "is the disk full?",
            )
        public = private.name + ".pub"
        shutil.move(fresh.with_name(public), private.with_name(public))
        shutil.move(fresh, private)


def _keygen(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ControlMachineError("ssh-keygen is not installed here", "install the package openssh-client") from error


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no reason given"
