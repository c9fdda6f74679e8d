"""One phase of the suite: `begin` and `measure` and `end` on a standby, `fault` on the first controller."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable

from ..._shared import checks, settings
from ..._shared.checks import Check
from ..._shared.waiting import wait_until
from ...services.slurm_controllers import heartbeat
from ...services.slurm_controllers.cli import CONFIG, in_control
from . import faults, jobs

SUITE = "ha"
START_LIMIT_S = 60.0
SAVE_LIMIT_S = 20.0
# slurmctld starts, and systemd waits before it does
SLACK_S = 30.0
RUNS, WAITS, KILLED, CUT_OFF = "runs", "waits", "killed", "cut-off"
TITLES = {KILLED: "ha-killed", "frozen": "ha-frozen", CUT_OFF: "ha-cut-off"}


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Run one phase; `checks` are its results."""
    phases: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "begin": begin,
        "fault": fault,
        "measure": measure,
        "end": end,
    }
    result = phases[request["phase"]](request)
    results = result.pop("checks", [])
    return {**result, "deepops": {"checks": results}}


def begin(request: dict[str, Any]) -> dict[str, Any]:
    """Start a job that runs and one that waits; `jobs` are their ids, none where the suite can't be run."""
    try:
        config = settings.load(CONFIG)
    except settings.SettingsError:
        return {"jobs": [], "checks": [checks.skipped(SUITE, "ha-controllers", "cluster", "Slurm has one controller")]}
    first = config["hosts"][0]
    host = in_control(config)
    if host != first:
        message = f"{host or 'no controller'} is in control, not {first}: start slurmctld there first"
        return {"jobs": [], "checks": [checks.failed(SUITE, "ha-controllers", "cluster", message, host, first)]}
    runs = jobs.submit(_name(request, RUNS), "sleep 100000")
    starts = bool(runs) and jobs.wait_until_runs(runs, START_LIMIT_S)
    waits = jobs.submit(_name(request, WAITS), "hostname", "--dependency=afterok:" + runs) if starts else ""
    if not waits:
        end(request)
        started_late = f"no job starts within {START_LIMIT_S:.0f} s"
        why = started_late if runs and not starts else "no job can be submitted"
        message = f"{why}: nothing could be seen to continue"
        return {"jobs": [], "checks": [checks.skipped(SUITE, "ha-controllers", "cluster", message)]}
    _wait_until_saved(config["directory"])
    good = checks.check(SUITE, "ha-controllers", "cluster", checks.PASS, host, first)
    return {"jobs": [runs, waits], "checks": [good]}


def _wait_until_saved(directory: str) -> None:
    """slurmctld saves what it knows every few seconds: a job that it has just started would start again."""
    before = _saved(directory)
    wait_until(lambda: _saved(directory) != before, SAVE_LIMIT_S, 0.5)


def _saved(directory: str) -> int:
    with heartbeat.as_slurm(), contextlib.suppress(OSError):
        return os.stat(os.path.join(directory, "job_state")).st_mtime_ns
    return 0


def fault(request: dict[str, Any]) -> dict[str, Any]:
    """Let it happen here, in two seconds."""
    started = faults.start(request["fault"], int(request["seconds"]), with_slurmdbd=jobs.second_slurmdbd())
    if not started.ok:
        return {"failed": True, "msg": started.failure}
    return {}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Submit until Slurm takes it, then wait until the first controller is back; `jobs` has the new one, too."""
    config, ids = settings.load(CONFIG), list(request["jobs"])
    limit_s = 1.5 * heartbeat.timeout_s() + SLACK_S
    # until it has begun
    time.sleep(faults.DELAY_S + 1)
    started = time.monotonic()
    stamps = set()

    def submit() -> str:
        job = jobs.submit(_name(request, request["fault"]), "hostname", "--dependency=afterok:" + ids[0])
        if not job and time.monotonic() - started < int(request["seconds"]):
            stamps.update(_heartbeats_of_the_first(config["directory"]))
        return job

    job = wait_until(submit, limit_s, 0.5)
    took = time.monotonic() - started
    name = TITLES[request["fault"]]
    if not job:
        message = f"no job could be submitted for {took:.0f} s"
        if request["fault"] == CUT_OFF:
            message += _kept_storage(config, stamps)
        results = [checks.failed(SUITE, name, "cluster", message, f"{took:.0f}", f"{limit_s:.0f}", "s")]
    else:
        ids.append(job)
        during = in_control(config)
        message = f"{during} in control" if during else ""
        results = [checks.check(SUITE, name, "cluster", checks.PASS, f"{took:.0f}", f"{limit_s:.0f}", "s", message)]
    if request["fault"] == KILLED and jobs.second_slurmdbd():
        results.append(_accounting(started, int(request["seconds"])))
    return {"jobs": ids, "checks": [*results, *_after(config, ids, request, started + int(request["seconds"]))]}


def _heartbeats_of_the_first(directory: str) -> set[int]:
    with heartbeat.as_slurm():
        last = heartbeat.read(directory)
    return {last.stamp} if last and last.number == 0 else set()


def _kept_storage(config: dict[str, Any], stamps: set[int]) -> str:
    """The usual cause, where it can be seen: the first controller, cut off, still writes heartbeats."""
    # one from before the fault, and one that was on its way
    if len(stamps) < 3:
        return ""
    return (
        f": {config['hosts'][0]} was cut off from all networks but not from {config['directory']}, so it stayed in "
        "control and no other controller may take over; keep the state on storage that a controller loses with its "
        "network (NFS, CephFS)"
    )


def _accounting(started: float, seconds: int) -> Check:
    """While the first slurmdbd is killed, the other one answers."""
    # what answers at the end may be the first one again
    limit_s, name = seconds - SLACK_S / 2, TITLES[KILLED] + "-accounting"
    if wait_until(jobs.accounting_answers, started + limit_s - time.monotonic(), 0.5):
        took = f"{time.monotonic() - started:.0f}"
        return checks.check(SUITE, name, "cluster", checks.PASS, took, f"{limit_s:.0f}", "s")
    return checks.failed(SUITE, name, "cluster", "no slurmdbd answers", "", f"{limit_s:.0f}", "s")


def _after(config: dict[str, Any], ids: list[str], request: dict[str, Any], ends: float) -> list[Check]:
    """Once the fault has ended, and the first controller is in control again, everything is there."""
    name = TITLES[request["fault"]] + "-after"
    until = ends + 3 * heartbeat.timeout_s() + SLACK_S
    first = config["hosts"][0]
    known: dict[str, str] = {}

    def is_over() -> bool:
        states = jobs.states(ids)
        known.clear()
        known.update(states or {})
        return time.monotonic() > ends and states is not None and in_control(config) == first

    if not wait_until(is_over, until - time.monotonic(), 1):
        message = f"{first} is not in control again"
        return [checks.failed(SUITE, name, "cluster", message, in_control(config) or "none", first)]
    expected = {ids[0]: "RUNNING", **dict.fromkeys(ids[1:], "PENDING")}
    wrong = [f"{job} is {(known or {}).get(job, 'lost')}, not {state}"
             for job, state in expected.items() if (known or {}).get(job) != state]  # fmt: skip
    if wrong:
        return [checks.failed(SUITE, name, "cluster", "; ".join(wrong), len(wrong), 0, "jobs")]
    return [checks.check(SUITE, name, "cluster", checks.PASS, len(ids), len(ids), "jobs")]


def end(request: dict[str, Any]) -> dict[str, Any]:
    """Cancel what was submitted."""
    jobs.cancel(_name(request, what) for what in (RUNS, WAITS, *TITLES))
    return {}


def _name(request: dict[str, Any], what: str) -> str:
    return f"deepopsctl-ha-{request['token']}-{what}"
