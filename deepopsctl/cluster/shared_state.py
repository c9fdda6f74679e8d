"""`slurm_state` of cluster.yml: the entry of `storage` on which all controllers keep Slurm's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from deepopsctl.model.storage import NETWORKED, Mount, StorageType
from deepopsctl.storage.systemd_units import unit_name
from deepopsctl.text.node_sets import fold_in_order
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.values import suggest

KEY = "slurm_state"
# A directory below the mount: while nothing is mounted it is not there, and slurmctld does not start without jobs.
DIRECTORY = "slurmctld"


def refusals(name: str, mounts: Iterable[Mount], controllers: Sequence[str]) -> Iterator[RefusedError]:
    """Why this entry can't have the state of several controllers."""
    by_name = {mount.name: mount for mount in mounts}
    mount = by_name.get(name)
    if mount is None:
        hint = suggest(name, list(by_name)) if by_name else "declare it under `storage:`"
        yield RefusedError(f"storage has no entry {name}", hint)
        return
    if not is_shared(mount):
        hint = "name a network file system; for a cluster file system on a shared disk write local: {shared: true}"
        yield RefusedError(f"{name} ({mount.type.value}) is every controller's own", hint)
    if mount.server in controllers:
        hint = "name an entry that a file server outside the controllers serves"
        yield RefusedError(f"{name} is served by the controller {mount.server}, and is lost with it", hint)
    if mount.automount:
        yield RefusedError(f"{name} is mounted at first use", "leave out its automount: slurmctld needs it always")
    if mount.settings.get("read_only") or "ro" in mount.options:
        yield RefusedError(f"{name} is mounted read-only", "mount it for writing, or name another")
    if mount.user_writable:
        yield RefusedError(f"{name} is for users' files, and full or slow with them", "name an entry of its own")
    others = [node for node in mount.nodes if node not in controllers]
    if others:
        what = f"{name} is mounted on {fold_in_order(others)} as well, whose root could give Slurm other jobs and keys"
        yield RefusedError(what, "write nodes: controller in its entry, and use another one for users' files")
    yield from _also_elsewhere(mount, by_name.values(), controllers)
    missing = [node for node in controllers if node not in mount.nodes]
    if missing and mount.server not in controllers:
        hint = "add them to its nodes, for example nodes: controller"
        yield RefusedError(f"{name} is not mounted on {fold_in_order(missing)}", hint)


def _also_elsewhere(mount: Mount, mounts: Iterable[Mount], controllers: Sequence[str]) -> Iterator[RefusedError]:
    """Other entries by which other nodes have the same directory, or one around it."""
    for other in mounts:
        nodes = [node for node in other.nodes if node not in controllers]
        around = other.source == mount.source or mount.source.startswith(f"{other.source.rstrip('/')}/")
        if nodes and other.name != mount.name and other.type is mount.type and is_shared(other) and around:
            what = f"{mount.name} is in {other.source}, which {fold_in_order(nodes)} mount as {other.name}"
            yield RefusedError(what, "give Slurm's state an export, or a volume, that only controllers mount")


def is_shared(mount: Mount) -> bool:
    """Whether the nodes that mount it see each other's files."""
    return mount.type in NETWORKED or (mount.type is StorageType.LOCAL and bool(mount.settings.get("shared")))


def without_delegations(mounts: Iterable[Mount], name: str) -> tuple[Mount, ...]:
    """The mounts as nodes get them: the NFS server gives controllers no delegations of the state's files.

    Those of a lost controller would block the other one until the server's lease time is over (90 s). A client of
    NFS 4.0 with this address gets none; later versions have no such option (nfs(5)).
    """
    return tuple(
        replace(mount, settings={**mount.settings, "version": "4.0"}, options=(*mount.options, "clientaddr=0.0.0.0"))
        if mount.name == name and mount.type is StorageType.NFS and "version" not in mount.settings
        else mount
        for mount in mounts
    )


def variable(mount: Mount) -> dict[str, object]:
    """The inventory's `slurm_state`."""
    return {"mount": mount.path, "directory": f"{mount.path}/{DIRECTORY}", "network": mount.type in NETWORKED,
            "unit": unit_name(mount.path)}  # fmt: skip
