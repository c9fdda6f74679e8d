"""A cluster of virtual machines as the stages drive it: over SSH, as an administrator would."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.nodes.host_keys import close_connections
from tests.lab.faults import accounted
from tests.support.cluster import DrivenCluster, wait_until
from tests.vm.stages.machines import PATIENCE_S, Machines

CONTROLLER = "ctl1"
NODE = "node1"


@dataclass(frozen=True)
class VmCluster(DrivenCluster):
    """The machines, their addresses, and the cluster directory."""

    machines: Machines
    addresses: Mapping[str, str]
    patience_s: ClassVar[float] = PATIENCE_S
    components: ClassVar[tuple[str, ...]] = ()
    # three more than in the lab: these machines are watched, and the controller is where that is decided
    unchanged_tasks: ClassVar[int] = 8

    def root(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as root on a node and return its output."""
        return self._checked(node, f"sudo sh -c {shlex.quote(script)}", ok)

    def user(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as the cluster's user on a node, in its home."""
        return self._checked(node, script, ok)

    def holds(self, node: str, test: str) -> bool:
        """Whether a shell test is true on a node, for root; false where the node is off."""
        return self._ssh(node, f"sudo sh -c {shlex.quote(test)}").returncode == 0

    def copy(self, node: str, files: Sequence[Path], directory: str) -> None:
        """Copy files of this host into a directory that the user may write to."""
        argv = ["scp", "-q", *self._options(node), *map(str, files), f"{self._login(node)}:{directory}/"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=self.patience_s, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr

    def fetch(self, node: str, directory: str, path: Path) -> None:
        """Write a tar file with a directory of a node."""
        parent, _, name = directory.rpartition("/")
        argv = ["ssh", *self._options(node), self._login(node), f"tar --create --directory={parent} {name}"]
        with path.open("wb") as stream:
            subprocess.run(argv, stdout=stream, stdin=subprocess.DEVNULL, timeout=self.patience_s, check=True)

    def power_on(self, node: str) -> None:
        """Start a machine and wait for its SSH server; does nothing where it runs."""
        self.machines.start(node)
        self.wait_for_ssh(node)

    def power_cut(self, node: str) -> None:
        """Pull the plug."""
        self._hang_up(node)
        self.machines.cut(node)

    def reboot(self, node: str) -> None:
        """Restart a machine's system in good order, and wait until it is another boot."""
        boot = "cat /proc/sys/kernel/random/boot_id"
        before = self.root(node, boot)
        self.root(node, "systemctl reboot", ok=False)
        self._hang_up(node)
        try:
            wait_until(
                f"{node} has booted again",
                lambda: self.holds(node, f'test "$({boot})" != {before}'),
                self.patience_s,
            )
        except AssertionError as late:
            raise AssertionError(f"{late}; what it wrote last:\n{self._revived(node)}") from late

    def reboot_drained(self) -> None:
        """Restart the compute node, which is drained, and wait until its slurmd has registered again.

        Before that slurmctld may not know yet that it was away, and would take it for one that rebooted unexpectedly.
        """
        started = f"scontrol --oneliner show node {NODE} | grep -o 'SlurmdStartTime=[^ ]*'"
        before = self.root(CONTROLLER, started)
        self.reboot(NODE)
        wait_until(
            f"slurmd on {NODE} has registered",
            lambda: self.holds(CONTROLLER, f'now=$({started}) && test "$now" != {before}'),
            self.patience_s,
        )
        self.wait_for_state("drained")

    def wait_for_ssh(self, node: str) -> None:
        """Wait until a node lets us in."""
        wait_until(f"{node} answers over SSH", lambda: self.holds(node, "true"), self.patience_s)

    def hang_up(self) -> None:
        """End all connections that stay open, the tests' and deepopsctl's: they don't survive a snapshot's return."""
        for node in self.addresses:
            self._hang_up(node)
        close_connections(ClusterDir.open(self.directory))

    def set_clocks(self) -> None:
        """After a snapshot's return: the guests' clocks stand at the time it was taken."""
        # to a slurmctld that sees the leap, all nodes have been silent for as long
        self.root(CONTROLLER, "systemctl stop slurmctld")
        for node in self.addresses:
            self.root(node, f"date --set=@{time.time():.3f} && systemctl try-restart chrony")
        self.root(CONTROLLER, "systemctl start slurmctld")
        self.wait_for_state("idle")

    def wait_for_state(self, state: str) -> None:
        """Wait until the compute node has this state in Slurm; `state*` is one that does not answer."""
        test = f"test \"$(sinfo -h -n {NODE} -o %T)\" = '{state}'"
        wait_until(f"{NODE} is {state}", lambda: self.holds(CONTROLLER, test), self.patience_s)

    def wait_for_rows(self, jobs: Sequence[int]) -> None:
        """Wait until the accounting has each of these jobs once, ended well."""
        wait_until(
            f"the accounting has jobs {jobs} as COMPLETED",
            lambda: [accounted(self, job) for job in jobs] == ["COMPLETED 0:0"] * len(jobs),
            self.patience_s,
        )

    def _revived(self, node: str) -> str:
        """The end of the journal of a machine that hung, which runs again afterwards: other tests need it."""
        self.power_cut(node)
        self.power_on(node)
        return self.root(node, "journalctl --boot=-1 --lines=60 --no-pager --output=short-monotonic", ok=False)

    def _checked(self, node: str, remote: str, ok: bool) -> str:
        done = self._ssh(node, remote)
        if ok:
            assert done.returncode == 0, f"{node}: {remote}: {done.stdout}{done.stderr}"
        return (done.stdout + done.stderr).strip()

    def _ssh(self, node: str, remote: str) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", *self._options(node), self._login(node), remote]
        return subprocess.run(argv, capture_output=True, text=True, timeout=self.patience_s, stdin=subprocess.DEVNULL)

    def _hang_up(self, node: str) -> None:
        argv = ["ssh", *self._options(node), "-O", "exit", self._login(node)]
        subprocess.run(argv, capture_output=True, timeout=60)

    def _login(self, node: str) -> str:
        return f"vagrant@{self.addresses[node]}"

    def _options(self, node: str) -> list[str]:
        where = ClusterDir(self.directory)
        pairs = {
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "IdentityFile": where.ssh_key,
            "UserKnownHostsFile": where.known_hosts,
            "StrictHostKeyChecking": "yes",
            "LogLevel": "ERROR",
            "ConnectTimeout": 20,
            "ServerAliveInterval": 10,
            # a login costs an emulated machine two seconds of its processor
            "ControlMaster": "auto",
            "ControlPersist": "10m",
            # the path of a socket has room for about a hundred characters
            "ControlPath": f"/tmp/deepopsctl-vm-{os.getuid()}-{self.addresses[node]}",
        }
        return ["-F", "none", *(word for key, value in pairs.items() for word in ("-o", f"{key}={value}"))]
