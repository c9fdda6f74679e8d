"""Facts from the nodes of a running Slurm, and checks of them before it is adopted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deepopsctl.gpus.gres import gres_value
from deepopsctl.model.cluster import Cluster, Gpus
from deepopsctl.slurm.conf import directory_refusals
from deepopsctl.text.node_sets import fold

LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})

# where, what is wrong, what to do
Fault = tuple[str, str, str]


def find_problems(
    cluster: Cluster, controller: str, primary: NodeFacts, facts: Mapping[str, NodeFacts], *, directory_lost: bool
) -> Iterator[Fault]:
    """Every problem; `primary` is the controller. After `directory_lost`, deepopsctl's own Slurm is adopted."""
    if "slurmctld" not in primary.daemons:
        yield controller, "no slurmctld runs there", "start it, or deploy directly if there is nothing to keep"
        return
    if not primary.config:
        yield controller, "slurmctld does not answer", "see `journalctl -u slurmctld` there"
        return
    if not primary.secrets.get("munge_key"):
        yield controller, "its munge key was not read", "see /etc/munge/munge.key there, then run `takeover` again"
    mine = sorted(name for name, node in facts.items() if node.deployed)
    if mine and not directory_lost:
        yield fold(mine), "was deployed by deepopsctl already", "there is nothing to take over: `deepopsctl deploy`"
    yield from _config_faults(cluster, controller, primary.config)
    yield from _program_faults(facts)
    yield from _agreement_faults(facts)
    host = primary.database.get("storagehost", "")
    if host.lower() not in LOCAL | {controller.lower()}:
        yield controller, f"slurmdbd keeps its tables on {host}", "a database on another host is not supported yet"
    yield from _gpu_faults(cluster, primary)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of one node, from slurm_takeover_info; `other_files` have settings that deepopsctl lacks."""

    daemons: Mapping[str, str] = field(default_factory=dict)
    packaged: Mapping[str, bool] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    deployed: bool = False
    ids: Mapping[str, list[int]] = field(default_factory=dict)
    munge_key_hash: str = ""
    other_files: tuple[str, ...] = ()
    database: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    jobs: int = 0
    slurmd_report: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_facts(directory: Path) -> dict[str, NodeFacts]:
    """Read the facts, by node name."""
    names = NodeFacts.__dataclass_fields__
    facts = {}
    for path in sorted(directory.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        facts[path.stem] = NodeFacts(**{name: document[name] for name in names if name in document})
    return facts


def _config_faults(cluster: Cluster, controller: str, config: Mapping[str, str]) -> Iterator[Fault]:
    name = config.get("ClusterName", "")
    if name.lower() != cluster.name:
        yield "cluster.yml", f"the cluster is called {name} in Slurm, {cluster.name} here", f"cluster: {{name: {name}}}"
    user = config.get("SlurmUser", "").partition("(")[0]
    if user and user != "slurm":
        yield controller, f"slurmctld runs as {user}", "the packages' daemons run as slurm: that can't be taken over"
    for sentence in directory_refusals({key: config.get(key) for key in ("StateSaveLocation", "SlurmdSpoolDir")}):
        hint = "give Slurm a directory of its own first: see docs/migrate/takeover.md"
        yield controller, sentence, hint
    auth = config.get("AuthType", "auth/munge")
    if auth != "auth/munge":
        yield controller, f"AuthType is {auth}", "only munge is supported so far"


def _program_faults(facts: Mapping[str, NodeFacts]) -> Iterator[Fault]:
    """Daemons that no package installed would keep running alongside the packaged ones."""
    for daemon in ("slurmctld", "slurmdbd", "slurmd"):
        names_by_program: dict[str, list[str]] = {}
        for name, node in facts.items():
            if daemon in node.daemons and not node.packaged.get(daemon):
                names_by_program.setdefault(node.daemons[daemon], []).append(name)
        for program, names in names_by_program.items():
            hint = "a manually built Slurm can't be adopted yet: see docs/migrate/takeover.md"
            yield fold(names), f"{daemon} is {program or 'unknown'}, which no package installed", hint


def _agreement_faults(facts: Mapping[str, NodeFacts]) -> Iterator[Fault]:
    running = {name: node for name, node in facts.items() if node.daemons}
    keys = _group_by_value((node.munge_key_hash, name) for name, node in running.items())
    if len(keys) > 1:
        yield (
            _split(keys),
            "have different munge keys",
            "these are several clusters: use one cluster directory for each",
        )
    users = _group_by_value((str(node.ids["slurm"]), name) for name, node in running.items() if "slurm" in node.ids)
    if len(users) > 1:
        yield (
            _split(users),
            "have different ids for the user slurm",
            "use the same id on all nodes, then run `takeover` again",
        )


def _gpu_faults(cluster: Cluster, primary: NodeFacts) -> Iterator[Fault]:
    """GPUs that only slurmctld knows, and not cluster.yml, would be taken from the jobs that use them."""
    for node in cluster.compute:
        running = primary.nodes.get(node.name, {})
        live = sorted(re.findall(r"gpu[^,(]*", str(running.get("gres", ""))))
        if running and live != _gres(node.gpus):
            yield (
                node.name,
                (f"Slurm has {','.join(live) or 'no GPUs'} there, cluster.yml {','.join(_gres(node.gpus)) or 'none'}"),
                "correct gpus: in cluster.yml",
            )


def _gres(gpus: Gpus | None) -> list[str]:
    return sorted(gres_value(gpus).split(",")) if gpus else []


def _group_by_value(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for value, name in pairs:
        groups.setdefault(value, []).append(name)
    return groups


def _split(groups: Mapping[str, list[str]]) -> str:
    return " and ".join(fold(names) for names in groups.values())
