"""Where homes are made: on the node that owns their file system."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from deepopsctl.model.storage import NETWORKED, Mount
from deepopsctl.storage.nfs import split_source


@dataclass(frozen=True, slots=True)
class Homes:
    """Where a node makes homes ('' for nowhere), and whether something must be mounted there."""

    directory: str = ""
    mounted: bool = False


def homes_on(mounts: Iterable[Mount], host: str, home: str, first_choice: Sequence[str]) -> Homes:
    """Where `host` makes homes of users who have them in `home`.

    Without a shared file system each node does. A server of the cluster does it in its own directory, for all. Where
    the server is none of the cluster's, the first of `first_choice` that mounts it does.
    """
    at = PurePosixPath(home)
    around = [mount for mount in mounts if PurePosixPath(mount.path) in (at, *at.parents)]
    if not around:
        return Homes(home)
    mount = max(around, key=lambda entry: len(entry.path))
    if mount.server == host:
        inside = at.relative_to(mount.path)
        return Homes(str(PurePosixPath(split_source(mount.source)[1]) / inside))
    if host not in mount.nodes:
        return Homes(home)
    shared = mount.type in NETWORKED or bool(mount.settings.get("shared"))
    if not shared:
        return Homes(home, mounted=mount.path == home)
    maker = next((name for name in first_choice if name in mount.nodes), "")
    return Homes(home, mounted=mount.path == home) if not mount.server and host == maker else Homes()
