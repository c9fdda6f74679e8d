"""The examples of the DeepOps users' guide, typed as they are printed there."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import across, batch, command, slurmtext, terminal
from .accounting import Job
from .session import BUSY, Session
from .slurmtext import Record
from .verdict import FAIL, PASS, SKIP, Verdict, failed, one_line, skipped, verdict

INTERACTIVE = "srun -N 1 --gpus=1 -t 01:00:00 --pty bash"
TWO_NODES = "srun -N 2 --gpus-per-node=1"
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
    """Where the examples run: a partition with GPUs, its nodes that are up, and the option that names it, if needed."""

    partition: Record
    nodes: List[Record]
    option: List[str]

    @property
    def name(self) -> str:
        """The partition's name."""
        return self.partition["PartitionName"]


def place(partitions: Mapping[str, Record], nodes: Sequence[Record], wanted: str = "") -> Optional[Place]:
    """The partition to use: the printed one, else the default, else the one with most GPU nodes; None without GPUs."""
    found = []
    for name, partition in partitions.items():
        if partition.get("State") != "UP":
            continue
        members = [
            node
            for node in nodes
            if name in node.get("Partitions", "").split(",") and slurmtext.gpu_count(node.get("Gres", ""))
        ]
        default = partition.get("Default") == "YES"
        if members:
            found.append(
                (
                    name == wanted,
                    default,
                    len(members),
                    Place(partition, members, [] if default else ["-p", name]),
                )
            )
    return max(found, key=lambda entry: entry[:3])[3] if found else None


def scaled(where: Place) -> Tuple[Mapping[str, str], str]:
    """The script's values as printed, or what the cluster has where that is less; and what differs, in words."""
    best = max(where.nodes, key=lambda node: (slurmtext.number(node, "CPUTot"), slurmtext.number(node, "RealMemory")))
    limit = slurmtext.minutes(where.partition.get("MaxTime", ""))
    values = dict(PRINTED, partition=where.name)
    if slurmtext.number(best, "CPUTot") < int(PRINTED["cpus"]):
        values["cpus"] = best["CPUTot"]
    if slurmtext.number(best, "RealMemory") < slurmtext.mebibytes(PRINTED["memory"]):
        values["memory"] = best["RealMemory"] + "M"
    if limit is not None and limit < (slurmtext.minutes(PRINTED["time"]) or 0):
        values["time"] = slurmtext.clock(limit)
    changed = [
        "--{}={} for {}".format(key, values[key], PRINTED[key]) for key in PRINTED if values[key] != PRINTED[key]
    ]
    names = {"--cpus=": "--cpus-per-task=", "--memory=": "--mem="}
    text = ", ".join(changed)
    for short, option in names.items():
        text = text.replace(short, option)
    return values, "as printed" if not changed else "with " + text


def interactive(session: Session, where: Place) -> Verdict:
    """`srun -N 1 --gpus=1 -t 01:00:00 --pty bash` on a real terminal, with a command typed into the shell."""
    argv = ["srun", *where.option, *INTERACTIVE.split()[1:]]
    name, shown, what = session.name("interactive"), " ".join(argv), "guide-interactive"
    environment = command.clean_environment({"SLURM_JOB_NAME": name})
    typed = 'echo "deepops $((6*7)) $SLURMD_NODENAME gpu=$CUDA_VISIBLE_DEVICES."; tty; exit\n'
    talk = terminal.type_into(argv, typed, "deepops 42 ", environment, session.queue_timeout + 5)
    if "deepops 42 " not in talk.text:
        state, reason = session.queued(name)
        session.cancel(["--name=" + name])
        status = SKIP if state == "PENDING" and reason.startswith(BUSY) else FAIL
        text = (
            "Slurm's reason: " + reason
            if state == "PENDING"
            else one_line(talk.text) or "nothing appeared on the terminal"
        )
        return verdict(what, where.name, status, "no shell", "a shell on a node", message="{}: {}".format(shown, text))
    node, _, rest = talk.text.split("deepops 42 ", 1)[1].partition(" ")
    gpu = rest.split("gpu=", 1)[-1].split(".", 1)[0]
    if not gpu:
        return failed(
            what, where.name, shown + ": no CUDA_VISIBLE_DEVICES in the shell", "no GPU", "a shell with a GPU"
        )
    if "/dev/" not in rest:
        return failed(
            what,
            where.name,
            shown + ": the shell is not on a terminal",
            "no terminal",
            "a shell on a terminal",
        )
    return verdict(what, where.name, PASS, "a shell on " + node, "a shell on a node", message=shown)


def two_nodes(session: Session, where: Place, reports: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """`srun -N 2 --gpus-per-node=1 nvidia-smi`; without nvidia-smi on the nodes, a command that opens the devices."""
    what = "guide-two-nodes"
    if len(where.nodes) < 2:
        return skipped(what, where.name, "fewer than two nodes with GPUs are up in partition {}".format(where.name))
    names = [node["NodeName"] for node in where.nodes]
    real = all(reports.get(name, {}).get("nvidia_smi") for name in names)
    tool = ["nvidia-smi"] if real else across.argv("gpu", "")
    argv = ["srun", *where.option, *TWO_NODES.split()[1:]]
    outcome = session.typed("two-nodes", [*argv, *tool])
    shown = " ".join(argv) + (
        " nvidia-smi" if real else " COMMAND that opens the devices, as the nodes have no nvidia-smi"
    )
    if not outcome.ended or outcome.rc != 0:
        status = SKIP if outcome.busy else FAIL
        return verdict(
            what,
            where.name,
            status,
            "no output",
            "2 nodes with a GPU each",
            message="{}: {}".format(shown, one_line(outcome.why)),
        )
    answered = outcome.out.count("NVIDIA-SMI") if real else _with_gpu(outcome.out)
    status = PASS if answered == 2 else FAIL
    return verdict(
        what, where.name, status, "{} nodes with a GPU".format(answered), "2 nodes with a GPU", message=shown
    )


def _with_gpu(out: str) -> int:
    answers = across.parse(out)
    return sum(1 for lines in answers.values() if lines[0].get("env", {}).get("CUDA_VISIBLE_DEVICES"))


def batch_script(session: Session, where: Place) -> Tuple[Verdict, List[Job]]:
    """The guide's batch script with --gres, --cpus-per-task, --mem and --time."""
    what = "guide-batch"
    values, text = scaled(where)
    answer = session.sbatch("", [], SCRIPT.format(mark=MARK, **values))
    if answer.rc != 0:
        return failed(
            what, where.name, "sbatch ({}): {}".format(text, one_line(answer.said)), "refused", "submitted"
        ), []
    job = Job(answer.out, what)
    left = session.wait([job.id])
    if job.id in left:
        state, reason = left[job.id]
        status = SKIP if state == "PENDING" and reason.startswith(BUSY) else FAIL
        return verdict(
            what,
            where.name,
            status,
            state.lower(),
            "completed",
            message="{}; Slurm's reason: {}".format(text, reason),
        ), []
    shown = slurmtext.record(command.run(["scontrol", "-o", "show", "job", job.id]).out)
    files = batch.Files(shown.get("BatchHost", ""), where.name, [shown.get("StdOut", "")])
    out, error = batch.fetch(session, "fetch-guide", files)
    return judge_script(where.name, values, text, out, error), [job]


def judge_script(partition: str, values: Mapping[str, str], text: str, out: str, error: str) -> Verdict:
    """The script's line says that it had its CPUs and a GPU."""
    expected = "{} CPUs, 1 GPU".format(values["cpus"])
    found = [line.split(MARK, 1)[1] for line in out.splitlines() if MARK in line]
    if not found:
        return failed(
            "guide-batch",
            partition,
            "the script's output did not arrive: " + (error or "empty file"),
            "nothing",
            expected,
        )
    row = dict(word.split("=", 1) for word in found[0].split() if "=" in word)
    gpus = [index for index in row.get("gpus", "").split(",") if index]
    measured = "{} CPUs, {} GPU".format(row.get("cpus", "?"), len(gpus))
    status = PASS if measured == expected else FAIL
    return verdict("guide-batch", partition, status, measured, expected, message=text)


def no_gpus(target: str, reason: str) -> List[Verdict]:
    """The three examples where the cluster has no GPU that could be used."""
    return [skipped(name, target, reason) for name in ("guide-interactive", "guide-two-nodes", "guide-batch")]
