"""What Slurm says now, read from scontrol's and squeue's text, which is the same from 22.05 on; their JSON is not."""

from __future__ import annotations

import re

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import slurmtext

# No text of a user's: a job's name may have line ends and bars in it, and would be read as more jobs.
JOB_FORMAT = "%i|%u|%T|%P|%N"
_JOB = re.compile(r"([0-9]+(?:\+[0-9]+|_[0-9]+|_\[[0-9,:%.-]+\]?)?)\|([^|]+)\|([A-Z_?]+)\|([^|]*)\|([^|]*)")
_HOST_CHARACTERS = re.compile(r"[A-Za-z0-9_.,\[\]-]*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
# above Slurm's own MaxNodeCount
MOST_NODES = 1 << 16
_REASON = re.compile(r"\sReason=(.*?) \[([^@\[\]]*)@([^\[\]]*)\](?=\s|$)")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


class UnreadableError(ValueError):
    """A line that Slurm's commands do not print."""


def nodes(text):
    """Dicts from `scontrol --oneliner --details show node`, in Slurm's order."""
    return [_node(line) for line in text.split("\n") if line.startswith("NodeName=")]


def _node(line):
    reason_match = _REASON.search(line)
    # a reason is free text: nothing in it may pass for a field
    entry = slurmtext.record(line[: reason_match.start()] if reason_match else line)
    reason, user, since = reason_match.groups() if reason_match else ("", "", "")
    return {
        "name": entry["NodeName"],
        "state": entry.get("State", "UNKNOWN"),
        "reason": reason,
        "reason_user": user,
        "reason_since": since,
        "cpus": slurmtext.number(entry, "CPUTot"),
        "alloc_cpus": slurmtext.number(entry, "CPUAlloc"),
        "memory_mb": slurmtext.number(entry, "RealMemory"),
        "alloc_memory_mb": slurmtext.number(entry, "AllocMem"),
        "gres": slurmtext.present(entry.get("Gres", "")),
        "gpus": slurmtext.gpu_count(entry.get("Gres", "")),
        "alloc_gpus": slurmtext.gpu_count(entry.get("GresUsed", "")),
        "partitions": [name for name in slurmtext.present(entry.get("Partitions", "")).split(",") if name],
        "version": slurmtext.present(entry.get("Version", "")),
    }


def jobs(text):
    """Dicts from `squeue --noheader --format=JOB_FORMAT`; an array's waiting tasks are one."""
    return [_job(line) for line in text.split("\n") if line]


def _job(line):
    fields = _JOB.fullmatch(line.strip())
    if not fields:
        raise UnreadableError("squeue printed %r, which is no job" % line[:80])
    job, user, state, partition, where = fields.groups()
    return {"id": job, "user": user, "state": state, "partition": partition, "nodes": expand(slurmtext.present(where))}


def running_version(text):
    """slurmctld's own version from `scontrol show config`, '' where it did not answer."""
    return slurmtext.config(text).get("SLURM_VERSION", "")


def expand(text):
    """The names of a Slurm hostlist: `gpu[01-03,07],ctl1`."""
    if not _HOST_CHARACTERS.fullmatch(text.strip()):
        raise UnreadableError("%r is no list of nodes" % text[:80])
    names = []
    for piece in re.split(r",(?![^\[]*\])", text.strip()):
        names += _expand_piece(piece, MOST_NODES - len(names)) if piece else []
    return names


def _expand_piece(piece, room):
    group = _BRACKETS.search(piece)
    if not group and ("[" in piece or "]" in piece):
        raise UnreadableError("%r is no list of nodes" % piece[:80])
    if not group:
        return [piece]
    tails = _expand_piece(piece[group.end() :], room)
    names = []
    for part in group.group(1).split(","):
        span = _RANGE.fullmatch(part)
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (0, -1)
        count = (last - first + 1) * len(tails)
        if not 0 < count <= room - len(names):
            raise UnreadableError("%r is no list of nodes" % piece[:80])
        for number in range(first, last + 1):
            head = "%s%0*d" % (piece[: group.start()], len(span[1]), number)
            names += [head + tail for tail in tails]
    return names
