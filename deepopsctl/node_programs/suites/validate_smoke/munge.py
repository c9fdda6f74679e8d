"""Does a credential made on one node decode on another?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..._shared import command
from ..._shared.checks import PASS, Check, one_line
from .context import check, failed, skipped

GOOD = "Success"


def encode() -> dict[str, str]:
    """A credential of this user for this user only: no other user, not even Slurm's, can use it."""
    answer = command.run(["munge", "--no-input", f"--restrict-uid={os.getuid()}"], 10)
    return {
        "credential": answer.output.strip() if answer.ok else "",
        "error": "" if answer.ok else one_line(answer.message),
    }


def decode(credential: str) -> str:
    """munge's status of a credential: `Success (0)`, `Invalid credential (5)`, `Expired credential (15)`."""
    answer = command.run(["unmunge"], 10, credential)
    for line in answer.output.splitlines():
        if line.startswith("STATUS:"):
            return line.partition(":")[2].strip()
    return one_line(answer.message.replace("unmunge: Error: ", ""))


def across(node: str, made: Mapping[str, Any], here: str, there: str, submit: str) -> Check:
    """Check both directions: `here` is the node's credential decoded on the submit host, `there` the reverse."""
    expected = "decodes both ways"
    if not made.get("credential"):
        text = f"{node} could not make a credential: {made.get('error') or 'munge gave no reason'}"
        return failed("munge-across", node, text, "no credential", expected)
    if not here.startswith(GOOD):
        text = f"a credential of {node} does not decode on {submit}: {here}"
        return failed("munge-across", node, text, here, expected)
    if there and not there.startswith(GOOD):
        text = f"a credential of {submit} does not decode on {node}: {there}"
        return failed("munge-across", node, text, there, expected)
    measured = expected if there else f"decodes on {submit}"
    return check("munge-across", node, PASS, measured, expected if there else measured)


def not_tried(node: str) -> Check:
    """The check of a node that made no report."""
    return skipped("munge-across", node, "no report from the node")
