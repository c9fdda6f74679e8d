"""Mounts, and what a node needs for each of them. Frozen, independent of file formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

NOTHING: Mapping[str, object] = MappingProxyType({})


class StorageType(StrEnum):
    """The type of a file system."""

    NFS = "nfs"
    LUSTRE = "lustre"
    BEEGFS = "beegfs"
    CEPHFS = "cephfs"
    GLUSTERFS = "glusterfs"
    TMPFS = "tmpfs"
    LOCAL = "local"


# Network file systems; the others are local to each node.
NETWORKED = frozenset(StorageType) - {StorageType.TMPFS, StorageType.LOCAL}


@dataclass(frozen=True, slots=True)
class Mount:
    """One entry of `storage`.

    `nodes` are all nodes that mount it, in the order of cluster.yml; `written` is their expression in cluster.yml
    ('' for every node but the server). `server` is the node of the cluster that exports it, '' for none.
    `settings` is the mapping named as the type; `parts` are `quota`, `purge` and whatever else a type's mount may have.
    """

    name: str
    type: StorageType
    source: str
    path: str
    nodes: tuple[str, ...]
    written: str = ""
    server: str = ""
    options: tuple[str, ...] = ()
    required: bool = False
    automount: bool = False
    # unmounted again after so long without use, as systemd writes it; '' for never
    automount_idle: str = ""
    user_writable: str = ""
    settings: Mapping[str, object] = field(default_factory=lambda: NOTHING)
    parts: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Platform:
    """What a client depends on: `Debian 13` (`deepops_platform`), and the running kernel's release."""

    name: str
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file that a mount needs."""

    path: str
    content: str
    mode: str = "0644"


@dataclass(frozen=True, slots=True)
class Needs:
    """What one node needs for one mount: pure data, which the role applies.

    `packages` have versions ('' for any). `what`, `fstype` and `options` go into the mount unit, which starts after the
    units in `after` and fails without those in `requires`; without an `fstype` there is nothing to mount. `problems`
    are the reasons why this node can't mount it: nothing is changed then.
    """

    what: str
    fstype: str
    options: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    files: tuple[NodeFile, ...] = ()
    after: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    secrets: tuple[NodeSecret, ...] = ()
    client: Client | None = None
    # commands that check, once it is mounted, whether its servers answer
    checks: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSecret:
    """A file with one of `storage_secrets`, by the secret's `name`; nothing of it is ever shown.

    `is_binary` secrets are in the vault as base64; the others are words, and `before` stands before the word.
    """

    path: str
    name: str
    is_binary: bool = False
    before: str = ""
    mode: str = "0400"


@dataclass(frozen=True, slots=True)
class Archive:
    """One package file by its URL and checksum."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A signed repository of packages; a flat one has the suite `/` and no components."""

    url: str
    key: str
    fingerprint: str
    suite: str = "/"
    components: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """The client of a file system with kernel modules: apt holds it together with the kernel.

    `modules` are the kernel modules that must be there for the running kernel; `builds` says that they are compiled on
    the node, which takes the kernel's headers.
    """

    name: str
    version: str
    packages: tuple[str, ...]
    modules: tuple[str, ...] = ()
    builds: bool = True
    repository: Repository | None = None
    archives: tuple[Archive, ...] = ()
