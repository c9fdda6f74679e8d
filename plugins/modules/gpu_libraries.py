#!/usr/bin/python
"""Keep the libraries that GPUs are measured with on a node, or remove them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_libraries
short_description: cuBLAS and NCCL for measurements, in a directory of their own
description:
  - Takes files out of wheels, checked by their hash, into C(FOLDER/NAME-VERSION). Nothing is installed for anybody
    else - no linker path, no Python package. An action plugin of the same name copies the wheels that are missing.
options:
  state: {description: C(present) or C(absent)., type: str, choices: [present, absent], required: true}
  folder: {description: Directory of the libraries., type: path, required: true}
  libraries: {description: By name - version, files in the wheel, wheels by machine., type: dict, required: true}
  wheels: {description: Wheels on this node by name; set by the action plugin., type: dict, default: {}}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Remove the libraries
  deepopsctl.cluster.gpu_libraries:
    state: absent
    folder: /var/cache/deepopsctl/gpu-libraries
    libraries: "{{ deepops_gpu_libraries }}"
"""

RETURN = r"""
missing: {description: What is not there yet., type: list, elements: str, returned: always}
machine: {description: The processor's architecture., type: str, returned: always}
"""

import os
import shutil
import zipfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_gpu import paths
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import wheels as node_wheels

SPEC = {
    "state": {"type": "str", "choices": ["present", "absent"], "required": True},
    "folder": {"type": "path", "required": True},
    "libraries": {"type": "dict", "required": True},
    "wheels": {"type": "dict", "default": {}},
}
# written last: the hash of the wheel that the files next to it are from
RECORD = ".sha256"


def is_installed(place, library, sha256):
    """True where all of its files were taken from the right wheel."""
    try:
        with open(os.path.join(place, RECORD)) as stream:
            known = stream.read().strip()
    except OSError:
        return False
    return known == sha256 and all(os.path.isfile(os.path.join(place, os.path.basename(f))) for f in library["files"])


def unpack(place, library, sha256, wheel):
    """Take the files out of the wheel: all of them are there at once, or none."""
    node_wheels.check(wheel, sha256)
    with node_wheels.replaced(place) as made, zipfile.ZipFile(wheel) as archive:
        for member in library["files"]:
            with archive.open(member) as source, open(os.path.join(made, os.path.basename(member)), "wb") as sink:
                shutil.copyfileobj(source, sink, 2**20)
        with open(os.path.join(made, RECORD), "w") as stream:
            stream.write(sha256 + "\n")


def present(module, params, architecture):
    """Unpack the wheels that were copied; report what is still missing."""
    missing, changed = [], False
    for name, library in sorted(params["libraries"].items()):
        sha256 = library["wheels"].get(architecture, {}).get("sha256", "")
        place = paths.home(params["folder"], name, library)
        if is_installed(place, library, sha256):
            continue
        if name in params["wheels"] and not module.check_mode:
            try:
                unpack(place, library, sha256, params["wheels"][name])
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                module.fail_json(msg="{} {}: {}".format(name, library["version"], error))
            changed = True
        else:
            missing.append(name)
    module.exit_json(changed=changed or (module.check_mode and bool(missing)), missing=missing, machine=architecture)


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params, architecture = module.params, os.uname().machine
    if params["state"] == "present":
        present(module, params, architecture)
    exists = os.path.isdir(params["folder"])
    if exists and not module.check_mode:
        try:
            shutil.rmtree(params["folder"])
        except OSError as error:
            module.fail_json(msg="{} could not be removed: {}".format(params["folder"], error))
    module.exit_json(changed=exists, missing=[], machine=architecture)


if __name__ == "__main__":
    main()
