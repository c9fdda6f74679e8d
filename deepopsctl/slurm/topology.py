"""NVLink domains in Slurm: features of nodes, blocks of topology.conf, channels of IMEX.

Sources: topology.conf(5) and slurm.conf(5) of Slurm 24.11; src/plugins/switch/nvidia_imex of 25.11. The block plugin
came with 23.11, the switch plugin with 24.05. A job sees the device of its own channel, and no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from deepopsctl.text import node_sets

Version = tuple[int, int]
SINCE: Version = (24, 5)
# not detected yet
UNKNOWN: Version = (0, 0)
FEATURE = "nvlink_{}"
PLUGINS = {"SwitchType": "switch/nvidia_imex", "TopologyPlugin": "topology/block"}
Domains = Mapping[str, tuple[str, ...]]


def domains_of(entries: Iterable[Mapping[str, object]]) -> dict[str, tuple[str, ...]]:
    """The inventory's `nvlink_domains` as {name: nodes}."""
    return {str(entry["name"]): node_sets.expand(str(entry["nodes"])) for entry in entries}


def feature_of(domains: Domains) -> dict[str, str]:
    """{node: feature}: by `--constraint=[nvlink_rack1|nvlink_rack2]` a job gets nodes of one domain."""
    return {name: FEATURE.format(domain) for domain, names in domains.items() for name in names}


def refusal(domains: Domains, version: Version) -> str:
    """Why this Slurm can't use the domains; '' if it can, or without domains."""
    if not domains or version == UNKNOWN or version >= SINCE:
        return ""
    return (
        f"nvlink_domains: Slurm {version[0]}.{version[1]:02} has no channels for them (switch/nvidia_imex: "
        f"{SINCE[0]}.{SINCE[1]:02} and later): upgrade Slurm, or take nvlink_domains out of cluster.yml"
    )


def settings(domains: Domains, nodes: Collection[str]) -> dict[str, str]:
    """Keys of slurm.conf. Blocks only if they contain all nodes: other nodes would get no jobs."""
    if not any(domains.values()):
        return {}
    blocks = {"TopologyPlugin": PLUGINS["TopologyPlugin"]} if _covers(domains, nodes) else {}
    return {"SwitchType": PLUGINS["SwitchType"], **blocks}


def topology_lines(domains: Domains, nodes: Collection[str]) -> list[str]:
    """topology.conf for the nodes of slurm.conf; empty without blocks."""
    if not any(domains.values()) or not _covers(domains, nodes):
        return []
    known: dict[str, Sequence[str]] = {
        name: present for name, members in domains.items() if (present := [node for node in members if node in nodes])
    }
    lines = [f"BlockName={name} Nodes={node_sets.fold(present)}" for name, present in known.items()]
    # no block may be smaller than BlockSizes
    return [*lines, f"BlockSizes={min(map(len, known.values()))}"]


def _covers(domains: Domains, nodes: Collection[str]) -> bool:
    return bool(nodes) and set(nodes) <= {name for names in domains.values() for name in names}
