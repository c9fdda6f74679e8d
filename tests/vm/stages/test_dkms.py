"""Stage dkms: what `deploy nvidia` does on a machine with a kernel of its own, up to what needs a GPU.

Debian's kernel modules are built by DKMS on this host, against the headers of the guest's kernel. Loaded in the
guest they run, search for a GPU and find none: `No such device` is as far as it goes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vm.modules import MODULE, PACKAGE, built_modules
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

SETTINGS = "\nnvidia_driver_source: distro\nnvidia_driver_without_device: true\n"
# the modules come from outside; an initramfs for each package would cost an emulated machine minutes
PREPARE = """mkdir -p /etc/dkms && touch /etc/dkms/no-autoinstall
sed -i s/^update_initramfs=.*/update_initramfs=no/ /etc/initramfs-tools/update-initramfs.conf"""


@pytest.fixture(scope="module")
def deployed(cluster: VmCluster) -> dict[str, Any]:
    """The result of `deploy nvidia` for the compute node."""
    cluster.root(NODE, PREPARE)
    settings = cluster.directory / "inventory" / "group_vars" / "all" / "settings.yml"
    settings.write_text(settings.read_text(encoding="utf-8") + SETTINGS, encoding="utf-8")
    document: dict[str, Any] = json.loads(cluster.deepopsctl("deploy", "nvidia", "--json").stdout)
    return document


def source_version(cluster: VmCluster) -> str:
    """The version of the module's source on the compute node."""
    return cluster.root(NODE, f"ls /usr/src | sed -n 's/^{MODULE}-//p'")


@pytest.mark.usefixtures("deployed")
def test_the_drivers_files_and_packages_are_there(cluster: VmCluster) -> None:
    held = cluster.root(NODE, "apt-mark showhold").split()
    shown = cluster.root(NODE, "modprobe --showconfig; apt-cache policy libcuda1; cat /etc/modules-load.d/*nvidia.conf")

    assert {"libcuda1", PACKAGE, "nvidia-smi"} <= set(held)
    assert "blacklist nouveau" in shown
    assert "options nouveau modeset=0" in shown
    assert " 990" in shown
    assert "\nnvidia-uvm" in shown
    # DKMS could build for the kernel that runs
    cluster.root(NODE, "test -e /lib/modules/$(uname -r)/build/Makefile && command -v dkms")
    assert source_version(cluster) in cluster.root(NODE, "dpkg-query --show --showformat '${Version}' libcuda1")


@pytest.mark.usefixtures("deployed")
def test_modules_that_dkms_built_load_and_find_no_gpu(cluster: VmCluster) -> None:
    kernel = cluster.root(NODE, "uname -r")
    version = source_version(cluster)

    def fetch_source(path: Path) -> None:
        cluster.fetch(NODE, f"/usr/src/{MODULE}-{version}", path)

    directory = built_modules(cluster.os, kernel, version, fetch_source, print)
    before = cluster.root(NODE, "modprobe nvidia 2>&1 || true")
    cluster.copy(NODE, sorted(directory.iterdir()), "/tmp")
    cluster.root(
        NODE, f"mkdir -p /lib/modules/{kernel}/updates/dkms && cp /tmp/*.ko* /lib/modules/{kernel}/updates/dkms/"
    )
    cluster.root(NODE, "depmod --all && dmesg --clear")

    output = cluster.root(NODE, "modprobe nvidia 2>&1 || true")

    assert "not found" in before
    assert "No such device" in output
    assert "NVRM: No NVIDIA GPU found" in cluster.root(NODE, "dmesg")
    assert cluster.root(NODE, f"modinfo --field version {MODULE}") == version


@pytest.mark.usefixtures("deployed")
def test_the_next_deploy_changes_nothing(cluster: VmCluster) -> None:
    document = json.loads(cluster.deepopsctl("deploy", "nvidia", "--json").stdout)

    assert cluster.changed(document) == {CONTROLLER: 0, NODE: 0}
