#!/usr/bin/python
"""Take nodes into Slurm's service and out of it, so that no job meets an untried node and none is lost."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_membership
short_description: Hold, try, admit or vacate nodes
description:
  - Runs on the primary controller. Its drains have reasons that begin with C(deepopsctl, node); a node that a person
    drained or set down stays so, whatever the action.
  - C(look) changes nothing. C(hold) puts nodes, whether they have registered or not, in a reservation for O(user)
    alone, so that only jobs of the validation start there, and forgets that they were away.
  - C(trial) does the same and waits until the nodes answer.
  - C(admit) takes them out of the reservation, C(refuse) drains them before.
  - C(vacate) drains the nodes and waits until no job is left on them, or until O(timeout) is over, which is an answer
    and no failure. With O(force) the jobs are cancelled.
options:
  action: {description: What to do., type: str, required: true, choices: [look, hold, trial, admit, refuse, vacate]}
  nodes: {description: Names., type: list, elements: str, required: true}
  reason: {description: Why, beginning with C(node)., type: str, default: ""}
  user: {description: Whose jobs may use the reservation., type: str, default: root}
  timeout: {description: Seconds to wait., type: int, default: 60}
  force: {description: Cancel the jobs., type: bool, default: false}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Keep jobs away until the node is tried
  deepopsctl.cluster.slurm_membership: {action: hold, nodes: [gpu03], user: ubuntu}
"""

RETURN = r"""
deepops:
  description: C(slurm) as M(deepopsctl.cluster.slurm_info) has it, and C(membership) with C(reserved), the nodes on
    trial.
  type: dict
  returned: always
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    drain as slurm_drain,
    query as slurm_query,
)

OURS = slurm_drain.PREFIX + "node "
RESERVATION = "deepopsctl-trial"
# slurmctld may not answer for moments after a restart
PATIENCE_S = 60
ON_NODES = ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")
SILENT = re.compile(r"UNKNOWN|NOT_RESPONDING|\*")
UNFIT = re.compile(r"DOWN|UNKNOWN|INVAL|FAIL|ERROR|NOT_RESPONDING|DRAIN|\*")
TRANSIENT = re.compile(r"unable to contact|connect|timed out|did not answer|try again", re.IGNORECASE)


class RefusedError(Exception):
    """Slurm refused; the text is Slurm's."""


def run(*words):
    """One scontrol or scancel, tried again while slurmctld does not answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        worked, output = slurm_query.run(*words)
        if worked:
            return output
        output = " ".join(output.split())
        if worked is None or not TRANSIENT.search(output) or time.monotonic() > deadline:
            raise RefusedError("%s: %s" % (" ".join(words[:2]), output))
        time.sleep(0.5)


def query():
    """Slurm's current state."""
    report = slurm_query.report(PATIENCE_S)
    if not report["controller_up"]:
        raise RefusedError("slurmctld does not answer: %s" % report["error"])
    return report


def known(report, names):
    """{name: node} of those that Slurm knows."""
    return {node["name"]: node for node in report["nodes"] if node["name"] in names}


def is_out(node):
    return "DRAIN" in node["state"] or "DOWN" in node["state"]


def is_foreign(node):
    """A person took it out; slurmctld itself does so for reasons that a registration settles."""
    return is_out(node) and not node["reason"].startswith(OURS) and node["reason_user"] not in ("", "slurm")


def jobs_on(report, names):
    """Jobs that hold any of the nodes."""
    wanted = set(names)
    return [job for job in report["jobs"] if job["state"] in ON_NODES and wanted & set(job["nodes"])]


def change(names, action, detail=""):
    return [{"kind": "node", "name": name, "action": action, "detail": detail} for name in names]


def drain(names, reason):
    """Drain those that nobody else drained."""
    text = slurm_drain.our_reason(reason)
    nodes = known(query(), names).values()
    drained = {node["name"] for node in nodes if "DRAIN" in node["state"]}
    todo = sorted(
        node["name"]
        for node in nodes
        if not is_foreign(node) and (node["name"] not in drained or node["reason"] != text)
    )
    if todo:
        run("scontrol", "update", "nodename=" + ",".join(todo), "state=drain", "reason=" + text)
    return change(todo, "drain", text)


def reserved():
    """The nodes on trial."""
    worked, shown = slurm_query.run("scontrol", "--oneliner", "show", "reservation", RESERVATION)
    nodes = re.search(r" Nodes=(\S+)", shown) if worked else None
    if not nodes or nodes.group(1) == "(null)":
        return []
    return run("scontrol", "show", "hostnames", nodes.group(1)).split()


def reserve(names, user):
    """Only `user` may start jobs on the nodes from now on; nodes that wait from an earlier try stay in there."""
    before = reserved()
    nodes = "nodes=" + ",".join(sorted(set(before) | set(names)))
    if before:
        run("scontrol", "update", "reservationname=" + RESERVATION, nodes, "users=" + user)
    else:
        words = ["users=" + user, "starttime=now", "duration=infinite", "flags=ignore_jobs"]
        run("scontrol", "create", "reservation", "reservationname=" + RESERVATION, nodes, *words)
    return change(sorted(set(names) - set(before)), "reserve", "for " + user)


def release(names):
    """Take the nodes out of the reservation; what may still run in it is the validation's."""
    before = set(reserved())
    left = sorted(before - set(names))
    words = ["update", "reservationname=" + RESERVATION, "nodes=" + ",".join(left)]
    deadline = time.monotonic() + PATIENCE_S
    while before & set(names):
        worked, output = slurm_query.run("scontrol", *(words if left else ["delete", "reservationname=" + RESERVATION]))
        if worked:
            break
        # the last job of a validation may still be completing
        if time.monotonic() > deadline:
            raise RefusedError("the reservation %s can't be ended: %s" % (RESERVATION, " ".join(output.split())))
        time.sleep(0.5)
    return change(sorted(before & set(names)), "release")


def not_foreign(names):
    """The nodes as Slurm has them now; refuses one that a person took out, also in the middle of a trial."""
    nodes = known(query(), names)
    for name in names:
        if name not in nodes:
            raise RefusedError("slurmctld does not know %s" % name)
        if is_foreign(nodes[name]):
            details = (nodes[name]["state"].lower(), nodes[name]["reason_user"], nodes[name]["reason"])
            raise RefusedError("%s was set %s by %s: %s" % ((name,) + details))
    return nodes


def hold(names, user):
    """Reserve, and forget that the nodes were away: only then slurmctld takes them back when they register."""
    nodes = not_foreign(names)
    changes = reserve(names, user)
    out = sorted(node["name"] for node in nodes.values() if is_out(node))
    if out:
        # one that never registered is refused, with its drain gone all the same
        slurm_query.run("scontrol", "update", "nodename=" + ",".join(out), "state=resume")
    return changes + change(out, "resume")


def trial(names, user, timeout):
    """Hold, and wait until all answer."""
    changes = hold(names, user)
    deadline = time.monotonic() + timeout
    while True:
        nodes = not_foreign(names)
        unfit = {name: node for name, node in nodes.items() if UNFIT.search(node["state"])}
        if not unfit:
            return changes
        if time.monotonic() > deadline:
            sentences = ["%s is %s (%s)" % (n, d["state"], d["reason"]) for n, d in sorted(unfit.items())]
            raise RefusedError("; ".join(sentences))
        ready = sorted(n["name"] for n in unfit.values() if is_out(n) and not SILENT.search(n["state"]))
        if ready:
            run("scontrol", "update", "nodename=" + ",".join(ready), "state=resume")
            changes += change(ready, "resume")
        time.sleep(0.5)


def vacate(names, reason, timeout, force):
    """Drain, and wait until the nodes are empty or time is up."""
    changes = drain(names, reason) + release(names)
    deadline = time.monotonic() + timeout
    jobs = jobs_on(query(), names)
    if force and jobs:
        run("scancel", *sorted({job["id"] for job in jobs}))
        changes += [{"kind": "job", "name": job["id"], "action": "cancel", "detail": job["user"]} for job in jobs]
        deadline = max(deadline, time.monotonic() + 2 * PATIENCE_S)
    while jobs and time.monotonic() < deadline:
        time.sleep(0.5 if force else 2)
        jobs = jobs_on(query(), names)
    return changes


def act(params):
    """The changes that the action makes."""
    names, action, reason = params["nodes"], params["action"], params["reason"]
    if action == "hold":
        return hold(names, params["user"])
    if action == "trial":
        return trial(names, params["user"], params["timeout"])
    if action == "admit":
        return release(names)
    if action == "refuse":
        return drain(names, reason) + release(names)
    if action == "vacate":
        return vacate(names, reason, params["timeout"], params["force"])
    return []


def main():
    module = AnsibleModule(
        argument_spec={
            "action": {"required": True, "choices": ["look", "hold", "trial", "admit", "refuse", "vacate"]},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "reason": {"default": ""},
            "user": {"default": "root"},
            "timeout": {"type": "int", "default": 60},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    if module.check_mode and params["action"] != "look":
        module.exit_json(changed=False, changes=[], deepops={})
    try:
        changes = act(params)
        answer = {"slurm": query(), "membership": {"reserved": reserved()}}
    except RefusedError as refusal:
        module.fail_json(
            msg="%s %s: %s" % (params["action"], ",".join(params["nodes"]), refusal),
            hint="see `sinfo -R` and `scontrol show node` on the controller",
        )
    module.exit_json(changed=bool(changes), changes=changes, deepops=answer)


if __name__ == "__main__":
    main()
