#!/usr/bin/python
"""Who may log in to a node by SSH, and how much of it each user may use."""

from __future__ import annotations

DOCUMENTATION = r"""
module: login_access
short_description: Let users log in where they have a job, and limit what each uses of a login node
description:
  - With I(restricted), C(pam_slurm_adopt) refuses users without a job on the node, and moves the others into the cgroup
    of their job. That is for sshd alone; other PAM services stay as they are. root, I(administrators) and members of
    I(admin_groups) are let in before Slurm is asked.
  - I(limits) are a systemd drop-in for the slice of every user, except root and the administrators.
  - Without the one or the other, what an earlier call wrote is removed.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  restricted: {description: Whether users need a job here., type: bool, default: false}
  administrators: {description: Users without restrictions or limits., type: list, elements: str, default: []}
  admin_groups: {description: The same for groups., type: list, elements: str, default: []}
  node_name: {description: NodeName in slurm.conf where it is not the hostname., type: str, default: ""}
  job_directory:
    description: Directory of jobs that sessions get as C(SLURM_TMPDIR), C(/tmp) where each job has its own; or none.
    type: str
    default: ""
  login_hosts:
    description: Login nodes that this node believes who a user is, with C(name), C(address) and host C(keys) each.
      Never for I(administrators), members of I(admin_groups) and root.
    type: list
    elements: dict
    default: []
  compute_hosts:
    description: Compute nodes that a login node tells so, in the same form.
    type: list
    elements: dict
    default: []
  limits: {description: "Properties of systemd.resource-control(5), by name.", type: dict, default: {}}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Restrict SSH logins to users with a job
  deepopsctl.cluster.login_access:
    component: slurm
    step: login_access
    digest: "{{ deepops_digests.slurm }}"
    restricted: true
    administrators: [ubuntu]
    admin_groups: [sudo]
"""

RETURN = r"""
actions: {description: "What was done, a sentence each.", type: list, elements: str, returned: always}
changes: {description: The same as data., type: list, elements: dict, returned: always}
"""

import glob
import grp
import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
    files as node_files,
    login_files,
    packages as node_packages,
    record as node_record,
    resources as node_resources,
    step as node_step,
)

SSHD = "/etc/pam.d/sshd"
NONINTERACTIVE = "/etc/pam.d/common-session-noninteractive"
JOB_ENVIRONMENT = "/etc/security/deepopsctl-job-env.conf"
TRUST = "/etc/ssh/sshd_config.d/35-deepopsctl-login-nodes.conf"
CLIENT = "/etc/ssh/ssh_config.d/30-deepopsctl-nodes.conf"
EQUIVALENT, KNOWN_HOSTS = "/etc/ssh/shosts.equiv", "/etc/ssh/ssh_known_hosts"
SSH_UNIT = {"name": "ssh.service", "running": True, "restart_on": [], "reload_on": [TRUST], "port": None,
            "optional": False}  # fmt: skip
PACKAGES = ("libpam-slurm-adopt", "slurmd")
# where PAM looks for its modules on Debian, 12's package among them
PAM_MODULE = ("/usr/lib/*/security/pam_slurm_adopt.so", "/lib/security/pam_slurm_adopt.so")


def text_of(path: str) -> str | None:
    content = node_files.read(path)
    return None if content is None else content.decode("utf-8", "surrogateescape")


def check_module(step: node_step.Step) -> None:
    """The module is there, and of the release of the Slurm whose steps it talks to."""
    versions = node_packages.installed(PACKAGES)
    adopt, slurmd = (node_packages.upstream_of(versions.get(name, "")) for name in PACKAGES)
    if not step.dry and not any(glob.glob(pattern) for pattern in PAM_MODULE):
        step.fail("pam_slurm_adopt.so is missing", "install libpam-slurm-adopt, or set slurm_adopt_enabled: false")
    if adopt and slurmd and adopt != slurmd:
        step.fail(
            f"libpam-slurm-adopt is of Slurm {adopt} and slurmd of {slurmd}: users could not log in",
            f"apt-get install libpam-slurm-adopt={versions['slurmd']}",
        )
    step.record["packages"] = versions


def check_sshd(step: node_step.Step) -> None:
    """Warn where sshd does not ask PAM."""
    if "usepam no" in node_command.run(["sshd", "-T"]).output.splitlines():
        step.module.warn("sshd has `UsePAM no`: users log in without a job; set `UsePAM yes` in /etc/ssh/sshd_config")


def ensure_pam(step: node_step.Step, params: Mapping[str, Any], users: Sequence[str]) -> None:
    text = text_of(SSHD)
    if text is None:
        if params["restricted"] and not step.dry:
            step.fail(f"{SSHD} is missing: users without a job cannot be kept out", "install openssh-server")
        return
    wanted = login_files.unrestricted(text)
    if wanted == text and not params["restricted"]:
        return
    if params["restricted"]:
        check_module(step)
        check_sshd(step)
        problem = login_files.session_problem(text, text_of(NONINTERACTIVE))
        if problem:
            step.fail(problem, "correct that file, or set slurm_adopt_enabled: false")
        environment = JOB_ENVIRONMENT if params["job_directory"] else ""
        if environment:
            write(step, environment, login_files.job_environment(params["job_directory"]))
        wanted = login_files.restricted(text, users, params["admin_groups"], params["node_name"], environment)
    write(step, SSHD, wanted)
    if not (params["restricted"] and params["job_directory"]):
        node_resources.ensure_absent(step, JOB_ENVIRONMENT)


def ensure_trust(step: node_step.Step, params: Mapping[str, Any], users: Sequence[str]) -> None:
    """A compute node believes the login nodes, and a login node speaks for its users; in no other direction."""
    login_hosts = with_addresses(params["login_hosts"]) if params["restricted"] else []
    compute_hosts = with_addresses(params["compute_hosts"])
    addresses = [address for host in login_hosts for address in host["addresses"]]
    # before sshd believes any node, and while it does
    write_block(step, EQUIVALENT, login_files.equivalent(login_hosts))
    write_block(step, KNOWN_HOSTS, login_files.known_hosts(login_hosts + compute_hosts))
    changed = []
    for path, text in (
        (TRUST, login_files.trust(addresses, users, params["admin_groups"])),
        (CLIENT, login_files.client(compute_hosts) if compute_hosts else ""),
    ):
        if text:
            changed += [path] if write(step, path, text, [SSH_UNIT]) else []
        elif os.path.exists(path):
            if path == TRUST and not step.dry:
                node_record.mark_pending("ssh.service.reload", path)
            node_resources.ensure_absent(step, path)
            changed.append(path)
    if changed or node_record.is_pending("ssh.service.reload"):
        node_resources.ensure_units(step, [SSH_UNIT], changed, [])


def with_addresses(hosts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Hosts whose keys are known, each with its addresses: as declared, or as this node resolves its name."""
    result = []
    for host in hosts:
        addresses = [host["address"]] if host.get("address") else []
        if not addresses:
            try:
                addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host["name"], 22)})
            except OSError:
                continue
        if host["keys"]:
            result.append(dict(host, addresses=addresses))
    return result


def write_block(step: node_step.Step, path: str, text: str) -> None:
    """Our lines among those of the site; without any, the file as it would be without us."""
    if text:
        item: dict[str, Any] = {"path": path, "content": None, "block": text, "secret_base64": None, "validate": []}
        node_resources.ensure_file(step, dict(item, mode="0644", owner="root", group="root"), [])
        return
    present = node_files.read(path)
    if present is None:
        return
    left = node_files.without_block(present, node_files.MARKER)
    if left != present and not left.strip():
        node_resources.ensure_absent(step, path)
    elif left != present:
        write(step, path, left.decode("utf-8", "surrogateescape"))


def ensure_limits(step: node_step.Step, params: Mapping[str, Any], users: Sequence[str]) -> None:
    unlimited = {str(uid) for uid in uids(users, params["admin_groups"])} if params["limits"] else set()
    wanted = {"": login_files.limits(params["limits"])} if params["limits"] else {}
    wanted.update({uid: login_files.limits({}) for uid in unlimited})
    paths = {login_files.LIMITS % uid: text for uid, text in wanted.items()}
    changed = [path for path, text in sorted(paths.items()) if write(step, path, text)]
    for path in sorted(set(glob.glob(login_files.LIMITS % "*")) - set(paths)):
        node_resources.ensure_absent(step, path)
        changed.append(path)
    if changed and not step.dry:
        node_resources.run_systemctl(step, ["daemon-reload"], "")


def write(step: node_step.Step, path: str, text: str, units: Sequence[Mapping[str, Any]] = ()) -> bool:
    mode = f"{os.stat(path).st_mode & 4095:04o}" if path == SSHD else "0644"
    validate = ["/usr/sbin/sshd", "-t", "-f", "%s"] if path == TRUST else []
    item = {"path": path, "content": text, "block": None, "secret_base64": None, "validate": validate, "mode": mode}
    return node_resources.ensure_file(step, dict(item, owner="root", group="root"), list(units))


def uids(users: Sequence[str], groups: Sequence[str]) -> set[int]:
    """Ids of the users, and of the members of the groups, that this node knows."""
    names = list(users)
    for group in groups:
        try:
            entry = grp.getgrnam(group)
        except KeyError:
            continue
        # it may be a user's first group, which does not list them
        names += entry.gr_mem + [user.pw_name for user in pwd.getpwall() if user.pw_gid == entry.gr_gid]
    numbers = set()
    for name in names:
        try:
            numbers.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    return numbers


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "restricted": {"type": "bool", "default": False},
            "administrators": {"type": "list", "elements": "str", "default": []},
            "admin_groups": {"type": "list", "elements": "str", "default": []},
            "node_name": {"default": ""},
            "job_directory": {"default": ""},
            "login_hosts": {"type": "list", "elements": "dict", "default": [], "no_log": False},
            "compute_hosts": {"type": "list", "elements": "dict", "default": [], "no_log": False},
            "limits": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    params = module.params
    params["limits"] = {key: str(value) for key, value in params["limits"].items() if value not in (None, "")}
    # the user that this very call came as gets in again, whatever the inventory calls them
    users = list(dict.fromkeys(["root", *params["administrators"], *filter(None, [os.environ.get("SUDO_USER")])]))
    os.umask(0o022)
    step = node_step.Step(module)
    refused = login_files.refused_limits(params["limits"])
    refused += [f"{name} is not a name of a user or group" for name in login_files.refused_names(users)]
    refused += [
        f"{name} is not a name of a user or group" for name in login_files.refused_names(params["admin_groups"])
    ]
    if refused:
        step.fail("; ".join(refused), "correct it in settings.yml; nothing was touched")
    with node_errors.fail_on_error(step.fail):
        ensure_pam(step, params, users)
        ensure_trust(step, params, users)
        ensure_limits(step, params, users)
        if not step.dry:
            node_record.save(params["component"], params["step"], params["digest"], step.record)
    module.exit_json(**step.noted.result(actions=step.actions))


if __name__ == "__main__":
    main()
