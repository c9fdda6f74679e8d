"""What the control machine asks without Ansible: answers of read-only modules, by a program that lies on the node.

The program is these files; `deepopsctl.run.questions` brings them, under the hash of their content.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

# stands before the answer: the files of a login shell may print something, too
MARK = "DEEPOPSCTL-ANSWER "


def drift_check(arguments: dict[str, Any]) -> dict[str, Any]:
    """Whether the node needs anything of a component."""
    from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import gate as node_gate

    return node_gate.answer(arguments)


def node_info(arguments: dict[str, Any]) -> dict[str, Any]:
    """The node's part of `deepopsctl status`, and Slurm's where it is asked for."""
    from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import status as node_status
    from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import query as slurm_query

    answers = {}
    if arguments["components"]:
        answers["node"] = node_status.report(arguments["components"], arguments["digests"])
    if arguments["slurm"]:
        answers["slurm"] = slurm_query.report(arguments["slurm_wait"], arguments["slurm_timeout"])
    return {"deepops": answers}


QUESTIONS = {"drift_check": drift_check, "node_info": node_info}


def main() -> None:
    """Answer the questions on stdin, a JSON list of {question, arguments}, with one line."""
    answers = []
    for each in json.loads(sys.stdin.buffer.readline()):
        try:
            answers.append(QUESTIONS[each["question"]](each["arguments"]))
        except Exception:  # noqa: BLE001 - Ansible asks again then, and reports it
            answers.append({"msg": traceback.format_exc(limit=-3)})
    sys.stdout.write(MARK + json.dumps(answers) + "\n")
    sys.stdout.flush()
