#!/usr/bin/python
"""Homes of users who are in a directory service, and their entries in this node's cache."""

from __future__ import annotations

DOCUMENTATION = r"""
module: directory_homes
short_description: Look up users of the directory service, and make their homes where they are missing
description:
  - Each user is looked up, with all groups, so that this node knows them for the time when the directory is away.
  - A home is a copy of the skeleton, 0700. One that is there stays as it is, and nothing is ever removed.
options:
  people: {description: "Users with C(name), C(uid) and C(gid).", type: list, elements: dict, required: true}
  homes_in: {description: Where this node makes homes that are missing; empty for nowhere., type: str, default: ""}
  homes_mounted: {description: The mount point that they need; empty for none., type: str, default: ""}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Make homes of the directory's users
  deepopsctl.cluster.directory_homes:
    people: [{name: alice, uid: 20010, gid: 20000}]
    homes_in: /home
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
unknown: {description: Users whom this node does not find with that id., type: list, elements: str, returned: always}
"""

import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    identities as node_identities,
    people as node_people,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table


def is_known(person: Mapping[str, Any]) -> bool:
    """Whether the name service has the user, with that id; it then has the groups, too."""
    try:
        entry = pwd.getpwnam(person["name"])
    except KeyError:
        return False
    os.getgrouplist(entry.pw_name, entry.pw_gid)
    return entry.pw_uid == int(person["uid"])


def ensure_homes(module: AnsibleModule, noted: node_changes.Noted, people: Sequence[Mapping[str, Any]]) -> None:
    base, point = module.params["homes_in"], module.params["homes_mounted"]
    if point and not mount_table.is_mounted(point):
        module.warn(f"{point} is not mounted here: no home was made")
        return
    node_people.warn_of_others(base, people, module.warn)
    missing = [person for person in people if not os.path.lexists(os.path.join(base, person["name"]))]
    made = missing if module.check_mode else node_people.make_homes(base, missing, module.warn)
    for person in made:
        noted.did("directory", os.path.join(base, person["name"]), "set")


def main() -> None:
    options = {
        "people": {"type": "list", "elements": "dict", "required": True},
        "homes_in": {"default": ""},
        "homes_mounted": {"default": ""},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    noted = node_changes.Noted(module.check_mode)
    known = [person for person in module.params["people"] if is_known(person)]
    unknown = sorted({person["name"] for person in module.params["people"]} - {person["name"] for person in known})
    if unknown and not module.check_mode:
        module.warn(f"not found here with the id of the directory: {node_identities.first_few(unknown)}")
    if module.params["homes_in"]:
        with node_errors.fail_on_error(module.fail_json, "homes: %s"):
            ensure_homes(module, noted, known)
    module.exit_json(**noted.result(unknown=unknown))


if __name__ == "__main__":
    main()
