#!/usr/bin/python
"""QOS, accounts and users in Slurm's accounting database."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounting
short_description: Configure QOS, accounts, users and their limits as declared
description:
  - Reads what Slurm has in four calls of C(sacctmgr), adds and modifies what differs, and reads it again.
  - Nothing is ever removed. QOS, accounts and users that are not declared are a site's own and stay; so do limits
    that were set manually on declared ones. A limit that an earlier call set and that is no longer declared is
    unset.
options:
  cluster: {description: Slurm's cluster name., type: str, required: true}
  accounts:
    description: Accounts that exist; whatever they may do is left alone.
    type: list
    elements: str
    default: []
  users:
    description: Users and the account each of them may charge; whatever they may do is left alone.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Login name., type: str, required: true}
      account: {description: Account., type: str, required: true}
  policy:
    description: QOS, accounts and users with their settings, as the inventory carries them (C(slurm_policy)).
    type: dict
    default: {}
  others:
    description: Accounts and users in the form of I(policy), declared elsewhere. No warning names them.
    type: dict
    default: {}
  name_undeclared:
    description: Whether warnings name what is not declared.
    type: bool
    default: true
  closed_users:
    description: Users who may submit and start no more jobs; a warning names the jobs that they still have.
    type: list
    elements: str
    default: []
  cancel_users:
    description: Those of I(closed_users) whose jobs are cancelled.
    type: list
    elements: str
    default: []
  followed_accounts:
    description:
      - Accounts in which only users who are declared there may submit jobs, in I(policy) or I(others). All others in
        them are closed, not removed.
    type: list
    elements: str
    default: []
  directory_accounts:
    description: Accounts of a directory service. No warning names them, nor users in them.
    type: list
    elements: str
    default: []
  only_names:
    description: Only add QOS that are missing, without limits; slurmctld needs those of its partitions.
    type: bool
    default: false
  slurm_conf:
    description: Text of slurm.conf, to reach slurmdbd by before the file is there.
    type: str
    default: ""
  sorted_names:
    description: Names of groups and people by which job_submit.lua sorts jobs into accounts, as a Lua table.
    type: str
    default: ""
  sorted_names_file: {description: Where it reads them., type: path, default: /etc/slurm/deepops/job_accounts.lua}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Let the deploying user run jobs
  deepopsctl.cluster.slurm_accounting:
    cluster: hpc
    accounts: [default]
    users: [{name: ubuntu, account: default}]
"""

RETURN = r"""
changes: {description: "What was done: kind, name, action, detail.", type: list, elements: dict, returned: always}
undeclared: {description: "QOS, accounts and users that are not declared, by type.", type: dict, returned: always}
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    accounting as slurm_accounting,
    accounting_diff as slurm_accounting_diff,
    client as slurm_client,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.sacctmgr import AccountingError, Sacctmgr

# which settings the last call made: only those are ever unset
OWNED = os.path.join(node_record.STATE, "slurm_policy.json")
EMPTY: dict[str, Any] = {"qos": {"normal": {}}, "associations": {"root": {}}, "users": {}}


def new_sacctmgr(module: AnsibleModule) -> Sacctmgr:
    """Sacctmgr with the text of slurm.conf that the module was given, if any."""
    if not module.params["slurm_conf"]:
        return Sacctmgr()
    directory = tempfile.mkdtemp(prefix="deepopsctl-policy-")
    module.add_cleanup_file(directory)
    path = os.path.join(directory, "slurm.conf")
    with open(path, "w") as stream:
        stream.write(module.params["slurm_conf"])
    return Sacctmgr(path)


def read_owned() -> dict[str, dict[str, list[str]]]:
    """{type: {key: [settings]}} that the last call set."""
    try:
        with open(OWNED) as stream:
            return dict(json.load(stream))
    except (OSError, ValueError):
        return {}


def save_owned(wanted: Mapping[str, Any], others: Any) -> None:
    """Record which settings are managed now; `others` are obsolete ones that are not unset yet."""
    owned = {
        object_type: {key: set(values) for key, values in settings.items() if values}
        for object_type, settings in wanted.items()
    }
    for object_type, settings in others.items():
        for key, names in settings.items():
            owned.setdefault(object_type, {}).setdefault(key, set()).update(names)
    plain = {
        object_type: {key: sorted(names) for key, names in settings.items()} for object_type, settings in owned.items()
    }
    if plain != read_owned():
        node_record.write_atomically(OWNED, json.dumps(plain, sort_keys=True).encode())


def result(
    changes: Sequence[slurm_accounting_diff.Change],
    present: Mapping[str, Any],
    undeclared: Mapping[str, list[str]],
    notes: Sequence[str],
) -> dict[str, Any]:
    """What the module returns: the changes as data and as a diff."""
    answer = {
        "changed": bool(changes),
        "changes": [slurm_accounting_diff.row(change, present) for change in changes],
        "undeclared": undeclared,
        "deepops_warnings": list(notes),
    }
    if changes:
        before, after = (slurm_accounting_diff.lines(changes, present, after=after) for after in (False, True))
        header = "QOS, accounts and users"
        answer["diff"] = [{"before": before, "after": after, "before_header": header, "after_header": header}]
    return answer


def write_names(module: AnsibleModule) -> node_changes.Noted:
    """Write the names that jobs are sorted by: the next job is sorted by them."""
    noted, path = node_changes.Noted(module.check_mode), module.params["sorted_names_file"]
    if module.params["sorted_names"]:
        if not module.check_mode:
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        node_files.ensure(noted, path, module.params["sorted_names"].encode())
    return noted


def with_names(answer: Mapping[str, Any], noted: node_changes.Noted) -> dict[str, Any]:
    """The answer of the module, with the file of names."""
    return dict(
        answer,
        changed=answer["changed"] or bool(noted.changes),
        changes=answer["changes"] + noted.changes,
        diff=answer.get("diff", []) + noted.diffs,
    )


def add_missing_qos(sacctmgr: Sacctmgr, wanted: Mapping[str, Any], bare: Any, dry: bool) -> dict[str, Any]:
    """Add the QOS that are missing; their limits follow when slurmctld has sent the database its TRES."""
    present = list(EMPTY["qos"]) if bare else sacctmgr.qos_names()
    missing: dict[str, Any] = {name: {} for name in wanted["qos"] if name not in present}
    changes = slurm_accounting_diff.difference({"qos": missing}, {}, {})
    if not dry:
        sacctmgr.apply(changes, "")
    return result(changes, {}, {}, [])


def apply(
    sacctmgr: Sacctmgr,
    cluster: str,
    wanted: Mapping[str, Any],
    changes: Sequence[slurm_accounting_diff.Change],
    present: Mapping[str, Any],
    owned: dict[str, Any],
) -> None:
    """Make the changes, and read the database again."""
    # settings of an interrupted call are managed, too
    save_owned(wanted, owned)
    # the first account of a new user is the default by itself: mostly nothing is left of these
    later = [change for change in changes if change[0] == "users" and change[2]]
    sacctmgr.apply([change for change in changes if change not in later], cluster)
    left = slurm_accounting_diff.difference(wanted, sacctmgr.state(cluster), owned)
    if later and left:
        sacctmgr.apply(left, cluster)
        left = slurm_accounting_diff.difference(wanted, sacctmgr.state(cluster), owned)
    if left:
        rows = [slurm_accounting_diff.row(change, present) for change in left]
        message = f"Slurm has not applied: {'; '.join(slurm_accounting_diff.sentence(row) for row in rows)}"
        raise AccountingError(message, "try it with sacctmgr on the controller")


def jobs_of(names: Sequence[str]) -> list[str]:
    """A warning for jobs of users who may submit no more; they are left alone."""
    if not names:
        return []
    answer = slurm_client.ask(slurm_client.squeue("%u %A %T", "--user=" + ",".join(names)), 60)
    rows = [line.split() for line in answer.output.splitlines()]
    texts = [f"{row[0]}: job {row[1]}, {row[2]}" for row in rows if len(row) == 3]
    if not texts:
        return []
    words = "users who may start no more jobs still have some; those that run continue (people expire --cancel)"
    return [f"{words}: {slurm_accounting_diff.some(texts, '; ')}"]


def cancel_jobs(names: Sequence[str], dry: bool) -> list[dict[str, Any]]:
    """Changes for the users whose jobs are cancelled; each is closed already, so that none comes back."""
    changes = []
    for name in names:
        answer = slurm_client.ask(slurm_client.squeue("%A", "--user=" + name), 60)
        jobs = sorted(set(answer.output.split())) if answer.ok else []
        if not jobs:
            continue
        detail = f"{len(jobs)} jobs of {name}"
        changes.append(node_changes.entry("jobs", name, "cancel", detail=detail))
        if not dry:
            done = slurm_client.ask(["scancel", "--user=" + name], 120)
            if not done.ok:
                raise AccountingError(f"jobs of {name}: {done.message}", f"scancel --user={name}")
    return changes


def converge(module: AnsibleModule, sacctmgr: Sacctmgr, wanted: Mapping[str, Any], bare: Any) -> dict[str, Any]:
    """Compare everything that is declared with the database, and change what differs."""
    cluster, dry = module.params["cluster"], module.check_mode
    if not bare and not dry:
        sacctmgr.ensure_cluster(cluster)
    present = EMPTY if bare else sacctmgr.state(cluster)
    if dry:
        # the call with only_names, earlier in the same run, would have added them
        present = dict(present, qos=dict({name: {} for name in wanted["qos"]}, **present["qos"]))
    closed = {name.lower() for name in module.params["closed_users"]}
    slurm_accounting_diff.close_users(wanted, present, closed)
    others = slurm_accounting.desired_state([], [], module.params["others"])["associations"]
    left = slurm_accounting_diff.close_left(wanted, present, module.params["followed_accounts"], others)
    problem = slurm_accounting_diff.missing_account(wanted, present)
    if problem:
        raise AccountingError(problem, "declare it under `accounts:` in cluster.yml, or in slurm_accounts_names")
    owned = read_owned()
    changes = slurm_accounting_diff.difference(wanted, present, owned)
    if not dry:
        if changes:
            apply(sacctmgr, cluster, wanted, changes, present, owned)
        # what was declared once is managed when it is declared again
        obsolete = {
            object_type: {key: names for key, names in settings.items() if key not in wanted[object_type]}
            for object_type, settings in owned.items()
        }
        save_owned(wanted, obsolete)
    elsewhere = [*others, *slurm_accounting_diff.within(present, module.params["directory_accounts"])]
    named = module.params["policy"] and module.params["name_undeclared"]
    notes = slurm_accounting_diff.notes(wanted, present, owned, elsewhere) if named else []
    cancelled = [name for name in module.params["cancel_users"] if name.lower() in closed and not bare]
    ended = cancel_jobs(cancelled, dry)
    notes += [] if bare else jobs_of(sorted({*module.params["closed_users"], *left} - set(cancelled)))
    answer = result(changes, present, slurm_accounting_diff.undeclared(wanted, present, elsewhere), notes)
    return dict(answer, changed=bool(answer["changed"] or ended), changes=answer["changes"] + ended)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster": {"required": True},
            "accounts": {"type": "list", "elements": "str", "default": []},
            "users": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"required": True}, "account": {"required": True}},
            },
            "policy": {"type": "dict", "default": {}},
            "others": {"type": "dict", "default": {}},
            "name_undeclared": {"type": "bool", "default": True},
            "closed_users": {"type": "list", "elements": "str", "default": []},
            "cancel_users": {"type": "list", "elements": "str", "default": []},
            "followed_accounts": {"type": "list", "elements": "str", "default": []},
            "directory_accounts": {"type": "list", "elements": "str", "default": []},
            "only_names": {"type": "bool", "default": False},
            "slurm_conf": {"default": ""},
            "sorted_names": {"default": ""},
            "sorted_names_file": {"type": "path", "default": "/etc/slurm/deepops/job_accounts.lua"},
        },
        supports_check_mode=True,
    )
    params, sacctmgr = module.params, new_sacctmgr(module)
    wanted = slurm_accounting.desired_state(params["accounts"], params["users"], params["policy"])
    # before the first deploy there is nothing to ask
    bare = module.check_mode and (not shutil.which("sacctmgr") or not sacctmgr.call("show", "cluster").ok)
    with node_errors.fail_on_error(module.fail_json):
        noted = write_names(module)
        if bare and os.path.exists(OWNED):
            warning = "slurmdbd does not answer: accounts and limits could not be compared"
            module.exit_json(**with_names(result([], EMPTY, {}, [warning]), noted))
        if params["only_names"]:
            module.exit_json(**add_missing_qos(sacctmgr, wanted, bare, module.check_mode))
        module.exit_json(**with_names(converge(module, sacctmgr, wanted, bare), noted))


if __name__ == "__main__":
    main()
