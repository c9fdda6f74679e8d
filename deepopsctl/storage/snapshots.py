"""`snapshots` of an entry: taken every hour on the node that owns the file system, for users to restore from. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from deepopsctl.model.storage import Mount, StorageType
from deepopsctl.node_programs.services.snapshots.cli import CONFIG
from deepopsctl.storage.nfs import split_source
from deepopsctl.storage.types import Fault, SharedOption, Site
from deepopsctl.text.header import MANAGED_HEADER_FROM_CLUSTER
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Section

PROGRAM = "/usr/local/sbin/deepops-snapshots"
UNIT = "deepops-snapshots"
# how many of each are kept, and the percentage that has to stay free
_DEFAULTS = {"hourly": 24, "daily": 7, "weekly": 4, "free_percent": 10}
_NUMBER = re.compile(r"[0-9]{1,3}")

_SERVICE = (
    MANAGED_HEADER_FROM_CLUSTER
    + f"""[Unit]
Description=Snapshots of file systems
After=local-fs.target

[Service]
Type=oneshot
ExecStart={PROGRAM}
Nice=19
IOSchedulingClass=idle
# snapshots are made by ioctl, wherever the file system is, and zfs opens its device
NoNewPrivileges=yes
ProtectSystem=full
ProtectKernelTunables=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_NETLINK
"""
)
_TIMER = (
    MANAGED_HEADER_FROM_CLUSTER
    + """[Unit]
Description=Snapshots of file systems, every hour

[Timer]
OnCalendar=hourly
Persistent=true

[Install]
WantedBy=timers.target
"""
)


class SnapshotsSection(Section):
    """`snapshots` of an entry."""

    hourly: str = ""
    daily: str = ""
    weekly: str = ""
    free_percent: str = ""


def snapshots_on(mounts: Iterable[Mount], host: str) -> list[dict[str, object]]:
    """What the node program on a node gets: a path and what is kept, once for each file system that the node owns."""
    owned = {
        split_source(mount.source)[1] if mount.server else mount.path: _numbers(mount.parts["snapshots"])
        for mount in mounts
        if "snapshots" in mount.parts and (mount.server == host or (not mount.server and host in mount.nodes))
    }
    return [{"path": path, **numbers} for path, numbers in owned.items()]


def files(owned: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Configuration and units, {path: text}."""
    return {
        CONFIG: json.dumps({"schema": 1, "file_systems": list(owned)}, indent=1) + "\n",
        f"/etc/systemd/system/{UNIT}.service": _SERVICE,
        f"/etc/systemd/system/{UNIT}.timer": _TIMER,
    }


def _numbers(part: Mapping[str, object]) -> dict[str, int]:
    return {key: int(str(part.get(key) or number)) for key, number in _DEFAULTS.items()}


def _check(mount: Mount, _site: Site) -> Iterator[Fault]:
    part = mount.parts["snapshots"]
    wrong = [key for key in _DEFAULTS if key in part and not _NUMBER.fullmatch(str(part[key]))]
    for key in wrong:
        yield f"snapshots.{key}", RefusedError(f"{shorten(str(part[key]))!r} is not a valid number", "write 0 to 999")
    if not wrong and _numbers(part)["free_percent"] > 90:
        yield "snapshots.free_percent", RefusedError("is more than 90", "it is the part that has to stay free")
    if mount.type is StorageType.NFS and not mount.server:
        what = "its server is none of the cluster's"
        yield "snapshots", RefusedError(what, "let the file server take snapshots, and leave this out")
    if mount.settings.get("shared"):
        yield "snapshots", RefusedError("several nodes share the disk", "it is for disks of one node")


OPTION = SharedOption(SnapshotsSection, _check, frozenset({StorageType.NFS, StorageType.LOCAL}))
