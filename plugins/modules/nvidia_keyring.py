#!/usr/bin/python
"""Put the key of a package repository in place, after making sure that it is the one it should be."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_keyring
short_description: Fetch the key of a package repository and check its fingerprint
description:
  - A key that is there and has the fingerprint is kept, nothing is fetched then.
  - A key with another fingerprint, or with a second key in it, is refused.
options:
  path: {description: Where apt finds it (signed-by)., type: path, required: true}
  url: {description: Where it is fetched from., type: str, required: true}
  fingerprint: {description: Fingerprint of its one primary key., type: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: The key that signs the repository
  deepopsctl.cluster.nvidia_keyring:
    path: /etc/apt/keyrings/example.asc
    url: https://repository.example.com/key.asc
    fingerprint: 0123456789ABCDEF0123456789ABCDEF01234567
"""

RETURN = r"""
deepops_left_out:
  description: Why the key can't be had, C(message) and C(hint); what it signs is to be left out.
  type: dict
  returned: when it can't be had
changes: {description: The file, where it was written., type: list, elements: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    apt_repository as node_apt_repository,
    changes as node_changes,
    errors as node_errors,
)

HINT = (
    "the node needs a way there (proxy: https_proxy in /etc/environment), or a mirror: "
    "nvidia_driver_repository_url; or take the distribution's driver: nvidia_driver_source: distro"
)


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "url": {"required": True},
            "fingerprint": {"required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    params, noted = module.params, node_changes.Noted(module.check_mode)
    with node_errors.fail_on_error(module.fail_json):
        try:
            node_apt_repository.ensure_key(noted, params["path"], params["url"], params["fingerprint"], HINT)
        except node_apt_repository.SourceError as error:
            node_apt_repository.leave_out(module, error)
    module.exit_json(changed=bool(noted.changes), changes=noted.changes)


if __name__ == "__main__":
    main()
