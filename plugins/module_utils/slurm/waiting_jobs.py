"""Which waiting jobs a new slurm.conf would end, or leave waiting for ever: those that fit the old one and not the new.

What slurmctld does at its next start, seen with 24.11: a waiting job ends with NODE_FAIL when a node of its
`--nodelist`, or one partition of its list, is gone, also when it is held. When no node has its feature any more it
waits with BadConstraints, and one whose reservation has lost its last node is held. For other requests it waits.

What can't be read of a request counts as met, before and after: no job is reported for it. Python 3.8.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from . import client, effects, slurm_output as output
from .command import Result
from .fitting import Gres, Job, Layout, Node, expanded, fits, gres, has, members_of, minutes
from .hostlist import fold
from .node_states import ON_NODES

# No text of a user's, but features, which Slurm compares with those of nodes. They come last: they have bars.
_COLUMNS = {
    "id": "%i", "number": "%A", "user": "%u", "state": "%T", "partitions": "%P", "required": "%n", "excluded": "%x",
    "nodes": "%D", "cpus": "%C", "node_cpus": "%c", "memory": "%m", "gres": "%b", "limit": "%l", "reservation": "%v",
    "priority": "%Q", "features": "%f",
}  # fmt: skip
QUEUE = client.squeue("|".join(_COLUMNS.values()), "--all", "--sort=i")
# squeue has these by its long options only, in columns
_WIDTHS = (64, 256, 256, 256)
GPUS = client.squeue_long(("JobArrayID", "tres-per-job", "tres-per-socket", "tres-per-task"), _WIDTHS, "--all")
_ID = re.compile(r"[0-9]+(?:\+[0-9]+|_[0-9]+|_\[[0-9,:%.-]+\]?)?")
_RESERVED = re.compile(r"^ReservationName=(\S+) .* Nodes=(\S+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_][^&|,()\[\]*\s]*")
_CHANGED = ("NodeName=", "PartitionName=", "NodeSet")


class Affected(NamedTuple):
    """A job with the reason. `ends`: slurmctld ends it, else it waits for ever; `rescue` is what keeps it, with a hold.

    `rescue` has the words for `scontrol update`, and is None where nothing does.
    """

    job: Job
    reason: str
    ends: bool
    rescue: tuple[str, ...] | None


def layout(text: str) -> Layout:
    """The nodes and partitions of a slurm.conf."""
    nodes = {name: _node(attributes) for name, attributes in effects.definitions(text, "NodeName").items()}
    partitions = effects.definitions(text, "PartitionName")
    sets = effects.definitions(text, "NodeSet")
    members = {name: frozenset(members_of(attributes, nodes, sets)) for name, attributes in partitions.items()}
    return Layout(nodes, members, partitions)


def _node(attributes: Mapping[str, str]) -> Node:
    text = attributes.get("cpus") or attributes.get("procs")
    boards, sockets = (int(attributes.get(key, "1")) for key in ("boards", "socketsperboard"))
    shape = ("sockets", "corespersocket", "threadspercore")
    cpus = output.whole(text or "")
    if text is None and any(key in attributes for key in shape):
        total, cores, threads = (int(attributes.get(key, "1")) for key in shape)
        cpus = (total if "sockets" in attributes else boards * sockets) * cores * threads
    memory = output.whole(attributes.get("realmemory", ""))
    words = attributes.get("features") or attributes.get("feature") or ""
    return Node(cpus, memory, gres(attributes.get("gres", "")), frozenset(words.strip('"').split(",")) - {""})


# --- the queue


def jobs(queue: str, columns: str) -> list[Job]:
    """The waiting jobs, from the output of QUEUE and GPUS. Raises UnreadableError."""
    more = {entry[0]: entry[1:] for entry in map(_columns, columns.splitlines())}
    return [job for line in queue.splitlines() if line for job in _job(line, more)]


def _columns(line: str) -> list[str]:
    ends = [sum(_WIDTHS[: place + 1]) for place in range(len(_WIDTHS))]
    return [line[end - width : end].strip() for end, width in zip(ends, _WIDTHS)]


def _job(line: str, more: Mapping[str, list[str]]) -> list[Job]:
    fields = dict(zip(_COLUMNS, (field.strip() for field in line.split("|", len(_COLUMNS) - 1))))
    if len(fields) != len(_COLUMNS) or not _ID.fullmatch(fields["id"]):
        raise output.UnreadableError(f"squeue printed {line[:80]!r}, which is not a job")
    if fields["state"] in ON_NODES:
        return []
    whole, *parts = more.get(fields["id"], ["", "", ""])
    return [
        Job(
            id=fields["id"],
            user=fields["user"],
            partitions=tuple(fields["partitions"].split(",")),
            required=tuple(expanded(fields["required"])),
            excluded=tuple(expanded(fields["excluded"])),
            # `2-4` where a range was asked for
            nodes=output.whole(fields["nodes"].partition("-")[0]) or 1,
            cpus=output.whole(fields["cpus"].partition("-")[0]) or 1,
            node_cpus=output.whole(fields["node_cpus"]) or 1,
            memory=(output.size(fields["memory"], "M") or 0) >> 20,
            gres=_least([gres(text) for text in (fields["gres"], *parts)]),
            all_gres=tuple(sorted(gres(whole).items())),
            limit=minutes({"maxtime": fields["limit"]}),
            reservation=output.present(fields["reservation"]),
            features=output.present(fields["features"]),
            held=fields["priority"] == "0",
            number=fields["number"],
        )
    ]


def _least(several: Iterable[Gres]) -> tuple[tuple[tuple[str, str], int], ...]:
    """What one node must have at least: a task or a socket is on one node."""
    result: Gres = {}
    for counts in several:
        result.update({key: max(count, result.get(key, 0)) for key, count in counts.items()})
    return tuple(sorted(result.items()))


# --- what fits no more


def affected(
    waiting: Iterable[Job], old: Layout, new: Layout, reservations: Mapping[str, frozenset[str]]
) -> list[Affected]:
    """The jobs that fit the old slurm.conf and not the new one; {name: nodes} of reservations."""
    known: dict[tuple[Any, ...], Affected | None] = {}
    result = []
    for job in waiting:
        if job.request not in known:
            known[job.request] = _affected(job, old, new, reservations)
        case = known[job.request]
        if case:
            result.append(case._replace(job=job))
    return result


def _affected(job: Job, old: Layout, new: Layout, reservations: Mapping[str, frozenset[str]]) -> Affected | None:
    gone = [name for name in job.required if name in old.nodes and name not in new.nodes]
    lost = [name for name in job.partitions if name in old.partitions and name not in new.partitions]
    if gone or lost:
        parts = [f"asks for {fold(gone)}"] if gone else []
        parts += [f"is in partition {', '.join(lost)}"] if lost else []
        return Affected(job, f"{' and '.join(parts)}, which goes", True, _rescue(job, gone, lost, new))
    reserved = reservations.get(job.reservation, frozenset()) & frozenset(old.nodes)
    if reserved and not reserved & frozenset(new.nodes):
        return Affected(job, f"its reservation {job.reservation} loses its last node", False, ())
    inherited = {minutes(old.partitions[name]) for name in job.partitions if name in old.partitions}
    if job.limit in inherited:
        # Slurm shows the partition's limit where a job has none
        job = job._replace(limit=None)
    if fits(job, old) and not fits(job, new):
        return Affected(job, f"no node fits it any more: it asks for {_words(job, new)}", False, ())
    return None


def _rescue(job: Job, gone: list[str], lost: list[str], new: Layout) -> tuple[str, ...] | None:
    if job.id.endswith("+0"):
        # `scontrol update` takes the number of a heterogeneous job's first part for the whole job, and refuses it
        return None
    words = []
    if gone:
        words.append(f"reqnodelist={','.join(name for name in job.required if name in new.nodes)}")
    if lost:
        left = [name for name in job.partitions if name in new.partitions]
        if not left:
            return None
        words.append(f"partition={','.join(left)}")
    return tuple(words)


def _words(job: Job, new: Layout) -> str:
    """What it asks for: first what no node has any more, else all of it."""
    everything = frozenset(feature for node in new.nodes.values() for feature in node.features)
    words = [f"feature {word}" for word in _WORD.findall(job.features) if word not in everything]
    asked = [key for key, _count in (*job.gres, *job.all_gres)]
    lacking = [key for key in asked if not any(has(node.gres, key) for node in new.nodes.values())]
    words += [":".join(filter(None, key)) for key in lacking]
    if words:
        return ", ".join(dict.fromkeys(words))
    parts = [
        f"{job.nodes} node{'s' * (job.nodes > 1)}",
        f"{job.cpus} CPU{'s' * (job.cpus > 1)}",
        f"{job.memory} MB a node",
    ]
    parts += [f"{':'.join(filter(None, key))}:{count}" for key, count in (*job.gres, *job.all_gres)]
    parts += [f"features {job.features}"] if job.features else []
    parts += [f"{output.clock(job.limit)} in time"] if job.limit else []
    return f"{', '.join(parts)} (partition {','.join(job.partitions)})"


# --- asked of slurmctld


Ask = Callable[[Sequence[str]], Result]


def concerned(changes: Iterable[effects.Change]) -> bool:
    """Whether these changes of slurm.conf can touch waiting jobs."""
    return any(change.key.startswith(_CHANGED) and change.old for change in changes)


def query(old: Layout, new: Layout, ask: Ask) -> list[Affected]:
    """The waiting jobs that this concerns; `ask` runs a command. Raises UnreadableError."""
    answers = []
    for command in (QUEUE, GPUS, client.RESERVATIONS):
        shown = ask(command)
        if not shown.ok:
            raise output.UnreadableError(shown.failure)
        answers.append(shown.output)
    reserved = {name: frozenset(expanded(nodes)) for name, nodes in _RESERVED.findall(answers[2])}
    return affected(jobs(*answers[:2]), old, new, reserved)


def hold(cases: Iterable[Affected], ask: Ask) -> list[str]:
    """Hold the jobs, without what would end them; returns what failed. Their users may release them."""
    problems = []
    for case in cases:
        # of an array all tasks that wait: squeue cuts a long list of them. Of a job of several parts Slurm holds all.
        job = case.job.number if "+" in case.job.id else case.job.id.partition("_[")[0]
        # one that an administrator holds stays so
        first = case.job.id.partition("+")[0].partition("_[")[0]
        commands = [] if case.job.held else [client.scontrol("uhold", first)]
        commands += [client.update("job", [job], word) for word in case.rescue or ()]
        for command in commands:
            done = ask(command)
            if not done.ok:
                problems.append(f"{' '.join(command)}: {' '.join(done.message.split())}")
    return problems


def sentence(cases: list[Affected], most: int = 10) -> str:
    """`12 (alice) asks for gpu02, which goes`: the jobs by what happens to them."""
    parts = [f"{case.job.id} ({case.job.user}): {case.reason}" for case in cases[:most]]
    return "; ".join(parts) + (f"; and {len(cases) - most} more" if len(cases) > most else "")
