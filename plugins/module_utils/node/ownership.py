"""What a setting installed on a node, so that exactly that is removed with the setting."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import record as node_record

TYPES = ("packages", "files", "blocks", "units", "directories", "logins", "people", "adopted", "groups")


def _path(component: str, step: str) -> str:
    return os.path.join(node_record.STATE, "owned", f"{component}.{step}.json")


def load(component: str, step: str) -> dict[str, list[str]]:
    """Names and paths that deepopsctl manages, by TYPES; `adopted` are people who had an account before."""
    try:
        with open(_path(component, step), "rb") as stream:
            saved = json.loads(stream.read())
        return {type_name: list(saved.get(type_name, [])) for type_name in TYPES}
    except (OSError, ValueError, AttributeError, TypeError):
        return {type_name: [] for type_name in TYPES}


def owns_anything(component: str) -> bool:
    """Whether anything that a step of the component installed is still on the node."""
    steps = glob.glob(_path(component, "*"))
    return any(any(load(component, os.path.basename(path).split(".")[-2]).values()) for path in steps)


def save(component: str, step: str, owned: Mapping[str, Sequence[str]]) -> None:
    """Remember it; before a package is installed, so that a cut-off run loses none."""
    if owned == load(component, step):
        return
    node_record.write_atomically(_path(component, step), json.dumps(owned, sort_keys=True).encode())


def manually_installed(names: Sequence[str], by_hand: Mapping[str, str], is_known: Callable[[str], bool]) -> list[str]:
    """Those of the packages whose file exists without the package: the program was installed manually."""
    return [name for name in names if os.path.exists(by_hand.get(name, "")) and not is_known(by_hand[name])]
