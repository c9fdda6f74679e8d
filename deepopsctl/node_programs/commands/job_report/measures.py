"""Used and requested amounts of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .records import Job
from .summary import GpuUse


@dataclass(frozen=True)
class Measure:
    """How much was used, of how much; in cores, bytes, seconds or GPUs."""

    used: float
    asked: float

    @property
    def share(self) -> float:
        """Share from 0; more than 1 if a limit was exceeded."""
        return self.used / self.asked


@dataclass(frozen=True)
class Report:
    """All that is known of one job."""

    job: Job
    time: Measure | None = None
    cpu: Measure | None = None
    memory: Measure | None = None
    # the node that is nearest to its part of the memory, where the job has several
    fullest: str = ""
    gpu: Measure | None = None
    gpu_memory: Measure | None = None

    @property
    def gpus(self) -> Sequence[GpuUse]:
        """Each GPU that monitoring has seen."""
        return self.job.summary.gpus if self.job.summary else ()


def measure(job: Job) -> Report:
    """A job's report; a measure is missing where either of its sides is."""
    if not job.began:
        return Report(job)
    memory, fullest = _memory(job)
    return Report(
        job,
        time=_of(float(job.elapsed), job.time_limit),
        cpu=_of(job.cpu_seconds / job.elapsed if job.cpu_seconds is not None and job.elapsed else None, job.cpus),
        memory=memory,
        fullest=fullest,
        gpu=_gpu(job),
        gpu_memory=_gpu_memory(job),
    )


def _of(used: float | None, asked: float | None) -> Measure | None:
    return Measure(used, asked) if used is not None and asked else None


def _memory(job: Job) -> tuple[Measure | None, str]:
    """The larger of Slurm's and monitoring's values: both sample, and miss peaks between samples."""
    # monitoring's 0 is a sample that is missing, like Slurm's
    known = [each for each in (job.summary.nodes if job.summary else ()) if each.memory]
    seen = [] if job.memory_used is None else [float(job.memory_used)]
    # the nodes' peaks may be at different times: their sum is what has to be requested
    if known and len(known) == job.node_count:
        seen.append(sum(each.memory or 0.0 for each in known))
    fullest = max(known, key=lambda each: each.memory or 0.0).node if len(known) > 1 else ""
    return _of(max(seen) if seen else None, job.memory_asked), fullest


def _gpu(job: Job) -> Measure | None:
    used = [each.use for each in (job.summary.gpus if job.summary else ()) if each.use is not None]
    return Measure(sum(used), len(used)) if used else None


def _gpu_memory(job: Job) -> Measure | None:
    known = [each for each in (job.summary.gpus if job.summary else ()) if each.memory is not None and each.total]
    return _of(sum(each.memory or 0.0 for each in known), sum(each.total or 0.0 for each in known)) if known else None
