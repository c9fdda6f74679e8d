"""What `node_program` starts: `report` on every node, then `suite` on a submit host, as the connecting user."""

from __future__ import annotations

import getpass
from typing import Any

from ..._shared import slurm_client
from ..._slurm_jobs import slurm, suite as suite_of_jobs
from ..._slurm_jobs.probe_jobs import Answers
from ..._slurm_jobs.snapshot import read_snapshot
from . import context, node_report, suite
from .context import SUITE, Context, Inputs

Result = dict[str, Any]


def main(request: dict[str, Any]) -> Result:
    """One phase of the suite."""
    return report(request) if request["phase"] == "report" else suite_of_jobs.run_trials(request, trials)


def report(request: dict[str, Any]) -> Result:
    """A node's services and munge, and what other nodes are compared with.

    `units` must be active here; `compute` says whether slurmd runs here.
    """
    checks, facts = node_report.report(request["node"], request["units"], compute=bool(request["compute"]))
    return {"deepops": {"checks": checks}, "report": facts}


def trials(request: dict[str, Any]) -> Result:
    """Run the suite: every trial is a job with a recognisable name, a short limit and a place in the queue.

    Nodes that other jobs fill are skipped, with the reason, after `queue_timeout` seconds at most. `nodes`,
    `partitions` and `hardware` are the inventory's and hardware.yml's; `reports` and `clocks` are what node_program
    returned for the nodes, by name.
    """
    wanted = context.nodes(request["nodes"], request["hardware"], expand)
    known = [node.name for node in wanted.values() if node.cpus] or list(wanted)
    inputs = Inputs(
        cluster=request["cluster"],
        submit=request["submit_host"],
        user=getpass.getuser(),
        tested=[name for name in wanted if name in set(request["tested"])],
        reports={name: dict(facts, clock=request["clocks"].get(name)) for name, facts in request["reports"].items()},
        wanted=wanted,
        partitions=context.partitions(request["partitions"], known, expand),
        directories=request["job_directories"],
        mpi=request["mpi"],
        environments=request["environments"],
        guide_script=request["guide_script"],
    )
    session = suite_of_jobs.session(request, SUITE, float(request["run_timeout"]))
    return {"checks": suite.verify_cluster(Context(inputs, read_snapshot(), session, Answers({}, {}), []))}


def expand(names: str) -> list[str]:
    """Slurm's own reading of a node set; a plain name needs none."""
    if not set(names) & set("[],"):
        return [names]
    return slurm.ask(slurm_client.scontrol("show", "hostnames", names)).output.split()
