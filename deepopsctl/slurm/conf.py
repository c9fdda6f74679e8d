"""slurm.conf and gres.conf as data: deepopsctl's settings, the site's settings, lines of nodes and partitions.

Pure functions: roles hand in inventory variables and stored hardware, templates print the lines.
Sources: slurm.conf(5), gres.conf(5), cgroup.conf(5) of Slurm 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from deepopsctl.gpus import discovery, gres as gpus_gres
from deepopsctl.gpus.notation import from_inventory
from deepopsctl.gpus.reference_units import Units
from deepopsctl.model.cluster import Gpus, JobDirectories
from deepopsctl.node_programs._shared.slurm_words import whole
from deepopsctl.node_programs._shared.system_directories import is_system_directory
from deepopsctl.slurm.billing import NodeShape, billing_weights
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.slurm.job_hooks import DISK, own_programs_in, refused_in
from deepopsctl.text import node_sets as text_node_sets

Version = tuple[int, int]

# the setting of the memory that Slurm does not give to jobs, and the role's default
RESERVE, RESERVE_PERCENT = "slurm_conf_memory_reserve_percent", 2
# The step between default weights of node types; slurm.conf's own default is 1.
WEIGHT_STEP = 100
# an older slurmd does not know the word, by cgroup.conf(5)
_CGROUPS_DISABLED_SINCE = (24, 5)
# 24.11 and 26.05 read text after a range (`r[1-2]-a`, `n[1-2].example.com`); 22.05 does not start with it
_TEXT_AFTER_RANGE_SINCE = (24, 11)
_HOSTLIST = re.compile(r"\b(NodeName|NodeAddr|NodeHostname|BcastAddr|Nodes|AllocNodes)=(\S+)", re.IGNORECASE)
_AFTER_RANGE = re.compile(r"\][^,]")
_PLUGSTACK_LINE = re.compile(r"(?:required|optional)[ \t]+[^\s#][^\n#]*")
_NO_FEATURES: Mapping[str, str] = MappingProxyType({})

# Keys that follow from cluster.yml or from detection; a site can't set them.
OWNED_KEYS = {
    "ClusterName": "set `cluster: {name: ...}` in cluster.yml",
    "SlurmctldHost": "list the controllers in cluster.yml",
    "NodeName": "list the nodes in cluster.yml",
    "PartitionName": "list the partitions in cluster.yml",
    "GresTypes": "declare `gpus:` in cluster.yml",
    "AccountingStorageType": "accounting is always on",
    "AccountingStorageHost": "give a node the role dbd in cluster.yml",
    "SlurmUser": "the package decides it",
    "ProctrackType": "it follows from slurm_confinement",
    "AuthType": "munge is the only choice so far",
}


# Directories that a daemon owns: owner, mode and content.
OWN_DIRECTORIES = {"statesavelocation": "slurmctld's", "slurmdspooldir": "slurmd's"}
# Files that daemons write.
OWN_FILES = frozenset({
    "slurmctldlogfile", "slurmdlogfile", "slurmschedlogfile", "slurmctldpidfile", "slurmdpidfile",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSet:
    """A node set of cluster.yml as the inventory carries it (`slurm_nodes`)."""

    names: tuple[str, ...]
    gpus: Gpus | None
    features: tuple[str, ...]
    options: Mapping[str, str]
    # what jobs may have of each node's disk; '' where it is not counted
    disk: str = ""

    @property
    def gpu_count(self) -> int:
        """How many GPUs (cards, not slices) each node has."""
        return self.gpus.count if self.gpus else 0


def parse_node_sets(slurm_nodes: Iterable[Mapping[str, object]]) -> tuple[NodeSet, ...]:
    """The inventory's `slurm_nodes` list as typed node sets."""
    sets = []
    for entry in slurm_nodes:
        gpus = entry.get("gpus") or {}
        features = entry.get("features") or []
        options = entry.get("slurm") or {}
        if not (isinstance(gpus, Mapping) and isinstance(features, Sequence) and isinstance(options, Mapping)):
            raise TypeError(f"slurm_nodes: {entry.get('names')}: gpus, features or slurm has the wrong form")
        sets.append(
            NodeSet(
                names=text_node_sets.expand(str(entry["names"])),
                gpus=from_inventory(gpus),
                features=tuple(str(feature) for feature in features),
                options={str(key): str(value) for key, value in options.items()},
                disk=str(entry.get("tmpdisk", "")),
            )
        )
    return tuple(sets)


def owned_keys_in(extra: Mapping[str, object], directories: JobDirectories | None = None) -> list[str]:
    """Messages for keys of `slurm_config` that a site can't set."""
    owned = {key.lower(): (key, hint) for key, hint in OWNED_KEYS.items()}
    refusals = [f"{key} is set by deepopsctl: {owned[key.lower()][1]}" for key in sorted(extra) if key.lower() in owned]
    return refusals + own_programs_in(extra) + directory_refusals(extra) + refused_in(extra, directories)


def directory_refusals(settings: Mapping[str, object]) -> list[str]:
    """Messages for keys that name a system directory, which a daemon would restrict or overwrite."""
    return [
        f"{key}: {value} {refusal}"
        for key, value in sorted(settings.items())
        if value is not None and (refusal := directory_refusal(key, str(value)))
    ]


def directory_refusal(key: str, value: str) -> str:
    """Why a daemon can't own this path, for keys that name one; '' if it can."""
    name = key.lower()
    if name in OWN_DIRECTORIES and is_system_directory(value):
        return f"is a system or shared directory, not {OWN_DIRECTORIES[name]} own"
    if name in OWN_FILES and value.startswith("/") and (value.endswith("/") or is_system_directory(value)):
        return "is a directory, but a file is required"
    return ""


def plugstack_refusal(lines: Iterable[str]) -> str:
    """Why these can't be the lines of plugstack.conf, '' if they can.

    Nodes that fetch it from slurmctld have no file to include. srun does not start where two have the same options.
    """
    lines = [*lines]
    if len([line for line in lines if "spank_pyxis" in str(line)]) > 1:
        return "slurm_plugstack has a Pyxis of its own, and so has environment_containers: remove one of them"
    wrong = next((line for line in lines if not _PLUGSTACK_LINE.fullmatch(str(line))), None)
    if wrong is None:
        return ""
    return f"slurm_plugstack has {wrong!r}: a line is `required FILE [ARGUMENTS]` or `optional FILE [ARGUMENTS]`"


def merge_settings(base: Mapping[str, object], extra: Mapping[str, object]) -> dict[str, object]:
    """deepopsctl's settings overridden by the site's, ignoring the case of keys; None removes a key."""
    # the last spelling of a key in `extra` wins
    spelt = {key.lower(): key for key in extra}
    merged = {key: value for key, value in base.items() if key.lower() not in spelt}
    merged.update({key: extra[key] for key in spelt.values() if extra[key] is not None})
    return {key: value for key, value in merged.items() if value != ""}


def setting(settings: Mapping[str, object], key: str, default: object) -> object:
    """The value of a key of slurm.conf, whatever its case; the last spelling wins, as in `merge_settings`."""
    values = [value for name, value in settings.items() if name.lower() == key.lower()]
    return default if not values or values[-1] in (None, "") else values[-1]


def with_word(settings: Mapping[str, object], key: str, word: str) -> dict[str, object]:
    """The settings with a word in the list that a key has, whatever the case of either."""
    spelt = next((one for one in settings if one.lower() == key.lower()), key)
    words = [one for one in format_value(settings.get(spelt, "")).split(",") if one]
    if word.lower() not in (one.lower() for one in words):
        words.insert(0, word)
    return {**settings, spelt: ",".join(words)}


def with_ipv6(settings: Mapping[str, object], addresses: Iterable[str]) -> dict[str, object]:
    """The settings with IPv6 where a node is reached by it: without the word, Slurm connects by IPv4 alone."""
    wanted = any(":" in address for address in addresses)
    return with_word(settings, "CommunicationParameters", "EnableIPv6") if wanted else dict(settings)


def gres_of(node_set: NodeSet) -> str:
    """Slurm's Gres= value of a node set: `gpu:h100:8`, `gpu:2`, or ''."""
    return gpus_gres.gres_value(node_set.gpus) if node_set.gpus else ""


def gpu_types(node_sets: Iterable[NodeSet]) -> list[str]:
    """The gres types of all GPUs, sorted; '' for GPUs without a type; empty without GPUs."""
    return sorted(
        {gpu_type for node_set in node_sets if node_set.gpus for gpu_type in gpus_gres.gres_counts(node_set.gpus)}
    )


def gres_names(node_sets: Iterable[NodeSet]) -> list[str]:
    """GresTypes: what jobs can ask nodes for."""
    node_sets = tuple(node_sets)
    names = {"gpu": any(each.gpus for each in node_sets), DISK: any(each.disk for each in node_sets)}
    return [name for name, wanted in names.items() if wanted]


def node_lines(
    node_sets: Iterable[NodeSet],
    hardware: Mapping[str, NodeHardware],
    addresses: Mapping[str, str],
    reserve_percent: int,
    further: Mapping[str, str] = _NO_FEATURES,
) -> list[str]:
    """Folded NodeName lines; without nodes of unknown hardware (see `unknown_nodes`).

    `further` has an additional feature of single nodes.
    """
    lines = []
    node_sets = tuple(node_sets)
    weights = default_weights(node_sets)
    for node_set in node_sets:
        groups: dict[tuple[NodeHardware, str], list[str]] = {}
        for name in node_set.names:
            if name in hardware:
                # detected GPUs do not matter for slurm.conf
                groups.setdefault((replace(hardware[name], gpus=()), further.get(name, "")), []).append(name)
        for (values, feature), names in groups.items():
            fields = _node_fields(node_set, values, names, addresses, reserve_percent)
            features = [*node_set.features, *([feature] if feature else [])]
            if features:
                fields["Features"] = ",".join(features)
            if weights:
                fields["Weight"] = weights[gres_of(node_set)]
            fields["State"] = "UNKNOWN"
            lines.append(_line(merge_settings(fields, node_set.options)))
    return lines


def default_weights(node_sets: Sequence[NodeSet]) -> dict[str, int]:
    """Slurm's Weight by gres; empty if all nodes are identical. Jobs go to the fitting node with the lowest weight.

    Nodes without GPUs come first, then fewer GPUs before more, then the order of types in cluster.yml.
    """
    gpu_counts = {gres_of(node_set): node_set.gpu_count for node_set in node_sets}
    if len(gpu_counts) < 2:
        return {}
    ranked = sorted(gpu_counts, key=lambda gres: gpu_counts[gres])
    # a site's own small weights stay below those of GPU nodes
    first = 0 if "" in gpu_counts else 1
    return {gres: (rank + first) * WEIGHT_STEP or 1 for rank, gres in enumerate(ranked)}


def unknown_nodes(node_sets: Iterable[NodeSet], hardware: Mapping[str, NodeHardware]) -> list[str]:
    """Compute nodes without detected hardware."""
    return [name for node_set in node_sets for name in node_set.names if name not in hardware]


def partition_lines(
    partitions: Iterable[Mapping[str, object]],
    hardware: Mapping[str, NodeHardware],
    reserve_percent: int,
    node_sets: Iterable[NodeSet] = (),
    billing: Units | None = None,
) -> list[str]:
    """PartitionName lines; DefMemPerCPU is the smallest of its nodes, so that jobs can share nodes.

    With `billing` (a site's RGU by GPU type), partitions get TRESBillingWeights, unless they have their own.
    """
    lines = []
    set_of = {name: node_set for node_set in node_sets for name in node_set.names}
    options_of = {name: node_set.options for name, node_set in set_of.items()}
    for entry in partitions:
        known = [name for name in text_node_sets.expand(str(entry["nodes"])) if name in hardware]
        if not known:
            continue
        fields: dict[str, object] = {"PartitionName": entry["name"], "Nodes": text_node_sets.fold(known)}
        if entry.get("default"):
            fields["Default"] = "YES"
        fields["MaxTime"] = entry.get("max_time") or "INFINITE"
        fields["DefMemPerCPU"] = min(
            _memory_per_cpu(hardware[name], options_of.get(name, {}), reserve_percent) for name in known
        )
        if billing is not None:
            shapes = [_shape(hardware[name], set_of.get(name), reserve_percent) for name in known]
            fields["TRESBillingWeights"] = billing_weights(shapes, billing)
        fields["State"] = "UP"
        options = entry.get("options") or {}
        if not isinstance(options, Mapping):
            raise TypeError(f"slurm_partitions: {entry['name']}: options must be a mapping")
        merged = merge_settings(fields, options)
        if any(key.lower() in ("defmempernode", "defmempergpu") for key in options):
            merged.pop("DefMemPerCPU", None)  # Slurm takes one of the three
        lines.append(_line(merged))
    return lines


def gres_lines(node_sets: Iterable[NodeSet], hardware: Mapping[str, NodeHardware]) -> list[str]:
    """gres.conf lines: of GPUs one for identical devices of identical nodes, and the disks that are counted."""
    node_sets = tuple(node_sets)
    lines = [
        _line({"NodeName": text_node_sets.fold(names), "Name": DISK, "Count": each.disk, "Flags": "CountOnly"})
        for each in node_sets
        if each.disk and (names := [name for name in each.names if name in hardware])
    ]
    for node_set in node_sets:
        nodes_by_gpus: dict[Gpus, list[str]] = {}
        for name in node_set.names:
            if node_set.gpus and name in hardware:
                completed = discovery.complete(node_set.gpus, hardware[name].gpus, node_set.options)
                nodes_by_gpus.setdefault(completed, []).append(name)
        for gpus, names in nodes_by_gpus.items():
            lines += [
                _line({"NodeName": text_node_sets.fold(names), **entry}) for entry in gpus_gres.conf_entries(gpus)
            ]
    return lines


def readable(text: str, version: Version) -> str:
    """A configuration file with names and addresses as the release reads them ((0, 0): unknown, so all of them)."""
    return text if version >= _TEXT_AFTER_RANGE_SINCE else _HOSTLIST.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    key, value = match.groups()
    names = ",".join(text_node_sets.expand(value)) if _AFTER_RANGE.search(value) else value
    return f"{key}={names}"


def cgroup_plugin(confinement: str, version: Version) -> str:
    """CgroupPlugin= of cgroup.conf for the nodes' cgroups (`v1`, `v2`, `auto`, `none`); '' leaves it to slurmd.

    slurmd looks for cgroups even if no plugin needs them, and exits in a container with both v1 and v2.
    """
    if confinement in ("v1", "v2"):
        return f"cgroup/{confinement}"
    return "disabled" if confinement == "none" and version >= _CGROUPS_DISABLED_SINCE else ""


def parse_version(text: str) -> Version:
    """(24, 11) from `slurm-wlm 24.11.5` or `24.11.5-4`; (0, 0) when there is none."""
    for word in text.split():
        parts = word.split(".")
        if len(parts) >= 2 and parts[0].isdigit() and parts[1][:2].isdigit():
            return int(parts[0]), int(parts[1][:2])
    return 0, 0


def format_value(value: object) -> str:
    """A YAML value in slurm.conf's format: booleans as YES/NO, lists with commas."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _node_fields(
    node_set: NodeSet,
    values: NodeHardware,
    names: Sequence[str],
    addresses: Mapping[str, str],
    reserve_percent: int,
) -> dict[str, object]:
    fields: dict[str, object] = {"NodeName": text_node_sets.fold(names)}
    if all(addresses.get(name) for name in names):
        # Slurm pairs names and addresses in the order in which the folded names expand
        fields["NodeAddr"] = text_node_sets.fold_in_order(
            [addresses[name] for name in text_node_sets.expand(text_node_sets.fold(names))]
        )
    fields |= {
        "CPUs": values.cpus,
        "Boards": values.boards,
        "SocketsPerBoard": values.sockets // values.boards,
        "CoresPerSocket": values.cores_per_socket,
        "ThreadsPerCore": values.threads_per_core,
        "RealMemory": values.memory_mb * (100 - reserve_percent) // 100,
    }
    gres = [gres_of(node_set), f"{DISK}:{node_set.disk}" if node_set.disk else ""]
    if any(gres):
        fields["Gres"] = ",".join(filter(None, gres))
    return fields


def _memory_per_cpu(values: NodeHardware, options: Mapping[str, str], reserve_percent: int) -> int:
    """Memory per CPU of a node in MiB."""
    cpus, memory = for_jobs(values, options, reserve_percent)
    return memory // cpus


def for_jobs(values: NodeHardware, options: Mapping[str, str], reserve_percent: int) -> tuple[int, int]:
    """CPUs and memory (MiB) that jobs can have of a node; values of cluster.yml override detected ones."""
    declared = {key.lower(): whole(value) or 0 for key, value in options.items()}
    memory = declared.get("realmemory") or values.memory_mb * (100 - reserve_percent) // 100
    return declared.get("cpus") or values.cpus, memory - declared.get("memspeclimit", 0)


def _shape(values: NodeHardware, node_set: NodeSet | None, reserve_percent: int) -> NodeShape:
    cpus, memory = for_jobs(values, node_set.options if node_set else {}, reserve_percent)
    return NodeShape(cpus, memory, node_set.gpus if node_set else None)


def _line(fields: Mapping[str, object]) -> str:
    return " ".join(f"{key}={format_value(value)}" for key, value in fields.items())
