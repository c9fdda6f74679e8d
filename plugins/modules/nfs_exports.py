#!/usr/bin/python
"""Export directories by NFS, without a restart of the server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nfs_exports
short_description: Export directories by the kernel's NFS server
description:
  - Writes /etc/exports.d/deepopsctl.exports, makes missing directories, and reloads the server by C(exportfs -ra).
    Threads and RDMA are changed while it runs, and kept for its next start.
  - With O(keep) an export that is no longer wanted stays, so that the nodes can unmount it first. Without, it goes,
    unless one of O(unconfirmed_hosts) may still have it mounted.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  exports:
    description: What is wanted.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: The directory., type: path, required: true}
      line: {description: Its line of exports(5)., type: str, required: true}
  threads: {description: How many threads serve., type: int, default: 16}
  rdma: {description: "Whether to listen on RDMA, too.", type: bool, default: false}
  keep: {description: Whether what is no longer wanted stays for now., type: bool, default: false}
  unconfirmed_hosts: {description: Nodes that may still have it mounted., type: list, elements: str, default: []}
  confirmed_addresses:
    description: Addresses of the nodes that have unmounted what is no longer wanted.
    type: list
    elements: str
    default: []
  unmanaged_mounts:
    description:
      - NFS that nodes have mounted without deepopsctl. With a client that the server knows of, these are
        warned of where they lose an export; it goes all the same.
    type: list
    elements: dict
    default: []
    suboptions:
      node: {description: The node., type: str, required: true}
      path: {description: Where., type: str, required: true}
      export: {description: The server's directory., type: str, required: true}
      server: {description: The server's address., type: str, required: true}
      client: {description: The node's own address., type: str, required: true}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Export the homes
  deepopsctl.cluster.nfs_exports:
    component: storage
    step: nfs_exports
    digest: "{{ deepops_digests.storage }}"
    exports: [{path: /srv/home, line: "/srv/home 192.0.2.0/24(rw,sync,no_subtree_check,root_squash)"}]
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
still_exported:
  description: Directories whose withdrawal has to wait.
  type: list
  elements: str
  returned: always
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command,
    errors as node_errors,
    files as node_files,
    record as node_record,
    services as node_services,
    step as node_step,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import nfs_exports as storage_nfs_exports

SETTINGS = "/etc/nfs.conf.d/deepopsctl.conf"
UNIT = "nfs-server.service"
# noted on disk before the file changes: what was cut off, or what exportfs refused, is not forgotten
REREAD = UNIT + ".reload"
THREADS = "/proc/fs/nfsd/threads"
PORTS = "/proc/fs/nfsd/portlist"
RDMA_PORT = 20049
ANSWER_S = 10


class Step(node_step.Step):
    """One call."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.before = storage_nfs_exports.lines_of(
            (node_files.read(storage_nfs_exports.EXPORTS) or b"").decode("utf-8", "replace")
        )
        self.lines = {entry["path"]: entry["line"] for entry in self.wanted["exports"]}
        self.still_exported: list[str] = []
        # whether a later call has to withdraw something
        self.waits = False


def make_directories(step: Step) -> None:
    for path in step.lines:
        link = node_files.users_link(path)
        if link:
            message = f"{path}: {link} is a link of a user's: what it leads to is not exported"
            raise node_errors.HintedError(message, "look where it leads, and remove it")
        if not os.path.isdir(path):
            step.noted.did("directory", path, "set", detail="root:root 0755")
            if not step.dry:
                os.makedirs(path, 0o755)


def write_exports(step: Step) -> None:
    """The file, for the server to read."""
    wide, unconfirmed = storage_nfs_exports.closing(step.before, step.lines), step.wanted["unconfirmed_hosts"]
    step.waits = bool(wide) and (step.wanted["keep"] or bool(unconfirmed))
    if wide and not step.wanted["keep"]:
        warn_of_holders(step)
    if step.waits:
        step.lines.update(wide)
        step.still_exported = [] if step.wanted["keep"] else sorted(wide)
    if step.still_exported:
        paths, clients = ", ".join(step.still_exported), ", ".join(unconfirmed)
        step.module.warn(
            f"{paths} stays exported as it was: {clients} may still have it mounted; deploy again with them"
        )
    content = storage_nfs_exports.text_of(step.lines).encode("utf-8") if step.lines else None
    if not step.dry and node_files.read(storage_nfs_exports.EXPORTS) != content:
        node_record.mark_pending(REREAD, storage_nfs_exports.EXPORTS)
    if content is None:
        node_files.remove(step.noted, storage_nfs_exports.EXPORTS)
    else:
        node_files.ensure(step.noted, storage_nfs_exports.EXPORTS, content)


def warn_of_holders(step: Step) -> None:
    """Warn of clients that lose a mounted export, as far as they are known; hosts outside the cluster can't be."""
    unmanaged = storage_nfs_exports.of_nodes(step.wanted["unmanaged_mounts"], addresses())
    others = [
        holder
        for holder in storage_nfs_exports.of_kernel() + storage_nfs_exports.of_mountd()
        if holder.address not in step.wanted["confirmed_addresses"]
    ]
    for directory, holders in storage_nfs_exports.losing(step.before, step.lines, unmanaged + others).items():
        for holder in holders:
            step.module.warn(storage_nfs_exports.sentence(directory, holder))


def addresses() -> list[str]:
    """This node's."""
    result = command.run(["hostname", "--all-ip-addresses"], ANSWER_S)
    return result.output.split() if result.ok else []


def is_in_force(step: Step) -> bool:
    """Whether the server has every client of every directory."""
    return storage_nfs_exports.has_all(command.run(["exportfs", "-s"]).output, step.lines)


def check_kernel(step: Step) -> None:
    """Refuse a node that can't serve: one sentence in place of a unit that depends on another that failed."""
    with open("/proc/filesystems") as stream:
        if not step.lines or "nfsd" in stream.read().split():
            return
    words = ["modprobe"] + (["--dry-run"] if step.dry else []) + ["nfsd"]
    if not command.run(words).ok:
        message = "the kernel of this node has no NFS server (modprobe nfsd)"
        raise node_errors.HintedError(message, "give the role nfs_server to another node, or boot another kernel")


def put_in_force(step: Step) -> None:
    """Have the server read the file, where that is still to be done or a client of it is missing there."""
    if step.dry:
        return
    if not node_record.is_pending(REREAD) and (not step.lines or is_in_force(step)):
        return
    if not any(entry["name"] == storage_nfs_exports.EXPORTS for entry in step.noted.changes):
        step.noted.did("unit", UNIT, "reload", detail="exportfs -ra")
    command.require(["exportfs", "-ra"])
    node_record.clear_pending(REREAD)


def serve(step: Step) -> None:
    """The server runs, with these exports and so many threads."""
    if not step.lines:
        put_in_force(step)
        return
    facts = node_services.show([UNIT])[UNIT]
    if facts.get("LoadState") == "not-found" and step.dry:
        # its package starts it
        return
    running = node_services.is_active(facts)
    if not running or not node_services.is_enabled(facts):
        step.noted.did("unit", UNIT, "enable" if running else "start")
        if not step.dry:
            command.require(["systemctl", "enable", "--now", "--quiet", UNIT])
    put_in_force(step)
    set_threads(step)
    listen(step)


def set_threads(step: Step) -> None:
    shown = (node_files.read(THREADS) or b"").decode().strip()
    if shown.isdigit() and int(shown) != step.wanted["threads"]:
        step.noted.did("nfs", "threads", "set", detail=f"{shown} -> {step.wanted['threads']}")
        if not step.dry:
            with open(THREADS, "w") as stream:
                stream.write(f"{step.wanted['threads']}\n")


def listen(step: Step) -> None:
    """RDMA alongside TCP; existing listeners stay."""
    shown = (node_files.read(PORTS) or b"").decode()
    if step.wanted["rdma"] and "rdma" not in shown and shown:
        step.noted.did("nfs", "rdma", "set", detail=str(RDMA_PORT))
        if not step.dry:
            command.require(["modprobe", "rpcrdma"])
            try:
                with open(PORTS, "w") as stream:
                    stream.write(f"rdma {RDMA_PORT}\n")
            except OSError as error:
                message = f"the NFS server can't listen on RDMA, port {RDMA_PORT}: {error.strerror}"
                raise node_errors.HintedError(message, "does the node have an RDMA device (`rdma link`)?") from error


def settings(step: Step) -> None:
    """For the server's next start."""
    rdma = f"rdma=y\nrdma-port={RDMA_PORT}\n" if step.wanted["rdma"] else ""
    text = f"{node_files.HEADER_FROM_CLUSTER}[nfsd]\nthreads={step.wanted['threads']}\n{rdma}"
    if step.lines:
        node_files.ensure(step.noted, SETTINGS, text.encode("utf-8"))
    else:
        node_files.remove(step.noted, SETTINGS)


def converge(step: Step) -> None:
    if step.dry and not step.wanted["keep"] and step.lines:
        # a check run has reported all else before the mounts, and nothing has changed since
        if storage_nfs_exports.closing(step.before, step.lines):
            write_exports(step)
        return
    check_kernel(step)
    make_directories(step)
    write_exports(step)
    if step.wanted["exports"] or not step.waits:
        settings(step)
    serve(step)
    if step.dry:
        return
    component, name = step.wanted["component"], step.wanted["step"]
    if step.waits:
        # whatever becomes of this run, and of this node in cluster.yml
        node_record.begin(component, name)
    elif not step.wanted["keep"]:
        served = bool(step.lines)
        items = node_record.items(
            files=[storage_nfs_exports.EXPORTS, SETTINGS] if served else [], units={UNIT: True} if served else {}
        )
        step.save_record(items)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "exports": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {"path": {"type": "path", "required": True}, "line": {"required": True}},
            },
            "threads": {"type": "int", "default": 16},
            "rdma": {"type": "bool", "default": False},
            "keep": {"type": "bool", "default": False},
            "unconfirmed_hosts": {"type": "list", "elements": "str", "default": []},
            "confirmed_addresses": {"type": "list", "elements": "str", "default": []},
            "unmanaged_mounts": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {key: {"required": True} for key in ("node", "path", "export", "server", "client")},
            },
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    step = Step(module)
    with node_errors.fail_on_error(module.fail_json):
        converge(step)
    noted = step.noted
    module.exit_json(**noted.result(still_exported=step.still_exported))


if __name__ == "__main__":
    main()
