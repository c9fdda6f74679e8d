"""The virtual machines: Vagrant makes and removes them, libvirt's own tool pulls the plug and keeps snapshots."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT
from tests.vm.box.register import LIBVIRT

# an emulated machine is some twenty times as slow as a real one, beside other work a hundred times
PATIENCE_S = 1800


@dataclass(frozen=True)
class Machines:
    """The machines of one cluster; `settings` are the environment variables that the Vagrantfile reads."""

    cluster: str
    names: tuple[str, ...]
    settings: Mapping[str, str]

    def domain(self, name: str) -> str:
        """libvirt's name of a machine."""
        return f"{self.cluster}_{name}"

    def up(self) -> None:
        """Make them and wait until Vagrant reaches all."""
        self._vagrant("up")

    def destroy(self) -> None:
        """Remove them with their disks and snapshots, whatever state they are in."""
        self._vagrant("destroy", "--force")

    def login_key(self, name: str) -> Path:
        """The key with which Vagrant logs in."""
        config = self._vagrant("ssh-config", name)
        return Path(next(line.split()[1].strip('"') for line in config.splitlines() if "IdentityFile" in line))

    def running(self, name: str) -> bool:
        """Whether a machine has power."""
        return self.domain(name) in virsh("list", "--name").split()

    def start(self, name: str) -> None:
        """Press the power button of a machine that is off."""
        if not self.running(name):
            virsh("start", self.domain(name))

    def cut(self, name: str) -> None:
        """Pull the plug. Not `vagrant halt --force`: that presses the power button, and systemd shuts down."""
        if self.running(name):
            virsh("destroy", self.domain(name))

    def has(self, snapshot: str) -> bool:
        """Whether all machines have a snapshot of this name."""
        there = set(virsh("list", "--all", "--name").split())
        return all(
            self.domain(name) in there and snapshot in virsh("snapshot-list", self.domain(name), "--name").split()
            for name in self.names
        )

    def save(self, snapshot: str) -> None:
        """Take a snapshot of disks and memory of all machines at one moment."""
        for name in self.names:
            virsh("suspend", self.domain(name))
        try:
            for name in self.names:
                virsh("snapshot-create-as", self.domain(name), snapshot)
        finally:
            for name in self.names:
                virsh("resume", self.domain(name))

    def restore(self, snapshot: str) -> None:
        """Go back to a snapshot; the guests' clocks then show its time."""
        for name in self.names:
            # libvirt 9.0 dies of going back while a machine runs
            self.cut(name)
            virsh("snapshot-revert", self.domain(name), snapshot, "--paused")
        for name in self.names:
            virsh("resume", self.domain(name))

    def _vagrant(self, *arguments: str) -> str:
        environment = {**os.environ, **self.settings, "VAGRANT_CHECKPOINT_DISABLE": "1"}
        return run(["vagrant", *arguments], environment)


def virsh(*arguments: str) -> str:
    """Run virsh on the system's libvirt; returns what it printed."""
    return run(["virsh", "--quiet", "--connect", LIBVIRT, *arguments], dict(os.environ))


def run(argv: list[str], environment: Mapping[str, str]) -> str:
    """Run a tool in the repository's root; a bad exit code fails the test with its output."""
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    output = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "Progress:" not in line)
    assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}:\n{output}"
    return done.stdout
