"""Load nodes for as long as is wanted by short calls of the module of the same name; no connection has to last.

`start` is followed by `look` until all jobs have ended; any other step is handed to the module as it is.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64encode
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from deepopsctl.node_programs.gpu_check import checkform
from deepopsctl.node_programs.gpu_check.burn_evaluation import SUITE
from deepopsctl.node_programs.gpu_check.pack import packed

# the runner shows lines that begin so
MARK = "deepopsctl: "
# a look costs the submit host half a second of Python
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 20.0
# how long the submit host or slurmctld may be away before we give up: the jobs go on meanwhile
PATIENCE_S = 1800.0
# beyond the load itself: its start, its end, Slurm's epilogs
OVERTIME_S = 300.0
WAITING = ("PENDING",)
Task = dict[str, Any]


class ActionModule(ActionBase):
    """Arguments: the module's, and `queue_timeout`: seconds after which jobs that have not started are given up."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        params = dict(self._task.args)
        self._vars, self._seen = task_vars, dict[str, Task]()
        if params["phase"] != "start":
            return {**result, **self._call(params)}
        self._queue_timeout = float(params.pop("queue_timeout"))
        self._seconds = float(params["seconds"])
        params["token"] = params.get("token") or secrets.token_hex(3)
        self._token = {"token": params["token"]}
        started = self._start({**params, "program": b64encode(packed()).decode()})
        if started.get("failed") or "sent" not in started:
            return {**result, **started}
        if started["sent"]:
            self._wait(len(started["sent"]))
        jobs = by_node(self._seen)
        left = {**started["left"], **not_started(started["sent"], jobs, self._seen)}
        return {
            **result,
            "changed": False,
            "token": params["token"],
            "seconds": self._seconds,
            "jobs_by_node": jobs,
            "deepops": {"checks": [skipped(name, reason) for name, reason in left.items()]},
        }

    def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module_name="deepopsctl.cluster.slurm_burnin", module_args=arguments, task_vars=self._vars
        )
        # it repeats the arguments: the whole program, once more in every log
        answer.pop("invocation", None)
        return answer

    def _start(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Submit; asked again where the answer was lost, for nothing is submitted twice."""
        began = time.monotonic()
        while True:
            try:
                answer = self._call(arguments)
            except AnsibleConnectionFailure:
                if time.monotonic() - began > PATIENCE_S:
                    raise
            else:
                if not answer.get("unreachable") or time.monotonic() - began > PATIENCE_S:
                    return answer
            time.sleep(SHORTEST_PAUSE_S)

    def _wait(self, sent: int) -> None:
        """Look until no job is left; what waits too long is given up, what runs too long is ended."""
        began = heard = time.monotonic()
        displayed, dropped = "", False
        while True:
            now = time.monotonic() - began
            waiting = any(task["state"] in WAITING for task in self._seen.values())
            if now > self._queue_timeout + self._seconds + OVERTIME_S:
                self._query("stop")
                return
            drop = waiting and now > self._queue_timeout and not dropped
            if self._query("drop" if drop else "look"):
                heard, dropped = time.monotonic(), dropped or drop
            elif time.monotonic() - heard > PATIENCE_S:
                raise AnsibleConnectionFailure(lost(self._token["token"]))
            if self._seen and not any(task["active"] for task in self._seen.values()):
                return
            if not self._seen and now > self._queue_timeout:
                # the queue has never known them: forgotten, or cancelled at once
                return
            text = progress(self._seen, sent, self._seconds)
            if text != displayed:
                displayed = text
                Display().display(MARK + text)
            time.sleep(min(max(self._seconds / 30, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))

    def _query(self, step: str) -> bool:
        """Take what the queue says; False where it could not be asked."""
        try:
            result = self._call({"phase": step, **self._token})
        except AnsibleConnectionFailure:
            return False
        if result.get("failed") or result.get("unreachable") or result.get("problem"):
            return False
        now = {task["id"]: task for task in result.get("tasks", ())}
        if step == "stop" and not now:
            return True
        for identifier, task in self._seen.items():
            if identifier not in now and task["active"]:
                # Slurm has forgotten it: its output says how it ended
                task.update(state="", active=False)
        self._seen.update(now)
        return True


def progress(seen: dict[str, Task], sent: int, seconds: float) -> str:
    """`burn-in: 3 nodes under load, 60 of 600 s; 1 waits; 2 have ended`, in steps that don't flood a log."""
    running = [task for task in seen.values() if task["active"] and task["state"] not in WAITING]
    waiting = sum(task["state"] in WAITING for task in seen.values()) if seen else sent
    ended = len(seen) - len(running) - (waiting if seen else 0)
    parts = []
    if running:
        step = max(seconds / 20, 10)
        used = min(max(task["used_s"] for task in running) // step * step, seconds)
        nodes = "1 node" if len(running) == 1 else "{} nodes".format(len(running))
        parts.append("{} under load, {:.0f} of {:.0f} s".format(nodes, used, seconds))
    parts += ["{} waiting".format(waiting)] if waiting else []
    parts += ["{} ended".format(ended)] if ended else []
    return "burn-in: " + "; ".join(parts)


def by_node(seen: dict[str, Task]) -> dict[str, list[Task]]:
    """The tasks that reached a node, by node."""
    tasks: dict[str, list[Task]] = {}
    for task in seen.values():
        if task["node"] and task["state"] not in WAITING:
            known = {key: task[key] for key in ("id", "state", "used_s")}
            tasks.setdefault(task["node"], []).append(known)
    return tasks


def not_started(sent: list[str], jobs: dict[str, list[Task]], seen: dict[str, Task]) -> dict[str, str]:
    """Nodes that were idle when they were chosen, and then got none of our jobs."""
    reasons = sorted({task["reason"] for task in seen.values() if not task["node"] and task["reason"] != "None"})
    explanation = "; Slurm's reason: {}".format(", ".join(reasons)) if reasons else ""
    text = "another job was quicker, or Slurm kept ours waiting{}".format(explanation)
    return {name: text for name in sent if name not in jobs}


def skipped(node: str, reason: str) -> checkform.Check:
    """The check of a node that was left alone."""
    return checkform.skipped(SUITE, "burn-completed", node, reason)


def lost(token: str) -> str:
    """What to know when the submit host stays away."""
    name = "deepopsctl-burnin-{}".format(token)
    return (
        "the submit host has not answered for {:.0f} minutes; the jobs go on (squeue --name={}-load) and leave their "
        "results in the user's home on each node: {}-*.out"
    ).format(PATIENCE_S / 60, name, name)
