"""Drain nodes, resume them, and reserve new ones until they are tested. For the primary controller."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import errors as node_errors
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    node_states as slurm_node_states,
    query as slurm_query,
    slurm_output,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.node_states import ON_NODES, RESERVATION

# slurmctld may not answer for moments after a restart
PATIENCE_S = 60
# a person waits for a drain
DRAIN_PATIENCE_S = 20
TRANSIENT = re.compile(r"unable to contact|connect|timed out|no answer|try again", re.IGNORECASE)
HINT = "see `sinfo -R` and `scontrol show node` on the controller"


class RefusedError(node_errors.HintedError):
    """Slurm, or a person's own drain, refuses; the text is Slurm's."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message, hint)


def ask_patiently(argv: Sequence[str]) -> str:
    """Output of one scontrol or scancel, tried again while slurmctld does not answer."""
    done = wait_until(
        lambda: slurm_client.ask(argv),
        PATIENCE_S,
        0.5,
        lambda result: result.ok or not TRANSIENT.search(result.message),
    )
    if not done.ok:
        raise RefusedError(f"{' '.join(argv[:2])}: {' '.join(done.message.split())}")
    return done.output


def require_state(patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Slurm's current state. Raises RefusedError where slurmctld does not answer."""
    state = slurm_query.report(patience_s)
    if not state["controller_up"]:
        hint = "`deepopsctl status` shows more; `deepopsctl deploy` starts what should run"
        raise RefusedError(f"slurmctld does not answer: {state['error']}", hint)
    return state


def known_nodes(state: Mapping[str, Any], names: Collection[str]) -> dict[str, dict[str, Any]]:
    """{name: node} of those that Slurm knows."""
    return {node["name"]: node for node in state["nodes"] if node["name"] in names}


def changes_of(names: Sequence[str], action: str, detail: str = "") -> list[dict[str, str]]:
    """One entry of `changes` for each node."""
    return [{"kind": "node", "name": name, "action": action, "detail": detail} for name in names]


# --- drained and resumed: what a person asks for


def decide(
    wanted: str, names: Sequence[str], known: Mapping[str, Any], reason: str, refusals: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """What to do about every node, in the order of `names`; `refusals` says which may not be resumed, and why."""
    decisions = []
    for name in names:
        action, message = _decision(wanted, known.get(name), reason)
        if action == "resume" and refusals and name in refusals:
            action, message = "refused", refusals[name]
        decisions.append({"name": name, "action": action, "message": message})
    return decisions


def _decision(wanted: str, node: Mapping[str, Any] | None, reason: str) -> tuple[str, str]:
    """(action, message) for one node; the action is drain, resume, none, kept or refused."""
    if node is None:
        return "refused", "Slurm has no node of that name"
    flags, is_managed = slurm_node_states.flags(node["state"]), node["reason"].startswith(slurm_node_states.PREFIX)
    drained = "DRAIN" in flags
    # a managed reason over theirs would let deepopsctl resume the node
    set_down = "DOWN" in flags and slurm_node_states.is_by_person(node["reason_user"])
    theirs = _set_by(node, "drained" if drained else "set down")
    if wanted == "drain":
        if (drained or set_down) and not is_managed:
            return "kept", theirs
        return ("none", node["reason"]) if drained and node["reason"] == reason else ("drain", reason)
    if drained and not is_managed:
        return "refused", theirs
    if slurm_node_states.is_faulty(node["state"]):
        why = f" ({node['reason']})" if node["reason"] else ""
        return "refused", f"Slurm has it as {node['state'].lower()}{why}"
    return ("resume", "") if drained else ("none", "not drained")


def _set_by(node: Mapping[str, Any], what: str) -> str:
    since = node["reason_since"].replace("T", " ") or "?"
    return f"{what} by {node['reason_user'] or 'an unknown user'} since {since}: {node['reason'] or 'no reason given'}"


def drain_or_resume(
    wanted: str, names: Sequence[str], reason: str, refusals: Mapping[str, str], dry: bool
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(decisions, changes); decided again before each try, because others drain nodes as well."""

    def attempt() -> tuple[list[dict[str, str]], list[dict[str, str]], str]:
        known = known_nodes(require_state(DRAIN_PATIENCE_S), names)
        decisions = decide(wanted, names, known, reason, refusals)
        todo = [entry["name"] for entry in decisions if entry["action"] == wanted]
        changes = changes_of(todo, wanted, reason if wanted == "drain" else "")
        if dry or not todo:
            return decisions, changes, ""
        words = ["reason=" + reason] if wanted == "drain" else []
        done = slurm_client.ask(slurm_client.update("node", todo, "state=" + wanted, *words))
        error = "" if done.ok else " ".join(done.message.split()) or "scontrol update failed"
        return decisions, changes, error and f"scontrol could not {wanted} {','.join(todo)}: {error}"

    decisions, changes, error = wait_until(attempt, DRAIN_PATIENCE_S, 0.5, lambda tried: not tried[-1])
    if error:
        raise RefusedError(error)
    return decisions, changes


# --- rebooting: what `node reboot` asks for

# a server that is not back within this is down for Slurm; its own default is a minute
LEAST_RESUME_S = 300


def reboot_decision(node: Mapping[str, Any] | None, is_reserved: bool) -> tuple[str, str]:
    """(action, message) for one node: reboot by Slurm, host (by systemd), none, back, or refused.

    Slurm ends every drain when the node returns, so one that is drained for another reason is not its to reboot: with
    one of deepopsctl's, systemd does it and the node stays drained. A drain of an upgrade ends with the reboot.
    """
    if node is None:
        return "refused", "Slurm has no node of that name"
    flags, is_managed = slurm_node_states.flags(node["state"]), node["reason"].startswith(slurm_node_states.PREFIX)
    is_own = node["reason"].startswith(slurm_node_states.REBOOT_PREFIX)
    by = node["reason_user"] or "an unknown user"
    since = node["reason_since"].replace("T", " ") or "?"
    if slurm_node_states.REBOOTING & flags:
        return ("none", node["reason"]) if is_own else ("refused", f"{by} has asked for a reboot since {since}")
    if is_reserved:
        command = f"`deepopsctl node add {node['name']}`"
        return "refused", f"its validation was cut off (reservation {RESERVATION}): {command} validates it"
    is_out = slurm_node_states.is_out(node["state"])
    if is_own and is_out:
        return ("host" if "NOT_RESPONDING" in flags else "back"), node["reason"]
    if is_out and not is_managed and slurm_node_states.is_by_person(node["reason_user"]):
        return "refused", _set_by(node, "drained" if "DRAIN" in flags else "set down")
    is_away = bool(flags & (slurm_node_states.SILENT | {"DOWN"}))
    if is_away or ("DRAIN" in flags and is_managed):
        is_upgrade = node["reason"].startswith(slurm_node_states.UPGRADE_PREFIX)
        return "reboot" if is_upgrade and not is_away else "host", node["reason"]
    if "DRAIN" in flags:
        return "refused", f"drained since {since}: {node['reason'] or 'no reason given'}"
    if flags & slurm_node_states.SWITCHED_OFF:
        return "refused", f"Slurm has it as {node['state'].lower()}, and ignores requests for a reboot"
    return "reboot", ""


def request_reboot(
    names: Sequence[str], reason: str, next_state: str, dry: bool
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(decisions, changes): Slurm drains the nodes, and reboots each when its jobs have ended."""
    state = require_state(DRAIN_PATIENCE_S)
    known = known_nodes(state, names)
    pairs = [(name, reboot_decision(known.get(name), name in state["reserved"])) for name in names]
    decisions = [{"name": name, "action": action, "message": message} for name, (action, message) in pairs]
    todo = [entry["name"] for entry in decisions if entry["action"] == "reboot"]
    if not todo:
        return decisions, []
    require_reboot_settings()
    if not dry:
        words = ("reboot", "ASAP", "nextstate=" + next_state, "reason=" + reason, ",".join(todo))
        ask_patiently(slurm_client.scontrol(*words))
        # what it ignores is not in its exit code
        known = known_nodes(require_state(DRAIN_PATIENCE_S), todo)
        for entry in decisions:
            node = known.get(entry["name"])
            if node and not slurm_node_states.REBOOTING & slurm_node_states.flags(node["state"]):
                entry.update(action="refused", message="Slurm ignored the request: it has it as " + node["state"])
    done = [entry["name"] for entry in decisions if entry["action"] == "reboot"]
    return decisions, changes_of(done, "reboot", reason)


def require_reboot_settings() -> None:
    """Refuse where Slurm can't reboot a node, or would set it down before it is back."""
    config = slurm_output.config(ask_patiently(slurm_client.CONFIG))
    program, limit = config.get("RebootProgram", ""), config.get("ResumeTimeout", "")
    seconds = re.match(r"[0-9]+", limit)
    if not slurm_output.present(program):
        raise RefusedError(
            "slurm.conf has no RebootProgram", "set `slurm_config: {RebootProgram: /sbin/reboot}`, deploy"
        )
    if seconds and int(seconds.group()) < LEAST_RESUME_S:
        message = f"ResumeTimeout is {limit}: Slurm sets a node down that is not back by then"
        raise RefusedError(message, "set `slurm_config: {ResumeTimeout: 900}`, deploy")


# --- reserved, released and out_of_service: what `node add`, `remove` and `replace` do


def is_foreign(node: Mapping[str, Any]) -> bool:
    """An administrator took it out; slurmctld itself does so for reasons that a registration settles."""
    is_managed = node["reason"].startswith(slurm_node_states.NODE_PREFIX)
    is_out = slurm_node_states.is_out(node["state"])
    return is_out and not is_managed and slurm_node_states.is_by_person(node["reason_user"])


def jobs_on(state: Mapping[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Jobs that hold any of the nodes."""
    wanted = set(names)
    return [job for job in state["jobs"] if job["state"] in ON_NODES and wanted & set(job["nodes"])]


def not_foreign(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The nodes as Slurm has them now; refuses one that a person took out, also in the middle of its validation."""
    nodes = known_nodes(require_state(), names)
    for name in names:
        if name not in nodes:
            raise RefusedError(f"slurmctld does not know {name}")
        if is_foreign(nodes[name]):
            state, user = nodes[name]["state"].lower(), nodes[name]["reason_user"]
            raise RefusedError(f"{name} was set {state} by {user}: {nodes[name]['reason']}")
    return nodes


def reserve(names: Sequence[str], user: str) -> list[dict[str, str]]:
    """Only `user` may start jobs on the nodes from now on, and slurmctld forgets that they were away.

    Only then it takes them back when they register. Nodes that an earlier call reserved stay in the reservation.
    """
    nodes, before = not_foreign(names), slurm_query.reserved_nodes()
    listed = "nodes=" + ",".join(sorted(set(before) | set(names)))
    if before:
        ask_patiently(slurm_client.update("reservation", [RESERVATION], listed, "users=" + user))
    else:
        words = ("users=" + user, "starttime=now", "duration=infinite", "flags=ignore_jobs")
        ask_patiently(slurm_client.scontrol("create", "reservation", "reservationname=" + RESERVATION, listed, *words))
    changes = changes_of(sorted(set(names) - set(before)), "reserve", "for " + user)
    out = sorted(node["name"] for node in nodes.values() if slurm_node_states.is_out(node["state"]))
    if out:
        # one that never registered is refused, with its drain gone all the same
        slurm_client.ask(slurm_client.update("node", out, "state=resume"))
    return changes + changes_of(out, "resume")


def wait_until_registered(names: Sequence[str], timeout_s: float) -> list[dict[str, str]]:
    """Wait until all nodes answer, and resume them; returns the changes."""
    changes = []

    def unfit() -> dict[str, Any]:
        nodes = not_foreign(names)
        flags = {name: slurm_node_states.flags(node["state"]) for name, node in nodes.items()}
        left = {name: nodes[name] for name in names if flags[name] & slurm_node_states.NO_JOBS}
        out = [name for name in left if flags[name] & slurm_node_states.OUT_OF_SERVICE]
        ready = sorted(name for name in out if not flags[name] & slurm_node_states.SILENT)
        if ready:
            ask_patiently(slurm_client.update("node", ready, "state=resume"))
            changes.extend(changes_of(ready, "resume"))
        return left

    left = wait_until(unfit, timeout_s, 0.5, lambda nodes: not nodes)
    if left:
        raise RefusedError(
            "; ".join(f"{name} is {node['state']} ({node['reason']})" for name, node in sorted(left.items()))
        )
    return changes


def release(names: Sequence[str]) -> list[dict[str, str]]:
    """Take the nodes out of the reservation; what may still run in it is the validation's."""
    before = set(slurm_query.reserved_nodes())
    left = sorted(before - set(names))
    released = sorted(before & set(names))
    words = slurm_client.scontrol("delete", "reservationname=" + RESERVATION)
    if left:
        words = slurm_client.update("reservation", [RESERVATION], "nodes=" + ",".join(left))
    if released:
        # the last job of a validation may still be completing
        done = wait_until(lambda: slurm_client.ask(words), PATIENCE_S, 0.5, lambda result: result.ok)
        if not done.ok:
            raise RefusedError(f"the reservation {RESERVATION} can't be ended: {' '.join(done.message.split())}")
    return changes_of(released, "release")


def take_out(names: Sequence[str], reason: str, cancel_jobs: bool) -> list[dict[str, str]]:
    """Drain the nodes that no other user drained, and end their reservation; with `cancel_jobs` end their jobs, too."""
    nodes = known_nodes(require_state(), names).values()
    todo = sorted(
        node["name"] for node in nodes if not is_foreign(node) and not slurm_node_states.is_drained_with(node, reason)
    )
    if todo:
        ask_patiently(slurm_client.update("node", todo, "state=drain", "reason=" + reason))
    changes = changes_of(todo, "drain", reason) + release(names)
    return changes + (_cancel_jobs(names) if cancel_jobs else [])


def _cancel_jobs(names: Sequence[str]) -> list[dict[str, Any]]:
    """Cancel the jobs on the nodes, and wait for a moment until they have ended; what is left is not failed for."""
    state = require_state()
    jobs = jobs_on(state, names)
    if not jobs:
        return []
    ask_patiently(["scancel", *sorted({job["id"] for job in jobs})])
    changes = [{"kind": "job", "name": job["id"], "action": "cancel", "detail": job["user"]} for job in jobs]

    def left() -> list[dict[str, Any]]:
        state = require_state()
        jobs = jobs_on(state, names)
        silent = without_slurmd(state, jobs, names)
        if silent:
            # on a drained node that is off, slurmctld waits for ever for a job's end; on one that is down, it ends it
            ask_patiently(slurm_client.update("node", silent, "state=down", "reason=deepopsctl: no answer"))
            changes.extend(changes_of(silent, "down"))
        return jobs

    wait_until(left, 2 * PATIENCE_S, 0.5, lambda jobs: not jobs)
    return changes


def without_slurmd(state: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """The nodes among `names` that do not answer slurmctld, and whose cancelled jobs wait for that."""
    waiting = {name for job in jobs if job["state"] == "COMPLETING" for name in job["nodes"]}
    nodes = known_nodes(state, waiting & set(names))
    flags = {name: slurm_node_states.flags(node["state"]) for name, node in nodes.items()}
    return sorted(name for name, words in flags.items() if words & slurm_node_states.SILENT and "DOWN" not in words)
