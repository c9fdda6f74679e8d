#!/usr/bin/python
"""One package repository for apt: its key, its source, what may come from it, and its package lists."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_source
short_description: A signed package repository, unless the node has it already
description:
  - Fetches the key and refuses any but the one with the fingerprint, writes the source and the preferences, and fetches
    the package lists of this source alone; a signature of another key is an error.
  - Where another file of the node names the same repository, that file stays the one, and ours is taken away.
  - With I(distro), Debian's own C(contrib) and C(non-free) in place of a repository, from the node's own mirrors.
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  path: {description: The source file., type: path, required: true}
  uri: {description: "Address; C({arch}) is the machine's architecture. Empty wants none.", type: str, default: ""}
  architectures: {description: What the repository calls an architecture., type: dict, default: {}}
  keyring: {description: Where apt finds the key., type: path}
  key: {description: "Address of the key, with C({arch}) as above.", type: str, default: ""}
  fingerprint: {description: Fingerprint of its one primary key., type: str, default: ""}
  preferences: {description: Path of the preferences that go with the source., type: path}
  pins: {description: Their text., type: str, default: ""}
  distro: {description: Whether Debian's own non-free is wanted instead., type: bool, default: false}
  hint: {description: What to do where the key can't be fetched., type: str, default: ""}
  lock_wait: {description: Seconds to wait for another package manager on the node., type: int, default: 300}
author: deepopsctl
"""

EXAMPLES = r"""
- name: NVIDIA's repository
  apt_source:
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
elsewhere: {description: The other file that names the repository., type: str, returned: always}
"""

import os

from ansible.module_utils import apt_source, node_changes, node_files, node_record, nvidia_node
from ansible.module_utils.basic import AnsibleModule

HEADER = "# Written by deepopsctl; the next deploy overwrites changes made here.\n"
MODE = 0o644


class Source:
    """One call: the files as they should be (None: gone), and what was done."""

    def __init__(self, module):
        self.module = module
        self.wanted = module.params
        self.dry = module.check_mode
        self.changes = []
        self.diffs = []
        self.arch = self.wanted["architectures"].get(os.uname().machine, os.uname().machine)
        self.uri = self.wanted["uri"].format(arch=self.arch)

    def ensure_key(self):
        """True where the key was written."""
        path, fingerprint = self.wanted["keyring"], self.wanted["fingerprint"]
        ids, current = node_files.owner_ids("root", "root"), node_files.read(path)
        known = apt_source.is_the_key(current, fingerprint)
        if known and not node_files.differs(path, current, ids, MODE):
            return False
        if not self.dry:
            url = self.wanted["key"].format(arch=self.arch)
            data = current if known else apt_source.fetch_key(url, fingerprint, self.wanted["hint"])
            node_files.write(path, data, ids, MODE, [])
        detail = "fingerprint %s" % fingerprint
        self.changes.append(node_changes.entry("file", path, "write", detail=detail, new=current is None))
        return True

    def ensure(self, path, text):
        """True where a file was written or removed."""
        before, ids = node_files.read(path), node_files.owner_ids("root", "root")
        if text is None:
            if before is None:
                return False
            self.changes.append(node_changes.entry("file", path, "remove"))
            if not self.dry:
                os.unlink(path)
            return True
        content = (HEADER + text).encode("utf-8")
        if not node_files.differs(path, content, ids, MODE):
            return False
        shown = {"before": (before or b"").decode(errors="replace"), "after": content.decode("utf-8")}
        self.diffs.append(dict(shown, before_header=path, after_header=path))
        difference = node_changes.unified(shown["before"], shown["after"]) if self.dry else ""
        new = self.dry and before is None
        self.changes.append(node_changes.entry("file", path, "write", diff=difference, new=new))
        if not self.dry:
            node_files.write(path, content, ids, MODE, [])
        return True


def put_back(before):
    """Files as they were."""
    for path, content in before.items():
        if content is not None:
            node_files.write(path, content, node_files.owner_ids("root", "root"), MODE, [])
        elif os.path.exists(path):
            os.unlink(path)


def of_the_distribution(path):
    """Stanzas for what the node's own sources of Debian lack; None where they lack nothing."""
    stanzas = [
        "Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\n%s"
        % (uri, suite, " ".join(missing), "Signed-By: %s\n" % key if key else "")
        for uri, suite, key, missing in nvidia_node.debian_sources("/etc/apt", path)
    ]
    return "\n".join(stanzas) or None


def converge(source):
    """Everything in its order; returns the other file that has the repository."""
    wanted = source.wanted
    path, pins = wanted["path"], wanted["preferences"]
    elsewhere = apt_source.named_elsewhere(source.uri, path) if source.uri else ""
    written = False
    if source.uri and not elsewhere:
        written = source.ensure_key()
        text = "Types: deb\nURIs: %s\nSuites: /\nSigned-By: %s\n" % (source.uri, wanted["keyring"])
    else:
        text = of_the_distribution(path) if wanted["distro"] else None
    before = {name: node_files.read(name) for name in (path, pins) if name}
    if pins:
        source.ensure(pins, wanted["pins"] if text and source.uri else None)
    written = source.ensure(path, text) or written
    if text and not source.dry and (written or not apt_source.has_lists(path)):
        try:
            apt_source.refresh(path, wanted["lock_wait"])
        except apt_source.SourceError:
            # with a source that can't be used, apt would refuse all other work as well
            put_back(before)
            raise
    if not source.dry:
        paths = [path] + ([pins] if pins else []) + ([wanted["keyring"]] if text and source.uri else [])
        paths += [elsewhere] if elsewhere else []
        files = {name: node_record.file_facts(name) for name in paths}
        record = {"packages": {}, "files": files, "directories": {}, "units": {}}
        node_record.save(wanted["component"], wanted["step"], wanted["digest"], record)
    return elsewhere


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "step": {"required": True},
            "digest": {"default": ""},
            "path": {"type": "path", "required": True},
            "uri": {"default": ""},
            "architectures": {"type": "dict", "default": {}},
            "keyring": {"type": "path", "no_log": False},
            "key": {"default": "", "no_log": False},
            "fingerprint": {"default": "", "no_log": False},
            "preferences": {"type": "path"},
            "pins": {"default": ""},
            "distro": {"type": "bool", "default": False},
            "hint": {"default": ""},
            "lock_wait": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    source = Source(module)
    try:
        elsewhere = converge(source)
    except apt_source.SourceError as error:
        module.fail_json(msg=str(error), hint=error.hint)
    except OSError as error:
        message, hint = node_files.trouble(error)
        module.fail_json(msg=message, hint=hint)
    module.exit_json(changed=bool(source.changes), changes=source.changes, elsewhere=elsewhere, diff=source.diffs)


if __name__ == "__main__":
    main()
