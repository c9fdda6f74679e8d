"""Save files that deepopsctl did not write before it replaces or removes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files, step as node_step

SUFFIX = ".before-deepopsctl"


def save(step: node_step.Step, wanted: Mapping[str, Any]) -> None:
    """Copy a file next to itself, unless deepopsctl wrote it; a secret's copy is for its owner alone."""
    path = wanted["path"]
    content = unmanaged(path)
    if content is None or content == node_files.read(path + SUFFIX):
        return
    if not step.dry:
        facts = os.stat(path)
        mode = stat.S_IMODE(facts.st_mode) & (0o600 if wanted["secret"] else 0o777)
        node_files.write(path + SUFFIX, content, (facts.st_uid, facts.st_gid), mode, [])
    step.did(f"saved {path}{SUFFIX}", "file", path, "write", detail=f"kept as *{SUFFIX}")


def remove(step: node_step.Step, wanted: Mapping[str, Any]) -> None:
    """Remove a saved file that deepopsctl does not replace, or put a link in its place."""
    path, link = wanted["path"], wanted["link"]
    if not wanted["remove"]:
        return
    if not os.path.islink(path) and unmanaged(path) is not None and node_files.remove(step.noted, path):
        step.actions.append(f"removed {path}")
    # also where an earlier call was cut off before it made the link
    if link and not step.dry and not os.path.lexists(path) and os.path.exists(path + SUFFIX):
        os.symlink(link, path)


def unmanaged(path: str) -> bytes | None:
    """Content of a file that deepopsctl did not write; None for others."""
    content = node_files.read(path)
    return None if content is None or content.startswith(node_files.MANAGED) else content
