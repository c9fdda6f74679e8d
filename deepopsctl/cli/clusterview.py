"""How a cluster's machines are shown: for people as folded groups, for programs as one object."""

from __future__ import annotations

from pathlib import Path

from deepopsctl.cli.output import SCHEMA
from deepopsctl.inventory import group_members
from deepopsctl.model import Cluster
from deepopsctl.nodelist import fold_in_order


def cluster_object(command: str, directory: Path, cluster: Cluster) -> dict[str, object]:
    """The JSON object of `init` and `inventory` (DESIGN, section 5)."""
    return {
        "schema": SCHEMA,
        "command": command,
        "ok": True,
        "directory": str(directory),
        "nodes": len(cluster.nodes),
        "components": None if cluster.components is None else list(cluster.components),
        "groups": {group: list(names) for group, names in group_members(cluster).items()},
    }


def group_lines(cluster: Cluster) -> list[str]:
    """A line for each group that has nodes: its name, how many, which."""
    return [
        f"{group:<17}{len(names):>6}  {fold_in_order(names)}"
        for group, names in group_members(cluster).items()
        if names
    ]
