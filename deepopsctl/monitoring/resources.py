"""What a piece of monitoring needs on a node, and the facts of the node that it may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that has to exist."""

    path: str
    mode: str = "0755"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True, slots=True)
class File:
    """A file; a parser's command with %s in place of its path refuses bad content before it replaces the old."""

    path: str
    # in no log, diff or argument where `secret`
    content: str = field(repr=False)
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit that is enabled and runs; it restarts, or reloads, where one of these files changed."""

    name: str
    restart_on: tuple[str, ...] = ()
    reload_on: tuple[str, ...] = ()
    # TCP port of this node that must be open after a start
    port: int = 0


@dataclass(frozen=True, slots=True)
class Needs:
    """What one piece, or all of them together, install on a node; in installation order."""

    packages: tuple[str, ...] = ()
    directories: tuple[Directory, ...] = ()
    files: tuple[File, ...] = ()
    units: tuple[Unit, ...] = ()
    # units of packages that have to be stopped and disabled
    stopped: tuple[str, ...] = ()
    # why it can't work, one sentence each
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MonitoredNode:
    """Facts of one node, for the pieces."""

    name: str
    cluster: str
    # of cluster.yml: slurm_controller, slurm_compute, slurm_dbd, monitoring, nvidia_gpu ...
    groups: frozenset[str]
    # where exporters listen: its management address
    address: str
    # `Debian 13`
    platform: str
    # the first of each: Slurm is queried on the controller; the monitoring host scrapes and receives
    controller: str = ""
    monitoring_host: str = ""
    monitoring_address: str = ""
    # the node's GPUs and slices in Slurm's order (slurmgres.device_names)
    gpus: Sequence[str] = ()
    # names of all nodes; set only on the monitoring host
    members: Sequence[str] = ()
    # `storage_mounts`, as the inventory has it
    mounts: Sequence[Mapping[str, object]] = ()
    # `monitoring_settings` of group_vars/all/monitoring.yml: switches by name
    settings: Mapping[str, object] = field(default_factory=dict)
    # `monitoring_secrets`, from the vault
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_first_controller(self) -> bool:
        """Whether Slurm is queried here for the whole cluster."""
        return self.name == self.controller

    @property
    def runs_jobs(self) -> bool:
        """Whether it is a compute node."""
        return "slurm_compute" in self.groups

    def is_on(self, switch: str) -> bool:
        """Whether a switch of `monitoring_settings` is on; one that is not there is off."""
        return self.settings.get(switch) is True


class ContradictionError(ValueError):
    """Two pieces define one file or unit differently: a bug of deepopsctl."""


def combine(pieces: Iterable[Needs]) -> Needs:
    """The sum of several; duplicates are merged, and each piece's order is preserved."""
    needs_of_all = list(pieces)
    return Needs(
        packages=tuple(dict.fromkeys(name for needs in needs_of_all for name in needs.packages)),
        directories=_once((directory.path, directory) for needs in needs_of_all for directory in needs.directories),
        files=_once((file.path, file) for needs in needs_of_all for file in needs.files),
        units=_once((unit.name, unit) for needs in needs_of_all for unit in needs.units),
        stopped=tuple(dict.fromkeys(name for needs in needs_of_all for name in needs.stopped)),
        problems=tuple(dict.fromkeys(problem for needs in needs_of_all for problem in needs.problems)),
    )


def _once(entries: Iterable[tuple[str, T]]) -> tuple[T, ...]:
    merged: dict[str, T] = {}
    for key, entry in entries:
        if merged.setdefault(key, entry) != entry:
            raise ContradictionError(f"two pieces of monitoring define {key} differently")
    return tuple(merged.values())


def at(address: str, port: int) -> str:
    """Where a daemon listens, or is reached: `192.0.2.1:9100`, `[2001:db8::1]:9100`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass(frozen=True, slots=True)
class Target:
    """`exporter` is the name of the scrape job that it belongs to; `address` is HOST:PORT."""

    exporter: str
    address: str
    # in addition to those that all have: cluster, node, instance
    labels: Mapping[str, str] = field(default_factory=dict)
