"""What `node_program` starts on the submit host (`load`, `stop`) and on every loaded node (`read_log`, `fetch`)."""

from __future__ import annotations

import getpass
import glob
import os
import time
from typing import Any

from ..._slurm_jobs.session import Session
from ..gpu_check.burn.sensors import KernelLog
from . import follow, jobs, results
from .plan import LoadRequest

Result = dict[str, Any]
# between the end of the last call for the jobs and the reading of the log
_MARGIN_S = 60.0


def main(request: dict[str, Any]) -> Result:
    """One phase of a burn-in."""
    phases = {"load": load, "stop": stop, "read_log": read_log, "fetch": fetch}
    return phases[request["phase"]](request)


def load(request: dict[str, Any]) -> Result:
    """Submit the jobs, or look after those of an earlier call; `again` asks for another call, after a pause.

    Jobs take whole nodes that are idle now, with a high nice value, and are never started twice. No job of anybody
    else is touched.
    """
    wanted = LoadRequest(
        float(request["seconds"]),
        float(request["memory_share"]),
        request["partition"],
        request["qos"],
        request["reservation"],
    )
    limits = follow.Limits(float(request["queue_timeout"]), wanted.seconds)
    session = jobs.session(request["token"], getpass.getuser(), wanted.minutes, wanted.reservation)
    state = request.get("state") or _submitted(session, request["tested"], wanted)
    if state["sent"] and not _query(session, limits, state):
        return {
            "again": {
                "after_s": limits.pause,
                "input": {"state": state},
                "progress": follow.progress(state["seen"], len(state["sent"]), limits.seconds),
                "lost": follow.lost(session.token),
            }
        }
    tasks = follow.by_node(state["seen"])
    skipped = follow.left_alone(state["left"], state["sent"], tasks, state["seen"])
    return {
        "token": session.token,
        "seconds": limits.seconds,
        "elapsed_s": time.time() - state["began"],
        "jobs_by_node": tasks,
        "deepops": {"checks": skipped},
    }


def _submitted(session: Session, tested: Any, wanted: LoadRequest) -> dict[str, Any]:
    done = jobs.submit(session, tested, wanted)
    sent = [name for batch in done.batches for name in batch.nodes]
    return {"began": time.time(), "sent": sent, "left": done.left, "seen": {}, "dropped": False}


def _query(session: Session, limits: follow.Limits, state: dict[str, Any]) -> bool:
    """Ask the queue, and end what waits or runs too long; whether all is over."""
    elapsed = time.time() - state["began"]
    if limits.is_overdue(elapsed):
        left = jobs.as_dicts(jobs.cancel(session))
        state["seen"] = follow.update(state["seen"], left) if left else state["seen"]
        return True
    if limits.gives_up(elapsed, state["seen"]) and not state["dropped"]:
        jobs.cancel_pending(session)
        state["dropped"] = True
    tasks, problem = jobs.query_tasks(session)
    if problem:
        # asked again, as long as the task's `patience` lasts
        raise SystemExit(problem)
    state["seen"] = follow.update(state["seen"], jobs.as_dicts(tasks))
    return limits.is_over(elapsed, state["seen"])


def stop(request: dict[str, Any]) -> Result:
    """Cancel all jobs; `left` names those that do not go, or why that is not known."""
    session = jobs.session(request["token"], getpass.getuser())
    try:
        left = jobs.cancel(session)
    except SystemExit as problem:
        return {"left": str(problem)}
    return {"left": "still there: " + ", ".join(f"{task.id} ({task.state})" for task in left) if left else ""}


def read_log(request: dict[str, Any]) -> Result:
    """The kernel log of the time since the jobs were submitted, by root: users of most systems may not read it."""
    log = KernelLog(past_s=float(request["elapsed_s"]) + _MARGIN_S)
    return {"kernel_log": log.result()}


def fetch(request: dict[str, Any]) -> Result:
    """Evaluate what jobs wrote on this node, and remove it; without jobs, all outputs of the burn-in are removed.

    On the node itself, as homes need not be shared.
    """
    token = request["token"]
    known = [results.Job(str(job["id"]), str(job["state"]), int(job["used_s"])) for job in request.get("jobs") or ()]
    if not known:
        for path in glob.glob(jobs.output(token, "*")):
            os.unlink(path)
        return {"deepops": {"checks": []}}
    outputs = {job.id: results.collect(jobs.output(token, job.id)) for job in known}
    log = request.get("kernel_log") or {}
    checks = results.evaluate(request["node"], float(request["seconds"]), known, outputs, log)
    return {"deepops": {"checks": checks, "burnin": results.documents(request["node"], outputs)}}
