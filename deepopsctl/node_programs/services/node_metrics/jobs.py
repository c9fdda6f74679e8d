"""The collector of jobs: what each uses on this node, by its control groups, and whose it is, by the job map."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable

from ..._shared import command, slurm_client
from ..._shared.prometheus_text import COUNTER, GAUGE
from . import cgroups, jobmap
from .jobmap import Job
from .samples import Collector, Metric, Sample

# what the text file has room for, whatever runs on the node
MOST_JOBS = 1000
# minimum interval of queries to Slurm for jobs that are missing in the map
ASK_EVERY_S = 60
SQUEUE_S = 10
METRICS: Mapping[str, Metric] = {
    "deepops_job_info": Metric(GAUGE, "1 for each job on this node: whose it is."),
    "deepops_job_cpus": Metric(GAUGE, "CPUs that the job may use on this node."),
    "deepops_job_cpu_seconds_total": Metric(COUNTER, "CPU time that the job has used on this node."),
    "deepops_job_memory_bytes": Metric(GAUGE, "Memory of the job's processes on this node, without the page cache."),
    "deepops_job_memory_peak_bytes": Metric(GAUGE, "The most of it that was seen."),
    "deepops_job_memory_requested_bytes": Metric(GAUGE, "Memory that the job may use on this node."),
    "deepops_job_gpu": Metric(GAUGE, "1 for each GPU of a job on this node."),
}
# `number|user|account|partition` of each of these jobs
Ask = Callable[[Sequence[str]], str]


class Jobs:
    """State between two collections: peaks, and Slurm's answers."""

    def __init__(self, settings: Mapping[str, Any], ask: Ask | None = None) -> None:
        self._cgroup = str(settings.get("cgroup", cgroups.ROOT))
        self._map = str(settings.get("map", jobmap.DIRECTORY))
        self._dcgm = str(settings.get("dcgm", jobmap.DCGM_DIRECTORY))
        self._ask = ask or squeue
        self._asked_at = float("-inf")
        self._answers: dict[str, Job] = {}
        self._peaks: dict[str, int] = {}
        self._last: dict[str, cgroups.Usage] = {}

    def collect(self) -> Iterable[Sample]:
        """The samples of all jobs."""
        known = jobmap.load(self._map)
        by_sluid = {job.sluid: number for number, job in known.items() if job.sluid}
        usage_by_job = {by_sluid.get(name, name): usage for name, usage in cgroups.find(self._cgroup).items()}
        # an unknown SLUID: the job began before the map existed
        usages = {number: usage_by_job[number] for number in sorted(usage_by_job) if number.isdigit()}
        for number in jobmap.sweep(usages, self._map, self._dcgm):
            known.pop(number, None)
        # allocated but unused resources are counted as well
        numbers = sorted({*usages, *known}, key=int)[:MOST_JOBS]
        whose = self._complete({number: known.get(number, Job(number)) for number in numbers})
        # a job without cgroups whose epilog has not run yet: its last values
        ending = {number: self._last[number] for number in known if number in self._last and number not in usages}
        self._last = {**ending, **usages}
        return list(
            self._samples(whose, {**{key: replace(each, memory=None) for key, each in ending.items()}, **usages})
        )

    def _samples(self, whose: Mapping[str, Job], usages: Mapping[str, cgroups.Usage]) -> Iterator[Sample]:
        self._peaks = {number: peak for number, peak in self._peaks.items() if number in usages}
        for number, job in whose.items():
            usage, label = usages.get(number, cgroups.Usage()), {"jobid": number}
            if usage.memory is not None:
                self._peaks[number] = max(usage.memory, self._peaks.get(number, 0))
            info = {**label, "user": job.user, "account": job.account, "partition": job.partition}
            yield Sample("deepops_job_info", 1, info)
            for name, value in (
                ("deepops_job_cpus", usage.cpus),
                ("deepops_job_cpu_seconds_total", usage.cpu_seconds),
                ("deepops_job_memory_bytes", usage.memory),
                ("deepops_job_memory_peak_bytes", self._peaks.get(number)),
                ("deepops_job_memory_requested_bytes", usage.memory_limit),
            ):
                if value is not None:
                    yield Sample(name, value, label)
            for gpu in job.gpus:
                yield Sample("deepops_job_gpu", 1, {**label, "gpu": gpu.index, "uuid": gpu.uuid})

    def _complete(self, jobs: dict[str, Job]) -> dict[str, Job]:
        """Adds Slurm's data for jobs without an account in the map."""
        self._answers = {number: job for number, job in self._answers.items() if number in jobs}
        unknown = [number for number, job in jobs.items() if not job.account and number not in self._answers]
        if unknown and time.monotonic() - self._asked_at >= ASK_EVERY_S:
            self._asked_at = time.monotonic()
            for line in self._ask(unknown).splitlines():
                words = line.strip().split("|")
                if len(words) == 4 and words[0] in unknown:
                    self._answers[words[0]] = Job(words[0], words[1], words[2], words[3])
        return {number: _joined(job, self._answers.get(number)) for number, job in jobs.items()}


def _joined(job: Job, answer: Job | None) -> Job:
    if answer is None or job.account:
        return job
    return Job(job.number, answer.user, answer.account, answer.partition, job.sluid, job.gpus)


def squeue(numbers: Sequence[str]) -> str:
    """Slurm's data of jobs; empty if it does not answer: it will be queried again."""
    # without AccountingStorageEnforce an account is whatever the user typed: no user can know this mark, though the
    # arguments of a process are everybody's to read
    mark = secrets.token_hex(16)
    argv = slurm_client.squeue("", "--jobs=" + ",".join(numbers))
    environment = command.slurm_environment(SQUEUE_FORMAT=mark + "%A|%u|%P|%a")
    return lines(slurm_client.ask(argv, SQUEUE_S, env=environment).output, mark)


def lines(text: str, mark: str) -> str:
    """A line `number|user|account|partition` for each record of squeue, that begins with the mark."""
    samples = []
    for record in text.split(mark)[1:]:
        number, user, partition, account = (record.rstrip("\n").split("|", 3) + [""] * 3)[:4]
        clean = "".join(letter if letter.isprintable() and letter != "|" else "?" for letter in account)
        samples.append("|".join((number, user, clean, partition)))
    return "\n".join(samples)


def _make(settings: Mapping[str, Any]) -> Callable[[], Iterable[Sample]]:
    return Jobs(settings).collect


COLLECTOR = Collector(METRICS, _make)
