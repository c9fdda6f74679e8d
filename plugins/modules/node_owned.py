#!/usr/bin/python
"""Install the packages and files of a setting, and remove exactly those with it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_owned
short_description: Install packages and files, and remove obsolete ones
description:
  - Installs what is missing in one transaction, upgrades packages to a wanted version, and writes files.
  - What an earlier call installed and this one does not want is removed, with its dependencies. What
    was there before is never removed, and neither is what somebody's own package needs.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  packages:
    description: Wanted packages, each with a version; empty is any, and C(2.6-*) any revision of 2.6.
    type: dict
    default: {}
  archives:
    description: Files on the node that packages come from, by their names; others come from the node's sources.
    type: dict
    default: {}
  by_hand:
    description: A file of each package; where it is there without a package, it was installed manually and stays.
    type: dict
    default: {}
  hint: {description: What to do where the node's sources have no such package., type: str, default: ""}
  kin: {description: Beginning of the names that a missing package is looked for among., type: str, default: ""}
  files:
    description: Wanted files.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      content: {description: The text., type: str, required: true}
      mode: {description: Octal mode as a string., type: str, default: "0644"}
  restarts:
    description: Units that run programs of the packages; the next M(deepopsctl.cluster.node_state) restarts them for
      another version.
    type: list
    elements: str
    default: []
  keep:
    description: Whether what is no longer wanted stays for now; a later call of the same step takes it away.
    type: bool
    default: false
  lock_wait: {description: Seconds to wait for another package manager on the node., type: int, default: 300}
author: deepopsctl
"""

EXAMPLES = r"""
- name: CUDA 12.8, and no other that came this way
  deepopsctl.cluster.node_owned:
    component: nvidia
    step: cuda
    digest: "{{ deepops_digest }}"
    packages: {cuda-toolkit-12-8: ""}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
packages: {description: Installed version of each package., type: dict, returned: always}
"""

import fnmatch
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    ownership as node_ownership,
    packages_apt as node_packages,
    record as node_record,
    removal as node_removal,
    services as node_services,
)


class Step:
    """One call: what is wanted, what is managed, what was done."""

    def __init__(self, module):
        self.module = module
        self.wanted = module.params
        self.owned = node_ownership.load(self.wanted["component"], self.wanted["step"])
        self.noted = node_changes.Noted(module.check_mode)

    def remember(self):
        if not self.noted.dry:
            node_ownership.save(self.wanted["component"], self.wanted["step"], self.owned)


def install(step):
    """Install what is missing or of another version; returns what is there."""
    wanted = dict(step.wanted["packages"])
    present = node_packages.installed(list(wanted))
    missing = [name for name in wanted if name not in present]
    for name in node_ownership.manually_installed(missing, step.wanted["by_hand"], node_packages.is_packaged):
        step.module.warn("%s was installed manually (%s): left unchanged" % (name, step.wanted["by_hand"][name]))
        missing.remove(name)
        del wanted[name]
    other = [name for name in present if wanted[name] and not fnmatch.fnmatchcase(present[name], wanted[name])]
    step.owned["packages"] += [name for name in missing if name not in step.owned["packages"]]
    step.remember()
    note_restarts(step, other)
    if (missing or other) and not step.noted.dry:
        fetch(step, [specification(step, name, wanted[name]) for name in missing + other])
        present = node_packages.installed(list(wanted))
        refuse_other_archives(step, present)
    elif missing or other:
        present.update(node_packages.candidates(missing))
        present.update({name: wanted[name] for name in missing + other if wanted[name]})
    for name in missing + other:
        step.noted.did("package", name, "install" if name in missing else "upgrade", detail=present.get(name, ""))
    return present


def specification(step, name, version):
    """A package as apt takes it."""
    return step.wanted["archives"].get(name) or ("%s=%s" % (name, version) if version else name)


def refuse_other_archives(step, present):
    """A file with another version than the settings name would be installed again by every deploy."""
    for name, path in step.wanted["archives"].items():
        version, installed = step.wanted["packages"].get(name, ""), present.get(name, "")
        if version and not fnmatch.fnmatchcase(installed, version):
            what = "%s contains %s %s, and %s is wanted" % (path, name, installed or "not at all", version)
            step.module.fail_json(msg=what, hint=step.wanted["hint"] or "give the version that the file has")


def note_restarts(step, other):
    """Before anything is replaced, so that a cut-off run loses no restart."""
    for name, facts in node_services.show(step.wanted["restarts"] if other else []).items():
        if node_services.is_active(facts) and step.noted.dry:
            step.noted.did("unit", name, "restart")
        elif node_services.is_active(facts):
            node_record.mark_pending(name, "another version of %s" % " ".join(other))


def fetch(step, specifications):
    try:
        node_packages.install(specifications, step.wanted["lock_wait"])
    except node_packages.PackageError as error:
        kin, hint = step.wanted["kin"], error.hint
        unknown = re.search("Unable to locate|no installation candidate|was not found", str(error))
        if unknown and step.wanted["hint"]:
            hint = step.wanted["hint"]
        elif unknown and kin:
            hint = "%s; they have %s" % (hint, " ".join(node_packages.known(kin)) or "nothing of that kind")
        step.module.fail_json(msg="cannot install %s: %s" % (" ".join(specifications), error), hint=hint)


def write(step):
    for wanted in step.wanted["files"]:
        node_files.ensure(step.noted, wanted["path"], wanted["content"].encode("utf-8"), int(wanted["mode"], 8))
    paths = [wanted["path"] for wanted in step.wanted["files"]]
    step.owned["files"] += [path for path in paths if path not in step.owned["files"]]
    step.remember()


def obsolete(step, type_name):
    """Managed `packages` or `files` that are not wanted any more."""
    wanted = {"packages": step.wanted["packages"], "files": [file["path"] for file in step.wanted["files"]]}
    return [name for name in step.owned[type_name] if name not in wanted[type_name]]


def remove_obsolete(step):
    """Remove managed packages and files that are obsolete."""
    for path in obsolete(step, "files"):
        node_files.remove(step.noted, path)
        if not step.noted.dry:
            node_removal.remove_directory_of(path)
        step.owned["files"].remove(path)
    packages = obsolete(step, "packages")
    node_removal.remove_packages(step.noted, packages, step.module.warn, step.wanted["lock_wait"])
    step.owned["packages"] = [name for name in step.owned["packages"] if name not in packages]
    step.remember()


def converge(step):
    """Everything in its order; returns the packages that are there."""
    present = install(step)
    write(step)
    if step.wanted["keep"]:
        if (obsolete(step, "packages") or obsolete(step, "files")) and not step.noted.dry:
            # should the later call not come, the next deploy has to make it
            node_record.begin(step.wanted["component"], step.wanted["step"])
        return present
    remove_obsolete(step)
    if not step.noted.dry:
        record = node_record.items(present, [file["path"] for file in step.wanted["files"]])
        node_record.save(step.wanted["component"], step.wanted["step"], step.wanted["digest"], record)
    return present


def main():
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "packages": {"type": "dict", "default": {}},
            "archives": {"type": "dict", "default": {}},
            "by_hand": {"type": "dict", "default": {}},
            "hint": {"default": ""},
            "kin": {"default": ""},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"required": True},
                    "mode": {"default": "0644"},
                },
            },
            "restarts": {"type": "list", "elements": "str", "default": []},
            "keep": {"type": "bool", "default": False},
            "lock_wait": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    # parent directories are readable for everybody, whatever root's umask
    os.umask(0o022)
    step = Step(module)
    with node_errors.fail_on_error(module.fail_json):
        packages = converge(step)
    noted = step.noted
    module.exit_json(**noted.result(packages=packages))


if __name__ == "__main__":
    main()
