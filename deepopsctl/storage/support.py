"""Which client runs on which distribution: the one table, each row with its source. What is not here is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepopsctl.storage.model import Platform, StorageType


@dataclass(frozen=True, slots=True)
class Pair:
    """A client's series ('' for the distribution's own) on a platform; `kernels` match releases, () for all of them."""

    type: StorageType
    series: str
    platform: str
    source: str
    kernels: tuple[str, ...] = ()


_DEBIAN = "https://packages.debian.org/nfs-common"
_UBUNTU = "https://packages.ubuntu.com/nfs-common"
PAIRS: tuple[Pair, ...] = (
    Pair(StorageType.NFS, "", "Debian 12", _DEBIAN),
    Pair(StorageType.NFS, "", "Debian 13", _DEBIAN),
    Pair(StorageType.NFS, "", "Ubuntu 22.04", _UBUNTU),
    Pair(StorageType.NFS, "", "Ubuntu 24.04", _UBUNTU),
)


def unsupported(kind: StorageType, series: str, platform: Platform) -> str:
    """Why a node can't have this client; '' where it can."""
    rows = [pair for pair in PAIRS if pair.type is kind and pair.series == series]
    what = f"{kind.value} {series}".strip()
    here = [pair for pair in rows if pair.platform == platform.name]
    if not here:
        known = ", ".join(dict.fromkeys(pair.platform for pair in rows)) or "nowhere"
        return f"{what} has no client for {platform.name} (there is one for: {known})"
    if any(not pair.kernels or any(re.match(kernel, platform.kernel) for kernel in pair.kernels) for pair in here):
        return ""
    known = ", ".join(dict.fromkeys(kernel for pair in here for kernel in pair.kernels))
    return f"{what} has no client for the kernel {platform.kernel} of {platform.name} (there is one for: {known})"
