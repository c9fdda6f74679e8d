"""`backup`: make, list and verify sets, by the program that also runs on the nodes by a timer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.settings import site_values
from deepopsctl.cluster.ssh_login import AS_DECLARED, Login
from deepopsctl.errors import DeepOpsError
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.ssh.node_command import ask
from deepopsctl.text.answers import mappings, texts

PROGRAM = "/usr/local/sbin/deepops-backup"
STATE, ACCOUNTING, MONITORING = "state", "accounting", "monitoring"
_OF_MONITORING = ("--config", "/etc/deepopsctl/backup-monitoring.json")
_NOT_FOUND = 127
_OLDER = "older sets may be whole: `deepopsctl backup list`, then `backup verify SNAPSHOT`, and `restore SNAPSHOT`"
# by what stands in the program's words (slurm_backup/repository.py)
_HINTS = {
    "can't be reached: root": "give root there a key that the server accepts, and the server's host key: "
    "docs/operate/backup.md#a-repository-over-sftp",
    "can't be reached": "is its server up, and do the network and `slurm_backup_environment` let this node reach it?",
    "there is no repository in": "mount it on this node, or correct `slurm_backup_repository` in settings.yml",
    "does not open": "put the `backup_password` of the repository back into secrets.yml (`ansible-vault edit`); "
    "`secrets rotate backup-password` changes both",
    "is damaged": _OLDER,
    "can't be used": _OLDER,
    "the restored copy does not work": _OLDER,
    "has no snapshot": "see `deepopsctl backup list`",
    "has a state of slurmctld already": "`--only accounting`, or stop slurmctld and move that directory away first",
    "is not empty": "`--only state` restores the queue alone",
    "is half restored": "run `deepopsctl restore` with the options of the one that was cut off",
}


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


def run_backup(directory: ClusterDir, login: Login = AS_DECLARED) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    """Make a set now on each node that saves something: those that were made, and why others were not."""
    return _on_each(directory, login, "run")


def _on_each(directory: ClusterDir, login: Login, action: str) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    return _ask_all(directory, login, [(node, which) for node, which, _parts in _sets(directory)], action)


def _ask_all(
    directory: ClusterDir, login: Login, programs: Iterable[tuple[Node, tuple[str, ...]]], action: str
) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    answers: list[Answer] = []
    errors: list[DeepOpsError] = []
    for node, which in programs:
        try:
            answers.append(_ask(directory, login, node, *which, action))
        except DeepOpsError as error:
            errors.append(error)
    if len(errors) < 2:
        return tuple(answers), next(iter(errors), None)
    texts, hints = (dict.fromkeys(getattr(error, name) for error in errors) for name in ("message", "hint"))
    return tuple(answers), DeepOpsError("; ".join(texts), "; ".join(hints))


def list_backups(directory: ClusterDir, login: Login = AS_DECLARED) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    """The sets of all nodes: in the repository of Slurm, and in that of monitoring; and why one can't be listed."""
    cluster = directory.cluster()
    programs: list[tuple[Node, tuple[str, ...]]] = [(saved_nodes(cluster)[0], ())]
    if saves_monitoring(directory):
        programs.append((cluster.with_role(Role.MONITORING)[0], _OF_MONITORING))
    return _ask_all(directory, login, programs, "list")


def snapshots(directory: ClusterDir, login: Login = AS_DECLARED) -> list[Mapping[str, object]]:
    """The entries of `list_backups`: id, time, host, parts, the newest first; raises where no repository answers."""
    answers, error = list_backups(directory, login)
    if error and not answers:
        raise error
    return snapshots_of(answers)


def snapshots_of(answers: Iterable[Answer]) -> list[Mapping[str, object]]:
    """The entries that nodes returned, the newest first."""
    entries = [entry for answer in answers for entry in mappings(answer.result.get("snapshots"))]
    return sorted(entries, key=lambda entry: str(entry["time"]), reverse=True)


def verify_backup(
    directory: ClusterDir, snapshot: str, login: Login = AS_DECLARED
) -> tuple[tuple[Answer, ...], DeepOpsError | None]:
    """Restore sets where their parts belong, apart from what runs there, and compare them with what was saved.

    Without a snapshot the newest of each node: what was restored, and why others were not.
    """
    if not snapshot:
        return _on_each(directory, login, "verify")
    has = next((entry["parts"] for entry in snapshots(directory, login) if entry["id"] == snapshot[:8]), None)
    for node, which, parts in _sets(directory):
        if parts & set(texts(has)):
            return (_ask(directory, login, node, *which, "verify", snapshot),), None
    raise DeepOpsError(f"the repository has no snapshot {snapshot}", "see `deepopsctl backup list`")


def hint_for(reason: str) -> str:
    """What to do about what the program complains of; '' where its words say it."""
    return next((hint for mark, hint in _HINTS.items() if mark in reason), "")


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


def _ask(directory: ClusterDir, login: Login, node: Node, *words: str) -> Answer:
    cluster = directory.cluster()
    answer = ask(directory, cluster, node, [PROGRAM, *words], as_root=True, login=login)
    if answer.status:
        if answer.status == _NOT_FOUND or f"{PROGRAM}: command not found" in answer.reason:
            raise DeepOpsError(
                f"{node.name} makes no backups",
                "set `slurm_backup_repository` in group_vars/all/settings.yml, then `deepopsctl deploy slurm`",
            )
        reason = answer.reason.removeprefix("error: ")
        raise DeepOpsError(f"{node.name}: {reason}", hint_for(reason) or "see docs/operate/backup.md")
    result = json.loads(answer.output.splitlines()[-1])
    return Answer(node.name, result)
