"""Which packages are exchanged when NVIDIA's driver goes to another branch; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_node

# they hold the device files; of DCGM's some are names that packages of others have
DAEMONS = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-dcgm.service",
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "deepops-gpumetrics.service",
)
# the role's own: its last step starts them
OWN = ("nvidia-persistenced.service", "nvidia-fabricmanager.service")
# in the order in which they let go of each other
KERNEL_MODULES = (
    "gdrdrv",
    "nvidia_peermem",
    "nvidia_fs",
    "nvidia_uvm",
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia",
)
# kernel modules of two types (open, proprietary) exclude each other: those not asked for go
_MODULES = re.compile(r"-dkms$|^nvidia-dkms-|^linux-(modules|objects|signatures)-nvidia")


class Transaction:
    """apt's task: versions to install, others in any, packages to remove; `missing` has none of the branch."""

    def __init__(
        self, versions: Mapping[str, str], removed: Sequence[str], missing: Sequence[str], others: list[str]
    ) -> None:
        self.versions = versions
        self.removed = removed
        self.others = others
        self.missing = missing

    @property
    def arguments(self) -> list[str]:
        """For `apt-get install`."""
        versions = [f"{name}={version}" for name, version in sorted(self.versions.items())]
        return versions + self.others + [name + "-" for name in self.removed]


def of_the_driver(names: Iterable[str]) -> list[str]:
    """Those that are of the driver, and not headers of the kernel."""
    return sorted(nvidia_node.of_the_driver(names))


def branch_of(version: str) -> str:
    """`580` of `1:580.95.05-1`."""
    return version.rsplit(":", maxsplit=1)[-1].partition(".")[0]


def family(installed: Mapping[str, str], before: str) -> dict[str, str]:
    """{name: version} of all packages of the driver that is there; helpers with versions of their own stay."""
    branch = branch_of(before)
    return {name: installed[name] for name in of_the_driver(installed) if branch_of(installed[name]) == branch}


def offered(versions: Mapping[str, Sequence[str]], branch: str) -> dict[str, str]:
    """{name: version}: the first that the package sources have of the branch, which is the newest."""
    matching = {name: [text for text in known if branch_of(text) == branch] for name, known in versions.items()}
    return {name: known[0] for name, known in matching.items() if known}


def transaction(old: Mapping[str, str], wanted: Sequence[str], available: Mapping[str, str]) -> Transaction:
    """All packages of the old driver and the wanted ones, in the version that is available."""
    asked = of_the_driver(wanted)
    staying = [name for name in old if name in available and (name in asked or not _MODULES.search(name))]
    versions = {name: available[name] for name in set(asked) | set(staying) if name in available}
    return Transaction(
        versions,
        sorted(name for name in old if name not in versions),
        [name for name in asked if name not in available],
        # DKMS builds nothing without the kernel's headers
        sorted(set(wanted) - set(asked)),
    )
