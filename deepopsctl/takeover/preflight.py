"""Facts from the nodes of a running Slurm, and checks of them before it is adopted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deepopsctl.gpus.gres import gres_value
from deepopsctl.model.cluster import Cluster, Gpus, Node, Role
from deepopsctl.slurm.conf import directory_refusals
from deepopsctl.slurm.releases import release_of
from deepopsctl.text.node_sets import fold

LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})
# replacing programs there would take them from under the jobs of other nodes
SHARED = re.compile(r"nfs|lustre|beegfs|ceph|gluster|fuse\.|gpfs|9p")

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
    accounting = cluster.with_role(Role.DBD)[0]
    if accounting.name not in facts:
        hint = "its database and password are kept: run `takeover` again when it answers"
        yield accounting.name, "slurmdbd runs there, and it was not read", hint
    yield from _database_faults(accounting, facts.get(accounting.name, NodeFacts()))
    yield from _gpu_faults(cluster, primary)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of one node, from slurm_takeover_info; `other_files` are of its Slurm, and not taken over."""

    daemons: Mapping[str, str] = field(default_factory=dict)
    packaged: Mapping[str, bool] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    build: Mapping[str, str] = field(default_factory=dict)
    deployed: bool = False
    ids: Mapping[str, list[int]] = field(default_factory=dict)
    munge_key_hash: str = ""
    other_files: tuple[str, ...] = ()
    spank: tuple[Mapping[str, object], ...] = ()
    database: Mapping[str, str] = field(default_factory=dict)
    # what its files set, by file and key, and the text of job_submit.lua
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    job_submit: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    jobs: int = 0
    slurmd_report: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def database_server(node: Node, facts: NodeFacts) -> str:
    """The host of the accounting database, where it is not slurmdbd's; else ''."""
    host = facts.database.get("storagehost", "")
    own = {*LOCAL, node.name, node.address or ""}
    return "" if host.lower() in own or host.lower().partition(".")[0] == node.name else host


def storage_parameters(facts: NodeFacts) -> dict[str, str]:
    """StorageParameters of slurmdbd.conf."""
    pairs = (word.partition("=") for word in facts.database.get("storageparameters", "").split(",") if word)
    return {key.strip().upper(): value.strip() for key, _, value in pairs}


def _database_faults(node: Node, facts: NodeFacts) -> Iterator[Fault]:
    server = database_server(node, facts)
    if not server:
        return
    if not facts.secrets.get("slurm_dbd_password"):
        yield node.name, f"slurmdbd.conf has no StoragePass for {server}", "only a user with a password is supported"
    further = sorted(set(storage_parameters(facts)) - {"SSL_CA"})
    if further:
        yield node.name, f"StorageParameters has {', '.join(further)}", "only SSL_CA is supported"
    backup = facts.database.get("storagebackuphost", "")
    if backup:
        hint = "one server is supported: give slurmdbd an address that follows the server in use"
        yield node.name, f"StorageBackupHost is {backup}", hint


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
    """What was built from source can be followed by packages of the same release."""
    faults = _group_by_value(
        (f"{message}\n{hint}", name) for name, node in facts.items() for message, hint in _build_faults(node)
    )
    for text, names in faults.items():
        message, _, hint = text.partition("\n")
        yield fold(names), message, hint
    prefixes = _group_by_value((node.build["prefix"], name) for name, node in facts.items() if node.build)
    if len(prefixes) > 1:
        yield _split(prefixes), f"have Slurm in {' and '.join(prefixes)}", "only one such directory is supported"


def _build_faults(node: NodeFacts) -> Iterator[tuple[str, str]]:
    unknown = sorted(name for name in node.daemons if not node.packaged.get(name) and not node.build.get("version"))
    if unknown:
        yield (
            f"{unknown[0]} is {node.daemons[unknown[0]] or 'unknown'}, which no package installed",
            "its version can't be read, so what can follow it is unknown",
        )
    build = node.build
    if not build or not build["version"]:
        return
    what = f"Slurm {build['version']} was built from source in {build['prefix']}"
    if SHARED.match(build["file_system"]):
        yield f"{what}, which other nodes share ({build['file_system']})", "see docs/migrate/takeover.md"
    if len(build["prefix"].strip("/")) == 0 or build["prefix"] == "/usr":
        yield f"{what}, where packages put theirs", "see docs/migrate/takeover.md"
    built, target = release_of(build["version"]), release_of(build["target"])
    if target != built or _micro(build["target"]) < _micro(build["version"]):
        command = f"deepopsctl packages build slurm --release {built}"
        yield (
            f"{what}; the packages are {build['target'] or 'none'}",
            f"jobs and accounting move to the same release: `{command}`, or a newer one afterwards with an upgrade",
        )


def _micro(version: str) -> int:
    match = re.search(r"\d\d\.\d\d\.(\d+)", version)
    return int(match[1]) if match else 0


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
