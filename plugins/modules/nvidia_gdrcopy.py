#!/usr/bin/python
"""Load gdrdrv, GDRCopy's kernel module, now and at every start."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gdrcopy
short_description: GDRCopy's kernel module
description:
  - Loads gdrdrv alongside a running driver, and at every boot. One that was built against another version
    of the driver is rebuilt by DKMS.
  - Where it is not wanted, only the file that loads it at the next start is removed; a module in use is never unloaded.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  wanted: {description: Whether it is to be loaded., type: bool, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: GDRCopy
  deepopsctl.cluster.nvidia_gdrcopy: {component: nvidia, step: gdrcopy, wanted: true, digest: "{{ deepops_digest }}"}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command,
    errors as node_errors,
    files as node_files,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_facts

NAME = "gdrdrv"
FILE = "/etc/modules-load.d/deepopsctl-gdrdrv.conf"
TEXT = node_files.HEADER + NAME + "\n"
RUNS = "/sys/module/gdrdrv/initstate"
DEVICE = "/dev/gdrdrv"
BUILD_S = 900


def build(release):
    """Have DKMS make it for the running kernel and the driver that is there now; what it says."""
    for words in nvidia_facts.output_of(["dkms", "status", NAME]).splitlines():
        # `gdrdrv/2.6, 6.12.1, x86_64: installed`; older ones say `gdrdrv, 2.6, ...`
        version = words.replace("/", ",").split(",")[1].split(":")[0].strip()
        return command.run_merged(["dkms", "install", "--force", NAME + "/" + version, "-k", release], BUILD_S).message
    return "DKMS does not know it"


def load():
    """Load it; once more when it was built against another driver. Raises HintedError."""
    result = command.run_merged(["modprobe", NAME], 60)
    if not result.ok:
        built = build(os.uname().release)
        result = command.run_merged(["modprobe", NAME], 60)
        if not result.ok:
            hint = "`dkms status` and /var/lib/dkms/gdrdrv/*/build/make.log there say more; DKMS's last words: %s"
            raise node_errors.HintedError(
                "modprobe %s: %s" % (NAME, result.message), hint % (built.strip()[-200:] or "none")
            )
    if not os.path.exists(DEVICE):
        hint = "is udev running there? `modprobe -r gdrdrv && modprobe gdrdrv` on the drained node"
        raise node_errors.HintedError("%s is loaded, and there is no %s" % (NAME, DEVICE), hint)


def install(noted):
    """Load it at every boot, and now alongside a running driver."""
    node_files.ensure(noted, FILE, TEXT.encode())
    if nvidia_facts.loaded()["version"] and not os.path.exists(RUNS):
        noted.did("module", NAME, "load")
        if not noted.dry:
            load()


def main():
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "wanted": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    noted = node_changes.Noted(module.check_mode)
    with node_errors.fail_on_error(module.fail_json):
        if params["wanted"]:
            install(noted)
        else:
            node_files.remove(noted, FILE)
        if not module.check_mode:
            record = node_record.items(files=(FILE, RUNS) if params["wanted"] else (FILE,))
            node_record.save(params["component"], params["step"], params["digest"], record)
    module.exit_json(**noted.result())


if __name__ == "__main__":
    main()
