"""What `node_program` starts: `mounts` as root on every node with storage, then `trials` on a submit host as a user."""

from __future__ import annotations

import os
from typing import Any

from ..._shared import archive, hangup
from ..._slurm_jobs import suite as suite_of_jobs
from . import inputs, node_checks, suite
from .agent_pool import STARTING_S, AgentPool
from .checks import NOTHING, SUITE, skip

Result = dict[str, Any]


def main(request: dict[str, Any]) -> Result:
    """One phase of the suite."""
    return mounts(request) if request["phase"] == "mounts" else suite_of_jobs.run_trials(request, trials)


def mounts(request: dict[str, Any]) -> Result:
    """Compare a node's mounts with `entries`, and try what root may do on a server that squashes root.

    Every touch of a file system is made by a process of its own with a time limit. `user` is the ordinary user where
    sudo names none, `writes` whether he tries to write here; jobs do on compute nodes. `quotas` is what storage_quota
    returned as `differences`. `seen` of the result is what trials may continue with.
    """
    node = node_checks.Node(
        request["node"],
        os.environ.get("SUDO_USER", "") or request["user"],
        float(request["timeout"]),
        os.urandom(3).hex(),
        request["quotas"],
        # in check mode nothing is tried, only read
        writes=bool(request["writes"]) and not request["check_mode"],
    )
    report = node.run_checks(inputs.expected(request["entries"]))
    return {
        "deepops": {"checks": report.checks},
        "seen": {name: entry._asdict() for name, entry in report.seen.items()},
    }


def trials(request: dict[str, Any]) -> Result:
    """Try the storage from all nodes at once: they write, read each other's files, replace and lock them, and measure.

    One job holds an agent on every compute node; this node takes part where it has the mount. Jobs are cancelled
    and files removed at the end, and when the process that started this is gone. `wanted` are the entries of `storage`,
    each with its `nodes`; `seen` is what the nodes returned.
    """
    if not request["wanted"]:
        text = "cluster.yml declares no storage: nothing to test"
        return {"checks": [skip(NOTHING, request["cluster"], text)]}
    answer_s = float(request["timeout"])
    selected = suite.Inputs(
        cluster=request["cluster"],
        submit=request["submit_host"],
        compute=request["compute"],
        wanted=inputs.by_node(request["wanted"]),
        seen=inputs.seen(request["seen"]),
        bounds=inputs.Bounds(int(request["size_mb"]), float(request["seconds"]), answer_s),
    )
    most = selected.seconds()
    session = suite_of_jobs.session(request, SUITE, most, -(-int(most) // 60))
    # where file systems may be slow, nodes are
    agents = AgentPool(session, archive.own(), max(STARTING_S, 2 * answer_s))

    def finish() -> None:
        # agents whose input ends remove what they made; those that do not are ended with their jobs
        agents.stop()
        session.close()

    hangup.watch(finish)
    return {"checks": suite.verify_storage(selected, session, agents)}
