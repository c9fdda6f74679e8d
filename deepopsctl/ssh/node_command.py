"""One command on one node, by the cluster's own key (or a password) and pinned host keys."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import ALONE, AS_DECLARED, Login, withheld, without_variables
from deepopsctl.cluster.way import Way
from deepopsctl.errors import UnreachableError
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.ssh.client import Client
from deepopsctl.ssh.passwords import AskPass

_SSH_FAILED = 255
_CONNECT_S = 10
# ssh asks for a password only where it may
_ONE_PROMPT = {"BatchMode": "no", "NumberOfPasswordPrompts": "1", "KbdInteractiveAuthentication": "yes"}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended on a node (a shell's status), and what it printed."""

    status: int
    output: str
    errors: str

    @property
    def reason(self) -> str:
        """The last line of the error text."""
        return (self.errors.strip().splitlines() or [f"exit code {self.status}"])[-1]


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """An ssh command, and what it has to read first: the sudo password, which stands on no command line."""

    argv: list[str]
    data: bytes


def ask(
    directory: ClusterDir,
    cluster: Cluster,
    node: Node,
    remote: Sequence[str],
    *,
    as_root: bool = False,
    timeout_s: float | None = None,
    login: Login = AS_DECLARED,
) -> Answer:
    """Run a command on a node and wait for its end; an UnreachableError where the node does not answer."""
    with command_on(directory, cluster, node, remote, as_root=as_root, login=login) as command:
        try:
            done = subprocess.run(command.argv, input=command.data, capture_output=True, check=False, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"{node.name} does not answer", "see `deepopsctl doctor`") from error
    output, errors = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    answer = Answer(done.returncode, output, errors)
    if done.returncode == _SSH_FAILED:
        raise UnreachableError(f"{node.name} can't be reached: {answer.reason}", "see `deepopsctl ssh setup`")
    return answer


@contextmanager
def command_on(
    directory: ClusterDir,
    cluster: Cluster,
    node: Node,
    remote: Sequence[str],
    *,
    as_root: bool = False,
    login: Login = AS_DECLARED,
) -> Iterator[NodeCommand]:
    """The ssh command that runs `remote` on a node; it ends with code 255 where the node can't be reached.

    A password of the login is answered as long as the context is open.
    """
    options = {"ConnectTimeout": str(_CONNECT_S), **ALONE, **(_ONE_PROMPT if login.password else {})}
    user = login.user or cluster.access.user
    way = Way(directory, cluster, user, options, sudo_password=login.sudo_password or "")
    target = way.target(node)
    argv = [*without_variables(withheld([target], os.environ)), *way.command(node, remote, as_root=as_root)]
    data = way.data(b"") if as_root else b""
    if not login.password:
        yield NodeCommand(argv, data)
        return
    route = Client(directory.known_hosts, _CONNECT_S).route(target)
    with AskPass(directory.path) as askpass, askpass.answer(login.password, route.user, route.shown) as variables:
        yield NodeCommand(["env", *(f"{name}={value}" for name, value in variables.items()), *argv], data)
