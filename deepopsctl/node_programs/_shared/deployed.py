"""Which components were deployed: what a node has records of, and what the first controller has noted of all runs."""

from __future__ import annotations

import contextlib
import json
import os

# what a node records of deploys; plugins/module_utils/node/record.py has the same
STATE = "/var/lib/deepopsctl"
# of the first controller: which cluster.yml was applied last, and the components of all runs
APPLIED = os.path.join("cluster", "applied.json")


def components(state: str = STATE) -> list[str]:
    """What has left records on this node, and, on the first controller, what was deployed from any control machine."""
    directory = os.path.join(state, "records")
    names = os.listdir(directory) if os.path.isdir(directory) else []
    recorded = {name.split(".")[0] for name in names if name.endswith(".json")}
    with contextlib.suppress(OSError, ValueError), open(os.path.join(state, APPLIED), "rb") as stream:
        document = json.loads(stream.read())
        recorded.update((document.get("components") or {}) if isinstance(document, dict) else {})
    return sorted(recorded)
