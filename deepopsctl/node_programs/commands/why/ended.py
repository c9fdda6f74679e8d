"""Why a job has ended as it has, from the accounting, its nodes, and the end of its own output."""

from __future__ import annotations

import pwd
import re
import signal
from dataclasses import dataclass
from typing import Callable, NamedTuple

from ..._shared import slurm_client, slurm_output
from ..._shared.fitting import expanded
from ..._shared.node_states import NO_JOBS, flags
from ..._shared.slurm_output import clean, whole
from ..._shared.values import format_size, format_time
from . import output_file
from .answer import Advice, Cause, moment, several
from .asking import Slurm

FIELDS = (
    "JobID", "User", "Account", "Partition", "State", "ExitCode", "DerivedExitCode", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "NodeList", "AllocTRES", "NNodes", "TRESUsageInTot", "WorkDir",
)  # fmt: skip
_MOST_NODES = 16
_MEMORY_SIGNAL = 125


@dataclass(frozen=True)
class Run:
    """The last run of a job that began, or would have begun; `runs` how often the accounting has it."""

    row: dict[str, str]
    steps: list[dict[str, str]]
    runs: int
    slurm: Slurm

    @property
    def id(self) -> str:
        """The job's number."""
        return self.row["JobID"]

    @property
    def state(self) -> str:
        """`FAILED`; of `CANCELLED by 1000` the first word."""
        return self.row["State"].partition(" ")[0]

    @property
    def exit(self) -> tuple[int, int]:
        """Exit status and signal."""
        code, _, sent = self.row["ExitCode"].partition(":")
        return whole(code) or 0, whole(sent) or 0

    @property
    def began(self) -> bool:
        """Whether it had nodes."""
        return whole(self.row["Start"]) is not None and self.row["NodeList"] not in ("", "None assigned", "(null)")

    @property
    def is_mine(self) -> bool:
        """Whether the person who asks is its user: then its output may be read, as that person."""
        return self.slurm.me == self.row["User"]


def runs(wanted: str, slurm: Slurm) -> list[Run]:
    """The jobs of a number that the accounting has, each with its last run."""
    rows = slurm.sacct(FIELDS, "--duplicates", "--jobs=" + wanted)
    jobs: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        name, _, step = row["JobID"].partition(".")
        # a text of its user's with line ends in it may pretend to be more rows: what has no user is none
        if not step and row["User"]:
            jobs.setdefault(name, []).append({**row, "steps": ""})
    steps: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        name, _, step = row["JobID"].partition(".")
        if step and step != "extern":
            steps.setdefault(name, []).append(row)
    return [_last(each, steps.get(name, []), slurm) for name, each in jobs.items()]


def _last(several_runs: list[dict[str, str]], steps: list[dict[str, str]], slurm: Slurm) -> Run:
    last = several_runs[-1]
    return Run(last, [step for step in steps if step["Start"] >= last["Start"]], len(several_runs), slurm)


def explain(run: Run) -> list[Cause]:
    """The causes; [] for a job that has simply completed."""
    describe = _STATES.get(run.state)
    causes = [describe(run)] if describe else []
    if run.state in _FAULTY and run.began:
        seen = _output(run) if run.is_mine else None
        if seen:
            # what the program itself has written is nearer to the cause than its exit status
            causes.insert(0 if run.state == "FAILED" else len(causes), seen)
        causes += _nodes(run)
    killed = [step["JobID"].partition(".")[2] for step in run.steps if _out_of_memory(step)]
    if killed and run.state != "OUT_OF_MEMORY":
        causes.insert(
            0,
            _memory(
                run,
                f"a part of it (step {several(killed)}) was killed because it needed more memory than it had",
            ),
        )
    if run.runs > 1:
        causes.append(
            Cause(
                "requeued", f"it was returned to the queue, and has begun {run.runs} times; this is about the last time"
            )
        )
    return causes


def _out_of_memory(row: dict[str, str]) -> bool:
    return row["State"].startswith("OUT_OF_MEMORY") or row["ExitCode"].endswith(f":{_MEMORY_SIGNAL}")


def _memory(run: Run, text: str = "") -> Cause:
    tres = slurm_output.tres(run.row["AllocTRES"])
    nodes = whole(run.row["NNodes"]) or 1
    asked = (slurm_output.size(tres.get("mem", ""), "M") or 0) / nodes
    had = (
        f" than the {format_size(asked)} that it had{' on each node' if nodes > 1 else ''}" if asked else " than it had"
    )
    twice = f"{max(1, round(2 * asked / (1 << 20)))}M" if asked < 1 << 30 else f"{-(-2 * asked // (1 << 30)):.0f}G"
    more = Advice(
        f"ask for more memory, for example --mem={twice}" if asked else "ask for more memory with --mem",
        _resubmit(f"--mem={twice}"),
    )
    return Cause("out-of-memory", text or f"it was killed because it needed more memory{had}", [], [more, _report(run)])


def _resubmit(option: str) -> str:
    return f"sbatch {option} SCRIPT"


def _report(run: Run) -> Advice:
    return Advice("what it used:", f"seff {run.id}")


def _timeout(run: Run) -> Cause:
    limit = whole(run.row["TimelimitRaw"])
    text = f"it did not end within its time limit{f' of {format_time(60 * limit)}' if limit else ''}"
    longer = f"--time={slurm_output.clock(2 * limit)}" if limit else "--time"
    entry = run.slurm.show("partition").get(run.row["Partition"], {})
    details = (
        [f"partition {clean(run.row['Partition'])} allows {clean(entry['MaxTime'])}"] if "MaxTime" in entry else []
    )
    save = Advice("or save its state on the way and continue in a next job (docs: checkpoint.sh in the examples)")
    return Cause(
        "time-limit", text, details, [Advice(f"ask for more time, for example {longer}", _resubmit(longer)), save]
    )


def _cancelled(run: Run) -> Cause:
    uid = whole(run.row["State"].rpartition(" ")[2])
    who = _name(uid) if uid is not None else "Slurm"
    when = "while it ran" if run.began else "before it began"
    own = who == run.row["User"]
    by = "its own user" if own else f"{who}, an administrator" if uid == 0 else who
    again = [] if own else [Advice(f"ask {clean(who)} why, or your administrators, before you submit it again")]
    return Cause(
        "cancelled-by-user" if own else "cancelled-by-other", f"it was cancelled by {clean(by)} {when}", [], again
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"user {uid}"


def _node_fail(run: Run) -> Cause:
    text = f"a node failed under it: {clean(run.row['NodeList'])}"
    return Cause("node-failure", text, [], [Advice("submit it again; it is not your program's fault")])


def _boot_fail(run: Run) -> Cause:
    text = f"a node for it did not start: {clean(run.row['NodeList'])}"
    return Cause("node-did-not-start", text, [], [Advice("submit it again; report it if that happens twice")])


def _preempted(_: Run) -> Cause:
    advice = [
        Advice("let Slurm run it again each time:", _resubmit("--requeue")),
        Advice("save its state on the way, or use a QOS or partition that others do not preempt"),
    ]
    return Cause("preempted", "a job of higher priority needed its nodes, and was allowed to take them", [], advice)


def _deadline(_: Run) -> Cause:
    return Cause(
        "deadline",
        "it could not end before its --deadline",
        [],
        [Advice("submit it with a later --deadline, or with less --time")],
    )


def _requeued(run: Run) -> Cause:
    return Cause(
        "requeued", "it was returned to the queue, and starts again", [], [Advice("why it waits now:", f"why {run.id}")]
    )


class _Sign(NamedTuple):
    key: str
    text: str
    advice: str


_SIGNALS = {
    signal.SIGKILL: _Sign(
        "killed", "it was killed", "often the memory was full: ask for more with --mem, and see what it used"
    ),
    signal.SIGSEGV: _Sign(
        "segmentation-fault",
        "the program used memory that is not its own (segmentation fault)",
        "an error of the program, or a library of another version: ask its developers",
    ),
    signal.SIGBUS: _Sign(
        "bus-error",
        "the program met a bus error",
        "often /dev/shm, a disk or a quota is full: see diskusage_report and df",
    ),
    signal.SIGABRT: _Sign("aborted", "the program aborted itself", "its output has the reason, just before the end"),
    signal.SIGFPE: _Sign(
        "arithmetic-error",
        "the program met an arithmetic error, for example a division by zero",
        "its output may have the place",
    ),
    signal.SIGILL: _Sign(
        "illegal-instruction",
        "the program has an instruction that this CPU does not know",
        "compile it on the nodes where it runs, or for an older CPU (-march)",
    ),
    signal.SIGTERM: _Sign(
        "terminated",
        "it was asked to end (SIGTERM)",
        "by scancel --signal, by a program in the job, or before its limit",
    ),
    signal.SIGXFSZ: _Sign(
        "file-too-large", "it wrote a file larger than it may (ulimit -f)", "see ulimit -a in the job"
    ),
    signal.SIGXCPU: _Sign("cpu-time", "it used more CPU time than it may (ulimit -t)", "see ulimit -a in the job"),
    signal.SIGPIPE: _Sign(
        "broken-pipe", "a program wrote to another one that had ended", "its output has which one ended first"
    ),
}
# of slurmstepd: the job's output file or its directory could not be opened
_NO_OUTPUT = 53
_EXITS = {
    126: _Sign(
        "not-executable",
        "a command of the script can't be executed (exit status 126)",
        "chmod +x it, or call its interpreter (python3 FILE, bash FILE)",
    ),
    127: _Sign(
        "command-not-found",
        "a command of the script was not found (exit status 127)",
        "load the module that has it in the script (module load ...), or write its path",
    ),
    2: _Sign(
        "exit-status",
        "its last command ended with status 2: often a wrong option or a missing file",
        "its output has the message",
    ),
}


def _failed(run: Run) -> Cause:
    status, sent = run.exit
    if status > 128 and status - 128 in set(signal.Signals):
        status, sent = 0, status - 128
    details = [
        f"step {clean(step['JobID'].partition('.')[2])}: {clean(step['State'].lower())}, exit {clean(step['ExitCode'])}"
        for step in run.steps
        if step["ExitCode"] not in ("", "0:0") and not step["JobID"].endswith(".batch")
    ][:5]
    if sent == _NO_OUTPUT:
        text = "its output file or its directory could not be opened on the node"
        details.append(f"its directory: {clean(run.row['WorkDir'])}")
        return Cause(
            "output-not-writable",
            text,
            details,
            [
                Advice(
                    "see that --output and --chdir are on the nodes too, that you may write there, and your quota",
                    "diskusage_report",
                )
            ],
        )
    sign = _SIGNALS.get(signal.Signals(sent)) if sent in set(signal.Signals) else None
    if sign:
        text = f"{sign.text}, signal {sent}"
        return Cause(
            sign.key, text, details, [Advice(sign.advice), *([_report(run)] if sent == signal.SIGKILL else [])]
        )
    sign = _EXITS.get(status) or _Sign(
        "exit-status",
        f"its last command ended with status {status}",
        "its output has the message; Slurm did not end it",
    )
    # sacct has a status modulo 128, and a shell reports a signal as 128 and its number
    if status in set(signal.Signals) and (other := _SIGNALS.get(signal.Signals(status))):
        return Cause(
            sign.key,
            f"{sign.text}, or by signal {status}: {other.text}",
            details,
            [Advice(sign.advice), Advice(other.advice)],
        )
    return Cause(sign.key, sign.text, details, [Advice(sign.advice)])


_FAULTY = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL")
_STATES: dict[str, Callable[[Run], Cause]] = {
    "FAILED": _failed,
    "OUT_OF_MEMORY": _memory,
    "TIMEOUT": _timeout,
    "CANCELLED": _cancelled,
    "NODE_FAIL": _node_fail,
    "BOOT_FAIL": _boot_fail,
    "PREEMPTED": _preempted,
    "DEADLINE": _deadline,
    "REQUEUED": _requeued,
}


def _nodes(run: Run) -> list[Cause]:
    """What Slurm or a person has written of its nodes since, if they are out of service."""
    names = expanded(run.row["NodeList"])
    if len(names) > _MOST_NODES:
        return []
    causes = []
    for name, node in run.slurm.show("node", ",".join(names)).items():
        reason = clean(slurm_output.reason(node)).partition(" [")[0]
        if not flags(node["State"]) & NO_JOBS or not reason:
            continue
        xid = re.search(r"\bxid\b|\bgpu\b|nvrm|ecc", reason, re.IGNORECASE)
        text = f"its node {name} is out of service now: {reason}"
        advice = [Advice("submit it again: Slurm takes other nodes")]
        causes.append(Cause("gpu-fault" if xid else "node-out-of-service", text, [], advice))
    return causes


def _output(run: Run) -> Cause | None:
    """What the end of its output says; the person who asks is its user."""
    shown = run.slurm.text(slurm_client.show("job", run.id))
    match = re.search(r" StdErr=(.*?) StdIn=.*? StdOut=(.*?)(?: TresPer\w+=\S*)* *$", shown.split("\n")[0])
    paths = [match[1], match[2]] if match else []
    if not paths:
        rows = run.slurm.sacct(("JobID", "StdErr"), "--expand-patterns", "--allocations", "--jobs=" + run.id)
        rows += run.slurm.sacct(("JobID", "StdOut"), "--expand-patterns", "--allocations", "--jobs=" + run.id)
        paths = [row.get("StdErr", row.get("StdOut", "")) for row in rows]
    sign = output_file.read(paths, run.row["WorkDir"])
    return (
        Cause(sign.key, sign.text, [f"in its output: {sign.line}"], [Advice(sign.advice, sign.command)])
        if sign
        else None
    )


def when(run: Run) -> str:
    """`ended 14:05, after 20m 00s`."""
    end, elapsed = whole(run.row["End"]), whole(run.row["ElapsedRaw"]) or 0
    return (f"ended {moment(end)}" if end else "has not ended") + (
        f", after {format_time(elapsed)}" if run.began else ", without having begun"
    )
