#!/usr/bin/python
"""Read everything that a running Slurm must keep when deepopsctl takes it over."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_takeover_info
short_description: Read keys, ids, state directory and accounting database of a running Slurm
description:
  - Only reads. Its action plugin runs it and writes the facts into a private file on the control machine.
  - Secrets are read in a second call, which must have C(no_log). Ansible prints whatever a module returns at C(-vvv)
    before any plugin sees it, and nothing else keeps that from happening.
options:
  component: {description: Component whose records mark a node as deployed by deepopsctl., type: str, required: true}
  controller: {description: "Whether to ask slurmctld, which runs here.", type: bool, default: false}
  target:
    description: Version of the packages that would be installed; without it, the one that the node's sources have.
    type: str
    default: ""
  directory: {description: Private directory on the control machine for the results., type: path, required: true}
  secrets:
    description: Read these secrets and nothing else; they are added to what an earlier call wrote.
    type: list
    elements: str
    choices: [munge_key, slurm_dbd_password]
    default: []
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Query the running Slurm
  deepopsctl.cluster.slurm_takeover_info:
    component: slurm
    controller: true
    directory: /run/user/1000/takeover

- name: Read the munge key
  deepopsctl.cluster.slurm_takeover_info:
    component: slurm
    directory: /run/user/1000/takeover
    secrets: [munge_key]
  no_log: true
"""

RETURN = r"""
daemons: {description: Programs of Slurm's daemons that run here., type: dict, returned: without secrets}
secrets: {description: The secrets that were asked for., type: dict, returned: with secrets}
"""

import base64
import grp
import os
import pwd
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    files as node_files,
    packages as node_packages,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    detect as slurm_detect,
    slurm_output,
    spank as slurm_spank,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import (
    mount_table as storage_mount_table,
    quota as storage_quota,
)

# with settings that deepopsctl does not have: what is in them would be lost to sight
OTHER_FILES = ("topology.conf", "job_container.conf", "acct_gather.conf", "oci.conf")


def ids() -> dict[str, list[int]]:
    """User and group ids of Slurm's and munge's users, where they are there."""
    numbers = {}
    for name in ("slurm", "munge"):
        try:
            numbers[name] = [pwd.getpwnam(name).pw_uid, grp.getgrnam(name).gr_gid]
        except KeyError:
            continue
    return numbers


def owned_by_package(program: str) -> bool:
    """Whether the program belongs to a package."""
    return node_packages.is_packaged(os.path.realpath(program))


def build(programs: Mapping[str, str], target: str) -> dict[str, Any]:
    """The Slurm on this node that no package installed: where, its version, and that of the packages; {} for none."""
    for path in [*programs.values(), shutil.which("scontrol")]:
        if path and not owned_by_package(path):
            shown = node_command.run([path, "-V"]).output.split()
            prefix = os.path.dirname(os.path.dirname(os.path.realpath(path)))
            return {
                "prefix": prefix,
                "version": shown[-1] if len(shown) == 2 else "",
                "target": target or node_packages.candidates(["slurm-client"]).get("slurm-client", ""),
                "file_system": file_system_type(prefix),
            }
    return {}


def file_system_type(path: str) -> str:
    """Type of the file system that a path is on."""
    where = storage_quota.file_system_of(path, storage_mount_table.table())
    return where.type if where else ""


def unit_paths(names: Sequence[str]) -> dict[str, str]:
    """Unit files of the daemons, as systemd found them."""
    paths = {}
    for name in names:
        argv = ["systemctl", "show", "--property=FragmentPath", "--value", f"{name}.service"]
        paths[name] = node_command.run(argv).output.strip()
    return paths


def config() -> dict[str, Any]:
    """slurmctld's settings as they are in force, without passwords; {} where it does not answer."""
    shown = slurm_client.ask(slurm_client.CONFIG)
    values = slurm_output.config(shown.output) if shown.ok else {}
    return {key: value for key, value in values.items() if not key.lower().endswith("pass") and " " not in key}


def nodes() -> dict[str, dict[str, Any]]:
    """Hardware of the nodes as slurmctld counts it: with other numbers it would end their jobs."""
    shown = slurm_client.ask(slurm_client.show("node"))
    keys = {"cpus": "CPUTot", "boards": "Boards", "sockets": "Sockets", "cores_per_socket": "CoresPerSocket"}
    keys.update(threads_per_core="ThreadsPerCore", memory_mb="RealMemory")
    shapes = {}
    for line in shown.output.splitlines() if shown.ok else ():
        # nothing after a reason, which is free text, is wanted
        entry = slurm_output.record(line.partition(" Reason=")[0])
        if "NodeName" in entry:
            numbers = {name: slurm_output.number(entry, key) for name, key in keys.items()}
            shapes[entry["NodeName"]] = dict(numbers, gres=slurm_output.present(entry.get("Gres", "")))
    return shapes


def slurmd_report() -> str:
    """The first line of `slurmd -C`, '' without slurmd."""
    shown = slurm_client.ask(["slurmd", "-C"])
    return shown.output.splitlines()[0] if shown.ok and shown.output else ""


def jobs() -> int:
    """How many jobs run."""
    shown = slurm_client.ask(slurm_client.squeue("%A", "--all", "--states=R,CG,S"))
    return len(set(shown.output.split())) if shown.ok else 0


def other_files(directory: str) -> list[str]:
    """The other files with settings that are there."""
    names = []
    for name in OTHER_FILES if directory else ():
        text = (node_files.read(os.path.join(directory, name)) or b"").decode(errors="replace")
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        if any(lines):
            names.append(name)
    return names


def plugins_of_jobs(conf: bytes, prefix: str) -> list[dict[str, Any]]:
    """What plugstack.conf has jobs load; a Slurm that was built in `prefix` has plugins there, which packages lack."""
    named = slurm_detect.settings(conf).get("plugstackconfig")
    directory = os.path.join(prefix, "lib", "slurm") if prefix else ""
    return slurm_spank.plugins((*([named] if named else []), *slurm_spank.PLUGSTACKS), directory)


def database() -> tuple[dict[str, str], str]:
    """(slurmdbd.conf without its password, the password)."""
    path, content = slurm_detect.first_file("slurmdbd.conf")
    values = slurm_detect.settings(content)
    password = values.pop("storagepass", "")
    public = {key: value for key, value in values.items() if not re.search("pass|key", key)}
    return (dict(public, path=path) if path else {}), password


def explicit(path: str, content: bytes) -> tuple[dict[str, dict[str, str]], str]:
    """What the files next to slurm.conf set, by file and key, and the script that decides on jobs."""
    directory = os.path.dirname(path)
    texts = {"slurm.conf": slurm_detect.with_includes(path, content)}
    texts["cgroup.conf"] = node_files.read(os.path.join(directory, "cgroup.conf")) or b""
    texts["slurmdbd.conf"] = slurm_detect.first_file("slurmdbd.conf")[1]
    values = {name: slurm_detect.public_settings(text) for name, text in texts.items()}
    script = (node_files.read(os.path.join(directory, "job_submit.lua")) or b"").decode(errors="replace")
    return values, script if path else ""


def read_secrets(names: Sequence[str]) -> dict[str, str]:
    """{name: secret} of those asked for."""
    secrets = {}
    if "munge_key" in names:
        secrets["munge_key"] = base64.b64encode(node_files.read(slurm_detect.MUNGE_KEY) or b"").decode()
    if "slurm_dbd_password" in names:
        secrets["slurm_dbd_password"] = database()[1]
    return secrets


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "controller": {"type": "bool", "default": False},
            "target": {"default": ""},
            "directory": {"type": "path", "required": True},
            # their names; the values are in what a task with no_log returns
            "secrets": {
                "type": "list",
                "elements": "str",
                "choices": ["munge_key", "slurm_dbd_password"],
                "default": [],
                "no_log": False,
            },
        },
        supports_check_mode=True,
    )
    if module.params["secrets"]:
        module.exit_json(changed=False, secrets=read_secrets(module.params["secrets"]))
    running = slurm_detect.daemons()
    path, content = slurm_detect.first_file("slurm.conf")
    source = build(running, module.params["target"])
    asked = module.params["controller"] and "slurmctld" in running
    files, script = explicit(path, content)
    module.exit_json(
        changed=False,
        daemons=running,
        packaged={name: owned_by_package(program) for name, program in running.items()},
        units=unit_paths(sorted(running)),
        build=source,
        deployed=slurm_detect.deployed(module.params["component"]),
        ids=ids(),
        munge_key_hash=slurm_detect.munge_key_hash(),
        slurm_conf=path,
        other_files=other_files(os.path.dirname(path)),
        spank=plugins_of_jobs(content, source.get("prefix", "")),
        database=database()[0],
        files=files,
        job_submit=script,
        config=config() if asked else {},
        nodes=nodes() if asked else {},
        jobs=jobs() if asked else 0,
        slurmd_report=slurmd_report(),
    )


if __name__ == "__main__":
    main()
