"""A snapshot of every node of a live cluster, over SSH and shared by all tests: what is there, not what should be."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import testinfra

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import inventory_option, options, quoted
from deepopsctl.cluster.way import port_of
from deepopsctl.doctor.check_builders import Declared
from deepopsctl.doctor.single_node import DAEMONS
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.node_programs._slurm_jobs.snapshot import COMMANDS as QUESTIONS
from deepopsctl.run.request import control_dir
from deepopsctl.slurm.hardware import load_hardware
from deepopsctl.ssh.client import Client

SOURCE = (Path(__file__).parent / "node_probe.py").read_text(encoding="utf-8")
AT_ONCE = 16

MUNGE_KEY = "/etc/munge/munge.key"
DATABASE_CONF = "/etc/slurm/slurmdbd.conf"
# on controllers, and where slurmd stores what it has fetched from them
WRITTEN, FETCHED = Path("/etc/slurm"), Path("/run/slurm/conf")
CONFIGURATION = ("slurm.conf", "gres.conf", "cgroup.conf")
# below the root directory
GPUS = "dev/nvidia[0-9]*"
# whichever of them the distribution starts
SSH_UNITS = ("ssh.service", "ssh.socket", "sshd.service")
EVERYWHERE = ("munge.service", "chrony.service")

CREDENTIAL = ["munge", "--no-input", "--restrict-uid=0"]


@dataclass(frozen=True)
class Snapshot:
    """What a node answered; `silence` is the reason why it did not."""

    node: str
    silence: str = ""
    units: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    devices: Mapping[str, list[str]] = field(default_factory=dict)
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def out(self, command: str) -> str:
        """What a command printed; '' where it failed."""
        answer = self.commands[command]
        return str(answer["out"]).strip() if answer["rc"] == 0 else ""

    def file(self, path: Path | str) -> Mapping[str, str]:
        """Facts of a file; {} where it is missing."""
        return self.files[str(path)] or {}


class Live:
    """A cluster directory and its nodes. Nothing is queried before the first test needs it."""

    def __init__(self, path: Path) -> None:
        self.directory = ClusterDir.open(path)
        self.cluster: Cluster = self.directory.cluster()
        self.declared = Declared(self.cluster, load_hardware(self.directory.hardware))
        self.primary = self.cluster.controllers[0].name

    def names(self, *roles: Role) -> list[str]:
        """Nodes with one of these roles, in the order of cluster.yml."""
        return [node.name for node in self.cluster.nodes if self.declared.roles(node.name) & set(roles)]

    def daemons(self, name: str) -> tuple[str, ...]:
        """The units that a node's roles need, as doctor has them."""
        roles = self.declared.roles(name)
        units_of_node = [f"{unit}.service" for role, units in DAEMONS.items() if role in roles for unit in units]
        return (*EVERYWHERE, *units_of_node)

    @cached_property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """Every node's answer: they are all asked at once, each in one call."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            snapshots = pool.map(self._snapshot, self.cluster.nodes)
            return {snapshot.node: snapshot for snapshot in snapshots}

    def decodes(self, credential: str, on: Iterable[str]) -> dict[str, str]:
        """The result of unmunge for a credential on some nodes, as the smoke suite parses it."""
        asked = {"commands": {"unmunge": {"argv": ["unmunge"], "stdin": credential}}}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(lambda name: self._ask(self.declared.node(name), asked), on)
            return {snapshot.node: _status(snapshot) for snapshot in answers}

    def _snapshot(self, node: Node) -> Snapshot:
        asked: dict[str, Any] = {
            "units": [*self.daemons(node.name), *SSH_UNITS],
            "files": [MUNGE_KEY, DATABASE_CONF, *(str(f / name) for f in (WRITTEN, FETCHED) for name in CONFIGURATION)],
            "devices": [GPUS],
            "commands": {name: {"argv": argv} for name, argv in self._questions(node).items()},
        }
        return self._ask(node, asked)

    def _questions(self, node: Node) -> dict[str, list[str]]:
        questions = {
            "munge": CREDENTIAL,
            "munge again": CREDENTIAL,
            "version": ["sinfo", "--version"],
            "host": ["hostname"],
        }
        if Role.COMPUTE in node.roles:
            questions |= {"hardware": ["slurmd", "-C"], "version": ["slurmd", "-V"]}
        if node.name in self.names(Role.LOGIN, Role.CONTROLLER):
            questions["ping"] = QUESTIONS["ping"]
        return questions | QUESTIONS if node.name == self.primary else questions

    def _ask(self, node: Node, asked: Mapping[str, Any]) -> Snapshot:
        try:
            done = self._host(node).run("python3 -c %s %s", SOURCE, json.dumps(asked))
        except RuntimeError as error:
            # testinfra hands over all of ssh's answer
            words = str(getattr(error.args[0], "stderr", error)).strip().splitlines()
            return Snapshot(node.name, silence=words[-1] if words else "no answer")
        if done.rc:
            words = str(done.stderr).strip().splitlines()
            return Snapshot(node.name, silence=words[-1] if words else f"python3 ended with {done.rc}")
        return Snapshot(node.name, **json.loads(done.stdout))

    def _host(self, node: Node) -> Any:
        """The node as testinfra reaches it: by the cluster's key, its pinned host keys and its jump host."""
        return testinfra.get_host(f"ssh://{node.name}", ssh_extra_args=self._arguments(node), sudo=True)

    def _arguments(self, node: Node) -> str:
        access = self.cluster.access
        key = access.key or str(self.directory.ssh_key)
        key = key if key.startswith(("/", "~")) else str(self.directory.path / key)
        sockets = control_dir(self.directory.path, os.environ)
        port = port_of(self.cluster, node)
        # ssh uses the first value of an option: these win over the client's own
        first: dict[str, object] = {
            "ControlMaster": "auto", "ControlPersist": "60s", "ControlPath": f'"{sockets}/look-%C"',
            "IdentityFile": quoted(key), "HostName": node.address or node.name, "BatchMode": "yes",
            **({"User": access.user} if access.user else {}), **({"Port": port} if port else {}),
        }  # fmt: skip
        line = shlex.join([*options(first), *Client(self.directory.known_hosts).options()])
        jump = inventory_option(access.jump_host, key, str(self.directory.known_hosts)) if access.jump_host else ""
        return f"{line} {jump}".strip()


def _status(snapshot: Snapshot) -> str:
    if snapshot.silence:
        return snapshot.silence
    answer = snapshot.commands["unmunge"]
    for line in str(answer["out"]).splitlines():
        if line.startswith("STATUS:"):
            return line.partition(":")[2].strip()
    return " ".join(str(answer["err"]).split()) or "no answer"
