#!/usr/bin/python
"""Replace NVIDIA's driver by one of another branch, or load the installed one and verify that it runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver
short_description: Replace, hold, load and verify NVIDIA's driver
description:
  - C(state=loaded) holds all packages of the installed driver, so that none of them is upgraded without the others, and
    loads the kernel module where a GPU is there and nothing conflicts. It never unloads one and never reboots;
    I(reboot) in the result says why a reboot is needed, I(idle) whether no job could be lost by it. It starts the
    daemons that C(state=replaced) stopped, and says whether RDMA devices need nvidia-peermem to reach the GPUs.
  - C(state=replaced) exchanges the packages of the installed driver for those of another branch, also an older one, in
    one transaction. It refuses a node on which a job runs or can start, stops the daemons that use the GPUs, and
    unloads the kernel modules. Those in use stay loaded; C(state=loaded) then reports that a reboot is needed.
options:
  state: {description: What to do., type: str, choices: [loaded, replaced], default: loaded}
  node: {description: The node's name in Slurm., type: str, required: true}
  packages: {description: Packages of the driver; empty holds none., type: list, elements: str, default: []}
  component: {description: Component this step belongs to; with C(loaded)., type: str}
  step: {description: Name of the step; with C(loaded)., type: str}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  hold_kernel:
    description: Whether to hold the kernel, too, whose packages would come without modules of the driver that is held.
    type: bool
    default: false
  load: {description: Whether the kernel module must run., type: bool, default: false}
  devices: {description: PCI addresses of the GPUs., type: list, elements: str, default: []}
  watch: {description: Further files that the gate compares., type: list, elements: path, default: []}
  empty_steps: {description: Further steps with nothing to do on this node., type: list, elements: str, default: []}
  peermem:
    description: Whether nvidia-peermem is to be loaded; C(auto) where the kernel's DMA-BUF does not serve.
    type: str
    choices: [auto, always, never]
    default: auto
  notice: {description: Why nothing is done; a warning outside of containers., type: str, default: ""}
  branch: {description: The branch to install; with C(replaced)., type: str}
  installed_version: {description: Version of the driver that is installed; with C(replaced)., type: str}
  lock_wait: {description: Seconds to wait for another package manager., type: int, default: 300}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Switch to another driver branch
  deepopsctl.cluster.nvidia_driver:
    state: replaced
    node: gpu07
    branch: "595"
    installed_version: 580.95.05
    packages: [nvidia-driver-cuda, nvidia-kernel-open-dkms]

- name: Load the driver
  deepopsctl.cluster.nvidia_driver:
    component: nvidia
    step: driver
    digest: "{{ deepops_digests.nvidia }}"
    node: gpu07
    packages: [libcuda1, nvidia-smi]
    load: true
    devices: ["0000:17:00.0"]
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
in_use: {description: Why the old kernel modules are still loaded., type: str, returned: with state=replaced}
state: {description: The driver's state in words., type: str, returned: with state=loaded}
library: {description: "Version of its installed user space, or empty.", type: str, returned: with state=loaded}
reboot: {description: Why the node has to be rebooted; empty when it has not., type: str, returned: with state=loaded}
rdma:
  description: C(load), whether nvidia-peermem has to be loaded; C(why); C(problem), why it can't be.
  type: dict
  returned: with state=loaded
idle: {description: True where no job runs or can start on the node., type: bool, returned: with state=loaded}
"""

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command,
    errors as node_errors,
    kernel as node_kernel,
    packages as node_packages,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import (
    branch as nvidia_branch,
    facts as nvidia_facts,
    rdma as nvidia_rdma,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import node_jobs as slurm_node_jobs

INITRAMFS = "/usr/sbin/update-initramfs"


def stop_daemons() -> None:
    """Those that run are stopped, and noted to be started by the step that loads the driver."""
    for unit, facts in sorted(node_services.show(list(nvidia_branch.DAEMONS)).items()):
        if node_services.is_active(facts):
            node_record.mark_pending(unit, "another branch of the driver")
            command.require(["systemctl", "stop", unit])


def reinstall(old: Mapping[str, str]) -> None:
    """Hold and start what there is of the old driver."""
    node_packages.mark("hold", sorted(node_packages.installed(list(old))))
    for unit in nvidia_branch.DAEMONS:
        if node_record.is_pending(unit):
            command.run(["systemctl", "start", unit])
            node_record.clear_pending(unit)


def unload() -> str:
    """Remove the kernel modules; why they can't be, '' when they are gone."""
    if os.path.exists(nvidia_facts.CONTAINER):
        # they are the host's
        return ""
    for name in nvidia_branch.KERNEL_MODULES:
        if os.path.isdir(f"/sys/module/{name}"):
            result = command.run_merged(["rmmod", name])
            if not result.ok:
                return " ".join(result.message.split())
    return ""


def replace(module: AnsibleModule, wanted: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Install the packages of another branch; (changes, why the old modules are still there)."""
    # not all have its name: one that stayed held (libnvcuvid1) would make apt refuse the others
    old = nvidia_branch.family(node_packages.installed(["*"]), wanted["installed_version"])
    detail = f"{wanted['installed_version']} -> branch {wanted['branch']}"
    if module.check_mode:
        names = nvidia_branch.of_the_driver(wanted["packages"])
        return [node_changes.entry("package", name, "exchange", detail=detail) for name in names], ""
    busy = slurm_node_jobs.why_busy(wanted["node"])
    if busy:
        module.fail_json(
            msg=f"{busy}, and jobs would lose their GPUs",
            hint="drain the node, wait for its jobs, deploy again; or let deploy do it: nvidia_driver_drain",
        )
    node_packages.refresh([], wanted["lock_wait"])
    known = node_packages.versions(sorted(set(old) | set(wanted["packages"])))
    offered = nvidia_branch.offered(known, wanted["branch"])
    transaction = nvidia_branch.transaction(old, wanted["packages"], offered)
    if transaction.missing:
        module.fail_json(
            msg=f"the package sources have no {', '.join(transaction.missing)} of branch {wanted['branch']}",
            hint="nothing was changed; see `apt-cache policy` there, or set another nvidia_driver_branch",
        )
    stop_daemons()
    node_packages.mark("unhold", sorted(old))
    try:
        node_packages.install(["--allow-downgrades"] + transaction.arguments, wanted["lock_wait"])
    except node_packages.PackageError:
        # apt begins nothing that it can't end: the old driver serves on
        reinstall(old)
        raise
    changes = [
        node_changes.entry("package", name, "exchange", detail=f"{old.get(name, 'none')} -> {version}")
        for name, version in sorted(transaction.versions.items())
    ]
    changes += [node_changes.entry("package", name, "remove", detail=old[name]) for name in transaction.removed]
    return changes, unload()


def driver_packages(names: Sequence[str]) -> list[str]:
    """The named packages of the driver that are installed, and all others of the same version."""
    return nvidia_facts.driver_packages(node_packages.installed(["*"]), names)


def hold(names: Sequence[str], dry: bool) -> list[str]:
    """The packages that were not held; held now."""
    held = node_packages.held()
    free = [name for name in names if name not in held]
    if free and not dry:
        node_packages.mark("hold", free)
    return free


def why_reboot(library: str) -> str:
    """Why the module that is installed can't come into use now; '' where it can, or is."""
    running = nvidia_facts.loaded()["version"]
    if running and library and running != library:
        return f"the kernel runs driver {running}, and {library} is installed"
    if not running and os.path.isdir("/sys/module/nouveau"):
        return "nouveau drives the GPU"
    return ""


def load(module: AnsibleModule) -> None:
    """Load the kernel modules; fails with what the kernel says."""
    release = os.uname().release
    if not nvidia_facts.built_version():
        built = nvidia_facts.output_of(["dkms", "status"]).strip() or "dkms has built nothing"
        module.fail_json(
            msg=f"there is no nvidia module for the running kernel {release} ({built})",
            hint="`dkms autoinstall` there shows why; the compiler says it in /var/lib/dkms/nvidia*/*/build/make.log",
        )
    for name in ("nvidia", "nvidia-uvm"):
        result = command.run_merged(["modprobe", name])
        if not result.ok:
            words = result.message
            refused = "Key was rejected" in words or "Required key not available" in words
            hint = "Secure Boot does not know the key that signed it" if refused else "`dmesg | grep -i nvrm` says more"
            module.fail_json(msg=f"modprobe {name}: {words}", hint=hint)
    # started in vain, by their packages or with the node: there was no driver yet
    for unit, facts in node_services.show(list(nvidia_branch.OWN)).items():
        if facts.get("LoadState") != "not-found":
            node_record.mark_pending(unit, "the driver was loaded")


def start_again(dry: bool) -> list[dict[str, Any]]:
    """Start the daemons that were stopped for another branch; those of this role are its last step's."""
    changes = []
    for unit in nvidia_branch.DAEMONS:
        if unit not in nvidia_branch.OWN and node_record.is_pending(unit):
            changes.append(node_changes.entry("unit", unit, "start"))
            if not dry:
                command.require(["systemctl", "start", unit])
                node_record.clear_pending(unit)
    return changes


def describe(wanted: Mapping[str, Any], library: str, reboot: str) -> tuple[str, str]:
    """The driver's state in words, and the warning that it may be worth."""
    if wanted["notice"]:
        # a container's GPUs are simulated, or its host's
        return wanted["notice"], "" if os.path.exists(nvidia_facts.CONTAINER) else wanted["notice"]
    running = nvidia_facts.loaded()["version"]
    if reboot:
        return f"reboot needed: {reboot}", ""
    if wanted["load"] and running:
        count = len(glob.glob("/proc/driver/nvidia/gpus/*"))
        state = f"driver {running} drives {count} of {len(wanted['devices'])} GPUs"
        return state, state if count < len(wanted["devices"]) else ""
    if library and not wanted["load"] and wanted["packages"]:
        reason = "no NVIDIA device on this node" if not wanted["devices"] else "its kernel module is the host's"
        return f"driver {library} installed, not loaded: {reason}", ""
    return "nothing to drive" if not running else f"driver {running} runs", ""


def record(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What the gate compares: the GPUs on the bus, the module that runs, and the kernel it was made for."""
    if not (wanted["devices"] or wanted["packages"]):
        return node_record.items()
    paths = ["/sys/module/nvidia/version", "/proc/sys/kernel/osrelease"]
    paths += wanted["watch"] + [f"/sys/bus/pci/devices/{address}/device" for address in wanted["devices"]]
    return node_record.items(node_packages.installed(driver_packages(wanted["packages"])), paths)


def save(wanted: Mapping[str, Any]) -> None:
    """Remember this step, and those that have nothing to do here."""
    node_record.save(wanted["component"], wanted["step"], wanted["digest"], record(wanted))
    for step in wanted["empty_steps"]:
        node_record.save(wanted["component"], step, wanted["digest"], node_record.items())


def activate(module: AnsibleModule, wanted: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str, str, str]:
    """Hold, load, verify; returns (changes, reboot, state, warning)."""
    names = driver_packages(wanted["packages"])
    if module.check_mode and not names:
        # not installed yet
        names = nvidia_facts.packages_to_install(wanted["packages"])
    kernel = node_kernel.installed() if wanted["hold_kernel"] else []
    free = hold(sorted({*names, *kernel}), module.check_mode) if wanted["packages"] else []
    changes = [node_changes.entry("hold", name, "hold") for name in free]
    library = nvidia_facts.library_version()
    reboot = why_reboot(library) if wanted["load"] else ""
    if wanted["load"] and not reboot and not nvidia_facts.loaded()["version"]:
        changes.append(node_changes.entry("module", "nvidia", "load"))
        if not module.check_mode:
            load(module)
            reboot = why_reboot(library)
    if reboot.startswith("nouveau") and os.path.exists(INITRAMFS) and not module.check_mode:
        # nouveau would come back from the initramfs, which has the blacklist from before
        command.require([INITRAMFS, "-u"])
    if not reboot:
        changes += start_again(module.check_mode)
    return (changes, reboot) + describe(wanted, library, reboot)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["loaded", "replaced"], "default": "loaded"},
            "node": {"required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "component": {},
            "step": {},
            "digest": {"default": ""},
            "hold_kernel": {"type": "bool", "default": False},
            "load": {"type": "bool", "default": False},
            "devices": {"type": "list", "elements": "str", "default": []},
            "watch": {"type": "list", "elements": "path", "default": []},
            "empty_steps": {"type": "list", "elements": "str", "default": []},
            "peermem": {"choices": ["auto", "always", "never"], "default": "auto"},
            "notice": {"default": ""},
            "branch": {},
            "installed_version": {},
            "lock_wait": {"type": "int", "default": 300},
        },
        required_if=[
            ("state", "loaded", ("component", "step")),
            ("state", "replaced", ("branch", "installed_version")),
        ],
        supports_check_mode=True,
    )
    wanted = module.params
    if wanted["state"] == "replaced":
        with node_errors.fail_on_error(module.fail_json, "the driver can't be replaced: %s"):
            changes, in_use = replace(module, wanted)
        module.exit_json(changed=bool(changes), changes=changes, in_use=in_use)
    with node_errors.fail_on_error(module.fail_json):
        changes, reboot, state, warning = activate(module, wanted)
        if not module.check_mode and not reboot:
            save(wanted)
    rdma = nvidia_rdma.decide(wanted["peermem"], nvidia_rdma.query())
    for words in filter(None, (warning, rdma["problem"] if wanted["peermem"] == "auto" else "")):
        module.warn(words)
    module.exit_json(
        changed=bool(changes),
        changes=changes,
        state=state,
        library=nvidia_facts.library_version(),
        reboot=reboot,
        rdma=rdma,
        idle=not slurm_node_jobs.why_busy(wanted["node"]) if reboot else False,
    )


if __name__ == "__main__":
    main()
