"""Lines of exports(5), wanted, previous and served, and who still has mounted what is withdrawn.

An NFS mount without its export fails every process that uses it, and may hang its node, at its shutdown as well.
"""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files

EXPORTS = "/etc/exports.d/deepopsctl.exports"
# one directory for each client of NFS 4 (since Linux 5.3); mountd's own list, of versions before
CLIENTS = "/proc/fs/nfsd/clients"
RMTAB = "/var/lib/nfs/rmtab"

# who: an address or a node; export: what it has mounted, '' where the server can't know; at: where, '' likewise


class Holder(NamedTuple):
    """A client, and what it has mounted where; '' for what is not known."""

    who: str
    address: str
    export: str
    at: str


_ADDRESS = re.compile(r'^address: "?\[?([0-9A-Fa-f:.]+?)\]?(?::\d+)?"?$', re.MULTILINE)
_IN_USE = re.compile(r"^([0-9A-Fa-f:.]+):(/.*):0x0*([0-9A-Fa-f]+)$")


def lines_of(text: str) -> dict[str, str]:
    """{directory: line} of the managed file."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.split(" ")[0]: line for line in lines}


def text_of(lines: Mapping[str, str]) -> str:
    """The file."""
    return node_files.HEADER_FROM_CLUSTER + "".join(f"{line}\n" for line in lines.values())


def merged(old: str, new: str) -> str:
    """A directory's line for those who had it and those who are to have it; the new rules, where both name a client."""
    names = [client.partition("(")[0] for client in new.split(" ")]
    return " ".join([new] + [client for client in old.split(" ")[1:] if client.partition("(")[0] not in names])


def closing(before: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """{directory: line} of what hosts may still have mounted that are to have it no more."""
    wide = {path: merged(line, wanted[path]) if path in wanted else line for path, line in before.items()}
    return {path: line for path, line in wide.items() if line != wanted.get(path)}


def has_all(shown: str, lines: Mapping[str, str]) -> bool:
    """Whether `exportfs -s` shows every client of every directory; names are shown as they resolve, so not compared."""
    known = set()
    for line in shown.splitlines():
        path, _separator, client = line.partition("(")[0].partition(" ")
        known.add((path, _range(client.strip())))
    wanted = ((path, _range(client.partition("(")[0])) for path in lines for client in lines[path].split(" ")[1:])
    return all(pair in known for pair in wanted if pair[1])


def _range(client: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Addresses in one spelling; None for a name."""
    try:
        return ipaddress.ip_network(client)
    except ValueError:
        return None


def of_kernel(directory: str = CLIENTS) -> list[Holder]:
    """Clients of NFS 4: the kernel knows their addresses, and not what they have mounted."""
    holders = []
    for path in sorted(glob.glob(os.path.join(directory, "*", "info"))):
        # one that has just gone
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
            match = _ADDRESS.search(stream.read())
            holders += [Holder(match[1], match[1], "", "")] if match else []
    return list(dict.fromkeys(holders))


def of_mountd(path: str = RMTAB) -> list[Holder]:
    """Clients of NFS 3, and what they once mounted: one that crashed stays in that list."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            matches = [_IN_USE.match(line.rstrip("\n")) for line in stream]
    except OSError:
        return []
    return [Holder(match[1], match[1], match[2], "") for match in matches if match and int(match[3], 16)]


def of_nodes(mounts: Iterable[Mapping[str, Any]], servers: Iterable[str]) -> list[Holder]:
    """Mounts on nodes that deepopsctl does not manage, as far as it is from one of these addresses."""
    return [
        Holder(mount["node"], mount["client"], mount["export"], mount["path"])
        for mount in mounts
        if mount["server"] in servers
    ]


def losing(before: Mapping[str, str], wanted: Mapping[str, str], holders: Iterable[Holder]) -> dict[str, list[Holder]]:
    """{directory: [Holder]}: who may have it mounted by the lines from before, and may not by those that are wanted."""
    losing_holders = {}
    for path, line in before.items():
        held = [
            holder
            for holder in holders
            if (not holder.export or holder.export == path or holder.export.startswith(path.rstrip("/") + "/"))
            and lets_in(line, holder.address)
            and not lets_in(wanted.get(path, ""), holder.address)
        ]
        losing_holders.update({path: held} if held else {})
    return losing_holders


def lets_in(line: str, address: str) -> bool:
    """Whether a managed line of exports(5) is for an address; names in it are not looked up."""
    for client in line.split(" ")[1:]:
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(address) in ipaddress.ip_network(client.partition("(")[0]):
                return True
    return False


def sentence(path: str, holder: Holder) -> str:
    """The message for an administrator."""
    if holder.at:
        what = f"{holder.who} has it mounted at {holder.at}, not by deepopsctl"
    elif holder.export:
        what = f"{holder.who} had it mounted when mountd last heard of that"
    else:
        what = f"{holder.who} is a client of this server, and may have it mounted"
    result = "what is not unmounted there fails, and can hang its shutdown"
    return f"{path} is no longer for {holder.who}: {what}; {result}"
