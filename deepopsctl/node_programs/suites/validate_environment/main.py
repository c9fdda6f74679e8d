"""What `node_program` starts.

As root `node` on every node with the environment, `users` on the first controller; `examples` on a submit host as the
connecting user.
"""

from __future__ import annotations

from typing import Any, Callable

from ..._shared import identities as ids
from ..._slurm_jobs import suite as suite_of_jobs
from ..._slurm_jobs.snapshot import read_snapshot
from . import (
    charged,
    directory,
    directory_bind,
    examples,
    guides,
    identities,
    login_node,
    logins,
    mail,
    modules,
    own_keys,
    proxy,
    software,
    space_owners,
    spaces,
    tools,
    wheelhouse,
)
from .checks import NOTHING, SUITE, skip

Request = dict[str, Any]
Result = dict[str, Any]


def main(request: Request) -> Result:
    """One phase of the suite, or one of the questions of a deploy (QUESTIONS)."""
    if request["phase"] in QUESTIONS:
        return QUESTIONS[request["phase"]](request)
    return suite_of_jobs.run_trials(request, PHASES[request["phase"]])


def node(request: Request) -> Result:
    """What users find on this node; people are compared with `people`, where the inventory has it."""
    name, people = request["node"], request["people"]
    modular = request.get("modules", ())
    more = tools.LOGIN_COMMANDS if request.get("login") else ()
    checks = [
        tools.verify_installed(name, request.get("differences", ())),
        *tools.verify_tools(name, more),
        *mail.verify_mail(name),
    ]
    # every version, not one of each name: a job may load any of them
    versions = dict.fromkeys([*request.get("declared_modules", ()), *modules.versions(request.get("modulefiles", ""))])
    checks += modules.verify_modules(name, modular, modules.shells(), list(versions)) if modular else []
    if request.get("directory"):
        checks += directory.verify_directory(name, request["directory"], people)
    checks += proxy.verify_proxy(name, request["proxy"]) if request.get("proxy") else []
    person = spaces.first_active(people["people"]) if people else None
    shell = guides.login_shell(person["name"] if person else "")
    listed = modules.listed(shell) if modular else []
    checks += guides.verify_guides(name, shell, guides.features_of(request, listed))
    checks += software.verify_software(name, shell, request.get("software", ()))
    checks += login_node.verify_login_node(name, request["login"]) if request.get("login") else []
    if people:
        checks += [*identities.verify_ids(name, people), *logins.verify_logins(name, people["people"])]
        checks += spaces.verify_spaces(name, people["people"], request.get("spaces", ()))
        checks += space_owners.verify_owners(name, people, request.get("spaces", ()))
    return {"checks": checks}


def users(request: Request) -> Result:
    """What people can do, in their name."""
    if not request["people"]:
        text = "the cluster directory has no people.yml: nothing to test"
        return {"checks": [skip(NOTHING, request["cluster"], text)]}
    service = request["directory"]
    people = directory.with_members(request["people"], service) if service else request["people"]
    return {"checks": charged.verify_charged_job({**request, "people": people})}


def jobs(request: Request) -> Result:
    """The examples for users, each as a job, and one that loads a module; the wheels that users install."""
    session = suite_of_jobs.session(request, SUITE, float(request["run_timeout"]), minutes=5)
    cluster, tested, modular = request["cluster"], request["tested"], request.get("modules", ())
    checks = examples.verify_examples(cluster, request["examples"], tested, session, read_snapshot())
    checks += modules.verify_in_job(cluster, session, modular) if modular else []
    if request.get("wheelhouse"):
        checks += wheelhouse.verify_wheelhouse(request["submit_host"], request["wheelhouse"], request["wheels"])
    return {"checks": checks + guides.verify_in_job(cluster, session)}


def conflicts(request: Request) -> Result:
    """Names and ids of people.yml that another account has here, or in the directory service."""
    people, service = request["people"], request["directory"]
    both = directory.conflicts(people) if service and directory.wait(service["groups"]) else []
    return {"conflicts": [*ids.conflicts(people["people"], people["groups"]), *both]}


QUESTIONS: dict[str, Callable[[Request], Result]] = {
    "conflicts": conflicts,
    "before_directory": lambda request: {"conflicts": directory.before(request["directory"])},
    "bind": lambda request: {"refusal": directory_bind.refusal(request["directory"], request["password"])},
    "members": lambda request: directory.members(request["groups"]),
    "own_keys": lambda request: {"without_keys": [name for name in request["users"] if not own_keys.has_key(name)]},
}
PHASES = {"node": node, "users": users, "examples": jobs}
