"""The cluster model: complete, validated, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from deepopsctl.model.people import People
from deepopsctl.model.policy import Policy
from deepopsctl.model.spaces import Space
from deepopsctl.model.storage import Mount


class Role(StrEnum):
    """The purpose of a node. A node may have several roles."""

    CONTROLLER = "controller"
    COMPUTE = "compute"
    LOGIN = "login"
    DBD = "dbd"
    NFS_SERVER = "nfs_server"
    MONITORING = "monitoring"


# Roles without a node go to the first controller (DESIGN, section 4).
DELEGATED_TO_CONTROLLER = (Role.DBD, Role.NFS_SERVER, Role.MONITORING)


@dataclass(frozen=True, slots=True)
class MigSlices:
    """Slices of one GPU with one MIG profile; `instances` are their numbers, where cluster.yml gives them."""

    profile: str
    count: int
    instances: tuple[int, ...] = ()


# How one GPU is cut; () where it is not.
MigLayout = tuple[MigSlices, ...]

TMP, VAR_TMP, SHM = "/tmp", "/var/tmp", "/dev/shm"  # noqa: S108 - names for Slurm


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """Identical GPUs of one node. `mig`, `cores` and `links` are empty or have one item for each GPU."""

    type: str
    count: int
    files: tuple[str, ...]
    mig: tuple[MigLayout, ...] = ()
    cores: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpus:
    """Declared GPUs of one node: Slurm's gres type (`h100`, or '' for untyped or several) and how many cards.

    `groups` is empty if type and count describe them fully; `autodetect` is gres.conf's AutoDetect, '' for off.
    """

    type: str
    count: int
    groups: tuple[GpuGroup, ...] = ()
    autodetect: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `address` is '' if the name itself resolves; `port` 0 means ssh's default."""

    name: str
    roles: frozenset[Role]
    address: str = ""
    port: int = 0
    gpus: Gpus | None = None
    features: tuple[str, ...] = ()
    slurm: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Partition:
    """A Slurm partition; `nodes` are node names in order, `options` any further Slurm keys.

    `everything`: cluster.yml has `nodes: all`, which includes nodes that are added later. `prepared`: the purpose that
    gave it settings, which `options` and `max_time` have already.
    """

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    max_time: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    everything: bool = False
    prepared: str = ""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A time in which nodes start no jobs of users. `start` is the controller's local time.

    `everything`: cluster.yml has `nodes: all`, which includes nodes that are added later.
    """

    name: str
    start: datetime
    minutes: int
    nodes: tuple[str, ...]
    repeat: str = ""
    everything: bool = False


@dataclass(frozen=True, slots=True)
class NvlinkDomain:
    """Nodes whose GPUs share one NVLink fabric, in order."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """How the nodes are reached over SSH. Empty strings and 0 mean ssh's own default."""

    user: str
    port: int = 0
    key: str = ""
    jump_host: str = ""
    # what users type for any of the login nodes: a name in DNS or a load balancer
    login_name: str = ""


@dataclass(frozen=True, slots=True)
class JobDirectories:
    """Private directories for each job. `base` is their location on the nodes' local disks."""

    base: str = "/var/spool"
    method: str = "namespace"
    var_tmp: bool = False
    shm: bool = True
    # what jobs may have of the disk, (node set, size) each, '' for every node: Slurm counts it as gres/tmpdisk
    space: tuple[tuple[str, str], ...] = ()
    # the space of a job that asks for none
    share: str = ""

    @property
    def directory(self) -> str:
        """One subdirectory per job, and nothing else: Slurm removes numbered entries that belong to no job."""
        return f"{self.base}/slurm-jobs"

    @property
    def private(self) -> tuple[str, ...]:
        """The directories that each job has privately; the first is its $SLURM_TMPDIR."""
        if self.method != "namespace":
            return ()
        return (TMP, *([VAR_TMP] if self.var_tmp else []), *([SHM] if self.shm else []))

    def written(self) -> dict[str, object]:
        """The non-default values, as in cluster.yml."""
        default = asdict(JobDirectories())
        values = {key: value for key, value in asdict(self).items() if value != default[key]}
        if self.space:
            values["space"] = self.space[0][1] if self.space[0][0] == "" else dict(self.space)
        return values

    def variable(self) -> dict[str, object]:
        """The inventory variable; "directory" is for the roles."""
        values = {key: value for key, value in asdict(self).items() if key not in ("space", "share")}
        disk = {"space": [list(each) for each in self.space], "share": self.share} if self.space else {}
        return {**values, "directory": self.directory, "private": list(self.private), **disk}

    @property
    def programs(self) -> tuple[str, ...]:
        """The keys of slurm.conf whose programs deepopsctl installs; those call the site's programs."""
        return ("Epilog", "TaskProlog") if self.method == "namespace" else ("Prolog", "Epilog", "TaskProlog")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A whole cluster; node order is the order of cluster.yml, the first controller is the primary."""

    name: str
    access: Access
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    policy: Policy = field(default_factory=Policy)
    maintenance: tuple[Maintenance, ...] = ()
    # destructive commands ask for the cluster's name
    protected: bool = False
    storage: tuple[Mount, ...] = ()
    # deepopsctl manages the mounts, even if none are declared (any more)
    manages_storage: bool = False
    spaces: tuple[Space, ...] = ()
    job_directories: JobDirectories | None = None
    # the entry of `storage` on which all controllers keep Slurm's state; '' for the first controller's own disk
    slurm_state: str = ""
    # what a deploy without names deploys, in the order of site.yml; None where cluster.yml does not list it
    components: tuple[str, ...] | None = None
    # None if cluster.yml declares none: deepopsctl then leaves the nodes' own configuration alone
    nvlink_domains: tuple[NvlinkDomain, ...] | None = None
    # None without a people.yml
    people: People | None = None

    def with_role(self, role: Role) -> tuple[Node, ...]:
        """The nodes that have `role`; delegated functions fall to the first controller."""
        nodes = tuple(node for node in self.nodes if role in node.roles)
        if nodes or role not in DELEGATED_TO_CONTROLLER:
            return nodes
        return self.controllers[:1]

    @property
    def has_environment(self) -> bool:
        """Whether the nodes get the environment of users: cluster.yml lists it or has spaces, or there are people."""
        return self.people is not None or bool(self.spaces) or "environment" in (self.components or ())

    @property
    def controllers(self) -> tuple[Node, ...]:
        """Controllers in order; the first is the primary."""
        return tuple(node for node in self.nodes if Role.CONTROLLER in node.roles)

    @property
    def state_mount(self) -> Mount | None:
        """Where all controllers keep Slurm's state; None where it is on the first controller alone."""
        return next((mount for mount in self.storage if mount.name == self.slurm_state), None)

    @property
    def compute(self) -> tuple[Node, ...]:
        """Compute nodes in order."""
        return tuple(node for node in self.nodes if Role.COMPUTE in node.roles)
