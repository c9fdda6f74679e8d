"""Plugins of jobs (SPANK, such as pyxis) of a Slurm that is taken over: lines of plugstack.conf that all nodes get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deepopsctl.model.cluster import Cluster, Role
from deepopsctl.slurm.releases import release_of
from deepopsctl.takeover.preflight import NodeFacts
from deepopsctl.text.node_sets import fold


def plugstack(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[list[str], list[str]]:
    """Lines of plugstack.conf for all nodes, and warnings.

    slurmd does not start on a node where a required plugin can't be loaded: it becomes optional.
    """
    users = {node.name for node in cluster.nodes if node.roles & {Role.COMPUTE, Role.CONTROLLER, Role.LOGIN}}
    lines, warnings = [], []
    for path, plugin in _by_path(cluster, facts).items():
        missing = (users & set(facts)) - plugin.there
        unloadable = missing | set(plugin.misfits)
        change = "it becomes `optional` in slurm_plugstack" if plugin.required else "it is not loaded there"
        if missing:
            warnings.append(f"{fold(missing)}: {path} of plugstack.conf is not there: {change}")
        for version in sorted({*plugin.misfits.values()}):
            names = [name for name, built in plugin.misfits.items() if built == version]
            warnings.append(f"{fold(names)}: {path} was built for Slurm {version}: {change}; build it again")
        word = "required" if plugin.required and not unloadable else "optional"
        lines.append(f"{word} {path} {plugin.arguments}".rstrip())
    return lines, warnings


@dataclass(slots=True)
class _Plugin:
    """A plugin of jobs (SPANK), with the first node's arguments for it."""

    arguments: str
    required: bool = False
    there: set[str] = field(default_factory=set)
    # nodes -> release that their plugin was built for, where the packages are of another
    misfits: dict[str, str] = field(default_factory=dict)


def _by_path(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> dict[str, _Plugin]:
    """What plugstack.conf of any node names, by path; compute nodes first, since jobs run there."""
    plugins: dict[str, _Plugin] = {}
    names = [node.name for node in (*cluster.compute, *cluster.nodes) if node.name in facts]
    for name in dict.fromkeys(names):
        node = facts[name]
        target = release_of(node.build["target"]) if node.build else ""
        for entry in node.spank:
            plugin = plugins.setdefault(str(entry["path"]), _Plugin(str(entry["arguments"])))
            plugin.required |= bool(entry["required"])
            if entry["there"]:
                plugin.there.add(name)
                if target and release_of(str(entry["version"])) not in ("", target):
                    plugin.misfits[name] = str(entry["version"])
    return plugins
