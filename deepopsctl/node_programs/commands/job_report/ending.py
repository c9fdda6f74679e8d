"""Epilog: appends to a batch job's output what the job used on its first node.

Slurm's accounting of the job is not complete yet, so this is from the node's own last sample. The
output is opened as the job's user, never created, and never through a link: root must not follow users' paths.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ..._shared import slurm_client
from ..._shared.slurm_output import whole
from ..._shared.values import format_count, format_share, format_size, format_time
from ..._shared.waiting import wait_until

METRICS = "/var/lib/prometheus/node-exporter/nodemetrics-jobs.prom"
MAP = "/run/deepops/jobs"
# a file system that hangs must not delay the epilog
WRITE_S, ASK_S = 5, 10
_SAMPLE = re.compile(r'(deepops_job_[a-z_]+)\{jobid="([0-9]+)"\} ([0-9.e+-]+)')
_FIRST = re.compile(r"([^\[,]+)(?:\[([0-9]+))?")


@dataclass(frozen=True)
class Ending:
    """An ended job, from the epilog's environment."""

    number: str
    user: str
    output: str
    node: str
    node_count: int
    seconds: float


def main() -> int:
    """Run it; returns the exit status. An output that can't be written is not the job's fault."""
    environment = os.environ
    if not _is_first(environment) or whole(environment.get("SLURM_JOB_ID", "")) is None:
        return 0
    job = _ending(environment, _query_job(environment["SLURM_JOB_ID"]))
    text = describe(job, figures(_read(METRICS), job.number)) if job else ""
    if job and text and not append(job.output, text, job.user):
        sys.stderr.write(f"job {job.number}: its output can't be written to\n")
    return 0


def _is_first(environment: Mapping[str, str]) -> bool:
    """Whether this node runs the batch script: the first of the job's."""
    match = _FIRST.match(environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", ""))
    return match is not None and match[1] + (match[2] or "") == environment.get("SLURMD_NODENAME")


def _ending(environment: Mapping[str, str], job_fields: Mapping[str, str]) -> Ending | None:
    """None if the job has no output file: it was not a batch job."""
    output = os.path.join(environment.get("SLURM_JOB_WORK_DIR", "/"), job_fields.get("StdOut", ""))
    if not job_fields.get("StdOut") or job_fields.get("BatchFlag") != "1" or not output.startswith("/"):
        return None
    count = whole(environment.get("SLURM_JOB_NUM_NODES", "")) or 1
    job = environment["SLURM_JOB_ID"]
    return Ending(
        job, environment.get("SLURM_JOB_USER", ""), output, environment["SLURMD_NODENAME"], count, _seconds(environment)
    )


def _seconds(environment: Mapping[str, str]) -> float:
    """How long it ran; before Slurm 23.11 since the prolog, which wrote the map."""
    began = whole(environment.get("SLURM_JOB_START_TIME", ""))
    try:
        since = float(began) if began else os.stat(os.path.join(MAP, environment["SLURM_JOB_ID"])).st_mtime
    except OSError:
        return 0.0
    return max(0.0, time.time() - since)


def _query_job(job: str) -> dict[str, str]:
    # the epilog's environment has no output before 23.11, and then with its patterns not filled in
    # a path of the user's need not be UTF-8
    return read_job(
        slurm_client.ask(slurm_client.scontrol("show", "job", job), ASK_S, undecodable="surrogateescape").output
    )


def read_job(text: str) -> dict[str, str]:
    """What `scontrol show job` prints, as far as an epilog needs it."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        words = [line.strip()] if line.strip().startswith("StdOut=") else line.split()
        # JobName comes first, so fields forged in it are overwritten
        for word in words:
            key, _, value = word.partition("=")
            fields[key] = value
    return fields


def figures(text: str, job: str) -> dict[str, float]:
    """The samples of one job in the text that node exporter gets, by their names."""
    return {match[1]: float(match[3]) for match in _SAMPLE.finditer(text) if match[2] == job}


def describe(job: Ending, samples: Mapping[str, float]) -> str:
    """The text for the end of the output; '' without samples."""
    lines: list[str] = []
    cpu, cpus = samples.get("deepops_job_cpu_seconds_total"), samples.get("deepops_job_cpus")
    if cpu is not None and job.seconds > 0:
        lines.append(
            _line("CPUs", cpu / job.seconds, cpus, format_count(cpu / job.seconds), cpus and format_count(cpus))
        )
    memory, asked = samples.get("deepops_job_memory_peak_bytes"), samples.get("deepops_job_memory_requested_bytes")
    # 0: no sample of it yet
    if memory:
        lines.append(_line("Memory", memory, asked, format_size(memory), asked and format_size(asked)))
    if not lines:
        return ""
    where = job.node if job.node_count < 2 else f"{job.node}, the first of {job.node_count} nodes"
    head = f"---- job {job.number} on {where}: {format_time(job.seconds)}"
    return "\n".join([head, *lines, f"More, with GPUs and advice: job-report {job.number}", ""])


def _line(name: str, used: float, asked: float | None, used_text: str, of: object) -> str:
    return f"{name:<7} {used_text}{(f' of {of} ({format_share(used, asked)})' if asked else '')}"


def append(path: str, text: str, user: str) -> bool:
    """Write at the end of a user's file, as that user; whether it was written in time."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _become(user)
            _append(path, text)
            status = 0
        finally:
            os._exit(status)
    ended, status = wait_until(lambda: os.waitpid(child, os.WNOHANG), WRITE_S, 0.02, lambda answer: answer[0] != 0)
    if ended:
        return status == 0
    # it can't be killed while its file system hangs: left behind
    os.kill(child, signal.SIGKILL)
    return False


def _become(user: str) -> None:
    account = pwd.getpwnam(user)
    if os.geteuid() == 0:
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)


def _append(path: str, text: str) -> None:
    # a pipe would wait for its reader, a device do something
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError("no file")
    os.write(handle, text.encode("utf-8"))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(8 << 20)
    except OSError:
        return ""
