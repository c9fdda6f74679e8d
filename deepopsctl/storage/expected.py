"""What the storage suite expects on each node: the entries of `storage` as their mount units have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepopsctl.model.storage import NETWORKED, Mount, Platform, StorageType
from deepopsctl.storage.node_plan import needs_on
from deepopsctl.storage.quota import served

# a mount's source, type and options are the same on every platform that has a client for it
_ANY = Platform("")


def expected_on(mounts: Iterable[Mount], host: str, addresses: Mapping[str, str]) -> list[dict[str, object]]:
    """The entries of one node, as the module's arguments."""
    return [
        # a server holds users to a quota also where it has no mount of its own
        {**_expected(mount, host, addresses), "only_quota": host not in mount.nodes}
        for mount in mounts
        if host in mount.nodes or served([mount], host)
    ]


def wanted_on(mounts: Sequence[Mount], among: Iterable[str], addresses: Mapping[str, str]) -> list[dict[str, object]]:
    """Every entry with the nodes that mount it; its server has it as a separate entry."""
    hosts, entries = set(among), []
    for mount in mounts:
        served = [host for host in mount.nodes if host == mount.server]
        for nodes in ([host for host in mount.nodes if host not in served], served):
            here = [host for host in nodes if host in hosts]
            if here:
                entries.append({**_expected(mount, here[0], addresses), "nodes": here})
    return entries


def addresses_of(mounts: Iterable[Mount], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The servers' addresses, as the units have them; not those of a thousand nodes."""
    servers = {mount.server for mount in mounts if mount.server}
    return {name: str(hostvars[name].get("ansible_host", "")) for name in servers if name in hostvars}


def _expected(mount: Mount, host: str, addresses: Mapping[str, str]) -> dict[str, object]:
    needs = needs_on(mount, host, addresses, _ANY)
    nfs = mount.type is StorageType.NFS
    return {
        "name": mount.name,
        "type": mount.type.value,
        "path": mount.path,
        "source": needs.what,
        "fstype": needs.fstype,
        "options": [option for option in needs.options if option not in ("bind", "rbind")],
        "shared": mount.type in NETWORKED or bool(mount.settings.get("shared")),
        "squash": str(mount.settings.get("squash", "root")) if nfs and mount.server else "",
        "user_writable": mount.user_writable,
        "quota": next(iter(served([mount], host)), {}),
    }
