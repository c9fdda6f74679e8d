#!/usr/bin/python
"""Let RDMA devices reach the memory of GPUs: load nvidia-peermem where the kernel's DMA-BUF does not serve."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_rdma
short_description: GPUDirect RDMA by DMA-BUF, or by nvidia-peermem
description:
  - Looks for RDMA devices, the kernel and NVIDIA's modules; loads nvidia-peermem, now and at every start, where needed.
  - Where it is not, only the file that loads it at the next start is removed; a module in use is never unloaded.
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  peermem:
    description: C(auto) loads it only where DMA-BUF does not serve.
    type: str
    choices: [auto, always, never]
    default: auto
author: deepopsctl
"""

EXAMPLES = r"""
- name: GPUDirect RDMA
  nvidia_rdma: {component: nvidia, step: rdma, digest: "{{ deepops_digest }}"}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
path: {description: How RDMA devices reach the GPUs, in words., type: str, returned: always}
"""

import os

from ansible.module_utils import node_changes, node_files, node_record, nvidia_rdma_paths, slurm_commands
from ansible.module_utils.basic import AnsibleModule

FILE = "/etc/modules-load.d/deepopsctl-nvidia-peermem.conf"
TEXT = "# Written by deepopsctl; the next deploy overwrites changes made here.\nnvidia-peermem\n"
RUNS = "/sys/module/nvidia_peermem/initstate"


def load(module, there):
    """The changes that load it, made unless in check mode."""
    changes = []
    content = TEXT.encode()
    if node_files.differs(FILE, content, (0, 0), 0o644):
        changes.append(node_changes.entry("file", FILE, "write", new=not os.path.exists(FILE)))
        if not module.check_mode:
            node_files.write(FILE, content, (0, 0), 0o644, [])
    if not there["peermem"]:
        changes.append(node_changes.entry("module", "nvidia-peermem", "load"))
        if not module.check_mode:
            status, said = slurm_commands.run(["modprobe", "nvidia-peermem"], 60)
            if status:
                hint = "built against another OFED than the one that runs? `dmesg | grep peermem` says more"
                module.fail_json(msg="modprobe nvidia-peermem: %s" % said, hint=hint, changes=changes)
    return changes


def leave(module):
    """Not loaded at the next start; what runs goes on."""
    if not os.path.exists(FILE):
        return []
    if not module.check_mode:
        os.unlink(FILE)
    return [node_changes.entry("file", FILE, "remove")]


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "step": {"required": True},
            "digest": {"default": ""},
            "peermem": {"choices": ["auto", "always", "never"], "default": "auto"},
        },
        supports_check_mode=True,
    )
    given = module.params
    there = nvidia_rdma_paths.look()
    verdict = nvidia_rdma_paths.decide(given["peermem"], there)
    if verdict["problem"] and given["peermem"] == "always":
        module.fail_json(msg=verdict["problem"], hint="install it, or set nvidia_rdma_peermem: auto")
    if verdict["problem"]:
        module.warn(verdict["problem"])
    try:
        changes = load(module, there) if verdict["load"] else leave(module)
        if not module.check_mode:
            files = {path: node_record.file_facts(path) for path in ((FILE, RUNS) if verdict["load"] else (FILE,))}
            record = {"packages": {}, "files": files, "directories": {}, "units": {}}
            node_record.save(given["component"], given["step"], given["digest"], record)
    except OSError as error:
        message, hint = node_files.trouble(error)
        module.fail_json(msg=message, hint=hint)
    module.exit_json(changed=bool(changes), changes=changes, path=verdict["why"])


if __name__ == "__main__":
    main()
