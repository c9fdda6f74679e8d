"""What deepopsctl brought to a node by a setting, so that it, and it alone, goes when the setting does."""

from __future__ import annotations

import json
import os

from ansible.module_utils import node_record


def _path(component, step):
    return os.path.join(node_record.STATE, "owned", "%s.%s.json" % (component, step))


def load(component, step):
    """{packages, files}: names and paths that are ours."""
    try:
        with open(_path(component, step), "rb") as stream:
            kept = json.loads(stream.read())
        return {kind: list(kept[kind]) for kind in ("packages", "files")}
    except (OSError, ValueError, KeyError, TypeError):
        return {"packages": [], "files": []}


def save(component, step, owned):
    """Remember it; before a package is installed, so that a cut-off run loses none."""
    if owned == load(component, step):
        return
    node_record.write_atomically(_path(component, step), json.dumps(owned, sort_keys=True).encode())


def packages_in_the_way(names, by_hand, is_known):
    """Those of the packages whose file is there without them: somebody installed the same by hand."""
    return [name for name in names if os.path.exists(by_hand.get(name, "")) and not is_known(by_hand[name])]
