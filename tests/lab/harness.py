"""A lab cluster as tests drive it: the real command line, and `podman exec` to look behind it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEEPOPSCTL = str(Path(sys.executable).parent / "deepopsctl")

# A second checkout on the same machine may test at the same time: labs are known by their names alone.
PREFIX = os.environ.get("DEEPOPSCTL_TEST_LAB_PREFIX", "test")
NOT_POSSIBLE = "" if shutil.which("podman") else "podman is not installed (scripts/install-tools installs it)"


@dataclass(frozen=True)
class LabCluster:
    """One lab, the cluster directory made from it, and how to run things in both."""

    name: str
    os: str
    directory: Path
    node_list: Path
    password_file: Path

    def deepopsctl(self, *arguments: str, ok: bool = True, seconds: int = 600) -> subprocess.CompletedProcess[str]:
        """Run the command line on this cluster; with `ok`, a bad exit code fails the test with the output."""
        done = command("-C", str(self.directory), *arguments, seconds=seconds)
        if ok:
            assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def deploy(self, *arguments: str, ok: bool = True) -> dict[str, Any]:
        """`deploy slurm --json`, parsed."""
        done = self.deepopsctl("deploy", "slurm", "--json", *arguments, ok=ok)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def changed(self, summary: Mapping[str, Any]) -> dict[str, int]:
        """Changed tasks by host."""
        return {host: counts["changed"] for host, counts in summary["hosts"].items()}

    def root(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as root on a node and return its output."""
        return self._exec(node, ["sh", "-c", script], ok)

    def user(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as the cluster's user on a node, in its home."""
        return self._exec(node, ["su", "-", "ubuntu", "-c", script], ok)

    def _exec(self, node: str, argv: list[str], ok: bool) -> str:
        done = subprocess.run(
            ["podman", "exec", f"{self.name}-{node}", *argv], capture_output=True, text=True, timeout=120
        )
        if ok:
            assert done.returncode == 0, f"{node}: {argv[-1]}: {done.stdout}{done.stderr}"
        return (done.stdout + done.stderr).strip()

    def submit(self, script: str, *options: str) -> int:
        """Submit a batch job as the user; returns its id."""
        words = " ".join(["sbatch", "--parsable", *options, f"--wrap '{script}'"])
        return int(self.user("ctl1", words))

    def job_state(self, job: int) -> str:
        """A job's state as Slurm's accounting has it, or squeue while it runs."""
        running = self.user("ctl1", f"squeue --noheader --format=%T --job {job}", ok=False)
        return running if running.isupper() else self.user("ctl1", f"sacct -nX -P -o state -j {job}")

    def wait_for_job(self, job: int, state: str, seconds: int = 60) -> None:
        """Wait until a job is in a state."""
        deadline = time.monotonic() + seconds
        while self.job_state(job) != state:
            assert time.monotonic() < deadline, f"job {job} is {self.job_state(job)}, not {state}"
            time.sleep(0.5)


def command(*arguments: str, seconds: int = 600) -> subprocess.CompletedProcess[str]:
    """Run deepopsctl and return what it printed."""
    return subprocess.run([DEEPOPSCTL, *arguments], capture_output=True, text=True, timeout=seconds)


def fresh_cluster(name: str, folder: Path, *options: str, os: str = "debian13") -> LabCluster:
    """A new lab and the cluster directory made from it, its nodes reached by key, nothing deployed."""
    lab_down(name)
    lab = lab_up(name, "--os", os, *options)
    made = command("init", str(folder / "cluster"), "--from", lab["node_list"])
    assert made.returncode == 0, made.stderr
    found = LabCluster(name, os, folder / "cluster", Path(lab["node_list"]), Path(lab["password_file"]))
    found.deepopsctl("ssh", "setup", "--password-file", str(found.password_file))
    return found


def lab_up(name: str, *options: str) -> dict[str, Any]:
    """`lab up --json`, parsed."""
    done = command("lab", "up", "--name", name, "--json", *options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def lab_down(name: str) -> None:
    """Remove a lab, whatever state it is in."""
    command("lab", "down", "--name", name)
