"""What Slurm says now, read from scontrol's and squeue's text: alike from 22.05 on, which their JSON is not."""

from __future__ import annotations

import re

from ansible.module_utils.deepops_smoke import slurmtext

# the name comes last: it is the only field that may have anything in it
JOB_FORMAT = "%i|%u|%T|%P|%N|%j"
_REASON = re.compile(r"\sReason=(.*?) \[([^@\[\]]*)@([^\[\]]*)\](?=\s|$)")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def nodes(text):
    """Dicts from `scontrol --oneliner --details show node`, in Slurm's order."""
    return [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _node(line):
    said = _REASON.search(line)
    # a reason is free text: nothing in it may pass for a field
    entry = slurmtext.record(line[: said.start()] if said else line)
    reason, user, since = said.groups() if said else ("", "", "")
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
    found = []
    for line in text.splitlines():
        fields = line.split("|", 5)
        if len(fields) == 6:
            job, user, state, partition, where, name = fields
            found.append(
                {
                    "id": job.strip(),
                    "user": user,
                    "name": name,
                    "state": state,
                    "partition": partition,
                    "nodes": expand(where),
                }
            )
    return found


def running_version(text):
    """slurmctld's own version from `scontrol show config`, '' where it did not answer."""
    return slurmtext.config(text).get("SLURM_VERSION", "")


def expand(text):
    """The names of a Slurm hostlist: `gpu[01-03,07],ctl1`."""
    found = []
    for piece in re.split(r",(?![^\[]*\])", text.strip()):
        found += _expand_piece(piece) if piece else []
    return found


def _expand_piece(piece):
    group = _BRACKETS.search(piece)
    if not group:
        return [piece]
    names = []
    for part in group.group(1).split(","):
        first, _separator, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            head = "%s%0*d" % (piece[: group.start()], len(first), number)
            names += [head + tail for tail in _expand_piece(piece[group.end() :])]
    return names
