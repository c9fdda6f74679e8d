"""The jobs on this node and their GPUs: a file per job, written before it starts and removed after its end.

The prolog and the epilog write it (as root, from slurmd's environment); the collector reads it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ..._shared import atomic_file

# on tmpfs: removed by a reboot, like the jobs
DIRECTORY = "/run/deepops/jobs"
# for NVIDIA's dcgm-exporter (--hpc-job-mapping-dir): a file of each GPU, with the jobs that have it
DCGM_DIRECTORY = "/run/deepops/gpus"
PROC = "/proc/driver/nvidia/gpus"
# An entry as young as this may be of a job that has no process yet.
YOUNG_S = 600
_NUMBER = re.compile(r"[0-9]{1,10}")
_DEVICE = re.compile(r"[0-9]{1,3}")


@dataclass(frozen=True)
class Gpu:
    """A GPU of a job: its index on the node, as text, and its UUID or ''; of a MIG slice `0.7`, index and instance."""

    index: str
    uuid: str = ""


@dataclass(frozen=True)
class Job:
    """A job, from the prolog's environment."""

    number: str
    user: str = ""
    account: str = ""
    partition: str = ""
    # its name from 26.05 on, which its control group has
    sluid: str = ""
    gpus: tuple[Gpu, ...] = field(default_factory=tuple)


def from_environment(environment: Mapping[str, str], devices: Sequence[str], driver: Mapping[str, Gpu]) -> Job:
    """The job of a prolog or epilog.

    Slurm counts devices in the order of gres.conf. `devices` has the number of each one's file, with a slice's instance
    behind a dot, in that order; `driver` has the driver's own view of those numbers.
    """
    number = environment.get("SLURM_JOB_ID", "")
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"SLURM_JOB_ID is {number!r}")
    places = [each for each in environment.get("SLURM_JOB_GPUS", "").split(",") if _DEVICE.fullmatch(each)]
    gpus = tuple(_gpu(devices[int(each)] if int(each) < len(devices) else each, driver) for each in places)
    user, account, partition, sluid = (
        environment.get("SLURM_JOB_" + key, "") for key in ("USER", "ACCOUNT", "PARTITION", "SLUID")
    )
    return Job(number, user, account, partition, sluid, gpus)


def _gpu(device: str, driver: Mapping[str, Gpu]) -> Gpu:
    minor, dot, instance = device.partition(".")
    known = driver.get(minor, Gpu(minor))
    # a slice's own UUID is in no file
    return Gpu(known.index + dot + instance, "" if dot else known.uuid)


def gpus_of_driver(directory: str = PROC) -> dict[str, Gpu]:
    """Each GPU by the number of its device file. NVML, and with it exporters, count by the place on the bus."""
    gpus: dict[str, Gpu] = {}
    # the names are places on the bus, all of one length
    for index, name in enumerate(_entries(directory)):
        try:
            with open(os.path.join(directory, name, "information"), encoding="ascii", errors="replace") as stream:
                pairs = dict(line.split(":", 1) for line in stream.read(1 << 16).splitlines() if ":" in line)
        except OSError:
            continue
        gpus[pairs.get("Device Minor", "").strip()] = Gpu(str(index), pairs.get("GPU UUID", "").strip())
    return gpus


def begin(job: Job, directory: str, dcgm: str) -> None:
    """Record a job that starts."""
    # only root may read the owner of a job here: Slurm may hide it from other users
    os.makedirs(dcgm, mode=0o755, exist_ok=True)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    os.chmod(directory, 0o700)
    atomic_file.write(os.path.join(directory, job.number), json.dumps(asdict(job)) + "\n")
    write_dcgm_files(directory, dcgm)


def end(number: str, directory: str, dcgm: str) -> None:
    """Remove a job that has ended."""
    if _NUMBER.fullmatch(number):
        atomic_file.discard(os.path.join(directory, number))
    if os.path.isdir(dcgm):
        write_dcgm_files(directory, dcgm)


def load(directory: str) -> dict[str, Job]:
    """The jobs by number; a file that can't be read is of no job."""
    jobs = {}
    for name in _entries(directory):
        if _NUMBER.fullmatch(name):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                jobs[name] = _job(name, os.path.join(directory, name))
    return jobs


def _job(number: str, path: str) -> Job:
    with open(path, encoding="utf-8") as stream:
        fields = dict(json.load(stream))
    gpus = tuple(Gpu(str(each["index"]), str(each["uuid"])) for each in fields["gpus"])
    words = {key: str(fields[key]) for key in ("user", "account", "partition", "sluid")}
    return Job(number, gpus=gpus, **words)


def sweep(alive: Iterable[str], directory: str, dcgm: str) -> list[str]:
    """Remove jobs without processes that are not about to start: their epilog never ran."""
    living, gone = set(alive), []
    for name in _entries(directory):
        path = os.path.join(directory, name)
        if name in living or not _NUMBER.fullmatch(name):
            continue
        with contextlib.suppress(FileNotFoundError):
            if time.time() - os.stat(path).st_mtime > YOUNG_S:
                atomic_file.discard(path)
                gone.append(name)
    if gone and os.path.isdir(dcgm):
        write_dcgm_files(directory, dcgm)
    return gone


def write_dcgm_files(directory: str, dcgm: str) -> None:
    """Rewrite the files of the GPUs from those of the jobs, which also corrects missed updates."""
    with _alone(directory):
        jobs: dict[str, list[str]] = {}
        for job in load(directory).values():
            for gpu in job.gpus:
                jobs.setdefault(gpu.index, []).append(job.number)
        for index, numbers in jobs.items():
            path, text = os.path.join(dcgm, index), "".join(number + "\n" for number in sorted(numbers, key=int))
            if _text(path) != text:
                atomic_file.write(path, text)
        for name in _entries(dcgm):
            if not name.startswith(".") and name not in jobs:
                atomic_file.discard(os.path.join(dcgm, name))


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """One prolog or epilog at a time: it would remove what another has just written.

    The directory is one that only root may open: users can lock whatever they can open.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def _entries(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
