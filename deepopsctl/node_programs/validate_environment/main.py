"""What `node_program` starts as root: `node` on every node with the environment, `users` on the first controller."""

from __future__ import annotations

from typing import Any, Dict

from .._slurm_jobs import suite as suite_of_jobs
from . import identities, mail, tools
from .checks import NOTHING, skip

Request = Dict[str, Any]
Result = Dict[str, Any]


def main(request: Request) -> Result:
    """One phase of the suite."""
    return suite_of_jobs.run(request, node if request["phase"] == "node" else users)


def node(request: Request) -> Result:
    """What users find on this node; its users and groups are compared with `people`, where the inventory has it."""
    people = request["people"]
    return {
        "checks": [
            *tools.run(request["node"]),
            *mail.run(request["node"]),
            *(identities.run(request["node"], people) if people else []),
        ]
    }


def users(request: Request) -> Result:
    """What people can do, in their name."""
    if not request["people"]:
        text = "the cluster directory has no people.yml: nothing to test"
        return {"checks": [skip(NOTHING, request["cluster"], text)]}
    return {"checks": []}
