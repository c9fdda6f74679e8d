#!/usr/bin/python
"""Unpack pinned wheels into a directory of their own, or remove it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_wheels
short_description: Unpack pinned wheels into a directory, or remove it
description:
  - Unpacks wheels, checked by their hash, into I(path), all of their files or none. Nothing is installed for others -
    no Python package, no linker path - it takes no pip and no virtual environment, and a newer Python on the
    node does not break it. An action plugin of the same name copies the wheels that are missing, fetched once by the
    control machine.
  - The Python files of all wheels are unpacked together into I(path), with their licences. Of a wheel with C(files)
    only these are unpacked, into C(PATH/NAME-VERSION).
options:
  state: {description: Whether they have to be there., type: str, choices: [present, absent], default: present}
  path:
    description: The directory. C(absent) without it removes what earlier calls of this step have unpacked.
    type: path
  libraries:
    description: "By name: package, version, files, and wheels (platform and sha256) by processor, or C(any)."
    type: dict
    default: {}
  component:
    description: Component this step belongs to. What a step unpacked earlier elsewhere is removed.
    type: str
  step: {description: Name of the step., type: str}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  hint: {description: What to do where there is no wheel for the node's processor., type: str, default: ""}
  wheels: {description: Wheels on this node by name; set by the action plugin., type: dict, default: {}}
  unavailable:
    description: Why the wheels can't be fetched; set by the action plugin. Nothing is done, and that is left out.
    type: str
    default: ""
  optional:
    description: What needs the libraries, if a cluster works without it. Wheels that can't be fetched do not fail the
      run then, and C(node_info) reports what is left out.
    type: str
    default: ""
  needed_by: {description: Steps that need what is optional., type: list, elements: str, default: []}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Install libraries of deepops-gpumetrics
  deepopsctl.cluster.python_wheels:
    step: gpu_libraries
    path: /usr/local/lib/deepopsctl/nvitop-exporter-1.7.2
    libraries: "{{ deepops_nvitop.libraries }}"

- name: Remove libraries for GPU measurements
  deepopsctl.cluster.python_wheels:
    state: absent
    path: /var/cache/deepopsctl/gpu-libraries
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
missing: {description: Libraries whose wheels are needed here., type: list, elements: str, returned: always}
machine: {description: The processor's architecture., type: str, returned: always}
"""

import json
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_errors,
    left_out as node_left_out,
    record as node_record,
    step as node_step,
    wheels as node_wheels,
)


class Together:
    """Directory of the Python files of several wheels; it records their hashes and its files."""

    def __init__(self, path: str, hashes: Mapping[str, str]) -> None:
        self.path = path
        self.hashes = hashes
        self.record = os.path.join(path, "WHEELS.json")

    def is_complete(self) -> bool:
        """Made of the same wheels, and no file of it touched since."""
        try:
            with open(self.record) as stream:
                made = json.load(stream)
        except (OSError, ValueError):
            return False
        return made.get("hashes") == self.hashes and all(
            node_record.file_facts(path) == facts for path, facts in made.get("files", {}).items()
        )

    def unpack(self, wheels: Mapping[str, str]) -> None:
        node_wheels.unpack(self.path, {wheels[name]: sha256 for name, sha256 in self.hashes.items()})
        made = {path: node_record.file_facts(path) for path in node_wheels.files_in(self.path)}
        text = json.dumps({"hashes": self.hashes, "files": made}, sort_keys=True).encode()
        node_record.write_atomically(self.record, text, 0o644)


class Selected:
    """Directory of some large files of one wheel; it records the wheel's hash."""

    def __init__(self, path: str, name: str, sha256: str, members: Sequence[str]) -> None:
        self.path = path
        self.hashes = {name: sha256}
        self.members = members
        self.record = os.path.join(path, node_wheels.SHA256)

    def is_complete(self) -> bool:
        """All of its files were taken from the right wheel."""
        try:
            with open(self.record) as stream:
                known = stream.read().strip()
        except OSError:
            return False
        names = [os.path.basename(member) for member in self.members]
        return [known] == list(self.hashes.values()) and all(os.path.isfile(os.path.join(self.path, n)) for n in names)

    def unpack(self, wheels: Mapping[str, str]) -> None:
        ((name, sha256),) = self.hashes.items()
        node_wheels.unpack_files(self.path, wheels[name], sha256, self.members)


def directories_of(params: Mapping[str, Any]) -> list[Together | Selected]:
    """The directories to have."""
    together: dict[str, str] = {}
    directories: list[Together | Selected] = []
    for name, library in sorted(params["libraries"].items()):
        wheel = node_wheels.wheel_for(library, os.uname().machine)
        if wheel is None:
            message = f"there is no wheel of {library['package']} for {os.uname().machine}"
            raise node_errors.HintedError(message, params["hint"])
        if library.get("files"):
            path = os.path.join(params["path"], f"{name}-{library['version']}")
            directories.append(Selected(path, name, wheel["sha256"], library["files"]))
        else:
            together[name] = wheel["sha256"]
    return directories + ([Together(params["path"], together)] if together else [])


class Step(node_step.Step):
    """One call, which need not be a step of a component."""

    def own(self, paths: list[str]) -> None:
        self.owned["files"] = paths
        if self.wanted["component"]:
            self.save_owned()

    def install(self, directory: Together | Selected) -> list[str]:
        """Unpack the wheels that were copied; returns the names of those still missing."""
        if directory.is_complete():
            return []
        missing = sorted(set(directory.hashes) - set(self.wanted["wheels"]))
        if missing and not self.dry:
            return missing
        self.noted.did("directory", directory.path, "write")
        if not self.dry:
            self.own(sorted({*self.owned["files"], self.wanted["path"]}))
            directory.unpack(self.wanted["wheels"])
        return missing

    def remove_all_but(self, kept: str | None) -> None:
        """Directories of other versions, or of a setting that was withdrawn."""
        for path in self.owned["files"]:
            if path != kept:
                self.remove(path)
        self.own([path for path in self.owned["files"] if path == kept])

    def remove(self, path: str) -> None:
        if os.path.isdir(path):
            self.noted.did("directory", path, "remove")
            if not self.dry:
                shutil.rmtree(path)


def converge(step: Step) -> list[str]:
    """Returns the names of libraries whose wheels are missing."""
    params = step.wanted
    missing: list[str] = []
    present = params["state"] == "present"
    if present:
        for directory in directories_of(params):
            missing += step.install(directory)
    elif params["path"]:
        step.remove(params["path"])
    if params["component"] and not missing:
        step.remove_all_but(params["path"] if present else None)
        if present:
            step.save_record(node_record.items(files=node_wheels.files_in(params["path"])))
        elif not step.dry:
            node_record.save(params["component"], params["step"], "", {})
    return missing


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["present", "absent"], "default": "present"},
            "path": {"type": "path"},
            "libraries": {"type": "dict", "default": {}},
            "component": {},
            "step": {},
            "digest": {"default": ""},
            "hint": {"default": ""},
            "wheels": {"type": "dict", "default": {}},
            "unavailable": {"default": ""},
            **node_left_out.OPTIONAL,
        },
        required_if=[("state", "present", ("path", "libraries"))],
        required_together=[("component", "step")],
        required_one_of=[("path", "component")],
        supports_check_mode=True,
    )
    step = Step(module)
    if module.params["unavailable"]:
        error = node_errors.HintedError(module.params["unavailable"], module.params["hint"])
        node_left_out.leave_out(module, error, (module.params["component"], module.params["step"]))
    with node_errors.fail_on_error(module.fail_json):
        try:
            missing = converge(step)
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            raise node_errors.HintedError(f"cannot unpack: {error}", "run the command again") from error
    changes = step.noted.changes
    module.exit_json(changed=bool(changes), changes=changes, missing=missing, machine=os.uname().machine)


if __name__ == "__main__":
    main()
