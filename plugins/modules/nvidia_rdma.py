#!/usr/bin/python
"""Let RDMA devices reach the memory of GPUs: load nvidia-peermem where the kernel's DMA-BUF does not serve."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_rdma
short_description: GPUDirect RDMA by DMA-BUF, or by nvidia-peermem
description:
  - Looks for RDMA devices, the kernel and NVIDIA's modules; loads nvidia-peermem, now and at every start, where needed.
  - Where it is not, only the file that loads it at the next start is removed; a module in use is never unloaded.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  peermem:
    description: C(auto) loads it only where DMA-BUF does not serve.
    type: str
    choices: [auto, always, never]
    default: auto
author: deepopsctl
"""

EXAMPLES = r"""
- name: GPUDirect RDMA
  deepopsctl.cluster.nvidia_rdma: {component: nvidia, step: rdma, digest: "{{ deepops_digest }}"}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
path: {description: How RDMA devices reach the GPUs, in words., type: str, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command,
    errors as node_errors,
    files as node_files,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import rdma as nvidia_rdma

FILE = "/etc/modules-load.d/deepopsctl-nvidia-peermem.conf"
TEXT = node_files.HEADER + "nvidia-peermem\n"
RUNS = "/sys/module/nvidia_peermem/initstate"


def load(module, noted, modules):
    """Loaded, now and at every start."""
    node_files.ensure(noted, FILE, TEXT.encode())
    if modules["peermem"]:
        return
    noted.did("module", "nvidia-peermem", "load")
    if not noted.dry:
        result = command.run_merged(["modprobe", "nvidia-peermem"], 60)
        if not result.ok:
            hint = "built against another OFED than the one that runs? `dmesg | grep peermem` says more"
            module.fail_json(msg="modprobe nvidia-peermem: %s" % result.message, hint=hint, changes=noted.changes)


def main():
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "peermem": {"choices": ["auto", "always", "never"], "default": "auto"},
        },
        supports_check_mode=True,
    )
    params = module.params
    modules = nvidia_rdma.query()
    decision = nvidia_rdma.decide(params["peermem"], modules)
    if decision["problem"] and params["peermem"] == "always":
        module.fail_json(msg=decision["problem"], hint="install it, or set nvidia_rdma_peermem: auto")
    if decision["problem"]:
        module.warn(decision["problem"])
    noted = node_changes.Noted(module.check_mode)
    with node_errors.fail_on_error(module.fail_json):
        if decision["load"]:
            load(module, noted, modules)
        else:
            # not loaded at the next start; what runs goes on
            node_files.remove(noted, FILE)
        if not module.check_mode:
            record = node_record.items(files=(FILE, RUNS) if decision["load"] else (FILE,))
            node_record.save(params["component"], params["step"], params["digest"], record)
    module.exit_json(**noted.result(path=decision["why"]))


if __name__ == "__main__":
    main()
