"""Where packages are built: on this machine, or on a node by one ssh that takes the inputs and returns the result."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import AS_DECLARED, Login
from deepopsctl.errors import ControlMachineError, DeepOpsError
from deepopsctl.lab.image import run_mmdebstrap
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.ssh.node_command import ask, command_on

Notify = Callable[[str], None]
# mmdebstrap's command line for the directories of inputs and result
ArgvOf = Callable[[Path, Path], tuple[str, ...]]
_INSTALL = "apt-get install --no-install-recommends mmdebstrap"
# /var/tmp is everybody's: a directory that is there already is not used
_ON_A_NODE = """
set -e
umask 022
place={place}
# what is built here is installed everywhere as root
if pgrep -x slurmstepd >/dev/null; then
    echo "E: jobs of users run here: drain it, and build when they have ended" >&2
    exit 1
fi
mkdir -m 0700 "$place"
trap 'rm -rf "$place"' EXIT
trap 'exit 1' HUP INT TERM PIPE
mkdir "$place/inputs" "$place/result" "$place/tmp"
# the root of the build, where no other user of this node can enter
export TMPDIR="$place/tmp"
tar --extract --no-same-owner --directory "$place/inputs"
{mmdebstrap} </dev/null >&2
tar --create --directory "$place/result" .
"""


class BuildHost(Protocol):
    """A machine that builds."""

    def architecture(self) -> str:
        """Debian's name of its architecture."""

    def build(self, inputs: Path, result: Path, argv: ArgvOf, notify: Notify, output: Notify) -> None:
        """Run mmdebstrap on the inputs, and fill the directory of the result."""


class ThisMachine:
    """The control machine."""

    def architecture(self) -> str:
        """That of dpkg."""
        try:
            return subprocess.run(
                ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
            ).stdout.strip()
        except FileNotFoundError as error:
            hint = "`--on NODE` builds on a node"
            raise ControlMachineError(
                "packages are built on Debian or Ubuntu: this machine has no dpkg", hint
            ) from error

    def build(self, inputs: Path, result: Path, argv: ArgvOf, notify: Notify, output: Notify) -> None:
        """mmdebstrap alone."""
        if not shutil.which("mmdebstrap"):
            raise ControlMachineError("mmdebstrap is not installed on this machine", _INSTALL)
        words = argv(inputs, result)
        if os.geteuid():
            # in a user namespace, whose ids no other user has
            run_mmdebstrap(words, notify, output)
            return
        with tempfile.TemporaryDirectory(prefix="deepopsctl-build-") as private:
            run_mmdebstrap(("env", f"TMPDIR={private}", *words), notify, output)


@dataclass(frozen=True, slots=True)
class OnNode:
    """A node, as root."""

    directory: ClusterDir
    cluster: Cluster
    node: Node
    login: Login = AS_DECLARED

    def architecture(self) -> str:
        """That of its dpkg; a DeepOpsError where it can't build."""
        words = ("sh", "-c", "command -v mmdebstrap >&2 && dpkg --print-architecture")
        answer = ask(self.directory, self.cluster, self.node, words, as_root=True, timeout_s=60, login=self.login)
        if answer.status:
            what = f": {answer.reason}" if answer.errors else ""
            raise DeepOpsError(f"{self.node.name} has no mmdebstrap{what}", f"there: {_INSTALL}")
        return answer.output.strip()

    def build(self, inputs: Path, result: Path, argv: ArgvOf, notify: Notify, output: Notify) -> None:
        """The inputs go there as an archive, and so does the result come back."""
        place = Path("/var/tmp", f"deepopsctl-build-{secrets.token_hex(8)}")  # noqa: S108 (made there with mode 0700)
        script = script_of(place, argv)
        reached = command_on(
            self.directory, self.cluster, self.node, ["sh", "-c", script], as_root=True, login=self.login
        )
        with reached as command, tempfile.TemporaryFile() as sent, tempfile.TemporaryFile() as received:
            sent.write(command.data)
            with tarfile.open(fileobj=sent, mode="w") as archive:
                archive.add(inputs, ".")
            sent.seek(0)
            run_mmdebstrap(tuple(command.argv), notify, output, stdin=sent, stdout=received)
            received.seek(0)
            unpack(received, result)


def unpack(received: IO[bytes], result: Path) -> None:
    """What a node returned: plain files below the directory; a DeepOpsError for anything else.

    Debian 12's Python has no `filter` of tarfile's own.
    """
    try:
        with tarfile.open(fileobj=received) as archive:
            for member in archive:
                _take(archive, member, result)
    except tarfile.TarError as error:
        raise DeepOpsError(f"the node returned no result of a build: {error}") from error


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, result: Path) -> None:
    """One file or directory: a node is not this machine, nothing of it leaves the directory."""
    name = PurePosixPath(member.name)
    content = archive.extractfile(member) if member.isreg() else None
    if name.is_absolute() or ".." in name.parts or not (member.isdir() or content):
        raise DeepOpsError(f"the node returned no result of a build: {member.name!r} is none of its files")
    path = result / name
    (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
    if content:
        with content, path.open("wb") as stream:
            shutil.copyfileobj(content, stream)
        path.chmod(0o755 if member.mode & 0o100 else 0o644)


def script_of(place: Path, argv: ArgvOf) -> str:
    """What the node runs."""
    mmdebstrap = shlex.join(argv(place / "inputs", place / "result"))
    return _ON_A_NODE.format(place=shlex.quote(str(place)), mmdebstrap=mmdebstrap)
