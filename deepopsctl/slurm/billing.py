"""Fair billing: TRESBillingWeights of a partition, from reference GPU units and the shape of its nodes.

A job is billed for the largest of what it takes: GPUs, cores or memory (PriorityFlags=MAX_TRES). Cores and memory cost
what the GPU costs that they belong to, so a job pays for the GPUs that others cannot use because of it. In partitions
without GPUs a core, or the memory that belongs to it, counts 1. Slurm stores billing as a whole number and cuts off
the rest, so weights are thousandths. Sources: slurm.conf(5); tres.html; the Alliance's published rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deepopsctl.gpus.gres import gres_counts, groups_of
from deepopsctl.gpus.reference_units import Units, units_of, units_of_card
from deepopsctl.model.cluster import Gpus
from deepopsctl.node_programs.commands.account_usage.accounting import PER_UNIT


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What jobs can have of a node: CPUs as Slurm counts them, memory in MiB, GPUs."""

    cpus: int
    memory_mb: int
    gpus: Gpus | None


def units_of_node(gpus: Gpus, own: Units) -> float:
    """RGU of a node: its whole GPUs, however they are cut."""
    total = 0.0
    for group in groups_of(gpus):
        layouts = group.mig or ((),) * group.count
        total += sum(units_of_card(group.type, layout[0].profile if layout else "", own) for layout in layouts)
    return total


def billing_weights(nodes: Iterable[NodeShape], own: Units) -> str:
    """TRESBillingWeights of a partition with these nodes.

    Where nodes differ, cores and memory cost what they cost on the node where they are cheapest: a job with no more
    than its GPUs' share of any node is billed for its GPUs.
    """
    nodes = tuple(nodes)
    with_gpus = [node for node in nodes if node.gpus]
    # (units, CPUs, memory in GiB)
    priced = [(units_of_node(node.gpus, own), node.cpus, node.memory_mb / 1024) for node in with_gpus if node.gpus]
    priced = priced or [(node.cpus, node.cpus, node.memory_mb / 1024) for node in nodes]
    types = {name for node in with_gpus if node.gpus for name in gres_counts(node.gpus)}
    weights = {
        "CPU": _weight(min(units / cpus for units, cpus, _ in priced)),
        "Mem": _weight(min(units / memory for units, _, memory in priced)) + "G",
        **{f"GRES/gpu:{name}": _weight(units_of(name, own)) for name in sorted(types)},
    }
    return ",".join(f"{name}={weight}" for name, weight in weights.items())


def _weight(units: float) -> str:
    return f"{units * PER_UNIT:.2f}".rstrip("0").rstrip(".")
