"""One command on one node, by the cluster's own key and pinned host keys."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import ALONE, withheld, without_variables
from deepopsctl.cluster.way import Way
from deepopsctl.errors import UnreachableError
from deepopsctl.model.cluster import Cluster, Node

_SSH_FAILED = 255


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


def ask(
    directory: ClusterDir,
    cluster: Cluster,
    node: Node,
    remote: Sequence[str],
    *,
    as_root: bool = False,
    timeout_s: float | None = None,
) -> Answer:
    """Run a command on a node and wait for its end; an UnreachableError where the node does not answer."""
    command = command_on(directory, cluster, node, remote, as_root=as_root)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False,
            timeout=timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{node.name} does not answer", "see `deepopsctl doctor`") from error
    answer = Answer(done.returncode, done.stdout, done.stderr)
    if done.returncode == _SSH_FAILED:
        raise UnreachableError(f"{node.name} can't be reached: {answer.reason}", "see `deepopsctl ssh setup`")
    return answer


def command_on(
    directory: ClusterDir, cluster: Cluster, node: Node, remote: Sequence[str], *, as_root: bool = False
) -> list[str]:
    """The ssh command that runs `remote` on a node; it ends with code 255 where the node can't be reached."""
    way = Way(directory, cluster, cluster.access.user, {"ConnectTimeout": "10", **ALONE})
    hidden = withheld([way.target(node)], os.environ)
    return [*without_variables(hidden), *way.command(node, remote, as_root=as_root)]
