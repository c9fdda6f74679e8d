#!/usr/bin/python
"""Install Python libraries into a directory of their own, for one program of deepopsctl's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_wheels
short_description: Unpack pinned wheels into a directory, or remove it
description:
  - Unpacks wheels, checked by their hash, side by side into I(path). Nothing is installed for anybody else, it takes no
    pip and no virtual environment, and a newer Python on the node does not break it. An action plugin of the same name
    copies the wheels, fetched once by the control machine, where the directory differs from the last call.
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  path: {description: "The directory, with a version in its name; empty removes it.", type: str, default: ""}
  libraries:
    description: "By name: package, version, and wheels (platform and sha256) by machine, or C(any)."
    type: dict
    default: {}
  wheels: {description: Wheels on this node by name; set by the action plugin., type: dict, default: {}}
author: deepopsctl
"""

EXAMPLES = r"""
- name: What deepops-gpumetrics runs on
  deepopsctl.cluster.node_wheels:
    component: monitoring
    step: gpu_libraries
    digest: "{{ deepops_digest }}"
    path: /usr/local/lib/deepopsctl/nvitop-exporter-1.7.2
    libraries: "{{ deepops_nvitop.libraries }}"
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

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    ownership as node_ownership,
    record as node_record,
    wheels as node_wheels,
)


class Step:
    """One call: the directory, what earlier calls installed, what was done."""

    def __init__(self, module):
        self.wanted = module.params
        self.noted = node_changes.Noted(module.check_mode)
        self.owned = node_ownership.load(self.wanted["component"], self.wanted["step"])
        self.hashes = {}
        for name, library in self.wanted["libraries"].items():
            wheel = node_wheels.wheel_for(library, os.uname().machine)
            if wheel is None:
                message = "there is no wheel of %s for %s" % (library["package"], os.uname().machine)
                raise node_errors.HintedError(message, "choose another exporter: monitoring_gpu_exporter")
            self.hashes[name] = wheel["sha256"]

    @property
    def mark(self):
        """Write into the directory which wheels it was made of."""
        return os.path.join(self.wanted["path"], "WHEELS.json")

    def is_as_left(self):
        """Made of the same wheels, and no file of it touched since."""
        try:
            with open(self.mark) as stream:
                made = json.load(stream)
        except (OSError, ValueError):
            return False
        return made.get("hashes") == self.hashes and all(
            node_record.file_facts(path) == facts for path, facts in made.get("files", {}).items()
        )

    def remember(self, paths):
        self.owned["files"] = paths
        if not self.noted.dry:
            node_ownership.save(self.wanted["component"], self.wanted["step"], self.owned)


def install(step):
    """Unpack the wheels that were copied; returns the names of those still missing."""
    directory = step.wanted["path"]
    if step.is_as_left():
        return []
    missing = sorted(name for name in step.hashes if name not in step.wanted["wheels"])
    if step.noted.dry:
        step.noted.did("folder", directory, "write")
        return missing
    if missing:
        return missing
    step.remember(sorted({*step.owned["files"], directory}))
    node_wheels.unpack(directory, {step.wanted["wheels"][name]: sha256 for name, sha256 in step.hashes.items()})
    made = {path: node_record.file_facts(path) for path in node_wheels.files_in(directory)}
    text = json.dumps({"hashes": step.hashes, "files": made}, sort_keys=True).encode()
    node_record.write_atomically(step.mark, text, 0o644)
    step.noted.did("folder", directory, "write")
    return []


def remove_obsolete(step):
    """Folders of other versions, or of a setting that was taken back."""
    for directory in [path for path in step.owned["files"] if path != step.wanted["path"]]:
        if os.path.isdir(directory):
            step.noted.did("folder", directory, "remove")
            if not step.noted.dry:
                shutil.rmtree(directory)
    step.remember([path for path in step.owned["files"] if path == step.wanted["path"]])


def main():
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "path": {"default": ""},
            "libraries": {"type": "dict", "default": {}},
            "wheels": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    with node_errors.fail_on_error(module.fail_json):
        step = Step(module)
        try:
            missing = install(step) if module.params["path"] else []
        except (ValueError, zipfile.BadZipFile) as error:
            raise node_errors.HintedError("cannot unpack: %s" % error, "deploy again") from error
        if not missing:
            remove_obsolete(step)
            if not module.check_mode:
                files = node_wheels.files_in(module.params["path"]) if module.params["path"] else []
                digest = module.params["digest"] if module.params["path"] else ""
                node_record.save(
                    module.params["component"], module.params["step"], digest, node_record.items(files=files)
                )
    module.exit_json(
        changed=bool(step.noted.changes), changes=step.noted.changes, missing=missing, machine=os.uname().machine
    )


if __name__ == "__main__":
    main()
