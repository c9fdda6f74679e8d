"""Where homes are made: on the node that owns their file system."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from deepopsctl.model.storage import NETWORKED, Mount
from deepopsctl.storage.nfs import split_source


@dataclass(frozen=True, slots=True)
class Homes:
    """Where a node makes homes ('' for nowhere), and the mount point that they need ('' for none)."""

    directory: str = ""
    mounted: str = ""


def made_in(mount: Mount, host: str, first_choice: Sequence[str]) -> str:
    """The path at which `host` makes directories in a file system; '' where another node does, or none.

    A server of the cluster makes them in its own directory. On storage that others serve, the first of `first_choice`
    that mounts it does (without one, the first node), of what each node has for itself every node.
    """
    if mount.server:
        return split_source(mount.source)[1] if mount.server == host else ""
    shared = mount.type in NETWORKED or bool(mount.settings.get("shared"))
    makers = [name for name in (*first_choice, *mount.nodes) if name in mount.nodes][:1] if shared else mount.nodes
    return mount.path if host in makers else ""


def homes_on(mounts: Iterable[Mount], host: str, home: str, first_choice: Sequence[str]) -> Homes:
    """Where `host` makes homes of users who have them in `home`: without a file system for them every node does."""
    at = PurePosixPath(home)
    around = [mount for mount in mounts if PurePosixPath(mount.path) in (at, *at.parents)]
    here = [mount for mount in around if host in (mount.server, *mount.nodes)]
    if not here:
        return Homes(home)
    mount = max(here, key=lambda entry: len(entry.path))
    directory = made_in(mount, host, first_choice)
    inside = PurePosixPath(directory) / at.relative_to(mount.path)
    return Homes(str(inside), "" if mount.server else mount.path) if directory else Homes()
