"""Facts of a node and of this machine, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from deepopsctl.text.answers import RequiredFields, mappings


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a node with its network (`10.0.0.0/24`) and its interface's MTU in bytes."""

    interface: str
    address: str
    network: str
    mtu: int


@dataclass(frozen=True, slots=True)
class Names:
    """How one node resolves the names of all nodes: only differences from cluster.yml."""

    unresolved: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    otherwise: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    called: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    managed: bool = False


@dataclass(frozen=True, slots=True)
class Packages:
    """The package manager's state; `seen` is whether its lock could be read."""

    manager: str
    lock: str = ""
    broken: tuple[str, ...] = ()
    interrupted: bool = False
    seen: bool = True


@dataclass(frozen=True, slots=True)
class Outside:
    """A repository that a deploy would add and the node cannot reach: purpose, address, reason.

    A deploy ends well without one that is optional.
    """

    what: str
    url: str
    why: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """Free space on the file system of a directory, in MiB; `inodes` is 0 if the file system counts none."""

    path: str
    free_mb: int
    inodes: int
    free_inodes: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class Listener:
    """A process that listens on a port; no `command` where only root could see it."""

    port: int
    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class SeenGpus:
    """PCI device ids on the bus, device files, models by the driver, its version, kernel modules and if they run."""

    bus: tuple[str, ...] = ()
    files: int = 0
    models: tuple[str, ...] = ()
    driver: str = ""
    modules: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster's settings that checks depend on."""

    set_hostname: bool
    confinement: str
    tested: Mapping[str, tuple[str, ...]]
    # of Slurm's user: as set, 0 for not; and what packages choose, by family
    user_id: int = 0
    package_user_ids: Mapping[str, str] = field(default_factory=dict)
    # a site's keys of slurm.conf
    slurm: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node. `lead` are the bounds of its clock's lead over this machine's, in seconds."""

    name: str
    hostname: str
    machine_id: str
    container: bool
    kernel: str
    python: str
    distribution: str
    version: str
    family: str
    sudo: str
    root: bool
    lead: tuple[float, float]
    cpus: int
    memory_mb: int
    disks: tuple[Disk, ...]
    addresses: tuple[Address, ...]
    names: Names
    packages: Packages
    outside: tuple[Outside, ...]
    ports: Mapping[str, int]
    listeners: tuple[Listener, ...]
    gpus: SeenGpus
    secure_boot: str
    cgroup: str
    time_daemons: tuple[str, ...]
    synchronised: bool
    firewalls: tuple[str, ...]
    slurm_daemons: tuple[str, ...]
    slurm_version: str
    # of plugstack.conf: path, required, there, version
    plugins: tuple[Mapping[str, object], ...]
    managed: bool
    settings: Settings
    versions: Mapping[str, str]
    users: Mapping[str, str]
    # shared directories that honour setuid programs or devices: path, type, served, lacks
    storage: tuple[Mapping[str, object], ...]
    # user, its home on a file server, where its keys are (root, home, or empty where only root could see it)
    login: Mapping[str, str]
    database: Mapping[str, str]
    # what Slurm's settings need and the node lacks
    unmet: tuple[str, ...] = ()
    # why a deploy would refuse the node, and the way out, by what it is about
    refusals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # what restarts or replaces daemons under jobs, and packages that are not held
    restarts: tuple[str, ...] = ()
    unheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    """The installed version of a Python package ('' for none), and the accepted versions."""

    name: str
    installed: str
    wanted: str
    good: bool


@dataclass(frozen=True, slots=True)
class ControlFacts:
    """This machine. `open_files` are private ones that others may read; `vault` is '' where the secrets open."""

    python: Requirement
    packages: tuple[Requirement, ...]
    ssh: str
    free_mb: int
    open_files: tuple[str, ...]
    vault: str


def parse_facts(name: str, raw: Mapping[str, object]) -> NodeFacts:
    """Parse a report of `node_doctor`; ValueError if it is none."""
    try:
        return _parse(name, RequiredFields.of(raw))
    except ValueError as error:
        raise ValueError(f"no report of node_doctor: {error!r}") from error


def _parse(name: str, raw: RequiredFields) -> NodeFacts:
    platform, time, slurm = raw.part("platform"), raw.part("time"), raw.part("slurm")
    asked, clock = raw.part("asked"), raw.part("clock")
    return raw.fill(
        NodeFacts,
        name=name,
        distribution=platform.text("distribution"),
        version=platform.text("distribution_version"),
        family=platform.text("os_family"),
        # the node read its clock between the query and the answer
        lead=(clock.real("end") - asked.real("after"), clock.real("begin") - asked.real("before")),
        disks=raw.fill_each("disks", Disk),
        addresses=raw.fill_each("addresses", Address),
        names=raw.part("names").fill(Names),
        packages=_packages(raw.part("packages")),
        outside=raw.fill_each("outside", Outside),
        ports={daemon: raw.part("ports").number(daemon) for daemon in raw.part("ports").values},
        listeners=raw.fill_each("listeners", Listener),
        gpus=_gpus(raw.part("gpus")),
        cgroup=raw.text("deepops_cgroup") if raw.yes("deepops_cgroup_writable") else "none",
        time_daemons=time.texts("daemons"),
        synchronised=time.yes("synchronised"),
        slurm_daemons=slurm.texts("daemons"),
        slurm_version=slurm.text("version"),
        plugins=tuple(mappings(slurm.values.get("plugins"))),
        managed=slurm.yes("managed"),
        settings=raw.part("settings").fill(Settings),
        unmet=tuple(entry.text("message") for entry in raw.parts("unmet")),
        restarts=raw.part("restarts").texts("causes"),
        unheld=raw.part("restarts").texts("unheld"),
    )


def _packages(raw: RequiredFields) -> Packages:
    lock = raw.part("lock") if raw.values.get("lock") else None
    return raw.fill(Packages, lock=f"{lock.text('command')} (pid {lock.text('pid')})" if lock else "")


def _gpus(raw: RequiredFields) -> SeenGpus:
    return raw.fill(SeenGpus, modules={name: runs is True for name, runs in raw.part("modules").values.items()})
