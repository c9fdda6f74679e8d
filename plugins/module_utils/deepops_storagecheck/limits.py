"""Whether the limits that cluster.yml declares are the ones that the server's kernel holds users to."""

from __future__ import annotations

from typing import Any, List, Mapping

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import changes as node_changes
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import quota as quota_setting


def differences(wanted: Mapping[str, Any]) -> List[str]:
    """What `deploy storage` would still have to set on this file system; it is asked, and nothing is set."""
    kernel, noted = quota_setting.Host(), node_changes.Noted(True)
    for export in quota_setting.read_exports([wanted], kernel):
        quota_setting.enforce(export, kernel, noted)
        quota_setting.set_grace(export, noted)
        quota_setting.set_limits([export], [], noted)
    return ["{}: {}".format(change["name"], change.get("detail") or change["action"]) for change in noted.changes]
