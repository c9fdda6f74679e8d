"""The examples for users as jobs of the connecting user: all at once, evaluated by the files that they leave.

Each is submitted as it is printed, so that one which asks for more than a node has is refused here, not at a user.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, NamedTuple

from ..._shared import slurm_client, slurm_output
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._shared.slurm_output import Record
from ..._slurm_jobs import placement, slurm
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.session import Session, is_busy
from ..._slurm_jobs.snapshot import SlurmSnapshot
from .checks import check, skip

# slurmctld compares jobs with their limits every 30 s, and sends the signal up to 30 s early: these jobs of a minute
# get it 5 to 35 s after their start, so that 40 steps of a second never fit into one start
SIGNAL, STEPS = ("--time=1", "--signal=B:USR1@25"), 40
TASKS, CASES, CORES = 3, 20, 2
SUM, LINES = "500000500000", 1000
# a requeued job waits two minutes, or until its owner says otherwise; slurmd refuses it in the second in which it ended
RESTART_S = 3
MOST_NODES, POLL_S = 4, 0.5
MARK = "DEEPOPS-FILES "
# on a node: what the jobs have left in their directory, and the end of it; homes may be shared
_FETCH = """\
import json, os, shutil, sys
texts = {}
for name in os.listdir(sys.argv[1]):
    try:
        with open(os.path.join(sys.argv[1], name), errors="replace") as stream:
            texts[name] = stream.read(100000)
    except OSError:
        pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
print("DEEPOPS-FILES " + json.dumps(texts))
"""

Texts = Mapping[str, str]
# texts of files by name and ids of jobs; what was measured, and whether it is as expected
Evaluate = Callable[[Texts, Sequence[str]], tuple[str, bool]]


class Example(NamedTuple):
    """An example, how a user submits it, and what it should leave."""

    name: str
    script: str
    expected: str
    evaluate: Evaluate
    options: Sequence[str] = ()
    arguments: Sequence[str] = ()
    cores: int = 1
    gpus: int = 0
    is_job: bool = True

    def argv(self, directory: str, options: Sequence[str]) -> list[str]:
        """What is typed, with more options of sbatch."""
        path = os.path.join(directory, self.script)
        if not self.is_job:
            return ["bash", path, *options]
        return ["sbatch", "--parsable", *options, *self.options, path, *self.arguments]

    def tried(self, directory: str, options: Sequence[str]) -> list[str]:
        """What asks Slurm whether it takes the script as it is printed, without a job."""
        script = self.script if self.is_job else "chain-first.sh"
        return ["sbatch", "--test-only", *options, os.path.join(directory, script)]

    def fits(self, node: Record, partition: Record) -> bool:
        """Whether its jobs need not wait on the node, and are not refused."""
        most = slurm_output.number(partition, "MaxCPUsPerNode") or self.cores
        return min(_free_cores(node), most) >= self.cores and placement.free_gpus(node) >= self.gpus


class Submitted(NamedTuple):
    """An example whose jobs are in the queue."""

    example: Example
    node: str
    jobs: list[str]


def verify_examples(
    cluster: str, directory: str, tested: Collection[str], session: Session, snapshot: SlurmSnapshot
) -> list[Check]:
    """All examples of a directory on these nodes; jobs that are left are cancelled at the end, also after a failure."""
    examples = [each for each in EXAMPLES if not each.gpus or any(map(snapshot.gpus, snapshot.nodes))]
    if not snapshot.answered:
        return [skip(each.name, cluster, snapshot.silence) for each in examples]
    places = _places(tested, snapshot)
    if not places:
        return [skip(each.name, cluster, "no node has room for a job") for each in examples]
    try:
        return _Jobs(cluster, directory, session, snapshot, places).verify(examples)
    finally:
        session.close()


def _places(tested: Collection[str], snapshot: SlurmSnapshot) -> dict[str, Placement]:
    """Nodes with room, those with most free cores first, and one with a free GPU."""
    nodes, partitions = snapshot.nodes, snapshot.partitions
    free = [name for name in tested if name in nodes and not placement.obstacle(nodes[name], partitions)]
    free.sort(key=lambda name: _free_cores(nodes[name]), reverse=True)
    with_gpu = [name for name in free if placement.free_gpus(nodes[name]) > 0]
    names = dict.fromkeys(free[:MOST_NODES] + with_gpu[:1])
    return {name: Placement(placement.choose(nodes[name], partitions), [name]) for name in names}


def _free_cores(node: Record) -> int:
    return slurm_output.number(node, "CPUTot") - slurm_output.number(node, "CPUAlloc")


class _Jobs:
    """The jobs of one run, in a directory of the user's home that only they use."""

    def __init__(
        self, cluster: str, examples: str, session: Session, snapshot: SlurmSnapshot, places: dict[str, Placement]
    ) -> None:
        self._cluster, self._examples, self._session = cluster, examples, session
        self._snapshot, self._places = snapshot, places
        self._directory = os.path.join(os.path.expanduser("~"), session.name("examples"))

    def verify(self, examples: Sequence[Example]) -> list[Check]:
        """Submit, wait, fetch, evaluate."""
        with ThreadPoolExecutor(MOST_NODES + 1) as pool:
            faults = dict(zip(self._places, pool.map(self._make_directory, self._places)))
            nodes = [node for node, fault in faults.items() if not fault]
            if not nodes:
                return [
                    self._failed(each, "no directory for the jobs: " + "; ".join(faults.values())) for each in examples
                ]
            try:
                submitted, checks = self._submit(examples, nodes)
                left = self._wait([job for each in submitted for job in each.jobs])
            finally:
                # removes them as well
                fetched = list(pool.map(self._fetch, nodes))
        texts = {name: text for files in fetched for name, text in files.items()}
        return checks + [self._evaluate(each, texts, left) for each in submitted]

    def _partition(self, node: str) -> Record:
        return self._snapshot.partitions[self._places[node].partition]

    def _make_directory(self, node: str) -> str:
        """Why there is none; '' where it was made."""
        argv = ["mkdir", "-p", "-m", "700", self._directory]
        outcome = self._session.srun("directory-" + node, self._places[node].options(), argv)
        return "" if outcome.ended and outcome.rc == 0 else one_line(outcome.why)

    def _fetch(self, node: str) -> dict[str, str]:
        argv = ["/usr/bin/python3", "-c", _FETCH, self._directory]
        outcome = self._session.srun("files-" + node, self._places[node].options(), argv)
        lines = [line[len(MARK) :] for line in outcome.out.splitlines() if line.startswith(MARK)]
        return dict(json.loads(lines[0])) if lines else {}

    def _submit(self, examples: Sequence[Example], nodes: Sequence[str]) -> tuple[list[Submitted], list[Check]]:
        submitted, checks = [], []
        for number, example in enumerate(examples):
            usable = [node for node in nodes if not example.gpus or self._snapshot.gpus(node)]
            refusal = self._refusal(example, usable[0]) if usable else ""
            if refusal:
                checks.append(self._failed(example, "as printed, Slurm refuses it: " + refusal, "refused"))
                continue
            fitting = [node for node in usable if example.fits(self._snapshot.nodes[node], self._partition(node))]
            if not fitting:
                checks.append(skip(example.name, self._cluster, "no node has its cores and GPUs free"))
                continue
            node = fitting[number % len(fitting)]
            # where and how long; cores, memory and GPUs are the script's own
            options = [*self._session.common, "--partition=" + self._places[node].partition, "--nodelist=" + node]
            options += ["--chdir=" + self._directory]
            answer, jobs = self._session.submit(example.argv(self._examples, options))
            if answer.ok:
                submitted.append(Submitted(example, node, jobs))
            else:
                checks.append(self._failed(example, one_line(answer.message)))
        return submitted, checks

    def _refusal(self, example: Example, node: str) -> str:
        """Why Slurm takes no such job, however long it would wait; users add a partition that is not the default."""
        default = self._partition(node).get("Default") == "YES"
        answer = slurm.ask(
            example.tried(self._examples, [] if default else ["--partition=" + self._places[node].partition])
        )
        return "" if answer.ok else one_line(answer.message)

    def _wait(self, jobs: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Until all have left the queue; (state, reason) of those that have not in time, which are cancelled."""
        columns = "%F|%T|%r"
        began = moved = time.monotonic()
        left: dict[str, tuple[str, str]] = {}
        since: dict[str, float] = {}
        while jobs:
            answer = slurm.ask(slurm_client.squeue(columns, "--jobs=" + ",".join(jobs)))
            rows = slurm_output.rows(answer.output, columns)
            # also those that are completing: a requeued job is, before it is pending again
            left = {job: (state, reason) for job, state, reason in rows}
            # the controller forgets jobs, and then says so
            if not left and (answer.ok or "Invalid job id" in answer.errors):
                break
            now = time.monotonic()
            requeued = [job for job, (_state, reason) in left.items() if reason == "BeginTime"]
            for job in requeued:
                if now - since.setdefault(job, now) >= RESTART_S:
                    # at once, which also makes the scheduler run: it would come by within a minute
                    slurm.ask(slurm_client.update("job", [job], "StartTime=now"))
                    del since[job]
            if requeued or any(state != "PENDING" for state, _reason in left.values()):
                moved = now
            if now - began > self._session.run_timeout or now - moved > self._session.queue_timeout:
                self._session.cancel(sorted(left))
                break
            time.sleep(POLL_S)
        return left

    def _evaluate(self, submitted: Submitted, texts: Texts, left: Mapping[str, tuple[str, str]]) -> Check:
        example, node, jobs = submitted
        waiting = [left[job] for job in jobs if job in left]
        if waiting:
            state, reason = waiting[0]
            status = SKIP if state == "PENDING" and is_busy(reason) else FAIL
            text = f"{example.script} did not end in time; Slurm's reason: {reason}"
            return check(example.name, node, status, state.lower(), example.expected, message=text)
        measured, good = example.evaluate(texts, jobs)
        if good:
            return check(example.name, node, PASS, measured, example.expected)
        return self._failed(example, _why(texts, jobs), measured or "nothing", node)

    def _failed(self, example: Example, message: str, measured: str = "not submitted", node: str = "") -> Check:
        text = f"{example.script}: {message}"
        return check(example.name, node or self._cluster, FAIL, measured, example.expected, message=text)


def _why(texts: Texts, jobs: Sequence[str]) -> str:
    """How Slurm says that the jobs ended, and the ends of what they printed."""
    parts = []
    for job in jobs:
        shown = slurm_output.record(slurm.ask(slurm_client.show("job", job)).output.split("\n")[0])
        parts.append(f"job {job} {shown.get('JobState', 'is not known')}")
        parts += [texts[name][-200:] for name in sorted(texts) if re.search(rf"-{job}[._]", name)]
    return one_line("; ".join(parts))


def _output(texts: Texts, name: str, job: str) -> str:
    return texts.get(f"{name}-{job}.out", "")


def _serial(texts: Texts, jobs: Sequence[str]) -> tuple[str, bool]:
    measured = _value(_output(texts, "serial", jobs[0]), r"sum: (\d+)")
    return measured, measured == SUM


def _multi_core(texts: Texts, jobs: Sequence[str]) -> tuple[str, bool]:
    text = _output(texts, "multi-core", jobs[0])
    cores = _value(text, r"cores: (\d+)")
    parts = _value(text, rf"sum of (\d+) parts: {SUM}$")
    # a core may have two threads
    return f"{cores or 'no'} cores, {parts or 'no'} parts", int(cores or 0) >= CORES and parts == str(CORES)


def _gpu(texts: Texts, jobs: Sequence[str]) -> tuple[str, bool]:
    gpus = [each for each in _value(_output(texts, "gpu", jobs[0]), r"GPUs: (\S+)").split(",") if each]
    return f"{len(gpus)} GPU", len(gpus) == 1


def _array(texts: Texts, jobs: Sequence[str]) -> tuple[str, bool]:
    outputs = [_output(texts, "array", f"{jobs[0]}_{task}") for task in range(1, TASKS + 1)]
    ran = [str(task) for task, text in enumerate(outputs, 1) if f"task {task}: rate 0." in text]
    return "tasks " + ", ".join(ran), len(ran) == TASKS


def _chain(texts: Texts, jobs: Sequence[str]) -> tuple[str, bool]:
    if len(jobs) != 2:
        return f"{len(jobs)} jobs", False
    written = _value(_output(texts, "chain-first", jobs[0]), r"written: (\d+) lines")
    read = _value(_output(texts, "chain-second", jobs[1]), r"read: (\d+) lines")
    return f"{written or 'no'} lines written, {read or 'no'} read", written == read == str(LINES)


def _checkpoint(texts: Texts, jobs: Sequence[str]) -> tuple[str, bool]:
    text = _output(texts, "checkpoint", jobs[0])
    starts = re.findall(r"^start (\d+) from step (\d+)$", text, re.MULTILINE)
    saved = re.findall(r"^saved step (\d+)$", text, re.MULTILINE)
    # each start continues where the one before it has saved
    continued = [step for _start, step in starts[1:]] == saved[:-1] and [start for start, _step in starts] == [
        str(number) for number in range(1, len(starts) + 1)
    ]
    done = saved[-1:] == [str(STEPS)] and "ended with status 0" in text
    return f"{len(starts)} starts, step {(saved or ['0'])[-1]}", continued and done and len(starts) > 1


def _staging(texts: Texts, _jobs: Sequence[str]) -> tuple[str, bool]:
    lines = _value(texts.get("staging-result.txt", ""), r"lines: (\d+)")
    return f"{lines or 'no'} lines", lines == str(LINES)


def _farming(texts: Texts, jobs: Sequence[str]) -> tuple[str, bool]:
    cases = [line.split("\t") for line in texts.get("farming.log", "").splitlines()[1:]]
    # Seq Host Starttime JobRuntime Send Receive Exitval Signal Command
    good = [case for case in cases if len(case) > 7 and case[6:8] == ["0", "0"]]
    results = set(re.findall(r"^case (\d+): (\d+)$", _output(texts, "farming", jobs[0]), re.MULTILINE))
    expected = {(str(case), str(case * case)) for case in range(1, CASES + 1)}
    return f"{len(good)} cases", len(good) == len(cases) == CASES and results == expected


def _value(text: str, pattern: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else ""


# the longest first; the order spreads those with two cores over two nodes
EXAMPLES = (
    Example(
        "environment-checkpoint", "checkpoint.sh", f"2 starts or more, step {STEPS}", _checkpoint,
        options=SIGNAL, arguments=(str(STEPS),),
    ),
    Example("environment-multi-core", "multi-core.sh", f"{CORES} cores, {CORES} parts", _multi_core, cores=CORES),
    Example("environment-serial", "serial.sh", SUM, _serial),
    Example("environment-farming", "farming.sh", f"{CASES} cases", _farming, cores=CORES),
    Example("environment-staging", "staging.sh", f"{LINES} lines", _staging),
    Example("environment-array", "array.sh", "tasks 1, 2, 3", _array, options=(f"--array=1-{TASKS}",)),
    Example("environment-chain", "chain.sh", f"{LINES} lines written, {LINES} read", _chain, is_job=False),
    Example("environment-gpu", "gpu.sh", "1 GPU", _gpu, cores=CORES, gpus=1),
)  # fmt: skip
