"""Who of a directory service is a user of the cluster, as the first controller answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import AS_DECLARED, Login
from deepopsctl.errors import UnreachableError
from deepopsctl.model.cluster import Cluster
from deepopsctl.ssh.node_command import ask

_PATIENCE_S = 60
# so many names go into one call
_BATCH = 1000
# what getent returns where it does not have all of the names
_NOT_ALL = 2


@dataclass(frozen=True, slots=True)
class Member:
    """A user of the directory, with the Slurm accounts that follow from the groups."""

    name: str
    uid: int
    accounts: tuple[str, ...]


def directory_members(directory: ClusterDir, cluster: Cluster, login: Login = AS_DECLARED) -> tuple[Member, ...]:
    """The members of the groups that people.yml names; an UnreachableError where the controller does not answer."""
    service = cluster.people.directory if cluster.people else None
    if service is None:
        return ()

    def getent(database: str, keys: Sequence[str]) -> Iterator[list[str]]:
        for start in range(0, len(keys), _BATCH):
            yield from _answers(directory, cluster, login, database, keys[start : start + _BATCH])

    groups = {row[0]: row[3].split(",") for row in getent("group", service.groups())}
    names = sorted({name for members in groups.values() for name in members if name})
    ids = {row[0]: int(row[2]) for row in getent("passwd", names)}
    return tuple(
        Member(name, uid, tuple(entry.account for entry in service.accounts if name in groups.get(entry.group, ())))
        for name, uid in sorted(ids.items())
    )


def _answers(
    directory: ClusterDir, cluster: Cluster, login: Login, database: str, keys: Sequence[str]
) -> Iterator[list[str]]:
    controller = cluster.controllers[0]
    question = ["getent", "-s", "sss", database, "--", *keys]
    answer = ask(directory, cluster, controller, question, timeout_s=_PATIENCE_S, login=login)
    if answer.status not in (0, _NOT_ALL):
        raise UnreachableError(f"{controller.name}: {answer.reason}", "`deepopsctl doctor` says more")
    for line in answer.output.splitlines():
        fields = line.split(":")
        if len(fields) > 3 and fields[2].isdecimal():
            yield fields
