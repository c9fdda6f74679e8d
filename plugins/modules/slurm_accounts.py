#!/usr/bin/python
"""QOS, accounts and users in Slurm's accounting database."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounts
short_description: Bring QOS, accounts, users and their limits to what is declared
description:
  - Reads what Slurm has in four calls of C(sacctmgr), adds and modifies what differs, and reads it again.
  - Nothing is ever removed. QOS, accounts and users that are not declared are a site's own and stay; so do limits
    that somebody set manually on declared ones. A limit that an earlier call set and that is declared no more is
    taken away.
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
    description: RV(qos), accounts and users with their settings, as the inventory carries them (C(slurm_policy)).
    type: dict
    default: {}
  only_names:
    description: Only add QOS that are missing, without limits; slurmctld needs those of its partitions.
    type: bool
    default: false
  slurm_conf:
    description: Text of slurm.conf, to reach slurmdbd by before the file is there.
    type: str
    default: ""
author: deepopsctl
"""

EXAMPLES = r"""
- name: Let the deploying user run jobs
  deepopsctl.cluster.slurm_accounts:
    cluster: hpc
    accounts: [default]
    users: [{name: ubuntu, account: default}]
"""

RETURN = r"""
actions: {description: What was done., type: list, elements: str, returned: always}
changes: {description: "The same as data: kind, name, action, detail.", type: list, elements: dict, returned: always}
foreign: {description: "QOS, accounts and users that are not declared, by kind.", type: dict, returned: always}
"""

import json
import os
import shutil
import subprocess
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import record as node_record
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    accounting as slurm_accounting,
    accounting_diff as slurm_accounting_diff,
)

# which settings the last call made: only those are ever removed
OWNED = os.path.join(node_record.STATE, "slurm_policy.json")
EMPTY = {"qos": {"normal": {}}, "associations": {"root": {}}, "users": {}}
NOTHING_TO_DO = ("Nothing new added", "Nothing modified", "didn't affect anything")


class Sacctmgr:
    """sacctmgr, reached by the node's slurm.conf or by one that is not in its place yet."""

    def __init__(self, module):
        self.module = module
        self.environment = dict(os.environ)
        if module.params["slurm_conf"]:
            directory = tempfile.mkdtemp(prefix="deepopsctl-policy-")
            module.add_cleanup_file(directory)
            self.environment["SLURM_CONF"] = os.path.join(directory, "slurm.conf")
            with open(self.environment["SLURM_CONF"], "w") as stream:
                stream.write(module.params["slurm_conf"])

    def run(self, *words):
        """(exit status, output)."""
        try:
            result = subprocess.run(
                ["sacctmgr", "--immediate", "--noheader", "--parsable2"] + list(words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
                timeout=60,
                check=False,
                env=self.environment,
            )
        except subprocess.TimeoutExpired:
            return 124, "no answer within 60 s"
        return result.returncode, result.stdout.strip()

    def show(self, *words):
        """Lines of a `show`, tolerating a slurmdbd that is just starting."""
        deadline = time.monotonic() + 60
        while True:
            status, output = self.run("show", *words)
            if status == 0:
                return output
            if time.monotonic() > deadline:
                self.module.fail_json(
                    msg="sacctmgr show %s: %s" % (words[0], output),
                    hint="see `journalctl -u slurmdbd` on the accounting host",
                )
            time.sleep(0.5)

    def state(self, cluster):
        """What Slurm has, in four calls."""
        columns = {object_type: "format=" + ",".join(names) for object_type, names in slurm_accounting.COLUMNS.items()}
        where = ["where", "cluster=" + cluster]
        return slurm_accounting.state(
            {
                "qos": self.show("qos", columns["qos"]),
                "accounts": self.show("account", columns["accounts"]),
                "users": self.show("user", columns["users"]),
                # without what is inherited: a limit of the parent is none of the child's own
                "associations": self.show("association", *(where + ["wopl", columns["associations"]])),
            }
        )

    def apply(self, changes, cluster):
        """Make the changes; one that Slurm refuses may need another one first, so it is tried again after them."""
        todo = slurm_accounting_diff.commands(changes, cluster)
        while todo:
            refused = []
            for some, words in todo:
                status, output = self.run(*words)
                if status and not any(sentence in output for sentence in NOTHING_TO_DO):
                    refused.append((some, words, output))
            if len(refused) == len(todo):
                _some, words, output = refused[0]
                self.module.fail_json(
                    msg="sacctmgr %s: %s" % (" ".join(words), output),
                    hint="correct it in cluster.yml; what was done before it stays, and the next deploy goes on",
                )
            todo = [(some, words) for some, words, _output in refused]


def wanted_state(params):
    """{kind: {key: settings}} of everything that is declared."""
    policy = params["policy"]
    wanted = {"qos": {}, "associations": {}, "users": {}}
    for qos in policy.get("qos", []):
        wanted["qos"][qos["name"]] = slurm_accounting.settings("qos", qos["settings"])
    for name in params["accounts"]:
        wanted["associations"].setdefault(name, {})
    for account in policy.get("accounts", []):
        wanted["associations"][account["name"]] = slurm_accounting.settings("associations", account["settings"])
    for user in params["users"]:
        wanted["associations"].setdefault("%s/%s" % (user["account"], user["name"]), {})
    for user in policy.get("users", []):
        key = "%s/%s" % (user["account"], user["name"])
        wanted["associations"][key] = slurm_accounting.settings("associations", user["settings"])
        if user.get("default"):
            wanted["users"][user["name"]] = {"DefaultAccount": user["account"]}
    return wanted


def cluster_registered(sacctmgr, cluster, seconds=20):
    """slurmctld registers the cluster itself moments after its start; returns whether it has."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if cluster in sacctmgr.show("cluster", "format=cluster").splitlines():
            return True
        time.sleep(0.3)
    return False


def read_owned():
    """{kind: {key: [settings]}} that the last call set."""
    try:
        with open(OWNED) as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return {}


def save_owned(wanted, others):
    """Record which settings are managed now; `besides` are obsolete ones that are not removed yet."""
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


def add_names(module, sacctmgr, wanted, bare):
    """Add the QOS that are missing; their limits follow when slurmctld has sent the database its TRES."""
    present = list(EMPTY["qos"]) if bare else sacctmgr.show("qos", "format=name").splitlines()
    missing = {name: {} for name in wanted["qos"] if name not in present}
    changes = slurm_accounting_diff.difference({"qos": missing}, {}, {})
    if not module.check_mode:
        sacctmgr.apply(changes, "")
    finish(module, changes, {}, {}, {})


def finish(module, changes, present, foreign, notes):
    """End the module with what changed, as sentences, data and diff."""
    before, after = (slurm_accounting_diff.lines(changes, present, after=after) for after in (False, True))
    rows = [slurm_accounting_diff.row(change, present) for change in changes]
    result = {
        "changed": bool(changes),
        "changes": rows,
        "actions": [slurm_accounting_diff.sentence(row) for row in rows],
        "foreign": foreign,
        "deepops_warnings": list(notes),
    }
    if changes:
        header = "QOS, accounts and users"
        result["diff"] = [{"before": before, "after": after, "before_header": header, "after_header": header}]
    module.exit_json(**result)


def check_accounts(module, wanted, present):
    """An account that nobody declared and that is not there can't be charged or stood under."""
    known = {key.lower() for key in list(wanted["associations"]) + list(present["associations"]) if "/" not in key}
    for key, values in wanted["associations"].items():
        needed = key.partition("/")[0] if "/" in key else values.get("ParentName", "root")
        if needed.lower() not in known | {"root"}:
            module.fail_json(
                msg="%s: there is no account %s" % (slurm_accounting_diff.label("associations", key), needed),
                hint="declare it under `accounts:` in cluster.yml, or in slurm_accounts",
            )


def main():
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
            "only_names": {"type": "bool", "default": False},
            "slurm_conf": {"default": ""},
        },
        supports_check_mode=True,
    )
    cluster, wanted = module.params["cluster"], wanted_state(module.params)
    sacctmgr = Sacctmgr(module)
    # before the first deploy there is nothing to ask
    bare = module.check_mode and (not shutil.which("sacctmgr") or sacctmgr.run("show", "cluster")[0] != 0)
    if bare and os.path.exists(OWNED):
        finish(module, [], EMPTY, {}, ["slurmdbd does not answer: accounts and limits could not be compared"])
    if module.params["only_names"]:
        add_names(module, sacctmgr, wanted, bare)
    if not bare and not module.check_mode and not cluster_registered(sacctmgr, cluster):
        sacctmgr.run("add", "cluster", cluster)
    present = EMPTY if bare else sacctmgr.state(cluster)
    if module.check_mode:
        # the call with only_names, earlier in the same run, would have added them
        present = dict(present, qos=dict({name: {} for name in wanted["qos"]}, **present["qos"]))
    check_accounts(module, wanted, present)
    owned = read_owned()
    changes = slurm_accounting_diff.difference(wanted, present, owned)
    if changes and not module.check_mode:
        # settings of an interrupted call are managed, too
        save_owned(wanted, owned)
        sacctmgr.apply(changes, cluster)
        left = slurm_accounting_diff.difference(wanted, sacctmgr.state(cluster), owned)
        if left:
            rows = [slurm_accounting_diff.row(change, present) for change in left]
            module.fail_json(
                msg="Slurm has not taken over: %s" % "; ".join(slurm_accounting_diff.sentence(row) for row in rows),
                hint="try it with sacctmgr on the controller",
            )
    if not module.check_mode:
        # what was declared once is managed when it is declared again
        obsolete = {
            object_type: {key: names for key, names in settings.items() if key not in wanted[object_type]}
            for object_type, settings in owned.items()
        }
        save_owned(wanted, obsolete)
    notes = slurm_accounting_diff.notes(wanted, present, owned) if module.params["policy"] else []
    finish(module, changes, present, slurm_accounting_diff.undeclared(wanted, present), notes)


if __name__ == "__main__":
    main()
