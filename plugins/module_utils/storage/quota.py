"""Set the quotas of exports: everything that the module storage_quota does on the file systems."""

from __future__ import annotations

import json
import os
import pwd

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files, record as node_record
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.errors import HintedError
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import (
    quota_kernel,
    quota_plan as quota_planning,
    quota_projects,
)


class Host:
    """Paths and kernel interface of this host; a test passes others."""

    def __init__(self, root="/", kernel=quota_kernel.Kernel, table=None):
        self.kernel = kernel
        self.fstab = os.path.join(root, "etc/fstab")
        self.projects = os.path.join(root, "etc/projects")
        self.projid = os.path.join(root, "etc/projid")
        self.ours = os.path.join(root, node_record.STATE.lstrip("/"), "owned", "storage.quota-limits.json")
        if table is None:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
                table = stream.read()
        self.table = table


class Export:
    """One export, its file system and the quotas there."""

    def __init__(self, wanted, host):
        self.wanted = wanted
        self.kind = wanted["kind"]
        self.where = quota_planning.file_system_of(wanted["path"], host.table)
        self.kernel = host.kernel(self.where.device, self.where.point, self.kind)
        self.state = self.kernel.state()
        self.is_lax = quota_planning.check(self.where, self.kind, self.state)

    @property
    def key(self):
        return "%s %s" % (self.where.point, self.kind)


def read_limited(host):
    """{"point kind": numbers} that have limits by an earlier call."""
    try:
        limited = json.loads(node_files.read(host.ours) or b"{}")
    except ValueError:
        return {}
    return limited if isinstance(limited, dict) else {}


def write_limited(host, limited):
    node_record.write_atomically(host.ours, json.dumps(limited, sort_keys=True).encode())


def read_exports(exports, host):
    """All file systems, refused together where one can't have its quotas."""
    exported, problems = [], []
    for wanted in exports:
        try:
            exported.append(Export(wanted, host))
        except HintedError as error:
            problems.append(error)
    if problems:
        raise HintedError("; ".join(map(str, problems)), "; ".join(dict.fromkeys(error.hint for error in problems)))
    return exported


def check_together(exports):
    """One file system has one set of limits of a type."""
    seen = {}
    for export in exports:
        other = seen.setdefault(export.key, export)
        shared_settings = ("grace",) if export.kind == quota_kernel.PROJECT else ("grace", "default", "users")
        if any(export.wanted[key] != other.wanted[key] for key in shared_settings):
            words = "%s and %s are on one file system (%s) with different limits"
            raise HintedError(
                words % (other.wanted["path"], export.wanted["path"], export.where.point),
                "let both entries say the same: whoever has files there has one limit",
            )


def enforce(export, host, noted):
    """Let limits hold, now and from boot on."""
    if export.is_lax:
        noted.did("quota", export.where.point, "enforce", detail=export.kind)
        if not noted.dry:
            export.kernel.enforce()
    if export.where.type == "ext4":
        before = node_files.read(host.fstab)
        option = quota_planning.option_of(export.kind)
        after = quota_planning.fstab_with(
            (before or b"").decode("utf-8", "surrogateescape"), export.where.point, option
        )
        if after is not None:
            mode = os.stat(host.fstab).st_mode & 0o7777
            node_files.ensure(noted, host.fstab, after.encode("utf-8", "surrogateescape"), mode)


def set_grace(export, noted):
    seconds = export.wanted["grace"]
    if tuple(export.state.grace) == (seconds, seconds):
        return
    noted.did("quota", export.where.point, "set", detail="grace of %d h" % (seconds // 3600))
    if not noted.dry:
        export.kernel.set_grace(seconds)


def set_limits(exports, limited, noted):
    """All limits of one file system and kind, and which numbers are managed from now on."""
    export = exports[0]
    accounts = {account.pw_name: account.pw_uid for account in pwd.getpwall()}
    merged = dict(export.wanted, projects=[each for one in exports for each in one.wanted["projects"]])
    present = export.kernel.numbers() if export.kind == quota_kernel.USER and export.where.type != "xfs" else []
    wanted = quota_planning.wanted_limits(merged, export.where.type, accounts, present, limited)
    names = {uid: name for name, uid in accounts.items()}
    names.update({project["id"]: project["name"] for project in merged["projects"]})
    for number, limits in quota_planning.to_set(wanted, export.kernel.limits).items():
        is_default = number == quota_planning.XFS_DEFAULT and export.kind == quota_kernel.USER
        who = "default" if is_default else names.get(number, str(number))
        noted.did("quota", export.where.point, "set", detail="%s %s: %s" % (export.kind, who, limits_text(limits)))
        if not noted.dry:
            export.kernel.set_limits(number, limits)
    return sorted(number for number, limits in wanted.items() if any(limits))


def limits_text(limits):
    soft, hard, files_soft, files = limits
    parts = ["%s %d KiB" % pair for pair in (("soft", soft), ("space", hard)) if pair[1]]
    parts += ["%s %d" % pair for pair in (("files soft", files_soft), ("files", files)) if pair[1]]
    return ", ".join(parts) or "no limit"


def name_projects(exports, host, noted):
    """Our lines of the two tables."""
    projects = [each for export in exports for each in export.wanted["projects"]]
    projid = node_files.read(host.projid)
    conflicts = quota_projects.conflicts(projid, projects)
    if conflicts:
        hint = "choose other names, or say id: for each of them in cluster.yml"
        raise HintedError("%s has %s of somebody else's" % (host.projid, " ".join(conflicts)), hint)
    for path, lines in zip((host.projects, host.projid), quota_projects.tables(projects)):
        before = node_files.read(path)
        after = quota_projects.with_lines(before, lines)
        if after != (before or b""):
            node_files.ensure(noted, path, after)
    return projects


def assign_projects(projects, noted):
    """Each directory, with what is in it; returns those that are not there yet."""
    waiting = []
    for project in projects:
        if not os.path.isdir(project["path"]):
            waiting.append(project["path"])
            continue
        if quota_projects.has(project["path"], project["id"]):
            continue
        noted.did("quota", project["path"], "assign", detail="project %s" % project["name"])
        if not noted.dry:
            quota_projects.assign(project["path"], project["id"])
    return waiting


def remove_obsolete_limits(limited, known, host, noted):
    """Remove limits on file systems that are no longer declared."""
    for key in [key for key in limited if key not in known]:
        point, _, quota_type = key.rpartition(" ")
        where = quota_planning.file_system_of(point, host.table)
        kernel = host.kernel(where.device, point, quota_type) if where and where.point == point else None
        if kernel is not None and kernel.state().counted:
            for number in limited[key]:
                if any(kernel.limits(number)):
                    noted.did("quota", point, "set", detail="%s %d: no limit" % (quota_type, number))
                    if not noted.dry:
                        kernel.set_limits(number, quota_planning.NO_LIMITS)
        del limited[key]


def converge(exports, host, noted):
    """Everything in its order; returns (managed files, directories that must be created first)."""
    file_systems = read_exports(exports, host)
    check_together(file_systems)
    limited = read_limited(host)
    projects = name_projects(file_systems, host, noted)
    groups = {}
    for export in file_systems:
        groups.setdefault(export.key, []).append(export)
    for key, together in groups.items():
        enforce(together[0], host, noted)
        set_grace(together[0], noted)
        limited[key] = set_limits(together, limited.get(key, []), noted)
    waiting = assign_projects(projects, noted)
    remove_obsolete_limits(limited, groups, host, noted)
    if not noted.dry and (limited or os.path.exists(host.ours)):
        write_limited(host, limited)
    return ((host.projects, host.projid) if projects else ()), waiting
