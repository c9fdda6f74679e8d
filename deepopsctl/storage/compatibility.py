"""Which client runs on which distribution and kernel: the one table, each row with its source.

What is not here is refused. A client of the distribution's own has no series. A site that knows better than the table
says `untested: true`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deepopsctl.model.storage import Platform, StorageType
from deepopsctl.text.node_sets import shorten


@dataclass(frozen=True, slots=True)
class Pair:
    """A client's series ('' for the distribution's own) on a platform, with `kernels` such as `6.8`, () for all."""

    type: StorageType
    series: str
    platform: str
    source: str
    kernels: tuple[str, ...] = ()


DEBIAN_12, DEBIAN_13, UBUNTU_22, UBUNTU_24 = "Debian 12", "Debian 13", "Ubuntu 22.04", "Ubuntu 24.04"
_AZURE = "https://learn.microsoft.com/en-us/azure/azure-managed-lustre/client-install-plan"
_LUSTRE = "lustre/ChangeLog of 2.17.0: client primary kernels built and tested during the release cycle"
_BEEGFS_7 = "https://doc.beegfs.io/7.4.6/release_notes.html"
_BEEGFS_8 = "https://doc.beegfs.io/8.3/release_notes.html"
_CEPH = "https://docs.ceph.com/en/latest/start/os-recommendations"


def _distributed(storage_type: StorageType, package: str, source: str = "") -> tuple[Pair, ...]:
    """A client that each distribution has itself, for all of its kernels."""
    debian, ubuntu = (f"https://packages.{name}/{package}" for name in ("debian.org", "ubuntu.com"))
    places = ((DEBIAN_12, debian), (DEBIAN_13, debian), (UBUNTU_22, ubuntu), (UBUNTU_24, ubuntu))
    return tuple(Pair(storage_type, "", platform, source or page) for platform, page in places)


PAIRS: tuple[Pair, ...] = (
    *_distributed(StorageType.NFS, "nfs-common"),
    *_distributed(StorageType.CEPHFS, "ceph-common", _CEPH),
    *_distributed(StorageType.GLUSTERFS, "glusterfs-client"),
    Pair(StorageType.LUSTRE, "2.15", UBUNTU_22, _AZURE, ("5.15",)),
    # its own release notes have no Ubuntu but 20.04; it gets no more fixes since 2.17
    Pair(StorageType.LUSTRE, "2.16", UBUNTU_24, _AZURE, ("6.8",)),
    Pair(StorageType.LUSTRE, "2.17", UBUNTU_22, _LUSTRE, ("5.15",)),
    Pair(StorageType.LUSTRE, "2.17", UBUNTU_24, _LUSTRE, ("6.8",)),
    # 7.4.6 is the first whose module compiles with kernel 6.11, and the last kernel that any 7 compiles with
    Pair(StorageType.BEEGFS, "7.4", DEBIAN_12, _BEEGFS_7, ("6.1",)),
    Pair(StorageType.BEEGFS, "7.4", UBUNTU_22, _BEEGFS_7, ("5.15", "6.8")),
    Pair(StorageType.BEEGFS, "7.4", UBUNTU_24, _BEEGFS_7, ("6.8", "6.11")),
    # the kernels of these distributions; according to the release notes others may or may not work
    Pair(StorageType.BEEGFS, "8", DEBIAN_12, _BEEGFS_8, ("6.1",)),
    Pair(StorageType.BEEGFS, "8", DEBIAN_13, _BEEGFS_8, ("6.12",)),
    Pair(StorageType.BEEGFS, "8", UBUNTU_22, _BEEGFS_8, ("5.15", "6.8")),
    Pair(StorageType.BEEGFS, "8", UBUNTU_24, _BEEGFS_8, ("6.8", "6.11", "6.14")),
)
# The first release of a series that all of its rows hold for.
SINCE: Mapping[tuple[StorageType, str], tuple[int, int, int]] = {
    (StorageType.LUSTRE, "2.15"): (2, 15, 4),
    (StorageType.LUSTRE, "2.16"): (2, 16, 1),
    (StorageType.LUSTRE, "2.17"): (2, 17, 0),
    (StorageType.BEEGFS, "7.4"): (7, 4, 6),
    (StorageType.BEEGFS, "8"): (8, 3, 0),
}

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")


def unsupported(storage_type: StorageType, series: str, platform: Platform) -> str:
    """Why a node can't have this client; '' where it can."""
    rows = [pair for pair in PAIRS if pair.type is storage_type and pair.series == series]
    what = f"{storage_type.value} {series}".strip()
    here = [pair for pair in rows if pair.platform == platform.name]
    if not here:
        known = ", ".join(dict.fromkeys(pair.platform for pair in rows)) or "nowhere"
        return f"{what} has no client for {platform.name} (there is one for: {known})"
    # a plan may not know the kernel
    if not platform.kernel or any(not pair.kernels or _is_of(platform.kernel, pair.kernels) for pair in here):
        return ""
    known = ", ".join(dict.fromkeys(kernel for pair in here for kernel in pair.kernels))
    return f"{what} has no client for the kernel {platform.kernel} of {platform.name} (there is one for: {known})"


def unsupported_version(storage_type: StorageType, version: str, platform: Platform) -> str:
    """The same of a release, where the client has a version of its own."""
    return unknown_version(storage_type, version) or unsupported(
        storage_type, series_of(storage_type, version), platform
    )


def _is_of(release: str, kernels: tuple[str, ...]) -> bool:
    return any(re.match(rf"{re.escape(kernel)}(?!\d)", release) for kernel in kernels)


def parse_version(text: str) -> tuple[int, int, int] | None:
    """`2.17` or `2.17.1` as numbers; None for anything else."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def series_of(storage_type: StorageType, version: str) -> str:
    """The series that a version belongs to; '' where it is in none."""
    numbers = parse_version(version) or ()
    for known, series in SINCE:
        parts = tuple(int(part) for part in series.split("."))
        if known is storage_type and numbers[: len(parts)] == parts:
            return series
    return ""


def unknown_version(storage_type: StorageType, version: str) -> str:
    """Why a version is in no row of the table; '' where it is."""
    numbers, series = parse_version(version), series_of(storage_type, version)
    if numbers is None:
        return f"{shorten(version)!r} is not a valid version"
    if not series:
        known = ", ".join(name for other, name in SINCE if other is storage_type)
        return f"version {version} is in no series that we know ({known})"
    since = SINCE[storage_type, series]
    # `8.3` means the newest 8.3.x
    newest = version.count(".") == 1 and numbers[:2] == since[:2]
    if numbers < since and not newest:
        return f"version {version} is older than {'.'.join(map(str, since))}, the first that fits its distributions"
    return ""
