"""A lab cluster as tests drive it: the real command line, and `podman exec` to inspect the nodes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, Self

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.writer import render_spec
from deepopsctl.files import user_cache
from deepopsctl.model.cluster import Role
from tests.support.cluster import (
    DEEPOPSCTL,
    PATIENCE_S,
    DrivenCluster,
    actions,
    changes,
    command,
    repeating,
    wait_until,
)

__all__ = [
    "DEEPOPSCTL",
    "NOT_POSSIBLE",
    "PATIENCE_S",
    "PREFIX",
    "SETTINGS",
    "SLURM_CONFIG",
    "LabCluster",
    "SharedCluster",
    "actions",
    "assign_roles",
    "changes",
    "command",
    "edit",
    "fresh_cluster",
    "fresh_lab",
    "lab_down",
    "lab_up",
    "limit_cores",
    "powered",
    "wait_until",
]

# A second checkout on the same host may test at the same time: labs are known by their names alone.
PREFIX = os.environ.get("DEEPOPSCTL_TEST_LAB_PREFIX", "test")
# of a cluster directory: what a person sets, and what the shared cluster's has
SETTINGS = Path("inventory", "group_vars", "all", "settings.yml")
SLURM_CONFIG = "slurm_config: {EnforcePartLimits: ALL}"
NOT_POSSIBLE = "" if shutil.which("podman") else "podman is not installed (scripts/install-tools installs it)"


@dataclass(frozen=True)
class LabCluster(DrivenCluster):
    """One lab and the cluster directory made from it; `podman exec` runs things on its nodes."""

    node_list: Path
    password_file: Path

    @classmethod
    def of(cls, lab: Mapping[str, Any], directory: Path) -> Self:
        """The cluster whose directory is, or will be, made from a lab that `lab up --json` describes."""
        return cls(lab["name"], lab["os"], directory, Path(lab["node_list"]), Path(lab["password_file"]))

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

    def node_state(self, node: str) -> str:
        """A node's state in sinfo's words; `idle` also where sinfo still has it as planned for a job that waited."""
        word = self.root("ctl1", f"sinfo -h -n {node} -o %T", ok=False)
        return "idle" if word == "planned" else word

    def power_on(self, node: str) -> None:
        """Start a container; does nothing where it runs."""
        self._podman("start", node)

    def power_cut(self, node: str) -> None:
        """Kill a container, all its processes at once."""
        self._podman("kill", node)

    def _podman(self, verb: str, node: str) -> None:
        subprocess.run(["podman", verb, f"{self.name}-{node}"], check=True, capture_output=True, timeout=PATIENCE_S)


@contextmanager
def limit_cores(cluster: LabCluster, node: str, cores: float) -> Iterator[None]:
    """The node may use so much of the machine's cores, as one with a broken fan."""

    def limit(quota: int) -> None:
        # of the container's own group, which this machine has either in cgroup v1 or in v2
        argv = ["podman", "--runtime", "runc", "update", "--cpu-period", "100000", "--cpu-quota", str(quota)]
        subprocess.run([*argv, f"{cluster.name}-{node}"], check=True, capture_output=True, timeout=PATIENCE_S)

    limit(int(cores * 100_000))
    try:
        yield
    finally:
        limit(-1)


@contextmanager
def powered(name: str) -> Iterator[None]:
    """A container that has ended is started again, as a host continues after a reboot."""

    def start_if_off() -> None:
        ask = ["podman", "inspect", "--format", "{{.State.Status}}", name]
        if subprocess.run(ask, capture_output=True, text=True).stdout.strip() == "exited":
            subprocess.run(["podman", "start", name], capture_output=True)

    with repeating(start_if_off, 0.5):
        yield


@contextmanager
def only_user_of(name: str) -> Iterator[None]:
    """Hold a lab's name: two runs of tests with one of the same name would each remove the other's."""
    place = user_cache(os.environ, "test-labs")
    place.mkdir(parents=True, exist_ok=True)
    with (place / name).open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.fail(f"another run of tests has the lab {name}: DEEPOPSCTL_TEST_LAB_PREFIX gives this one its own")
        yield


@contextmanager
def fresh_lab(name: str, *options: str) -> Iterator[dict[str, Any]]:
    """A new lab as `lab up --json` describes it; in the end it is removed, whatever state it is in."""
    with only_user_of(name):
        lab_down(name)
        try:
            yield lab_up(name, *options)
        finally:
            lab_down(name)


@contextmanager
def fresh_cluster(
    name: str, directories: pytest.TempPathFactory, *options: str, os: str = "debian13"
) -> Iterator[LabCluster]:
    """A new lab and the cluster directory made from it, its nodes reached by key, nothing deployed."""
    with fresh_lab(name, "--os", os, *options) as lab:
        cluster = LabCluster.of(lab, directories.mktemp(name) / "cluster")
        made = command("init", str(cluster.directory), "--from", lab["node_list"])
        assert made.returncode == 0, made.stderr
        cluster.deepopsctl("ssh", "setup", "--password-file", str(cluster.password_file))
        yield cluster


class Age(Enum):
    """What was done to the shared cluster so far."""

    BARE = auto()
    TOUCHED = auto()
    DEPLOYED = auto()


class SharedCluster:
    """One cluster for many modules: made when it is first asked for, and again after it was discarded."""

    def __init__(self, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._name = name
        self._tmp_path_factory = tmp_path_factory
        self._made: LabCluster | None = None
        self._lifetime = ExitStack()
        self._age = Age.BARE

    def bare(self) -> LabCluster:
        """A controller and two nodes with two simulated GPUs, reached by key; nothing was deployed there."""
        if self._age != Age.BARE:
            self.discard()
        return self._there()

    def to_deploy(self) -> LabCluster:
        """The bare cluster, and who asks for it makes the first deploy."""
        cluster = self.bare()
        self._age = Age.TOUCHED
        return cluster

    def deployed(self) -> LabCluster:
        """The cluster, deployed."""
        cluster = self._there()
        if self._age != Age.DEPLOYED:
            self._age = Age.TOUCHED
            cluster.deploy()
            self._age = Age.DEPLOYED
        return cluster

    def discard(self) -> None:
        """Remove it, or what there is of it."""
        self._made = None
        self._age = Age.BARE
        self._lifetime.close()

    def _there(self) -> LabCluster:
        self._made = self._made or self._fresh()
        return self._made

    def _fresh(self) -> LabCluster:
        cluster = self._lifetime.enter_context(
            fresh_cluster(self._name, self._tmp_path_factory, "--compute", "2", "--gpus", "a100:2")
        )
        # so that more can be asked for than there is, and is refused: `validate` checks that
        edit(cluster.directory / "cluster.yml", "default: true", 'default: true, max_time: "02:00:00"')
        edit(cluster.directory / "cluster.yml", "components: [nvidia, slurm]", "components: [slurm]")
        edit(cluster.directory / SETTINGS, "---\n", f"---\n{SLURM_CONFIG}\n")
        return cluster


def assign_roles(
    cluster: LabCluster, roles: Mapping[str, Role | frozenset[Role]], components: tuple[str, ...] = ("slurm",)
) -> None:
    """Give the nodes these roles in cluster.yml, in this order; partitions have the compute nodes among them."""
    directory = ClusterDir(cluster.directory)
    spec = directory.cluster()
    named = {node.name: node for node in spec.nodes}
    sets = {name: frozenset({each}) if isinstance(each, Role) else each for name, each in roles.items()}
    nodes = tuple(replace(named[name], roles=each) for name, each in sets.items())
    compute = tuple(name for name, each in sets.items() if Role.COMPUTE in each)
    partitions = tuple(replace(each, nodes=compute, everything=False) for each in spec.partitions)
    directory.spec.write_text(
        render_spec(replace(spec, nodes=nodes, partitions=partitions, components=components)), "utf-8"
    )


def edit(path: Path, old: str, new: str) -> None:
    """Replace a piece of a file, which has to be there, once."""
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path} has no {old}: {text}"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def lab_up(name: str, *options: str) -> dict[str, Any]:
    """`lab up --json`, parsed."""
    done = command("lab", "up", "--name", name, "--json", *options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def lab_down(name: str) -> None:
    """Remove a lab, whatever state it is in."""
    command("lab", "down", "--name", name)
