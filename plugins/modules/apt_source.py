#!/usr/bin/python
"""One package repository for apt: its key, its source, what may come from it, and its package lists."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_source
short_description: A signed package repository, unless the node has it already
description:
  - Fetches the key and refuses any but the one with the fingerprint, writes the source and the preferences, and fetches
    the package lists of this source alone; a signature of another key is an error.
  - Where another file of the node names the same repository, that file stays, and the managed one is removed.
  - With I(distro), Debian's own C(contrib) and C(non-free) in place of a repository, from the node's own mirrors.
  - Without I(path), only the key is fetched and checked.
options:
  component: {description: Component this step belongs to; with I(path)., type: str}
  step: {description: Name of the step; with I(path)., type: str}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  path: {description: The source file., type: path}
  uri: {description: "Address; C({arch}) is the node's architecture. Empty wants none.", type: str, default: ""}
  suite: {description: "What of it is taken; C(/) is a repository without suites.", type: str, default: /}
  sections: {description: Parts of the suite., type: list, elements: str, default: []}
  architectures: {description: What the repository calls an architecture., type: dict, default: {}}
  keyring: {description: Where apt finds the key., type: path}
  key: {description: "Address of the key, with C({arch}) as above, or the armoured key itself.", type: str, default: ""}
  fingerprint: {description: Fingerprint of its one primary key., type: str, default: ""}
  preferences: {description: Path of the preferences that go with the source., type: path}
  pins: {description: Their text., type: str, default: ""}
  superseded_in:
    description: Directory of repositories on the node itself. Those that neither O(uri) nor another file of apt's
      sources names are removed from it.
    type: path
  distro: {description: Whether Debian's own non-free is wanted instead., type: bool, default: false}
  hint: {description: What to do where the key can't be fetched., type: str, default: ""}
  unavailable:
    description: Why a package that replaces the source can't be fetched. Nothing is done, and it is left out.
    type: str
    default: ""
  optional:
    description: What comes from the source, if a cluster works without it. A source that can't be used does not fail
      the run then, and C(node_info) reports what is left out.
    type: str
    default: ""
  needed_by: {description: Steps that need what is optional., type: list, elements: str, default: []}
  lock_wait: {description: Seconds to wait for another package manager on the node., type: int, default: 300}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: NVIDIA's repository
  deepopsctl.cluster.apt_source:
    component: nvidia
    step: cuda_source
    path: /etc/apt/sources.list.d/example.sources
    uri: https://repository.example.com/{arch}/
    key: https://repository.example.com/{arch}/key.asc
    fingerprint: 0123456789ABCDEF0123456789ABCDEF01234567
    keyring: /etc/apt/keyrings/example.asc
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
deepops_left_out:
  description: Why the repository can't be used, C(message), C(hint) and C(optional); what comes from it is left out.
  type: dict
  returned: when it can't be used
elsewhere: {description: The other file that names the repository., type: str, returned: always}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    left_out as node_left_out,
    packages_sources as node_package_sources,
    record as node_record,
)


class Source:
    """One call: the files as they should be (None: gone), and what was done."""

    def __init__(self, module: AnsibleModule) -> None:
        self.wanted = module.params
        self.noted = node_changes.Noted(module.check_mode)
        self.arch = self.wanted["architectures"].get(os.uname().machine, os.uname().machine)
        self.uri = self.wanted["uri"].format(arch=self.arch)

    def ensure_key(self) -> bool:
        """True where the key was written."""
        wanted, url = self.wanted, self.wanted["key"].format(arch=self.arch)
        return node_package_sources.ensure_key(
            self.noted, wanted["keyring"], url, wanted["fingerprint"], wanted["hint"]
        )

    def ensure(self, path: str, text: str | None) -> bool:
        """True where a file was written or removed."""
        if text is None:
            return node_files.remove(self.noted, path)
        return bool(node_files.ensure(self.noted, path, (node_files.HEADER + text).encode("utf-8")))


def of_the_distribution(path: str) -> str | None:
    """Stanzas for what the node's own sources of Debian lack; None where they lack nothing."""
    stanzas = [
        node_package_sources.stanza(uri, suite, " ".join(missing), key)
        for uri, suite, key, missing in node_package_sources.debian_sources(path)
    ]
    return "\n".join(stanzas) or None


def converge(source: Source) -> str:
    """Everything in its order; returns the other file that has the repository."""
    wanted = source.wanted
    if wanted["unavailable"]:
        raise node_package_sources.SourceError(wanted["unavailable"], wanted["hint"])
    path, pins = wanted["path"], wanted["preferences"]
    elsewhere = node_package_sources.named_elsewhere(source.uri, path) if source.uri else ""
    written = False
    if source.uri and not elsewhere:
        written = source.ensure_key()
        sections = " ".join(wanted["sections"])
        text: str | None = node_package_sources.stanza(source.uri, wanted["suite"], sections, wanted["keyring"])
    else:
        text = of_the_distribution(path) if wanted["distro"] else None
    before = {name: node_files.read(name) for name in (path, pins) if name}
    if pins:
        source.ensure(pins, wanted["pins"] if text and source.uri else None)
    written = source.ensure(path, text) or written
    if text and not source.noted.dry and (written or not node_package_sources.has_lists(path)):
        node_package_sources.refresh(path, wanted["lock_wait"], before)
    if not source.noted.dry:
        paths = [path] + ([pins] if pins else []) + ([wanted["keyring"]] if text and source.uri else [])
        paths += [elsewhere] if elsewhere else []
        node_record.save(wanted["component"], wanted["step"], wanted["digest"], node_record.items(files=paths))
    if wanted["superseded_in"]:
        node_package_sources.remove_superseded(source.noted, wanted["superseded_in"], source.uri, path)
    return elsewhere


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "component": {},
            "step": {},
            "digest": {"default": ""},
            "path": {"type": "path"},
            "uri": {"default": ""},
            "suite": {"default": "/"},
            "sections": {"type": "list", "elements": "str", "default": []},
            "architectures": {"type": "dict", "default": {}},
            "keyring": {"type": "path", "no_log": False},
            "key": {"default": "", "no_log": False},
            "fingerprint": {"default": "", "no_log": False},
            "preferences": {"type": "path"},
            "pins": {"default": ""},
            "superseded_in": {"type": "path"},
            "distro": {"type": "bool", "default": False},
            "hint": {"default": ""},
            "unavailable": {"default": ""},
            "lock_wait": {"type": "int", "default": 300},
            **node_left_out.OPTIONAL,
        },
        required_by={"path": ("component", "step")},
        required_one_of=[("path", "keyring")],
        supports_check_mode=True,
    )
    source, path = Source(module), module.params["path"]
    with node_errors.fail_on_error(module.fail_json):
        try:
            elsewhere = converge(source) if path else ""
            if not path:
                source.ensure_key()
        except node_package_sources.SourceError as error:
            steps = [(source.wanted["component"], source.wanted["step"])] if path and not module.check_mode else []
            node_left_out.leave_out(module, error, *steps)
    noted = source.noted
    module.exit_json(**noted.result(elsewhere=elsewhere))


if __name__ == "__main__":
    main()
