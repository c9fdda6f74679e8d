"""The cluster as Slurm reports it, queried once."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, NamedTuple, Sequence

from . import accounting, command, job_placement, slurmtext
from .checks import FAIL, PASS, Check, check, one_line
from .command import Answer
from .slurmtext import Record

COMMANDS = {
    "ping": ["scontrol", "ping"],
    "config": ["scontrol", "show", "config"],
    "nodes": ["scontrol", "-o", "--all", "show", "node"],
    "partitions": ["scontrol", "-o", "--all", "show", "partition"],
    "clusters": ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster"],
}


class SlurmSnapshot(NamedTuple):
    """Records by name, as of the start of the validation."""

    config: Record
    nodes: Dict[str, Record]
    partitions: Dict[str, Record]
    answers: Dict[str, Answer]

    def default_partition(self) -> str:
        """The default partition's name, '' when there is none."""
        return next((name for name, entry in self.partitions.items() if entry.get("Default") == "YES"), "")

    def gpus(self, name: str) -> int:
        """How many GPUs Slurm schedules on a node."""
        return slurmtext.gpu_count(self.nodes.get(name, {}).get("Gres", ""))

    def obstacles(self, names: Sequence[str]) -> Dict[str, str]:
        """Nodes where a small job would have to wait, and why."""
        reasons = {
            name: job_placement.obstacle(self.nodes[name], self.partitions) for name in names if name in self.nodes
        }
        return {name: reason for name, reason in reasons.items() if reason}

    def controller_checks(self, cluster: str) -> List[Check]:
        """slurmctld and slurmdbd answer."""
        checks = [
            check(
                "controller-answers",
                host,
                PASS if word == "UP" else FAIL,
                word.lower(),
                "up",
                message="" if word == "UP" else "slurmctld ({}) does not answer".format(role),
            )
            for role, host, word in re.findall(r"Slurmctld\(([^)]*)\) at (\S+) is (\w+)", self.answers["ping"].out)
        ]
        if not checks:
            text = "slurmctld does not answer: " + one_line(self.answers["ping"].error_text)
            checks = [check("controller-answers", cluster, FAIL, "no answer", "up", message=text)]
        return [*checks, accounting.answers(cluster, self.config, self.answers["clusters"])]

    @property
    def answered(self) -> bool:
        """False when the controller does not answer: no job can be run."""
        return bool(self.nodes) and bool(self.partitions)

    @property
    def silence(self) -> str:
        """The controller's error text."""
        return "slurmctld does not answer: " + one_line(
            self.answers["nodes"].error_text or self.answers["ping"].error_text
        )


def read_snapshot() -> SlurmSnapshot:
    """Ask everything at once."""
    with ThreadPoolExecutor(len(COMMANDS)) as pool:
        answers = dict(zip(COMMANDS, pool.map(lambda name: command.run(COMMANDS[name]), COMMANDS)))
    return SlurmSnapshot(
        config=slurmtext.config(answers["config"].out),
        nodes=slurmtext.records(answers["nodes"].out, "NodeName"),
        partitions=slurmtext.records(answers["partitions"].out, "PartitionName"),
        answers=answers,
    )
