"""Which nodes may be drained or resumed: our drains are known by their reason, all others are somebody else's."""

from __future__ import annotations

import re

PREFIX = "deepopsctl: "
FAULTS = {"DOWN", "FAIL", "ERROR", "UNKNOWN", "INVAL", "INVALID_REG", "NOT_RESPONDING"}


def our_reason(text):
    """The reason as we give it to Slurm; scontrol takes a double quote at its end for its own."""
    return PREFIX + " ".join(text.replace('"', "'").split())


def decision(wanted, node, reason):
    """(action, message) for one node; the action is drain, resume, none, kept or refused."""
    if node is None:
        return "refused", "Slurm has no node of that name"
    drained, is_managed = "DRAIN" in node["state"], node["reason"].startswith(PREFIX)
    # a managed reason over theirs would let deepopsctl resume the node
    set_down = "DOWN" in node["state"] and node["reason_user"] not in ("", "slurm")
    theirs = "%s by %s since %s: %s" % (
        "drained" if drained else "set down",
        node["reason_user"] or "somebody",
        node["reason_since"].replace("T", " ") or "?",
        node["reason"] or "no reason given",
    )
    if wanted == "drain":
        if (drained or set_down) and not is_managed:
            return "kept", theirs
        return ("none", node["reason"]) if drained and node["reason"] == reason else ("drain", reason)
    if drained and not is_managed:
        return "refused", theirs
    # a `*` says that slurmd does not answer
    if "*" in node["state"] or FAULTS & set(re.findall("[A-Z_]+", node["state"])):
        why = " (%s)" % node["reason"] if node["reason"] else ""
        return "refused", "Slurm has it as %s%s" % (node["state"].lower(), why)
    return ("resume", "") if drained else ("none", "not drained")


def decide(wanted, names, known, reason, refusals=()):
    """A verdict for every node, in the order asked for; `refusals` says which may not be resumed, and why."""
    decisions = []
    for name in names:
        action, message = decision(wanted, known.get(name), reason)
        if action == "resume" and name in refusals:
            action, message = "refused", refusals[name]
        decisions.append({"name": name, "action": action, "message": message})
    return decisions
