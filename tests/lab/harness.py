"""A lab cluster as tests drive it: the real command line, and `podman exec` to look behind it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.driven import DEEPOPSCTL, PATIENCE_S, DrivenCluster, command, wait_until

__all__ = [
    "DEEPOPSCTL",
    "NOT_POSSIBLE",
    "PATIENCE_S",
    "PREFIX",
    "LabCluster",
    "SharedCluster",
    "command",
    "fresh_cluster",
    "lab_down",
    "lab_up",
    "wait_until",
]

# A second checkout on the same machine may test at the same time: labs are known by their names alone.
PREFIX = os.environ.get("DEEPOPSCTL_TEST_LAB_PREFIX", "test")
NOT_POSSIBLE = "" if shutil.which("podman") else "podman is not installed (scripts/install-tools installs it)"


@dataclass(frozen=True)
class LabCluster(DrivenCluster):
    """One lab and the cluster directory made from it; `podman exec` runs things on its nodes."""

    node_list: Path
    password_file: Path

    def root(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as root on a node and return its output."""
        return self._exec(node, ["sh", "-c", script], ok)

    def user(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as the cluster's user on a node, in its home."""
        return self._exec(node, ["su", "-", "ubuntu", "-c", script], ok)

    def _exec(self, node: str, argv: list[str], ok: bool) -> str:
        done = subprocess.run(
            ["podman", "exec", f"{self.name}-{node}", *argv], capture_output=True, text=True, timeout=PATIENCE_S
        )
        if ok:
            assert done.returncode == 0, f"{node}: {argv[-1]}: {done.stdout}{done.stderr}"
        return (done.stdout + done.stderr).strip()

    def holds(self, node: str, test: str) -> bool:
        """Whether a shell test is true on a node, for root; false where the node is off."""
        argv = ["podman", "exec", f"{self.name}-{node}", "sh", "-c", test]
        return subprocess.run(argv, capture_output=True, timeout=PATIENCE_S).returncode == 0

    def power_on(self, node: str) -> None:
        """Start a container; does nothing where it runs."""
        self._podman("start", node)

    def power_cut(self, node: str) -> None:
        """Kill a container, all its processes at once."""
        self._podman("kill", node)

    def _podman(self, verb: str, node: str) -> None:
        subprocess.run(["podman", verb, f"{self.name}-{node}"], check=True, capture_output=True, timeout=PATIENCE_S)


def fresh_cluster(name: str, folder: Path, *options: str, os: str = "debian13") -> LabCluster:
    """A new lab and the cluster directory made from it, its nodes reached by key, nothing deployed."""
    lab_down(name)
    lab = lab_up(name, "--os", os, *options)
    made = command("init", str(folder / "cluster"), "--from", lab["node_list"])
    assert made.returncode == 0, made.stderr
    found = LabCluster(name, os, folder / "cluster", Path(lab["node_list"]), Path(lab["password_file"]))
    found.deepopsctl("ssh", "setup", "--password-file", str(found.password_file))
    return found


class SharedCluster:
    """One deployed cluster for many modules: made when it is first asked for, and anew after it was discarded."""

    def __init__(self, name: str, folders: pytest.TempPathFactory) -> None:
        self._name = name
        self._folders = folders
        self._made: LabCluster | None = None

    def get(self) -> LabCluster:
        """The cluster: a controller, two nodes with two simulated GPUs."""
        if self._made is None:
            made = fresh_cluster(self._name, self._folders.mktemp(self._name), "--compute", "2", "--gpus", "a100:2")
            made.deploy()
            self._made = made
        return self._made

    def discard(self) -> None:
        """Remove it, or what there is of it."""
        self._made = None
        lab_down(self._name)


def lab_up(name: str, *options: str) -> dict[str, Any]:
    """`lab up --json`, parsed."""
    done = command("lab", "up", "--name", name, "--json", *options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def lab_down(name: str) -> None:
    """Remove a lab, whatever state it is in."""
    command("lab", "down", "--name", name)
