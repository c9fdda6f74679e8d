"""The examples of the DeepOps users' guide, typed as they are printed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared import slurm_client, slurm_output
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._shared.slurm_output import Record
from ..._slurm_jobs import placement, probe_jobs, slurm
from ..._slurm_jobs.session import Session, is_busy
from . import batch, terminal
from .context import Context, Job, check, failed, skipped

INTERACTIVE = "srun -N 1 --gpus=1 -t 01:00:00 --pty bash"
TWO_NODES = "srun -N 2 --gpus-per-node=1"
# what is typed is echoed: only the shell itself makes 42 of it
TYPED = 'echo "deepops $((6*7)) $SLURMD_NODENAME gpu=$CUDA_VISIBLE_DEVICES."; tty; exit\n'
TYPED_ANSWER = "deepops 42 "
MARK = "DEEPOPS-GUIDE"
SCRIPT = """#!/bin/bash
#SBATCH --job-name=deep_learning_job
#SBATCH --partition={partition}
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem={memory}
#SBATCH --time={time}

echo "{mark} job=$SLURM_JOB_ID node=$SLURMD_NODENAME cpus=$SLURM_CPUS_PER_TASK gpus=$CUDA_VISIBLE_DEVICES"
"""
PRINTED = {"partition": "gpu", "cpus": "8", "memory": "32G", "time": "24:00:00"}


class Place(NamedTuple):
    """Where the examples run: a partition, its GPU nodes that answered, and options in addition to the printed ones."""

    partition: Record
    nodes: list[Record]
    option: list[str]

    @property
    def name(self) -> str:
        """The partition's name."""
        return self.partition["PartitionName"]


def verify_examples(context: Context) -> list[Check]:
    """The users' guide's examples, one after the other: as printed, each may take a whole node's memory."""
    inputs, snapshot, session = context.inputs, context.snapshot, context.session
    usable = [name for name in context.names if placement.free_gpus(snapshot.nodes[name]) > 0]
    where = place(snapshot.partitions, snapshot.nodes, usable)
    if where is None:
        reason = "no GPU is free" if any(snapshot.gpus(name) for name in snapshot.nodes) else "the cluster has no GPUs"
        return no_gpus(inputs.cluster, reason)
    checks = [
        two_nodes(session, where, inputs.reports),
        interactive(session, where),
    ]
    script = place(snapshot.partitions, snapshot.nodes, usable, wanted=PRINTED["partition"]) or where
    last, jobs = batch_script(session, script)
    context.jobs.extend(jobs)
    return [*checks, last]


def place(
    partitions: Mapping[str, Record], nodes: Mapping[str, Record], usable: Sequence[str], wanted: str = ""
) -> Place | None:
    """The partition to use: the printed one, else the default, else the one with most usable GPU nodes."""
    candidates = []
    for name, partition in partitions.items():
        if partition.get("State") != "UP":
            continue
        members = [node for node in nodes if name in nodes[node].get("Partitions", "").split(",")]
        good = [node for node in members if node in usable and slurm_output.gpu_count(nodes[node].get("Gres", ""))]
        # Slurm may still believe in a node that did not answer: jobs as printed would be sent there
        bad = [node for node in members if node not in usable and placement.is_up(nodes[node])]
        option = [] if partition.get("Default") == "YES" else ["-p", name]
        option += ["-x", ",".join(bad)] if bad else []
        if good:
            chosen = Place(partition, [nodes[node] for node in good], option)
            candidates.append((name == wanted, option[:1] != ["-p"], len(good), chosen))
    return max(candidates, key=lambda entry: entry[:3])[3] if candidates else None


def scaled(where: Place) -> tuple[Mapping[str, str], str]:
    """The script's values as printed, or what the cluster has where that is less; and what differs, in words."""
    best = max(
        where.nodes, key=lambda node: (slurm_output.number(node, "CPUTot"), slurm_output.number(node, "RealMemory"))
    )
    limit = slurm_output.minutes(where.partition.get("MaxTime", ""))
    values = dict(PRINTED, partition=where.name)
    if slurm_output.number(best, "CPUTot") < int(PRINTED["cpus"]):
        values["cpus"] = best["CPUTot"]
    if slurm_output.number(best, "RealMemory") < _mebibytes(PRINTED["memory"]):
        values["memory"] = best["RealMemory"] + "M"
    if limit is not None and limit < (slurm_output.minutes(PRINTED["time"]) or 0):
        values["time"] = slurm_output.clock(limit)
    changed = [f"--{key}={values[key]} for {PRINTED[key]}" for key in PRINTED if values[key] != PRINTED[key]]
    names = {"--cpus=": "--cpus-per-task=", "--memory=": "--mem="}
    text = ", ".join(changed)
    for short, option in names.items():
        text = text.replace(short, option)
    return values, "as printed" if not changed else "with " + text


def has_room(node: Record, values: Mapping[str, str]) -> bool:
    """Could the script start on this node now? It asks for much: in vain it would only stand in the queue."""
    cpus = slurm_output.number(node, "CPUTot") - slurm_output.number(node, "CPUAlloc")
    memory = slurm_output.number(node, "RealMemory") - slurm_output.number(node, "AllocMem")
    return cpus >= int(values["cpus"]) and memory >= _mebibytes(values["memory"])


def _mebibytes(text: str) -> int:
    return (slurm_output.size(text, "M") or 0) >> 20


def interactive(session: Session, where: Place) -> Check:
    """`srun -N 1 --gpus=1 -t 01:00:00 --pty bash` on a real terminal, with a command typed into the shell."""
    argv = ["srun", *where.option, *INTERACTIVE.split()[1:]]
    limit = slurm_output.minutes(where.partition.get("MaxTime", ""))
    if limit is not None and limit < 60:
        argv[argv.index("01:00:00")] = slurm_output.clock(limit)
    name, shown = session.name("interactive"), " ".join(argv)
    environment = session.environment(SLURM_JOB_NAME=name)
    talk = terminal.type_into(argv, TYPED, TYPED_ANSWER, environment, session.queue_timeout + 5)
    if TYPED_ANSWER in talk.text:
        return evaluate_shell(where.name, shown, talk.text)
    job_state, reason = session.queued(name)
    session.cancel(["--name=" + name])
    waits = job_state == "PENDING"
    text = "Slurm's reason: " + reason if waits else one_line(talk.text) or "nothing appeared on the terminal"
    status = SKIP if waits and is_busy(reason) else FAIL
    return check("guide-interactive", where.name, status, "no shell", "a shell on a node", message=f"{shown}: {text}")


def evaluate_shell(partition: str, shown: str, text: str) -> Check:
    """What the typed command printed: the node, its GPU, its terminal."""
    node, _, rest = text.split(TYPED_ANSWER, 1)[1].partition(" ")
    gpu = rest.split("gpu=", 1)[-1].split(".", 1)[0]
    what, expected = "guide-interactive", "a shell on a node"
    if not gpu:
        return failed(what, partition, shown + ": no CUDA_VISIBLE_DEVICES in the shell", "no GPU", expected)
    if "/dev/" not in rest:
        return failed(what, partition, shown + ": the shell is not on a terminal", "no terminal", expected)
    return check(what, partition, PASS, "a shell on " + node, expected, message=shown)


def two_nodes(session: Session, where: Place, reports: Mapping[str, Mapping[str, Any]]) -> Check:
    """`srun -N 2 --gpus-per-node=1 nvidia-smi`; without nvidia-smi on the nodes, a command that opens the devices."""
    what, expected = "guide-two-nodes", "2 nodes with a GPU"
    if len(where.nodes) < 2:
        return skipped(what, where.name, "fewer than two nodes with GPUs are usable in partition " + where.name)
    real = all(reports.get(node["NodeName"], {}).get("nvidia_smi") for node in where.nodes)
    argv = ["srun", *where.option, *TWO_NODES.split()[1:]]
    shown = " ".join([*argv, "nvidia-smi" if real else "COMMAND that opens the devices: the nodes have no nvidia-smi"])
    outcome = session.typed("two-nodes", [*argv, *(["nvidia-smi"] if real else probe_jobs.argv("gpu", ""))])
    if not outcome.ended or outcome.rc != 0:
        status, text = SKIP if outcome.busy else FAIL, f"{shown}: {one_line(outcome.why)}"
        return check(what, where.name, status, "no output", expected, message=text)
    answered = outcome.out.count("NVIDIA-SMI") if real else _with_gpu(outcome.out)
    status = PASS if answered == 2 else FAIL
    return check(what, where.name, status, f"{answered} nodes with a GPU", expected, message=shown)


def _with_gpu(out: str) -> int:
    answers = probe_jobs.parse(out)
    return sum(1 for lines in answers.values() if lines[0].get("env", {}).get("CUDA_VISIBLE_DEVICES"))


def batch_script(session: Session, where: Place) -> tuple[Check, list[Job]]:
    """The guide's batch script with --gres, --cpus-per-task, --mem and --time."""
    what, (values, text) = "guide-batch", scaled(where)
    if not any(has_room(node, values) for node in where.nodes):
        why = f"busy: no node has {values['cpus']} CPUs and {values['memory']} memory free"
        return skipped(what, where.name, why), []
    # the script names its partition itself
    option = where.option[2:] if where.option[:1] == ["-p"] else where.option
    answer = session.sbatch("", option, SCRIPT.format(mark=MARK, **values))
    if not answer.ok:
        message = f"sbatch ({text}): {one_line(answer.message)}"
        return failed(what, where.name, message, "refused", "submitted"), []
    job = Job(answer.output, what)
    left = session.wait([job.id])
    if job.id in left:
        job_state, reason = left[job.id]
        status = SKIP if job_state == "PENDING" and is_busy(reason) else FAIL
        text += "; Slurm's reason: " + reason
        return check(what, where.name, status, job_state.lower(), "completed", message=text), []
    shown = slurm_output.record(slurm.ask(slurm_client.show("job", job.id)).output)
    files = batch.Files(shown.get("BatchHost", ""), where.name, [shown.get("StdOut", "")])
    out, error = batch.fetch(session, "fetch-guide", files)
    result = evaluate_script(where.name, values, text, out, error)
    return result, [job] if result["status"] == PASS else []


def evaluate_script(partition: str, values: Mapping[str, str], text: str, out: str, error: str) -> Check:
    """The script's line says that it had its CPUs and a GPU."""
    expected = f"{values['cpus']} CPUs, 1 GPU"
    lines = [line.split(MARK, 1)[1] for line in out.splitlines() if MARK in line]
    if not lines:
        return failed(
            "guide-batch",
            partition,
            "the script's output did not arrive: " + (error or "empty file"),
            "nothing",
            expected,
        )
    row = dict(word.split("=", 1) for word in lines[0].split() if "=" in word)
    gpus = [index for index in row.get("gpus", "").split(",") if index]
    measured = f"{row.get('cpus', '?')} CPUs, {len(gpus)} GPU"
    status = PASS if measured == expected else FAIL
    return check("guide-batch", partition, status, measured, expected, message=text)


def no_gpus(target: str, reason: str) -> list[Check]:
    """The three examples where the cluster has no GPU that could be used."""
    return [skipped(name, target, reason) for name in ("guide-interactive", "guide-two-nodes", "guide-batch")]
