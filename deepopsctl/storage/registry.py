"""The table of all storage types, and of the mappings that entries of several types share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepopsctl.model.storage import StorageType
from deepopsctl.storage import beegfs, cephfs, glusterfs, local, lustre, nfs, purge, quota
from deepopsctl.storage.types import Kind, Part


def known_kinds() -> Mapping[StorageType, Kind]:
    """Every type that can be used."""

    return MappingProxyType({
        StorageType.NFS: nfs.KIND,
        StorageType.LUSTRE: lustre.KIND,
        StorageType.BEEGFS: beegfs.KIND,
        StorageType.CEPHFS: cephfs.KIND,
        StorageType.GLUSTERFS: glusterfs.KIND,
        StorageType.TMPFS: local.TMPFS,
        StorageType.LOCAL: local.LOCAL,
    })  # fmt: skip


def known_parts() -> Mapping[str, Part]:
    """Every mapping beside the type's own."""
    return MappingProxyType({"quota": quota.PART, "purge": purge.PART})
