"""Jobs as sacct and sstat print them. Source: sacct(1), sstat(1) of Slurm 22.05, 24.11 and 26.05."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..._shared import slurm_output
from . import summary
from .summary import Summary

# job names may contain line ends, and are queried separately
DELIMITER = "\x1f"
FIELDS = (
    "JobID",
    "JobIDRaw",
    "User",
    "Account",
    "Partition",
    "State",
    "ExitCode",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "AllocCPUS",
    "NNodes",
    "NodeList",
    "AllocTRES",
    "TotalCPU",
    "TRESUsageInTot",
    "AdminComment",
)
NAME_FIELDS = ("JobID", "JobName")
LIVE_FIELDS = ("JobID", "TRESUsageInTot")
# the tasks of an array that wait are one: 123_[4-9%2], and sacct cuts a long one off
IS_ID = re.compile(r"([0-9]{1,10}(?:[_+][0-9]{1,10}|_\[[0-9,:%.-]{1,200}\]?)?)(?:\.[A-Za-z0-9_+-]{1,40})?")
# what sacct prints as the nodes of a job that never had any
_NO_NODES = ("", "None assigned", "(null)")
# Slurm's own "signal" of a step whose cgroup ran out of memory; its state may be COMPLETED or FAILED all the same
_OUT_OF_MEMORY, _KILLED_FOR_MEMORY = "OUT_OF_MEMORY", "125"
_RUNNING = ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True)
class Job:
    """One job; times in seconds since 1970, amounts in seconds and bytes, None if unknown."""

    id: str
    number: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    exit_code: str
    start: int | None
    end: int | None
    elapsed: int
    time_limit: int | None
    cpus: int
    node_count: int
    nodes: str
    memory_asked: int | None
    gpus: int
    cpu_seconds: float | None
    memory_used: int | None
    # '0', 'batch': killed for memory, also where the script continued and the job counts as completed
    steps_out_of_memory: tuple[str, ...]
    summary: Summary | None

    @property
    def runs(self) -> bool:
        """Whether what it uses still grows."""
        return self.state.split(" ")[0] in _RUNNING

    def is_of(self, number: str) -> bool:
        """Whether it has this number, or is a part of the array or of the heterogeneous job that has."""
        return number in (self.number, self.id.replace("+", "_").partition("_")[0])

    @property
    def began(self) -> bool:
        """Whether it ever had anything, be it for less than a second."""
        return self.start is not None and (self.elapsed > 0 or self.nodes not in _NO_NODES)

    @property
    def out_of_memory(self) -> bool:
        """Whether it, or a part of it, was killed because it needed more memory than it had."""
        return _killed_for_memory(self.state, self.exit_code) or bool(self.steps_out_of_memory)


def read(text: str) -> list[Job]:
    """What `sacct --parsable2` prints of FIELDS, steps with their jobs."""
    jobs: dict[str, dict[str, str]] = {}
    steps: dict[str, list[dict[str, str]]] = {}
    for line in text.split("\n"):
        words = line.split(DELIMITER)
        match = IS_ID.fullmatch(words[0])
        if len(words) != len(FIELDS) or not match:
            continue
        row = dict(zip(FIELDS, words))
        if match[1] == words[0]:
            # an account may be whatever its user typed: what it pretends comes after the real one
            jobs.setdefault(words[0], row)
        else:
            steps.setdefault(match[1], []).append(row)
    return [_job(row, steps.get(name, [])) for name, row in jobs.items()]


def _killed_for_memory(state: str, exit_code: str) -> bool:
    return state.startswith(_OUT_OF_MEMORY) or exit_code.partition(":")[2] == _KILLED_FOR_MEMORY


def _job(row: dict[str, str], steps: list[dict[str, str]]) -> Job:
    tres = slurm_output.tres(row["AllocTRES"])
    # `extern` is a sleep, and sessions by SSH: what it used is not what the program did
    working = [step for step in steps if not step["JobID"].endswith(".extern")] or steps
    known = any(_memory(step["TRESUsageInTot"]) for step in working)
    memory = [used for step in steps if known and (used := _memory(step["TRESUsageInTot"])) is not None]
    limit = slurm_output.whole(row["TimelimitRaw"])
    return Job(
        id=row["JobID"],
        number=row["JobIDRaw"],
        name="",
        user=slurm_output.clean(row["User"]),
        account=slurm_output.clean(row["Account"]),
        partition=slurm_output.clean(row["Partition"]),
        state=slurm_output.clean(row["State"]),
        exit_code=slurm_output.clean(row["ExitCode"]),
        start=slurm_output.whole(row["Start"]),
        end=slurm_output.whole(row["End"]),
        elapsed=slurm_output.whole(row["ElapsedRaw"]) or 0,
        time_limit=None if limit is None else limit * 60,
        cpus=slurm_output.whole(row["AllocCPUS"]) or 0,
        node_count=slurm_output.whole(row["NNodes"]) or 0,
        nodes=slurm_output.clean(row["NodeList"]),
        memory_asked=slurm_output.size(tres.get("mem", "")),
        gpus=slurm_output.whole(tres.get("gres/gpu", "")) or 0,
        # to the millisecond: nothing that ran used none, so 0 is a sample that is missing
        cpu_seconds=slurm_output.seconds(row["TotalCPU"]) or None,
        memory_used=max(memory) if memory else None,
        steps_out_of_memory=tuple(
            slurm_output.clean(step["JobID"].partition(".")[2])
            for step in steps
            if _killed_for_memory(step["State"], step["ExitCode"])
        ),
        summary=summary.read(row["AdminComment"]),
    )


def read_names(text: str) -> dict[str, str]:
    """The names of the jobs of one question, from what sacct prints of NAME_FIELDS; names are user input."""
    names: dict[str, str] = {}
    for line in text.split("\n"):
        job, delimiter, name = line.partition(DELIMITER)
        if delimiter and IS_ID.fullmatch(job):
            # what a name with line breaks pretends comes after the real one
            names.setdefault(job, slurm_output.clean(name))
    return names


def _memory(tres: str) -> int | None:
    """None also for `mem=0`: no process uses none, Slurm has no sample of it."""
    return slurm_output.size(slurm_output.tres(tres).get("mem", "")) or None


def read_live(text: str) -> dict[str, tuple[float, int | None]]:
    """CPU seconds and memory by step of a running job, from what `sstat --parsable2` prints of LIVE_FIELDS."""
    usage = {}
    for name, tres in _rows(text):
        cpu, memory = slurm_output.seconds(slurm_output.tres(tres).get("cpu", "")), _memory(tres)
        # whole seconds: 0 may be so, unless there is no sample at all
        if cpu or (cpu is not None and memory is not None):
            usage[name] = (cpu, memory)
    return usage


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        # sstat knows no other delimiter; nothing here is a user's to choose
        words = line.split("|")
        if len(words) == len(LIVE_FIELDS) and IS_ID.fullmatch(words[0]):
            yield words[0], words[1]
