"""Results of `ssh setup` for each node, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from deepopsctl.errors import ExitCode


class Status(StrEnum):
    """The result of a node. Only `ready` is good."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    HOST_KEY = "host key changed"
    REFUSED = "password refused"
    NOT_TRIED = "not tried"
    FAILED = "failed"


class Sudo(StrEnum):
    """The sudo rights of the cluster's user on a node; `unknown` if they could not be checked."""

    PASSWORDLESS = "passwordless"
    PASSWORD = "password"  # noqa: S105 - a word for people, no secret
    NONE = "none"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node: its status, whether anything was changed, message and hint."""

    name: str
    status: Status
    changed: bool = False
    sudo: Sudo = Sudo.UNKNOWN
    message: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether Ansible can now log in without a password."""
        return self.status is Status.READY


@dataclass(frozen=True, slots=True)
class SetupResult:
    """All nodes in the order of cluster.yml, and the jump host where there is one."""

    nodes: tuple[NodeResult, ...]
    jump_host: NodeResult | None = None
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every node is ready."""
        return self.exit_code is ExitCode.OK

    @property
    def exit_code(self) -> ExitCode:
        """0, or 4 if nodes could not be reached and nothing else went wrong, or 1."""
        hosts = [*self.nodes, *([self.jump_host] if self.jump_host else [])]
        bad = {host.status for host in hosts if not host.ok}
        if not bad:
            return ExitCode.OK
        return ExitCode.UNREACHABLE if bad == {Status.UNREACHABLE} else ExitCode.FAILED


OnNode = Callable[[NodeResult], None]
