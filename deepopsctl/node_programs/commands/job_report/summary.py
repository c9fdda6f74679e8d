"""The summary of a job that monitoring leaves in the accounting (AdminComment): one short JSON object.

`{"deepopsctl": 1, "nodes": [["n1", 2.1, 3221225472]], "gpus": [["n1", "0", 0.9, 1.0, 2e9, 8e9]], "more": [0, 0]}`:
cores used on average and memory at its most of each node; of each GPU utilisation on average and at its most, memory at
its most and in all; how many nodes and GPUs were left out. null if unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

MARK = "deepopsctl"
VERSION = 1
# sacct returns every AdminComment: for many nodes only the first are listed, and the rest is counted
MOST_NODES, MOST_GPUS, LONGEST = 32, 64, 8192


@dataclass(frozen=True)
class NodeUse:
    """What a job used on one node."""

    node: str
    cores: float | None
    memory: float | None


@dataclass(frozen=True)
class GpuUse:
    """What a job did with one GPU; ratios and bytes."""

    node: str
    gpu: str
    use: float | None
    most: float | None
    memory: float | None
    total: float | None


@dataclass(frozen=True)
class Summary:
    """What monitoring saw of a job; `more_*` were left out."""

    nodes: tuple[NodeUse, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
    more_nodes: int = 0
    more_gpus: int = 0


def write(summary: Summary) -> str:
    """The text; entries beyond the limits are only counted."""
    most_gpus = MOST_GPUS
    # names of nodes may be long
    while len(text := _text(summary, most_gpus)) > LONGEST and most_gpus:
        most_gpus -= 1
    return text


def _text(summary: Summary, most_gpus: int) -> str:
    nodes = [[each.node, _round(each.cores, 2), _round(each.memory, 0)] for each in summary.nodes[:MOST_NODES]]
    gpus: list[list[Any]] = [
        [
            each.node,
            each.gpu,
            *(_round(value, 3) for value in (each.use, each.most)),
            _whole(each.memory),
            _whole(each.total),
        ]
        for each in summary.gpus[:most_gpus]
    ]
    fields = {
        MARK: VERSION,
        "nodes": nodes,
        "gpus": gpus,
        "more": [
            summary.more_nodes + max(0, len(summary.nodes) - MOST_NODES),
            summary.more_gpus + max(0, len(summary.gpus) - most_gpus),
        ],
    }
    return json.dumps(fields, separators=(",", ":"))


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits) if digits else int(value)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def read(comment: str) -> Summary | None:
    """The summary; None if the comment is not a summary, or is damaged."""
    fields = _object(comment)
    if fields is None or fields.get(MARK) != VERSION:
        return None
    try:
        more_nodes, more_gpus = fields.get("more", [0, 0])
        return Summary(
            tuple(NodeUse(_name(node), _amount(cores), _amount(memory)) for node, cores, memory in fields["nodes"]),
            tuple(
                GpuUse(_name(node), _name(gpu), *(_amount(value) for value in values))
                for node, gpu, *values in fields["gpus"]
            ),
            int(more_nodes),
            int(more_gpus),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def gpus_seen(comment: str) -> tuple[int, float]:
    """How many GPUs monitoring has seen, and how many of them were busy on average: all that sums of jobs need."""
    fields = _object(comment)
    if fields is None or fields.get(MARK) != VERSION:
        return 0, 0.0
    try:
        used = [known for _node, _gpu, use, *_ in fields["gpus"] if (known := _amount(use)) is not None]
    except (KeyError, TypeError, ValueError):
        return 0, 0.0
    return len(used), sum(used)


def _object(comment: str) -> dict[str, Any] | None:
    if len(comment) > LONGEST or not comment.startswith("{"):
        return None
    try:
        # slurmdbd stores a quotation mark as a backtick, which no name contains
        document = json.loads(comment.replace("`", '"'))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and MARK in document else None


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value) > 256:
        raise ValueError("no name")
    return value


def _amount(value: object) -> float | None:
    if value is None:
        return None
    # NaN and infinity are accepted by json only
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e18:
        raise ValueError("no amount")
    return float(value)
