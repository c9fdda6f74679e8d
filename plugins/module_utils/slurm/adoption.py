"""What a new slurm.conf would cost the jobs of a Slurm that is taken over. Pure functions over text."""

from __future__ import annotations

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import slurmtext
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    detect as slurm_detect,
    parse as slurm_parse,
)

# a change of one of these makes slurmctld forget every job
KEPT = ("ClusterName", "StateSaveLocation", "SelectType", "SwitchType")
# how slurmctld says that it has none
_NONE = ("", "(null)", "switch/none")


def lost_settings(live, text):
    """Sentences for settings that slurmctld can't change without losing its jobs."""
    new = slurm_detect.settings(text.encode())
    pairs = [(key, live[key], new.get(key.lower(), "")) for key in KEPT if live.get(key)]
    return [
        "%s is %s, the new slurm.conf says %s" % (key, old, wanted or "nothing")
        for key, old, wanted in pairs
        if _plain(old) != _plain(wanted)
    ]


def _plain(value):
    return "" if value in _NONE else value.lower().rstrip("/")


def shape(entry):
    """(boards, sockets, cores, threads) of a node, from `scontrol show node` or from a line of slurm.conf."""
    boards = slurmtext.number(entry, "Boards") or 1
    sockets = slurmtext.number(entry, "Sockets") or boards * slurmtext.number(entry, "SocketsPerBoard")
    return (boards, sockets, slurmtext.number(entry, "CoresPerSocket"), slurmtext.number(entry, "ThreadsPerCore"))


def wanted_shapes(text):
    """{node: shape} of the new slurm.conf."""
    shapes = {}
    for line in text.splitlines():
        if line.startswith("NodeName="):
            entry = slurmtext.record(line)
            shapes.update(dict.fromkeys(slurm_parse.expand(entry["NodeName"]), shape(entry)))
    return shapes


def lost_jobs(shown, queue, text):
    """Sentences for nodes whose jobs would not survive the new slurm.conf."""
    wanted = wanted_shapes(text)
    busy = {}
    for job in slurm_parse.jobs(queue):
        for name in job["nodes"] if job["state"] != "PENDING" else ():
            busy.setdefault(name, []).append(job["id"])
    sentences = []
    for line in shown.splitlines():
        entry = slurmtext.record(line.partition(" Reason=")[0])
        name = entry.get("NodeName", "")
        if name in busy and name not in wanted:
            sentences.append("%s is not in cluster.yml, and runs %s" % (name, ", ".join(busy[name])))
        elif name in busy and wanted[name] != shape(entry):
            sentences.append("%s runs %s, and its cores would be renumbered" % (name, ", ".join(busy[name])))
    return sentences
