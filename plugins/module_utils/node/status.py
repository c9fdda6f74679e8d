"""What a node reports about itself for `deepopsctl status`."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    drift as node_drift,
    full_disks as node_full_disks,
    platform as node_platform,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    detect as slurm_detect,
    query as slurm_query,
)

# of the program slurm_backup: its settings, and how it last ended, by the key of the result
BACKUPS = {
    "backup": ("/etc/deepopsctl/backup.json", "/var/lib/deepopsctl/backup/last.json"),
    "backup_of_monitoring": (
        "/etc/deepopsctl/backup-monitoring.json", "/var/lib/deepopsctl/backup-monitoring/last.json"
    ),
}  # fmt: skip
# of the program slurm_upgrade
UPGRADE = "/var/lib/deepopsctl/upgrade/slurm.json"


def report(components: list[dict[str, Any]], digests: dict[str, str]) -> dict[str, Any]:
    """The records of the last deploy compared with the node, its versions, backups, and what is under way."""
    compared = node_drift.compare(components, digests)
    versions = dict(node_platform.versions(), **slurm_query.installed_version())
    backups = {key: _last_backup(*paths) for key, paths in BACKUPS.items()}
    begun = {"upgrade": _upgrade_under_way(), "restore": slurm_detect.restore_begun()}
    return dict(begun, components=compared, versions=versions, full=node_full_disks.full(), **backups)


def _last_backup(config: str, result: str) -> dict[str, Any]:
    """How the last backup on this node ended; empty where it makes none."""
    if not os.path.exists(config):
        return {}
    try:
        with open(result, encoding="utf-8") as stream:
            return dict(json.load(stream), configured=True)
    except (OSError, ValueError):
        return {"configured": True}


def _upgrade_under_way() -> dict[str, Any]:
    """The record of an upgrade of Slurm; empty where none is under way."""
    try:
        with open(UPGRADE, encoding="utf-8") as stream:
            return dict(json.load(stream))
    except (OSError, ValueError):
        return {}
