"""What people run on nodes: `diskusage_report` where something is mounted, `deepops-purge` where that is done.

Each is a package of plain files with a launcher: a node needs nothing but Python 3.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from deepopsctl.model.storage import Mount, NodeFile, StorageType
from deepopsctl.node_programs.commands.disk_usage.rows import CONFIG
from deepopsctl.node_programs.shipping import program
from deepopsctl.storage import snapshots
from deepopsctl.storage.nfs import split_source
from deepopsctl.storage.purge import PROGRAM, files, purges_on
from deepopsctl.storage.quota import QuotaType, quota_of

REPORT = "/usr/local/bin/diskusage_report"


def node_files(mounts: Iterable[Mount], host: str) -> list[NodeFile]:
    """The files that a node gets; none without storage."""
    entries = list(mounts)
    result = []
    if reported := [_reported(mount, host) for mount in entries if _is_reported(mount, host)]:
        result += _program("disk_usage", REPORT)
        result.append(NodeFile(CONFIG, json.dumps({"schema": 1, "filesystems": reported}, indent=1) + "\n"))
    if purges := purges_on(entries, host):
        result += _program("scratch_purge", PROGRAM)
        result += [NodeFile(path, text) for purge in purges for path, text in files(purge).items()]
    if owned := snapshots.snapshots_on(entries, host):
        result += _program("snapshots", snapshots.PROGRAM)
        result += [NodeFile(path, text) for path, text in snapshots.files(owned).items()]
    return result


def timers(mounts: Iterable[Mount], host: str) -> list[str]:
    """Names of the timers that run there."""
    entries = list(mounts)
    taken = [f"{snapshots.UNIT}.timer"] if snapshots.snapshots_on(entries, host) else []
    return [*(f"{purge.unit}.timer" for purge in purges_on(entries, host)), *taken]


def packages(mounts: Iterable[Mount], host: str) -> Mapping[str, str]:
    """The report's source, `quota`, if an export counts by users; what takes snapshots."""
    entries = list(mounts)
    asked = (mount for mount in entries if host in mount.nodes and mount.type is StorageType.NFS)
    by_users = any((quota := quota_of(each)) and quota.kind is QuotaType.USER for each in asked)
    wanted = {"quota": by_users, "btrfs-progs": bool(snapshots.snapshots_on(entries, host))}
    return {name: "" for name, is_wanted in wanted.items() if is_wanted}


def _program(name: str, launcher: str) -> list[NodeFile]:
    return [NodeFile(file.path, file.content, file.mode) for file in program(name, launcher)]


def _is_reported(mount: Mount, host: str) -> bool:
    return host in mount.nodes and mount.type is not StorageType.TMPFS


def _reported(mount: Mount, host: str) -> dict[str, object]:
    quota = quota_of(mount)
    entry: dict[str, object] = {
        "name": mount.name,
        "path": mount.path,
        # on the server it is an ordinary directory
        "type": StorageType.LOCAL.value if mount.server == host else mount.type.value,
        "quota": quota.kind.value if quota else "",
        # if the export has the same path as the mount point, it is not a mount on the server
        "mounted": not (mount.server == host and split_source(mount.source)[1] == mount.path),
    }
    if quota and quota.projects:
        entry["projects"] = [{"name": each.name, "path": f"{mount.path}/{each.path}"} for each in quota.projects]
    return entry
