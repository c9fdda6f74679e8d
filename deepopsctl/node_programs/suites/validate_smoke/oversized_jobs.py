"""Jobs that ask for more than the cluster has must be refused when they are submitted, in Slurm's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..._shared import slurm_output
from ..._shared.checks import PASS, WARN, Check, one_line
from ..._shared.command import Result
from ..._shared.slurm_output import Record
from .context import Context, check, failed, skipped

# Slurm's refusals: slurm_strerror() of 22.05 to 26.05
REFUSALS = (
    "requested node configuration is not available",
    "requested partition configuration not available",
    "node count specification invalid",
    "more processors requested than permitted",
    "cpu count per node can not be satisfied",
    "cpu count specification invalid",
    "memory specification can not be satisfied",
    "requested time limit is invalid",
    "invalid generic resource (gres) specification",
    "job violates accounting/qos policy",
)
# where limits are not enforced at submission, Slurm may keep such a job pending for ever, for one of these reasons
FOR_EVER = ("Partition", "BadConstraints")


class Request(NamedTuple):
    """One impossible request; `reason` says why it can't be made, where it can't."""

    what: str
    options: list[str]
    asked: str
    reason: str = ""


def verify_refusals(context: Context) -> list[Check]:
    """Impossible requests to the default partition, all at once."""
    snapshot, session = context.snapshot, context.session
    name = snapshot.default_partition()
    if not name:
        return [skipped("over-ask-nodes", context.inputs.cluster, "no default partition")]
    members = [node for node in snapshot.nodes.values() if name in node.get("Partitions", "").split(",")]
    impossible = requests(snapshot.partitions[name], members)

    def attempt(request: Request) -> Check:
        if request.reason:
            return evaluate(request, name, None, snapshot.config)
        options = ["--partition=" + name, "--output=/dev/null", *request.options]
        answer = session.sbatch("over-" + request.what, options, "#!/bin/sh\ntrue\n")
        pending = ""
        if answer.ok:
            pending = session.pending_reason(answer.output)
            session.cancel([answer.output])
        return evaluate(request, name, answer, snapshot.config, pending)

    with ThreadPoolExecutor(len(impossible)) as pool:
        return list(pool.map(attempt, impossible))


def requests(partition: Record, nodes: Sequence[Record]) -> list[Request]:
    """Impossible requests for a partition with these nodes."""

    def most(key: str) -> int:
        return max((slurm_output.number(node, key) for node in nodes), default=0)

    count, cpus, memory = len(nodes) + 1, most("CPUTot"), most("RealMemory")
    gpus = max((slurm_output.gpu_count(node.get("Gres", "")) for node in nodes), default=0)
    one = ["--nodes=1", "--ntasks=1"]
    return [
        Request("nodes", [f"--nodes={count}"], f"{count} nodes of {count - 1}"),
        Request("cpus", [*one, f"--cpus-per-task={cpus + 1}"], f"{cpus + 1} CPUs on a node of {cpus}"),
        Request("memory", [*one, f"--mem={memory + 1024}M"], f"{memory + 1024} MiB on a node of {memory}"),
        Request("gpus", [*one, f"--gres=gpu:{gpus + 1}"], f"{gpus + 1} GPUs on a node of {gpus}"),
        _longer(partition),
    ]


def _longer(partition: Record) -> Request:
    """An hour more than the partition allows."""
    limit = slurm_output.minutes(partition.get("MaxTime", ""))
    if limit is None:
        return Request("time", [], "", f"partition {partition.get('PartitionName', '')} has no time limit")
    longer = slurm_output.clock(limit + 60)
    return Request("time", ["--time=" + longer], f"{longer} with a limit of {slurm_output.clock(limit)}")


def evaluate(
    request: Request, partition: str, answer: Result | None, config: Mapping[str, str], pending: str = ""
) -> Check:
    """Refused with Slurm's message, or not; `pending` is Slurm's reason for keeping a job that it accepted."""
    name = "over-ask-" + request.what
    if answer is None:
        return skipped(name, partition, request.reason)
    text = one_line(answer.message.replace("sbatch: error:", " "))
    asked = f"asked for {request.asked}"
    if answer.ok:
        if pending.startswith(FOR_EVER) and config.get("EnforcePartLimits", "NO") == "NO":
            text = f"{asked}: accepted, and left pending for ever ({pending}): set EnforcePartLimits=ALL to refuse it"
            return check(name, partition, WARN, "accepted", "refused", message=text)
        return failed(
            name,
            partition,
            f"Slurm accepted a job that can never run ({asked})",
            "accepted",
            "refused",
        )
    if any(refusal in text.lower() for refusal in REFUSALS):
        return check(name, partition, PASS, "refused", "refused", message=f"{asked}: {text}")
    # not this request's fault: the user may submit nothing here
    return skipped(name, partition, f"refused for another reason ({asked}): {text}")
