#!/usr/bin/python
"""Keep a CDI specification of the node's GPUs, and give Docker its runtime where Docker is."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_container
short_description: What NVIDIA's container toolkit needs besides its packages
description:
  - Enables the packaged units that make the CDI specification at boot and when a driver is installed, and has it made
    now where it does not name the driver that runs or a GPU that is there.
  - Gives Docker the runtime C(nvidia) where Docker is installed, and reloads its daemon. Nothing is restarted.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  wanted: {description: Whether the toolkit is wanted., type: bool, required: true}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Configure containers for GPUs
  deepopsctl.cluster.nvidia_container:
    component: nvidia
    step: container
    digest: "{{ deepops_digests.nvidia }}"
    wanted: true
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import json
import os
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command,
    errors as node_errors,
    files as node_files,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_facts

REFRESH = "nvidia-cdi-refresh.service"
UNITS = ("nvidia-cdi-refresh.path", REFRESH)
SPECIFICATION = "/var/run/cdi/nvidia.yaml"
DOCKER = "docker.service"
DOCKER_SETTINGS = "/etc/docker/daemon.json"
# noted on disk before the file changes: a reload that was cut off is not forgotten
REREAD = DOCKER + ".reload"
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-fA-F-]+)")


def stale(specification: str, driver: str, listed: str) -> str:
    """Why the specification must be generated again, '' where it must not; `listed` is what `nvidia-smi -L` prints."""
    if not driver:
        # without a driver there is nothing to specify
        return ""
    if not specification:
        return "there is none"
    if driver not in specification:
        return f"it is not of driver {driver}"
    unnamed = [uuid for uuid in _UUID.findall(listed) if uuid not in specification]
    return f"it does not name {' '.join(unnamed)}" if unnamed else ""


def docker_lacks_runtime(settings: str) -> bool:
    """Whether Docker's daemon.json (its text) has no runtime `nvidia`. ValueError where Docker could not read it."""
    document = json.loads(settings) if settings.strip() else {}
    if not isinstance(document, dict):
        # as json.loads: the caller asks but whether it can be read
        raise ValueError("it is not an object")  # noqa: TRY004 (a fault of the file, not of a type)
    return "nvidia" not in (document.get("runtimes") or {})


def enable(module: AnsibleModule) -> list[dict[str, Any]]:
    """The packaged units start at boot."""
    shown = node_services.show(UNITS)
    absent = [name for name in UNITS if shown.get(name, {}).get("LoadState", "not-found") == "not-found"]
    if absent and module.check_mode:
        # their package installs and enables them
        return []
    if absent:
        module.fail_json(
            msg=f"this version of the container toolkit has no {absent[0]}",
            hint="set nvidia_container_version to 1.18 or later, or leave it out",
        )
    off = [name for name in UNITS if not node_services.is_enabled(shown[name])]
    if UNITS[0] not in off and not node_services.is_active(shown[UNITS[0]]):
        off.append(UNITS[0])
    if off and not module.check_mode:
        command.require(["systemctl", "enable", "--quiet"] + off)
        command.require(["systemctl", "start", UNITS[0]])
    return [node_changes.entry("unit", name, "enable") for name in off]


def why_stale() -> str:
    listed = nvidia_facts.output_of(["nvidia-smi", "-L"])
    return stale(node_files.text(SPECIFICATION), nvidia_facts.loaded()["version"], listed)


def write_cdi_specification(module: AnsibleModule) -> list[dict[str, Any]]:
    """The specification names the driver and the GPUs that are there."""
    reason = why_stale()
    if not reason or not os.path.exists("/usr/bin/nvidia-ctk"):
        return []
    if not module.check_mode:
        command.require(["systemctl", "restart", REFRESH])
        left = why_stale()
        if left:
            module.warn(f"{SPECIFICATION} was regenerated, and still: {left}; `journalctl -u {REFRESH}` says more")
    return [node_changes.entry("file", SPECIFICATION, "write", detail=reason)]


def configure_docker_runtime(module: AnsibleModule) -> list[dict[str, Any]]:
    """Docker knows the runtime `nvidia`; its containers continue."""
    docker = node_services.show([DOCKER]).get(DOCKER, {})
    if docker.get("LoadState") != "loaded":
        return []
    try:
        lacks = docker_lacks_runtime(node_files.text(DOCKER_SETTINGS))
    except ValueError as error:
        message = f"{DOCKER_SETTINGS} can't be read: {error}"
        module.fail_json(msg=message, hint="Docker would not start with it, either")
    if not lacks and not node_record.is_pending(REREAD):
        return []
    if not module.check_mode:
        node_record.mark_pending(REREAD, DOCKER_SETTINGS)
        command.require(["nvidia-ctk", "runtime", "configure", "--runtime=docker"])
        if node_services.is_active(docker):
            command.require(["systemctl", "reload", DOCKER])
        node_record.clear_pending(REREAD)
    return [node_changes.entry("file", DOCKER_SETTINGS, "write", detail="runtime nvidia; docker is reloaded")]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "wanted": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    with node_errors.fail_on_error(module.fail_json):
        changes = (
            enable(module) + write_cdi_specification(module) + configure_docker_runtime(module)
            if params["wanted"]
            else []
        )
        if not module.check_mode:
            record = node_record.items(units={UNITS[0]: True} if params["wanted"] else {})
            node_record.save(params["component"], params["step"], params["digest"], record)
    module.exit_json(changed=bool(changes), changes=changes)


if __name__ == "__main__":
    main()
