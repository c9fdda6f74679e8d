#!/usr/bin/python
"""Mounts of a node as systemd units: add, change (in use where possible) and remove them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_mounts
short_description: Mount file systems by systemd units, and unmount those that are no longer wanted
description:
  - Writes a mount unit, and an automount unit where asked, for each mount, enables it and starts it. What an earlier
    call installed and this one does not want is removed, nothing else. A path on which another program has mounted
    something is refused, unless it is the same.
  - Options that the kernel can change in use are changed so. Whatever else needs an unmount waits until no process uses
    the mount. On a compute node that means that no job runs there and none may start meanwhile, so it is drained for
    that moment. What has to wait is returned in RV(deferred), and leaves no record for
    M(deepopsctl.cluster.drift_check).
  - A mount that hides the authorized_keys of the user who calls this by sudo is taken back.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  mounts:
    description: Wanted mounts, outer before inner.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: What messages call it., type: str, required: true}
      path: {description: Mount point., type: path, required: true}
      unit: {description: Name of the mount unit., type: str, required: true}
      text: {description: Its text., type: str, required: true}
      automount: {description: Text of the automount unit; empty for none., type: str, default: ""}
      required: {description: Whether the node can't serve without it., type: bool, default: false}
      client: {description: The client of M(deepopsctl.cluster.storage_client) that it needs; empty for none., type:
        str, default: ""}
  only_missing:
    description:
      - Whether only those of I(mounts) are mounted that are not there yet. Nothing else changes; no record is saved.
    type: bool
    default: false
  missing_clients:
    description: Clients that could not be installed; their mounts are not started.
    type: list
    elements: str
    default: []
  files:
    description: Files that the mounts need, written before anything is mounted.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      content: {description: The text., type: str}
      secret_base64: {description: A secret's bytes in base64; never shown., type: str}
      mode: {description: Octal mode as a string., type: str, default: "0644"}
  timers:
    description: Timers among the files in C(/etc/systemd/system), enabled and started; one that goes is stopped first.
    type: list
    elements: str
    default: []
  drain_reason: {description: Why a node is drained meanwhile., type: str, default: storage is changed}
  drain_wait: {description: Seconds to wait for jobs; 0 leaves a node with jobs as it is., type: int, default: 0}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Mount what the node is to have
  deepopsctl.cluster.node_mounts:
    component: storage
    step: mounts
    digest: "{{ deepops_digests.storage }}"
    node: gpu07
    mounts:
      - {name: home, path: /home, unit: home.mount, text: "{{ home_unit }}"}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
deferred: {description: Names of the mounts that had to stay as they are., type: list, elements: str, returned: always}
unmanaged_mounts: {description: NFS that deepopsctl did not mount., type: list, elements: dict, returned: always}
"""

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table as storage_mount_table
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage.mount import (
    LEFT_OUT,
    InUseError,
    MountRun,
    automount_of,
    drop_unit,
    ensure_mount,
    file_of,
    is_left_alone,
    systemctl,
    text_of,
    unmount,
)


def path_of(text: str) -> str:
    """Mount point of a managed unit."""
    paths = (line[len("Where=") :] for line in text.splitlines() if line.startswith("Where="))
    return next(paths, "").replace("%%", "%")


def remove_unwanted(step: MountRun) -> None:
    """Managed units that are obsolete, the inner before the outer."""
    wanted = {file_of(mount["unit"]) for mount in step.wanted["mounts"]}
    units = [path for path in step.owned["files"] if path.endswith(".mount") and path not in wanted]
    for path in sorted(units, key=lambda path: -len(path_of(text_of(path) or ""))):
        unit, where = os.path.basename(path), path_of(text_of(path) or "")
        was_there = where in step.table
        try:
            unmount(step, unit, where)
        except InUseError as error:
            step.defer(where, str(error))
            continue
        if was_there:
            step.noted.did("mount", where, "remove")
        drop_unit(step, automount_of(unit))
        drop_unit(step, unit)


def write_files(step: MountRun) -> None:
    for wanted in step.wanted["files"]:
        content = wanted["content"]
        secret = content is None
        data = base64.b64decode(wanted["secret_base64"] or "") if secret else content.encode("utf-8")
        step.own(wanted["path"])
        node_files.ensure(step.noted, wanted["path"], data, int(wanted["mode"], 8), secret=secret)


def remove_files(step: MountRun) -> None:
    """Managed files that are obsolete, without units."""
    wanted = {file["path"] for file in step.wanted["files"]}
    for path in [path for path in step.owned["files"] if not path.endswith((".mount", ".automount"))]:
        if path not in wanted and not step.deferred:
            if path.endswith(".timer") and not step.dry:
                systemctl("disable", "--now", "--quiet", os.path.basename(path))
            step.disown(path)


def start_timers(step: MountRun) -> None:
    """After the mounts: what a timer does may need them."""
    shown = node_services.show(step.wanted["timers"])
    if step.wanted["timers"] and not step.dry:
        systemctl("daemon-reload")
    for name in step.wanted["timers"]:
        if node_services.is_active(shown[name]) and node_services.is_enabled(shown[name]):
            continue
        step.noted.did("unit", name, "start")
        worked, output = (True, "") if step.dry else systemctl("enable", "--now", "--quiet", name)
        if not worked:
            raise node_errors.HintedError(f"{name} does not start: {output}", f"see `journalctl -u {name}`")


def converge(step: MountRun) -> None:
    """Everything in its order: what goes, files, mounts, and files that nothing needs any more."""
    if step.wanted["only_missing"]:
        mount_all(step, [mount for mount in step.wanted["mounts"] if mount["path"] not in step.table])
        return
    step.unmanaged_mounts = find_unmanaged_mounts(step)
    step.wanted["mounts"] = [mount for mount in step.wanted["mounts"] if not is_left_alone(step, mount)]
    remove_unwanted(step)
    write_files(step)
    mount_all(step, step.wanted["mounts"])
    remove_files(step)
    start_timers(step)
    if not step.dry:
        systemctl("daemon-reload")
        record(step)


def mount_all(step: MountRun, mounts: Sequence[Mapping[str, Any]]) -> None:
    for mount in mounts:
        try:
            ensure_mount(step, mount)
        except InUseError as error:
            step.defer(mount["name"], str(error))


def find_unmanaged_mounts(step: MountRun) -> list[dict[str, str]]:
    """Run before anything is removed: managed mounts are known by their units."""
    units = [path for path in step.owned["files"] if path.endswith(".mount")]
    managed = [path_of(text_of(path) or "") for path in units] + [mount["path"] for mount in step.wanted["mounts"]]
    return storage_mount_table.unmanaged_nfs_mounts(storage_mount_table.table(), [path for path in managed if path])


def record(step: MountRun) -> None:
    """What the gate compares; nothing where something had to wait, so that the next deploy looks again."""
    units = {automount_of(m["unit"]) if m["automount"] else m["unit"]: True for m in step.wanted["mounts"]}
    units.update(dict.fromkeys(step.wanted["timers"], True))
    done = not step.deferred and not step.failed
    items = node_record.items(files=step.owned["files"], units=units)
    node_record.save(step.wanted["component"], step.wanted["step"], step.wanted["digest"] if done else "", items)


def arguments() -> dict[str, Any]:
    text = {"type": "str"}
    return {
        **node_record.STEP,
        "node": {"required": True},
        "mounts": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"required": True},
                "path": {"type": "path", "required": True},
                "unit": {"required": True},
                "text": {"required": True},
                "automount": {"default": ""},
                "required": {"type": "bool", "default": False},
                "client": {"default": ""},
            },
        },
        "only_missing": {"type": "bool", "default": False},
        "missing_clients": {"type": "list", "elements": "str", "default": []},
        "files": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "path": {"type": "path", "required": True},
                "content": text,
                "secret_base64": {"no_log": True},
                "mode": {"default": "0644"},
            },
            "required_one_of": [["content", "secret_base64"]],
            "mutually_exclusive": [["content", "secret_base64"]],
        },
        "timers": {"type": "list", "elements": "str", "default": []},
        "drain_reason": {"default": "storage is changed"},
        "drain_wait": {"type": "int", "default": 0},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    os.umask(0o022)
    step = MountRun(module)
    with node_errors.fail_on_error(module.fail_json):
        try:
            converge(step)
        finally:
            # what is missing comes first, and unmounts nothing
            if not module.params["only_missing"]:
                step.quiet.end(module.warn)
    finish(step)


def finish(step: MountRun) -> None:
    """A required mount that is missing fails the node; any other gives a warning."""
    noted = step.noted
    result = {
        "changed": bool(noted.changes),
        "changes": noted.changes,
        "diff": noted.diffs,
        "deferred": sorted(step.deferred),
        "unmanaged_mounts": step.unmanaged_mounts,
    }
    if step.dry:
        result.update(node_changes.refused(step.blocked))
    required = [mount["name"] for mount in step.wanted["mounts"] if mount["required"]]
    missing = {name: why for name, why in step.failed.items() if name in required}
    for name, why in step.failed.items():
        if name not in missing:
            step.module.warn(f"storage {name} can't be mounted: {why}")
    if missing:
        words = "; ".join(f"storage {name} can't be mounted: {why}" for name, why in missing.items())
        hint = "is its server up, and does it let this node in? `journalctl` there says more"
        if set(missing.values()) == {LEFT_OUT}:
            hint = "deploy again when the packages of its client can be fetched"
        step.module.fail_json(msg=words, hint=hint, **result)
    step.module.exit_json(**result)


if __name__ == "__main__":
    main()
