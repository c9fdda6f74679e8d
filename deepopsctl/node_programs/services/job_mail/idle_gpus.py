"""Mails the owners of jobs whose GPUs do nothing, once for a job; a timer of the first controller starts it.

Prometheus has what GPUs do, Slurm whose the jobs are and where: a node says nothing of jobs that do not run there.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..._shared import atomic_file, hostlist, settings, slurm_client, slurm_output
from ..._shared.slurm_client import NoAnswerError
from ...commands.job_report.prometheus import PrometheusError, Query, querying
from . import CONFIG, SPOOL, spool
from .spool import Mail, RefusedError

OK, FAILED, INVALID = 0, 1, 3
SETTINGS = "/etc/deepopsctl/idle-gpus.json"
STATE = "/var/lib/deepops-idle-gpus/notified.json"
# longer than a job runs; Slurm's numbers begin again after years
KEPT_S = 90 * 86400
# in one round: the rest follows in the next
MOST = 200
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_COLUMNS = "%A|%u|%U|%N"
_GPUS = "max by (jobid, node, gpu) (job:gpu_utilization:ratio{at})"
# idle all the time, and there at its begin, in its middle and now
_IDLE = (
    "count by (jobid, node) (max by (jobid, node, gpu) (max_over_time(job:gpu_utilization:ratio[{seconds}s])) < {share}"
    " and " + _GPUS.format(at=" offset {seconds}s") + " and " + _GPUS.format(at=" offset {half}s") + " and "
    + _GPUS.format(at="") + ")"
)  # fmt: skip
_ALL = "count by (jobid, node) (" + _GPUS.format(at="") + ")"


@dataclass(frozen=True)
class Owned:
    """A job that runs: whose it is, and where."""

    user: str
    uid: str
    nodes: frozenset[str]


# What is known of jobs with these numbers; tests have their own
Jobs = Callable[[list[str]], Mapping[str, Owned]]
Put = Callable[[Mail, str], None]


class Watch:
    """One round: who is notified."""

    def __init__(self, config: Mapping[str, Any], query: Query, jobs: Jobs, put: Put, state: str) -> None:
        self._minutes, self._percent = int(config["minutes"]), float(config["percent"])
        self._query, self._jobs, self._put, self._state = query, jobs, put, state

    def round(self, now: float) -> int:
        """Notify those who were not yet; returns how many."""
        notified = _notified(self._state, now)
        seconds = 60 * self._minutes
        asked = _IDLE.format(seconds=seconds, half=seconds // 2, share=self._percent / 100)
        idle = _counts(self._query(asked, int(now)))
        new = [number for number in sorted(idle, key=int) if number not in notified][:MOST]
        if not new:
            return 0
        every, count = _counts(self._query(_ALL, int(now))), 0
        for number, owned in self._jobs(new).items():
            here = {node: gpus for node, gpus in idle.get(number, {}).items() if node in owned.nodes}
            if not here:
                continue
            total = sum(gpus for node, gpus in every.get(number, {}).items() if node in owned.nodes)
            try:
                self._put(self._mail(number, owned, here, max(total, sum(here.values())), now), owned.uid)
            except RefusedError as error:
                sys.stderr.write(f"job {number}: {error}\n")
                continue
            notified[number] = now
            count += 1
            # at once: what comes next may fail
            atomic_file.write(self._state, json.dumps(notified), 0o600)
        return count

    def _mail(self, number: str, owned: Owned, idle: Mapping[str, int], total: int, now: float) -> Mail:
        """What its owner reads. Nothing in it is a text of a user's."""
        gpus = sum(idle.values())
        which = "its GPU does" if total == 1 else f"{gpus} of its {total} GPUs do"
        text = (
            f"On {', '.join(sorted(idle))}, for {self._minutes} minutes: below {self._percent:g} % use all the time. "
            f"The job holds them and is charged for them all the same.\n\n"
            f"What it uses:  job-report {number}\nEnd it:        scancel {number}\n\nA job gets one such mail.\n"
        )
        return Mail(owned.user, f"Slurm Job_id={number}: {which} nothing", number, "IDLE_GPUS", now, text)


def _counts(series: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for each in series:
        number, node = each["metric"].get("jobid", ""), each["metric"].get("node", "")
        if _NUMBER.fullmatch(number):
            counts[number][node] = int(float(each["value"][1]))
    return dict(counts)


def _notified(path: str, now: float) -> dict[str, float]:
    try:
        with open(path, encoding="utf-8") as stream:
            notified = {str(number): float(at) for number, at in json.load(stream).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}): remove it, and owners get another mail") from error
    return {number: at for number, at in notified.items() if now - at < KEPT_S}


def running(numbers: list[str]) -> dict[str, Owned]:
    """Of these jobs those that run. Raises NoAnswerError."""
    result = slurm_client.ask(slurm_client.squeue(_COLUMNS, "--states=RUNNING", "--jobs=" + ",".join(numbers)))
    if not result.ok and "Invalid job id" not in result.message:
        raise NoAnswerError(result.failure)
    rows = slurm_output.rows(result.output, _COLUMNS)
    return {row[0]: Owned(row[1], row[2], frozenset(hostlist.expand(row[3]))) for row in rows if row[3]}


def _putting(domains: list[str], domain: str) -> Put:
    """Into the spool of mails about jobs, at the address that Slurm would send to."""

    def put(mail: Mail, uid: str) -> None:
        address = f"{mail.address}@{domain}" if domain else mail.address
        spool.check(address, domains)
        spool.put(SPOOL, mail._replace(address=address), uid)

    return put


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    del arguments
    try:
        config = settings.load(SETTINGS)
        domains = [str(each).lower() for each in settings.load(CONFIG).get("domains", [])]
        query = querying(*(str(config[key]) for key in ("url", "user", "password")))
        domain = slurm_output.present(slurm_client.config().get("MailDomain", ""))
        put = _putting(domains, domain)
        notified = Watch(config, query, running, put, STATE).round(time.time())
    except (settings.SettingsError, KeyError) as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    except (OSError, ValueError, NoAnswerError, PrometheusError, hostlist.HostlistError) as error:
        # the timer tries again
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    if notified:
        sys.stderr.write(f"{notified} owners of idle GPUs notified\n")
    return OK
