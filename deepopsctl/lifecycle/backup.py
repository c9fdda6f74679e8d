"""`backup`: make, list and verify sets, by the program that also runs on the nodes by a timer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.settings import site_values
from deepopsctl.errors import DeepOpsError
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.ssh.node_command import ask

PROGRAM = "/usr/local/sbin/deepops-backup"
STATE, ACCOUNTING, MONITORING = "state", "accounting", "monitoring"
_OF_MONITORING = ("--config", "/etc/deepopsctl/backup-monitoring.json")
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


def saves_monitoring(directory: ClusterDir) -> bool:
    """Whether the settings have monitoring's data saved."""
    return site_values(directory).get("monitoring_backup") is True


def run_backup(directory: ClusterDir) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    """Make a set now on each node that saves something: those that were made, and why others were not."""
    return _on_each(directory, "run")


def _on_each(directory: ClusterDir, action: str) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    answers: list[Answer] = []
    errors: list[DeepOpsError] = []
    for node, which, _parts in _sets(directory):
        try:
            answers.append(_ask(directory, node, *which, action))
        except DeepOpsError as error:
            errors.append(error)
    if len(errors) < 2:
        return tuple(answers), next(iter(errors), None)
    texts, hints = (dict.fromkeys(getattr(error, name) for error in errors) for name in ("message", "hint"))
    return tuple(answers), DeepOpsError("; ".join(texts), "; ".join(hints))


def list_backups(directory: ClusterDir) -> tuple[Answer, ...]:
    """The sets in the repository, of all nodes, the newest first."""
    return (_ask(directory, saved_nodes(directory.cluster())[0], "list"),)


def snapshots(directory: ClusterDir) -> list[Mapping[str, object]]:
    """The entries of `list_backups`: id, time, host, parts."""
    entries = list_backups(directory)[0].result.get("snapshots")
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def verify_backup(directory: ClusterDir, snapshot: str) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    """Restore sets where their parts belong, apart from what runs there, and compare them with what was saved.

    Without a snapshot the newest of each node: what was restored, and why others were not.
    """
    if not snapshot:
        return _on_each(directory, "verify")
    has = next((entry["parts"] for entry in snapshots(directory) if entry["id"] == snapshot[:8]), None)
    for node, which, parts in _sets(directory):
        if isinstance(has, list) and parts & set(has):
            return (_ask(directory, node, *which, "verify", snapshot),), None
    raise DeepOpsError(f"the repository has no snapshot {snapshot}", "see `deepopsctl backup list`")


def _sets(directory: ClusterDir) -> list[tuple[Node, tuple[str, ...], frozenset[str]]]:
    """Who makes which sets: the node, options of the program, and the parts of a set."""
    cluster = directory.cluster()
    dbd = cluster.with_role(Role.DBD)[0]
    sets: list[tuple[Node, tuple[str, ...], frozenset[str]]] = []
    for node in saved_nodes(cluster):
        parts = {*({STATE} if node == cluster.controllers[0] else ()), *({ACCOUNTING} if node == dbd else ())}
        sets.append((node, (), frozenset(parts)))
    if saves_monitoring(directory):
        sets.append((cluster.with_role(Role.MONITORING)[0], _OF_MONITORING, frozenset({MONITORING})))
    return sets


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
