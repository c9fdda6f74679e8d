"""Cluster -> the text of cluster.yml, folded and commented."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from deepopsctl.cluster.editor_schemas import first_line
from deepopsctl.environment.spaces import space_lines
from deepopsctl.gpus.notation import as_written
from deepopsctl.gpus.nvlink import domain_lines
from deepopsctl.model.cluster import Cluster, Node, Partition, Role
from deepopsctl.policy.maintenance import maintenance_lines
from deepopsctl.policy.writer import policy_lines
from deepopsctl.storage.writer import storage_lines
from deepopsctl.text.node_sets import fold_in_order, fold_pairs
from deepopsctl.text.yaml_writer import flow

# Entries with irregular addresses are split, to stay readable.
MAX_RANGES = 8

_HEADER = """\
# The nodes of this cluster and what they are for. Edit this file, then run `deepopsctl deploy`.
# Names and addresses are node sets, paired in the order written: "gpu[01-16]" with "10.0.1.[11-26]".
# All keys: deepopsctl docs show cluster-yml
"""

_COMPONENTS = "# What `deepopsctl deploy` deploys; `deepopsctl deploy NAME` deploys one of them alone."

_STATE = "# The entry of storage on which all controllers keep Slurm's state: if one is lost, the next takes over."

_PARTITIONS = "# Slurm partitions; further Slurm keys of a partition go into `options: {Key: value}`."


def render_spec(cluster: Cluster) -> str:
    """The text of a cluster.yml that parses to the same cluster."""
    lines = [first_line("cluster") + _HEADER, "schema: 1", f"cluster: {flow(_cluster_section(cluster))}", "", "nodes:"]
    lines += [f"  - {flow(entry)}" for entry in _node_entries(cluster.nodes)]
    lines += ["", _PARTITIONS, "partitions:"]
    lines += [f"  - {flow(_partition_entry(partition))}" for partition in cluster.partitions]
    if cluster.components is not None:
        lines += ["", _COMPONENTS, f"components: {flow(list(cluster.components))}"]
    lines += policy_lines(cluster.policy)
    lines += storage_lines(cluster.storage, declared=cluster.manages_storage)
    lines += space_lines(cluster.spaces)
    if cluster.job_directories:
        lines += ["", f"job_directories: {flow(cluster.job_directories.written())}"]
    if cluster.slurm_state:
        lines += ["", _STATE, f"slurm_state: {flow(cluster.slurm_state)}"]
    lines += maintenance_lines(cluster.maintenance)
    lines += domain_lines(cluster.nvlink_domains)
    return "\n".join(lines) + "\n"


def address_pieces(nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """Folded names and addresses of nodes in order, in entries of bounded length; all or none have an address."""
    same = list(nodes)
    if not all(node.address for node in same):
        yield fold_in_order(node.name for node in same), ""
        return
    yield from fold_pairs(((node.name, node.address) for node in same), MAX_RANGES)


def attributes(node: Node) -> dict[str, object]:
    """The attributes of an entry, without names and addresses."""
    entry: dict[str, object] = {"roles": [role.value for role in Role if role in node.roles]}
    if node.port:
        entry["port"] = node.port
    if node.gpus:
        entry["gpus"] = as_written(node.gpus)
        if node.gpus.autodetect:
            entry["autodetect"] = node.gpus.autodetect
    if node.features:
        entry["features"] = list(node.features)
    if node.slurm:
        entry["slurm"] = dict(node.slurm)
    return entry


def _cluster_section(cluster: Cluster) -> dict[str, object]:
    access = cluster.access
    values = {
        "name": cluster.name,
        "user": access.user,
        "port": access.port,
        "key": access.key,
        "jump_host": access.jump_host,
        "login_name": access.login_name,
        "protected": cluster.protected,
    }
    return {key: value for key, value in values.items() if value}


def _node_entries(nodes: Iterable[Node]) -> Iterator[dict[str, object]]:
    for _, group in groupby(nodes, key=_shared):
        same = list(group)
        for names, addresses in address_pieces(same):
            entry: dict[str, object] = {"names": names}
            if addresses:
                entry["addresses"] = addresses
            yield entry | attributes(same[0])


def _shared(node: Node) -> tuple[object, ...]:
    return (node.roles, bool(node.address), node.port, node.gpus, node.features, tuple(node.slurm.items()))


def _partition_entry(partition: Partition) -> dict[str, object]:
    nodes = "all" if partition.everything else fold_in_order(partition.nodes)
    entry: dict[str, object] = {"name": partition.name, "nodes": nodes}
    if partition.default:
        entry["default"] = True
    if partition.max_time:
        entry["max_time"] = partition.max_time
    if partition.prepared:
        entry["prepared"] = partition.prepared
    if partition.options:
        entry["options"] = dict(partition.options)
    return entry
