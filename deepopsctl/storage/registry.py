"""The table of all storage types, and of the mappings that entries of several types share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepopsctl.model.storage import StorageType
from deepopsctl.storage import beegfs, cephfs, glusterfs, local, lustre, nfs, purge, quota, snapshots
from deepopsctl.storage.types import SharedOption, TypeHandler


def type_handlers() -> Mapping[StorageType, TypeHandler]:
    """Every type that can be used."""

    return MappingProxyType({
        StorageType.NFS: nfs.HANDLER,
        StorageType.LUSTRE: lustre.HANDLER,
        StorageType.BEEGFS: beegfs.HANDLER,
        StorageType.CEPHFS: cephfs.HANDLER,
        StorageType.GLUSTERFS: glusterfs.HANDLER,
        StorageType.TMPFS: local.TMPFS,
        StorageType.LOCAL: local.LOCAL,
    })  # fmt: skip


def shared_options() -> Mapping[str, SharedOption]:
    """Options that several types share, by key."""
    return MappingProxyType({"quota": quota.OPTION, "purge": purge.OPTION, "snapshots": snapshots.OPTION})
