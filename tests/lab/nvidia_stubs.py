"""NVIDIA's driver and its relatives as stub packages in mirrors of its repository, for Debian 13.

Names, what they want of each other and the units' names are NVIDIA's; nothing in them came from there or drives a GPU.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.lab.aptrepo import ARCHITECTURE, Stub, build, serve, signers
from tests.lab.harness import LabCluster
from tests.support.paths import FAKES, ROOT

VERSIONS = ROOT / "group_vars" / "all" / "versions.yml"
STANDIN = FAKES / "nvidia-smi"
LABEL = "NVIDIA CUDA"
KEY = "8793F200.pub"
DIRECTORY = Path("debian13", {"amd64": "x86_64", "arm64": "sbsa"}[ARCHITECTURE])
TRIPLET = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[ARCHITECTURE]
UNITS = "usr/lib/systemd/system"
# the version of the kernel module that a package installs, for a test that stands in for the kernel
MODULE = "usr/lib/standin-nvidia/module"
# with the subnet manager, where that is there, whose start asks `ibstat`
START_FABRIC = """#!/bin/sh
if [ -x /opt/nvidia/nvlsm/sbin/nvlsm ]; then
    command -v ibstat >/dev/null || { echo "ibstat is not there"; exit 1; }
    /opt/nvidia/nvlsm/sbin/nvlsm &
fi
exec sleep infinity
"""
# under its own name in the list of processes
STAY = "#!/bin/sh\nwhile sleep 3600; do :; done\n"
# it reads the list when it starts, and does not start without
IMEX = "#!/bin/sh\nset -e\ncp /etc/nvidia-imex/nodes_config.cfg /run/imex-knows\nexec sleep infinity\n"


def daemon(command: str) -> str:
    """A unit that runs a command."""
    return f"[Service]\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n"


def driver(upstream: str) -> list[Stub]:
    """All packages of a driver: those of one version depend on each other in it, fabric manager and IMEX do nothing."""
    version = f"{upstream}-1"
    same = ", ".join(f"{name} (= {version})" for name in ("libcuda1", "libnvidia-ml1"))
    library = {f"usr/lib/{TRIPLET}/libnvidia-ml.so.{upstream}": "stub\n"}
    persistenced = {f"{UNITS}/nvidia-persistenced.service": daemon("/bin/sleep infinity")}
    fabric = {
        f"{UNITS}/nvidia-fabricmanager.service": daemon("/usr/bin/nvidia-fabricmanager-start.sh"),
        "usr/bin/nvidia-fabricmanager-start.sh": START_FABRIC,
    }
    imex = {f"{UNITS}/nvidia-imex.service": daemon("/usr/bin/nvidia-imex"), "usr/bin/nvidia-imex": IMEX}
    return [
        Stub("nvidia-driver-cuda", version, same),
        Stub("libcuda1", version),
        Stub("libnvidia-ml1", version, files=library),
        Stub("nvidia-kernel-open-dkms", version, files={MODULE: f"{upstream}\n"}),
        Stub("nvidia-persistenced", version, files=persistenced),
        Stub("nvidia-fabricmanager", version, files=fabric),
        Stub("nvidia-imex", version, files=imex),
    ]


def subnet_manager() -> Stub:
    """It has versions of its own."""
    return Stub("nvlsm", "2025.10.11-1", files={"opt/nvidia/nvlsm/sbin/nvlsm": STAY})


@dataclass(frozen=True)
class Mirrors:
    """Some mirrors of NVIDIA's repository on one node, signed by one key that is not NVIDIA's."""

    url: str
    fingerprint: str

    def settings(self, name: str) -> dict[str, Any]:
        """What a site sets to have its drivers from one of them; no node of a lab has a GPU on its bus."""
        table = yaml.safe_load(VERSIONS.read_text(encoding="utf-8"))["deepops_nvidia_drivers"]
        table["repository"]["Debian 13"]["repository"]["fingerprint"] = self.fingerprint
        return {
            "deepops_nvidia_drivers": table,
            "nvidia_driver_source": "repository",
            "nvidia_driver_repository_url": f"{self.url}/{name}",
            "nvidia_driver_without_device": True,
        }


def mirrors(cluster: LabCluster, node: str, root: Path, contents: Mapping[str, Iterable[Stub]]) -> Mirrors:
    """Make them, and have a node serve them all."""
    with signers(1) as (signer,):
        for name, stubs in contents.items():
            directory = root / name / DIRECTORY
            build(directory, LABEL, list(stubs), signer)
            (directory / KEY).write_bytes(signer.public)
        url = serve(cluster, node, root)
        # it has them now
        shutil.rmtree(root)
        return Mirrors(url, signer.fingerprint)


def site(cluster: LabCluster, values: Mapping[str, object]) -> None:
    """Write what a site sets, over what was set before."""
    path = cluster.directory / "inventory" / "group_vars" / "all" / "gpus.yml"
    path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()), encoding="utf-8")


def write(cluster: LabCluster, node: str, path: str, content: str, mode: str = "0644") -> None:
    """A file on a node."""
    text = base64.b64encode(content.encode()).decode()
    cluster.root(node, f"mkdir -p $(dirname {path}) && echo {text} | base64 -d > {path} && chmod {mode} {path}")


def installed(cluster: LabCluster, node: str, *names: str) -> list[str]:
    """`name version` of those of the packages that are installed."""
    form = "--showformat '${db:Status-Status} ${Package} ${Version}\\n'"
    shown = cluster.root(node, f"dpkg-query --show {form} {' '.join(names)} 2>/dev/null || true")
    # in whatever order dpkg has them
    return sorted(line.partition(" ")[2] for line in shown.splitlines() if line.startswith("installed "))


def pci_bus(gpus: Mapping[str, str], switches: Iterable[str] = ()) -> str:
    """A shell script that makes /srv/pci: GPUs by {address: device id}, and NVSwitches."""
    entries = [(address, "0x030200", device) for address, device in gpus.items()]
    entries += [(address, "0x068000", "0x22a3") for address in switches]
    return "\n".join(
        f"mkdir -p /srv/pci/{address}; echo 0x10de > /srv/pci/{address}/vendor; "
        f"echo {pci_class} > /srv/pci/{address}/class; echo {device} > /srv/pci/{address}/device"
        for address, pci_class, device in entries
    )


def simulated_host(version: str, gpus: Iterable[str]) -> str:
    """A shell script: a container looks like a physical node until it ends, with /srv/pci and a driver that runs."""
    known = " ".join(f"/run/machine/driver/nvidia/gpus/{address}" for address in gpus)
    return f"""
mkdir -p /run/machine/module/nvidia {known}
echo {version} > /run/machine/module/nvidia/version
echo 'NVRM version: NVIDIA UNIX Open Kernel Module  {version}' > /run/machine/driver/nvidia/version
mount --bind /run/machine/module /sys/module
mount --bind /run/machine/driver /proc/driver
mount --bind /srv/pci /sys/bus/pci/devices
headers=/lib/modules/$(uname -r)/build; mkdir -p $headers && touch $headers/Makefile
rm /run/systemd/container"""
