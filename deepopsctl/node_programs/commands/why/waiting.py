"""Why a job waits: a table of Slurm's reasons, each with its cause in plain words and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Callable

from ..._shared import slurm_client, slurm_output
from ..._shared.fitting import expanded, has, minutes
from ..._shared.slurm_output import clean, clock
from . import changes, limits, resources
from .answer import Advice, Cause, count, moment, several
from .asking import Slurm, ends_at
from .changes import Change
from .job import Job

RESERVATIONS = slurm_client.RESERVATIONS
_DEPENDENCY = re.compile(r"(\w+):([0-9]+)(?:_(?:[0-9]+|\*))?(?:\+[0-9]+)?(?:\((\w+)\))?")


@dataclass
class Case:
    """A job that waits, and what is asked about it at most once."""

    job: Job
    slurm: Slurm
    now: float

    @cached_property
    def places(self) -> resources.Places:
        """The nodes that it can use."""
        return resources.places(self.job, self.slurm)

    @cached_property
    def reservations(self) -> list[slurm_output.Record]:
        """Those of nodes that it could run on, apart its own; not yet over."""
        shown = slurm_output.records(self.slurm.text(RESERVATIONS), "ReservationName").values()
        mine = set(self.places.fitting)
        return [
            each
            for each in shown
            if each["ReservationName"] != self.job["Reservation"] and mine & set(expanded(each.get("Nodes", "")))
        ]

    @property
    def number(self) -> str:
        """Its number, as the person has typed it: for commands to paste."""
        return self.job.wanted

    def update(self, words: str) -> str:
        """The command that changes it."""
        return f"scontrol update jobid={self.number} {words}"

    def sooner(self, more: list[Change] | None = None) -> list[Advice]:
        """Changes that were tried and help; the given ones, or those for a job that waits for resources."""
        stuck = more is not None
        if more is None:
            begins = [slurm_output.whole(each.get("StartTime", "")) for each in self.reservations]
            more = changes.candidates(self.job, self.places, self.now, [each for each in begins if each])
        return changes.sooner(self.job, self.slurm, more, self.job.time("StartTime"), stuck=stuck)


def explain(job: Job, slurm: Slurm, now: float) -> list[Cause]:
    """The causes, Slurm's own reason first."""
    case = Case(job, slurm, now)
    which = limits.limit(job.reason)
    if which:
        return [_limit(case, which)]
    for pattern, describe in _REASONS:
        if re.match(pattern, job.reason, re.IGNORECASE):
            return [describe(case)]
    return [_unknown(case)]


# --- resources


def _resources(case: Case) -> Cause:
    where, job = case.places, case.job
    if not where.layout.nodes:
        return Cause("resources", "the nodes that it needs are busy")
    if len(where.fitting) < job.nodes:
        return _no_such_nodes(case)
    details = [resources.summary(where, job.partitions)]
    if len(where.usable) < job.nodes:
        return _out_of_service(case, details)
    missing = resources.lacking(job.request, where)
    if missing:
        text = f"other jobs have what it needs: {', '.join(missing)}" + (" on each node" if job.nodes > 1 else "")
        details += resources.holders(where.usable, case.slurm, case.now)
        return Cause("resources", text, details, case.sooner())
    if case.reservations:
        return _reserved(case, details)
    text = "enough is free now; Slurm keeps it for jobs of higher priority, or has not planned this one yet"
    return Cause("resources", text, details, case.sooner() or [_BACKFILL])


_BACKFILL = Advice("ask for less time: a short job starts in the gap before the planned ones")


def _no_such_nodes(case: Case) -> Cause:
    """No node has it, however long the job waits."""
    where, job = case.places, case.job
    features = {name for node in where.layout.nodes.values() for name in node.features}
    unknown = [word for word in re.findall(r"[A-Za-z_][\w.-]*", job["Feature"]) if word not in features]
    asked = [key for key, _ in (*job.request.gres, *job.request.all_gres)]
    everywhere = [node.gres for node in where.layout.nodes.values()]
    strange = [key for key in dict.fromkeys(asked) if not any(has(each, key) for each in everywhere)]
    text = f"no {several(job.partitions)} node has what it asks for: it never starts as it is"
    if unknown:
        text = f"no node has the feature {several(unknown)}: it never starts as it is"
    elif strange:
        text = f"no node has {several([':'.join(filter(None, key)) for key in strange])}: it never starts as it is"
    details = [resources.summary(where, job.partitions)]
    details += [f"features there are: {several(sorted(features), 12)}"] if unknown and features else []
    advice = (
        case.sooner([Change("without --constraint", {"--constraint": None}, "features=")]) if job["Feature"] else []
    )
    others = [name for name in changes.allowed_partitions(job, where) if name not in job.partitions]
    advice += case.sooner([changes.partition(name) for name in others[:3]])
    cancel = Advice(
        "cancel it and submit it with what there is: see sinfo -o '%P %D %c %m %G %f'", f"scancel {case.number}"
    )
    return Cause("no-such-nodes", text, details, [*advice, cancel])


def _out_of_service(case: Case, details: list[str]) -> Cause:
    where = case.places
    details += resources.out_of_service(where.out, where.records)
    names = several(where.out)
    text = f"nodes that it needs are out of service: {names}"
    advice = case.sooner()
    advice += (
        []
        if advice
        else [Advice("wait until the administrators return the nodes to service; sinfo -R has the reasons")]
    )
    return Cause("nodes-out-of-service", text, details, advice)


def _reserved(case: Case, details: list[str]) -> Cause:
    kinds = {True: "maintenance", False: "a reservation"}
    is_maintenance = any("MAINT" in each.get("Flags", "") for each in case.reservations)
    text = f"{kinds[is_maintenance]} begins before it would end, or has its nodes"
    for each in case.reservations[:5]:
        begin, end = (slurm_output.whole(each.get(key, "")) for key in ("StartTime", "EndTime"))
        times = f" from {moment(begin)} to {moment(end)}" if begin and end else ""
        details.append(f"reservation {clean(each['ReservationName'])}{times}: {clean(each.get('Nodes', ''))}")
    return Cause("maintenance" if is_maintenance else "reserved-for-others", text, details, case.sooner())


def _not_available(case: Case) -> Cause:
    where = case.places
    details = [resources.summary(where, case.job.partitions)]
    if len(where.fitting) < case.job.nodes:
        return _no_such_nodes(case)
    if where.out and len(where.usable) < case.job.nodes:
        return _out_of_service(case, details)
    if case.reservations:
        return _reserved(case, details)
    return _resources(case)


def _priority(case: Case) -> Cause:
    details = [*_factors(case)]
    where = case.places
    if where.layout.nodes and len(where.fitting) < case.job.nodes:
        return _no_such_nodes(case)
    if where.out and len(where.usable) < case.job.nodes:
        return _out_of_service(case, details)
    missing = resources.lacking(case.job.request, where)
    if missing:
        details.append(f"what it needs is not free at the moment: {', '.join(missing)}")
        details += resources.holders(where.usable, case.slurm, case.now)
    text = f"jobs of higher priority wait for the same nodes (this one has {case.job['PriorityLong'] or '?'})"
    return Cause("priority", text, details, case.sooner() or [_BACKFILL])


# sprio gets the factors of all jobs that wait, also for one: not where these are more
MOST_FACTORS = 5000
_FACTORS = (("age", "%A"), ("fair share", "%F"), ("size", "%J"), ("partition", "%P"), ("QOS", "%Q"))


def _factors(case: Case) -> Iterator[str]:
    """The priority by its factors: points of what there is at most."""
    waiting = re.search(r"Jobs pending:\s+([0-9]+)", case.slurm.text(slurm_client.STATISTICS))
    if waiting and int(waiting[1]) > MOST_FACTORS:
        yield f"{int(waiting[1]):,} jobs wait; the factors of its priority: sprio -j {case.number}"
        return
    columns = "|".join(code for _, code in _FACTORS)
    shown = case.slurm.text(slurm_client.sprio(columns, "--jobs=" + case.job["JobID"])).splitlines()
    weights = case.slurm.text(slurm_client.sprio(columns, "--weights")).splitlines()
    rows = list(zip(_FACTORS, shown[0].split("|"), weights[0].split("|"))) if shown and weights else []
    parts = [
        f"{name} {points.strip()} of {most.strip()}"
        for (name, _), points, most in rows
        if most.strip() not in ("", "0")
    ]
    if parts:
        yield f"priority: {', '.join(parts)}"
    low = [points for (name, _), points, most in rows if name == "fair share" and _is_low(points, most)]
    if low:
        yield f"account {case.job['Account']} has used more than its share lately: that lowers its jobs (see sshare)"


def _is_low(points: str, most: str) -> bool:
    had, there = slurm_output.whole(points.strip()), slurm_output.whole(most.strip())
    return bool(there) and had is not None and there is not None and had < there / 10


# --- limits


def _limit(case: Case, which: limits.Limit) -> Cause:
    job, values = case.job, limits.values(which, case.job, case.slurm)
    key = f"{'qos' if which.of_qos else 'association'}-limit"
    tight = [each for each in values if limits.is_tight(which, job, each)] or values
    owner = tight[0].owner if tight else f"QOS {job['QOS']}" if which.of_qos else f"account {job['Account']}"
    what = _what(which, tight[0].tres if tight else "")
    text = f"a limit of {owner} is reached: {'at least' if which.kind == 'Min' else 'at most'} "
    text += f"{_amount(which, tight[0].most) if tight else 'so much'} {what}, {which.scope}"
    details = [
        f"{each.owner}: {_what(which, each.tres)} {each.most}" + (f", used {each.used}" if each.used else "")
        for each in tight
    ]
    details.append(f"Slurm's word for it: {job.reason}")
    return Cause(key, text, details, [*_under_limit(case, which, tight), *_after_limit(case, which)])


def _what(which: limits.Limit, tres: str) -> str:
    if not which.tres:
        return {"Jobs": "running jobs", "Subm": "waiting and running jobs", "Wall": "of time"}[_word(which)]
    name = {"cpu": "CPUs", "mem": "MB of memory", "node": "nodes", "billing": "billing units"}.get(
        tres or which.tres, tres or which.tres
    )
    return f"minutes of {name}" if which.minutes else clean(name).replace("gres/gpu", "GPUs")


def _word(which: limits.Limit) -> str:
    return which.field.replace("Grp", "").replace("Max", "")[:4]


def _amount(which: limits.Limit, most: str) -> str:
    return clock(int(most)) if _word(which) == "Wall" and most.isdigit() else most


def _under_limit(case: Case, which: limits.Limit, values: list[limits.Value]) -> Iterator[Advice]:
    """A request that is within the limit, where it is one of a single job."""
    if which.scope != "of one job":
        return
    most = slurm_output.whole(values[0].most) if values else None
    if which.field == "MaxWallPJ" and most:
        yield from case.sooner([changes.time_limit(most, "a time limit that is allowed")]) or [
            Advice(f"ask for at most --time={clock(most)}", case.update(f"timelimit={clock(most)}"))
        ]
    elif most is not None:
        word = "at least" if which.kind == "Min" else "at most"
        yield Advice(f"ask for {word} {most} {_what(which, values[0].tres)}", f"scancel {case.number}")


def _after_limit(case: Case, which: limits.Limit) -> Iterator[Advice]:
    """Who has to end first, and which other account or QOS is open to the user."""
    job = case.job
    if which.minutes or which.scope == "of one job":
        if which.minutes:
            yield Advice("the time of this limit is used up: it returns as use decays, or an administrator raises it")
    else:
        option = f"--qos={job['QOS']}" if which.of_qos else f"--accounts={job['Account']}"
        more = [f"--user={job['UserName']}"] if which.scope.startswith("of one user") else []
        rows = case.slurm.running(option, *more)
        if rows:
            first = rows[0]
            end = ends_at(first)
            yield Advice(
                f"wait: {count(len(rows), 'job')} of it run{'s' if len(rows) == 1 else ''}, and {first['JobID']} of "
                f"{clean(first['User'])} ends first" + (f", at {moment(end)} at the latest" if end else "")
            )
    yield from _other_associations(case, which)


def _other_associations(case: Case, which: limits.Limit) -> Iterator[Advice]:
    job, parts = case.job, case.slurm.show("partition")
    shown = case.slurm.text(
        slurm_client.sacctmgr("association", "where", f"user={job['UserName']}", "format=account,qos")
    )
    rows = [line.split("|") for line in shown.splitlines() if line.count("|") == 1]
    entries = [parts[name] for name in job.partitions if name in parts]
    if which.of_qos:
        names = {name for account, words in rows if account == job["Account"] for name in words.split(",")}
        allowed = [each for each in sorted(names - {"", job["QOS"]}) if _is_open(entries, "AllowQos", each)]
        for name in limits.open_qos(allowed, job, case.slurm)[:3]:
            yield from case.sooner([Change(f"QOS {clean(name)}", {"--qos": name}, f"qos={clean(name)}")])
    else:
        accounts = [name for name, _ in rows if name != job["Account"] and _is_open(entries, "AllowAccounts", name)]
        for name in accounts[:3]:
            change = Change(f"account {clean(name)}", {"--account": name, "--qos": None}, f"account={clean(name)}")
            yield from case.sooner([change])


def _is_open(partitions: list[slurm_output.Record], key: str, name: str) -> bool:
    return all(changes.is_allowed(each.get(key, "ALL"), name) for each in partitions)


# --- the rest of the table


def _dependency(case: Case) -> Cause:
    never = case.job.reason == "DependencyNeverSatisfied"
    waits = _DEPENDENCY.findall(case.job["Dependency"])
    numbers = sorted({number for _, number, _ in waits})[:20]
    rows = (
        case.slurm.sacct(("JobID", "State", "ExitCode"), "--allocations", "--jobs=" + ",".join(numbers))
        if numbers
        else []
    )
    states = {
        row["JobID"].partition("_")[0]: f"{clean(row['State']).lower()}, exit {clean(row['ExitCode'])}" for row in rows
    }
    details = [f"{kind}: job {number} is {states.get(number, 'not known to you')}" for kind, number, _ in waits]
    if "singleton" in case.job["Dependency"]:
        details.append("singleton: a job of the same name and user has not ended yet")
    drop = Advice("start it without waiting for them", case.update("dependency="))
    if never:
        failed = several([number for _, number, state in waits if state == "failed"] or numbers)
        cancel = Advice("or cancel it, and submit both again", f"scancel {case.number}")
        return Cause(
            "dependency-never-satisfied",
            f"it never starts: job {failed} did not end as it requires",
            details,
            [drop, cancel],
        )
    return Cause("dependency", "it waits for other jobs", details, [drop])


def _begin_time(case: Case) -> Cause:
    begin = case.job.time("EligibleTime") or case.job.time("StartTime")
    text = f"it may not begin before {moment(begin)}" if begin else "it may not begin yet"
    again = case.job["RestartCnt"] not in ("", "0")
    if again:
        return Cause(
            "requeued",
            f"it was returned to the queue, and {text} (it has begun {case.job['RestartCnt']} times)",
            [],
            [],
        )
    return Cause(
        "begin-time", text + " (--begin)", [], [Advice("begin as soon as possible", case.update("starttime=now"))]
    )


def _licenses(case: Case) -> Cause:
    names = [word.partition(":")[0].partition("@")[0] for word in case.job["Licenses"].split(",")]
    details = []
    for name in names[:5]:
        entry = slurm_output.record(case.slurm.text(slurm_client.show("license", name)).partition("\n")[0])
        if "Total" in entry:
            details.append(f"{clean(name)}: {clean(entry['Used'])} of {clean(entry['Total'])} in use")
    advice = [Advice("wait for a license; who has them:", f"squeue --states=R --licenses={','.join(names)}")]
    return Cause("licenses", f"licenses are in use: {clean(case.job['Licenses'])}", details, advice)


def _partition_time(case: Case) -> Cause:
    parts = case.places.layout.partitions
    longest = [time for name in case.job.partitions if name in parts and (time := minutes(parts[name]))]
    asked = "no limit" if case.job.minutes is None else clock(case.job.minutes)
    most = max(longest, default=None)
    allowed = f"partition {several(case.job.partitions)} allows {clock(most) if most else 'less'}"
    text = f"it asks for {asked}, and {allowed}: it never starts as it is"
    others = [name for name in changes.allowed_partitions(case.job, case.places) if name not in case.job.partitions]
    options = [changes.time_limit(most, "the longest time that is allowed")] if most else []
    advice = case.sooner([*options, *(changes.partition(name) for name in others[:3])])
    if most and not advice:
        advice = [Advice(f"ask for at most {clock(most)}", case.update(f"timelimit={clock(most)}"))]
    return Cause("partition-time-limit", text, [], advice)


def _partition_nodes(case: Case) -> Cause:
    parts = case.places.layout.partitions
    sizes = [
        f"{name}: {parts[name].get('minnodes', '?')} to {parts[name].get('maxnodes', '?')}"
        for name in case.job.partitions
        if name in parts
    ]
    text = f"it asks for {count(case.job.nodes, 'node')}, and its partition allows another number ({several(sizes)})"
    others = [name for name in changes.allowed_partitions(case.job, case.places) if name not in case.job.partitions]
    return Cause(
        "partition-node-limit",
        text,
        [],
        [*case.sooner([changes.partition(name) for name in others[:3]]), _again(case)],
    )


def _again(case: Case) -> Advice:
    return Advice("or cancel it, and submit it with another request", f"scancel {case.number}")


def _partition_closed(case: Case) -> Cause:
    text = f"partition {several(case.job.partitions)} is closed: no job starts there until the administrators open it"
    others = [name for name in changes.allowed_partitions(case.job, case.places) if name not in case.job.partitions]
    return Cause("partition-closed", text, [], case.sooner([changes.partition(name) for name in others[:3]]))


def _not_allowed(case: Case) -> Cause:
    """An account or a QOS that may not run there (any more)."""
    job, word = case.job, case.job.reason.lower()
    what, name, key = ("QOS", job["QOS"], "qos") if "qos" in word else ("account", job["Account"], "account")
    if "invalid" in word:
        text = f"{what} {name} is not (or no longer) one that {job['UserName']} may use"
    else:
        text = f"{what} {name} may not use partition {several(job.partitions)}"
    fake = limits.Limit(key == "qos", "", "", "", "")
    advice = list(_other_associations(case, fake))
    others = [each for each in changes.allowed_partitions(job, case.places) if each not in job.partitions]
    advice += case.sooner([changes.partition(each) for each in others[:3]]) if "invalid" not in word else []
    mine = Advice(
        "your accounts and QOS:", f"sacctmgr show association where user={job['UserName']} format=account,qos"
    )
    return Cause(f"{key}-not-allowed", text, [], [*advice, mine])


def _reservation(case: Case) -> Cause:
    name = case.job["Reservation"]
    entry = slurm_output.records(case.slurm.text(RESERVATIONS), "ReservationName").get(name)
    release = Advice("start without the reservation", case.update("reservation="))
    if entry is None or "deleted" in case.job.reason.lower():
        return Cause("reservation-deleted", f"its reservation {name} is no longer there", [], [release])
    begin = slurm_output.whole(entry.get("StartTime", ""))
    if begin and begin > case.now:
        tried = case.sooner([Change("without the reservation", {"--reservation": None}, "reservation=")])
        return Cause("reservation-not-begun", f"its reservation {name} begins at {moment(begin)}", [], tried)
    text = f"the nodes of its reservation {name} are busy, or too few"
    return Cause("reservation-busy", text, resources.holders(case.places.usable, case.slurm, case.now), [release])


def _array_limit(case: Case) -> Cause:
    match = re.search(r"%([0-9]+)", case.job["JobArrayID"])
    most = match[1] if match else "a few"
    text = f"its array runs {most} tasks at a time (the % of --array)"
    number = case.number.partition("_")[0]
    return Cause(
        "array-limit", text, [], [Advice("let more tasks run", f"scontrol update jobid={number} arraytaskthrottle=0")]
    )


def _unknown(case: Case) -> Cause:
    return Cause("other", f"Slurm's reason is {clean(case.job['Reason'])}", [], [])


def _plain(key: str, text: str, *advice: tuple[str, str]) -> Callable[[Case], Cause]:
    """A cause that needs no question; {job} is its number."""
    return lambda case: Cause(
        key, text, [], [Advice(each, command.format(job=case.number)) for each, command in advice]
    )


_RELEASE = ("release it", "scontrol release {job}")
_CANCEL = ("or cancel it", "scancel {job}")
_REASONS: tuple[tuple[str, Callable[[Case], Cause]], ...] = (
    ("Resources$", _resources),
    ("Priority$", _priority),
    ("(ReqNodeNotAvail|Nodes_required)", _not_available),
    ("(NodeDown|BadConstraints$)", _not_available),
    ("Dependency", _dependency),
    ("BeginTime$", _begin_time),
    (
        "JobHeldUser$",
        _plain("held-by-user", "it is held: you, or a program of yours, asked for that", _RELEASE, _CANCEL),
    ),
    (
        "JobHeldAdmin$",
        _plain(
            "held-by-admin",
            "an administrator holds it, or Slurm after a problem: only an administrator releases it",
            ("ask them", ""),
        ),
    ),
    ("Licenses$", _licenses),
    ("PartitionTimeLimit$", _partition_time),
    ("PartitionNodeLimit$", _partition_nodes),
    ("Partition(Down|Inactive)$", _partition_closed),
    (
        "(AccountNotAllowed|InvalidAccount|QOSNotAllowed|InvalidQOS|AccountingPolicy|PartitionConfig|Job's_(QOS|account)_not)",
        _not_allowed,
    ),
    ("Reservation", _reservation),
    ("JobArrayTaskLimit$", _array_limit),
    (
        "(JobLaunchFailure|launch_failed_requeued_held)",
        _plain(
            "launch-failed", "it could not be started, and is held: its prolog or its node failed", _RELEASE, _CANCEL
        ),
    ),
    (
        "(JobHoldMaxRequeue|job_requeued_in_held_state|RequeueHold|MaxRequeue)",
        _plain(
            "requeued-and-held",
            "it was returned to the queue and held: it failed too often, or was requeued so",
            _RELEASE,
            _CANCEL,
        ),
    ),
    (
        "DeadLine$",
        _plain(
            "deadline", "it can't end before its --deadline: it never starts as it is", ("cancel it", "scancel {job}")
        ),
    ),
    (
        "(None|Cleaning|Prolog|SchedDefer)?$",
        _plain("new", "Slurm has not looked at it yet: wait a few seconds, and ask again"),
    ),
)
