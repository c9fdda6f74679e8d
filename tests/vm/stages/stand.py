"""Where the stages start from: fresh machines, or the snapshot of them taken after the first deploy."""

from __future__ import annotations

import json
import os
import shutil
import string
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from tests.support.cluster import command
from tests.support.paths import ROOT
from tests.vm.stages.machines import Machines, run
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

DEPLOYED = "deployed"
# of the releases' clusters and of Molecule's; all in what VirtualBox allows its machines
NETWORKS = {
    ("debian13", "cluster"): "192.168.57",
    ("debian13", "two_controllers"): "192.168.58",
    ("debian13", "molecule"): "192.168.62",
    ("debian12", "cluster"): "192.168.59",
    ("debian12", "two_controllers"): "192.168.60",
    ("debian12", "molecule"): "192.168.63",
}
# Real devices, so that opening one works where it is allowed, and made again by each boot as udev makes a driver's.
DEVICES = """set -e
echo loop > /etc/modules-load.d/test-gpus.conf
printf 'b! /dev/nvidia%s 0666 root root - 7:%s\\n' 0 0 1 1 > /etc/tmpfiles.d/test-gpus.conf
modprobe loop
systemd-tmpfiles --create --boot /etc/tmpfiles.d/test-gpus.conf
dd if=/dev/nvidia1 of=/dev/null count=1 status=none
"""


@dataclass(frozen=True)
class Stand:
    """The machines of one Debian release, and the cluster directory that goes with them."""

    os: str
    directory: Path
    # which of the cluster files here
    file: str

    @cached_property
    def cluster(self) -> VmCluster:
        """How the machines are driven; they need not be there yet."""
        addresses = {node["names"]: node["addresses"] for node in yaml.safe_load(self._nodes)["nodes"]}
        settings = {
            "DEEPOPSCTL_CLUSTER": str(self._directory),
            "DEEPOPSCTL_VM_BOX": self.box,
            "VAGRANT_DEFAULT_PROVIDER": "libvirt",
            "VAGRANT_DOTFILE_PATH": str(self.directory / "vagrant"),
        }
        machines = Machines(self._name, tuple(addresses), settings)
        return VmCluster(self._name, self.os, self._directory, machines, addresses)

    @property
    def box(self) -> str:
        """What `make box` calls the box of this release."""
        return f"deepopsctl/{self.os}"

    def fresh(self) -> VmCluster:
        """New machines that are reached by key, nothing deployed."""
        self.clear()
        self.directory.mkdir(parents=True)
        nodes = self.directory / "nodes.yml"
        nodes.write_text(self._nodes, encoding="utf-8")
        made = command("init", str(self._directory), "--from", str(nodes))
        assert made.returncode == 0, made.stderr
        shutil.copy(Path(__file__).with_name("vagrant.yml"), self._directory)
        machines = self.cluster.machines
        machines.up()
        self.cluster.deepopsctl("ssh", "setup", "--identity", str(machines.login_key(CONTROLLER)))
        self.cluster.root(NODE, DEVICES)
        return self.cluster

    def save_snapshot(self) -> None:
        """Take the snapshot that every other stage starts from; once, after the first deploy."""
        self._versions.write_text(json.dumps(self._ask_versions()), encoding="utf-8")
        self.cluster.hang_up()
        self.cluster.machines.save(DEPLOYED)
        shutil.copytree(self._directory, self._saved_directory, symlinks=True)

    def deployed(self) -> VmCluster:
        """The cluster as the first deploy left it; it is deployed now where no snapshot is there."""
        if not (self._saved_directory.is_dir() and self.cluster.machines.has(DEPLOYED)):
            self.fresh().deploy()
            self.save_snapshot()
            return self.cluster
        self.cluster.hang_up()
        self.cluster.machines.restore(DEPLOYED)
        shutil.rmtree(self._directory)
        shutil.copytree(self._saved_directory, self._directory, symlinks=True)
        for node in self.cluster.addresses:
            self.cluster.wait_for_ssh(node)
        self.cluster.set_clocks()
        return self.cluster

    def rest(self) -> None:
        """Cut the power of the machines, so that others have the cores; `deployed` starts them again."""
        if self._directory.is_dir():
            self.cluster.hang_up()
            for name in self.cluster.addresses:
                self.cluster.machines.cut(name)

    def clear(self) -> None:
        """Remove machines, snapshots and files."""
        if self._directory.is_dir():
            self.cluster.hang_up()
            self.cluster.machines.destroy()
        shutil.rmtree(self.directory, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        """What the machines ran with and on; empty before the first deploy."""
        if not self._versions.is_file():
            return {}
        versions: dict[str, str] = json.loads(self._versions.read_text(encoding="utf-8"))
        return versions

    def _ask_versions(self) -> dict[str, str]:
        here = dict(os.environ)
        return {
            "Vagrant": run(["vagrant", "--version"], here).split()[-1],
            "libvirt": run(["virsh", "--version"], here).strip(),
            "QEMU": run(["qemu-system-x86_64", "--version"], here).split()[3],
            "guests": "Debian " + self.cluster.root(NODE, "cat /etc/debian_version"),
            "kernel": self.cluster.root(NODE, "uname --kernel-release"),
            "Slurm": self.cluster.root(CONTROLLER, "scontrol --version").split()[-1],
            "processor": self.cluster.root(NODE, "systemd-detect-virt || true").replace("qemu", "emulated (QEMU TCG)"),
        }

    @property
    def network(self) -> str:
        """The first three numbers of its addresses."""
        return NETWORKS[self.os, self.file]

    @property
    def _name(self) -> str:
        return f"{self.os}-{self.file.replace('_', '-')}"

    @property
    def _nodes(self) -> str:
        text = Path(__file__).with_name(f"{self.file}.yml").read_text(encoding="utf-8")
        return string.Template(text).substitute(name=self._name, network=self.network)

    @property
    def _directory(self) -> Path:
        return self.directory / "cluster"

    @property
    def _saved_directory(self) -> Path:
        return self.directory / "cluster.deployed"

    @property
    def _versions(self) -> Path:
        return self.directory / "versions.json"


def stand_for(os_name: str, file: str = "cluster") -> Stand:
    """The stand of a Debian release and one of the cluster files here, in the checkout's cache."""
    name = os_name if file == "cluster" else f"{os_name}-{file}"
    return Stand(os_name, ROOT / ".cache" / "test-vm" / name, file)
