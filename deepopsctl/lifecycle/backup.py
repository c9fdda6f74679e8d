"""`backup`: make, list and verify sets, by the program that also runs on the nodes by a timer."""

from __future__ import annotations

import json
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import DeepOpsError
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.ssh.node_command import ask

PROGRAM = "/usr/local/sbin/deepops-backup"
_NOT_FOUND = 127


@dataclass(frozen=True, slots=True)
class Answer:
    """What the program printed on a node: an object of its own, by the action."""

    node: str
    result: dict[str, object]


def saved_nodes(cluster: Cluster) -> tuple[Node, ...]:
    """The nodes that save something: the first controller, and the host of slurmdbd, which comes last."""
    nodes = (*cluster.controllers[:1], *cluster.with_role(Role.DBD)[:1])
    return tuple({node.name: node for node in nodes}.values())


def run_backup(directory: ClusterDir) -> tuple[Answer, ...]:
    """Make a set now."""
    return tuple(_ask(directory, node, "run") for node in saved_nodes(directory.cluster()))


def list_backups(directory: ClusterDir) -> tuple[Answer, ...]:
    """The sets in the repository, of all nodes, the newest first."""
    return (_ask(directory, saved_nodes(directory.cluster())[0], "list"),)


def verify_backup(directory: ClusterDir, snapshot: str) -> tuple[Answer, ...]:
    """Restore a set into a throw-away Slurm on each node, and compare it with what was saved."""
    nodes = saved_nodes(directory.cluster())
    return tuple(_ask(directory, node, "verify", *([snapshot] if snapshot else [])) for node in nodes)


def _ask(directory: ClusterDir, node: Node, *words: str) -> Answer:
    cluster = directory.cluster()
    answer = ask(directory, cluster, node, [PROGRAM, *words], as_root=True)
    if answer.status:
        if answer.status == _NOT_FOUND or f"{PROGRAM}: command not found" in answer.reason:
            raise DeepOpsError(
                f"{node.name} makes no backups",
                "set `slurm_backup_repository` in group_vars/all/settings.yml, then `deepopsctl deploy slurm`",
            )
        raise DeepOpsError(f"{node.name}: {answer.reason.removeprefix('error: ')}", "see docs/operate/backup.md")
    result = json.loads(answer.output.splitlines()[-1])
    return Answer(node.name, result)
