"""Host keys that the control machine has pinned, for nodes that trust each other with a user's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.ssh.host_keys import parse_host_key


def host_keys(text: str, names: Sequence[str], addresses: Mapping[str, str]) -> list[dict[str, Any]]:
    """`name`, `address` ('' where its name resolves) and `keys` of these nodes, from the text of known_hosts."""
    pinned = _pinned(text)
    return [
        {"name": name, "address": addresses.get(name, ""), "keys": pinned[name]} for name in names if pinned.get(name)
    ]


@cache
def _pinned(text: str) -> dict[str, list[str]]:
    """{name: ["TYPE BASE64"]}; every host of a task asks for it."""
    keys: dict[str, list[str]] = {}
    for line in text.splitlines():
        labels, _, rest = line.strip().partition(" ")
        key = parse_host_key(rest)
        # @revoked, @cert-authority and comments are not pinned keys
        if key is None or labels.startswith(("#", "@", "|")):
            continue
        for label in labels.split(","):
            name = label.partition("]:")[0].lstrip("[") if label.startswith("[") else label
            keys.setdefault(name, []).append(f"{key.type} {key.blob}")
    return {name: list(dict.fromkeys(pinned)) for name, pinned in keys.items()}


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())
