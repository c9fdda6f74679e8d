"""Facts from the nodes of a running Slurm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


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
