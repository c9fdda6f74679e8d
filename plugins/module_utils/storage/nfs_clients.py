"""Who goes on having mounted what a server is about to export to them no more: by its kernel, by mountd, by the nodes.

An NFS mount without its export fails whoever uses it, and may hang its machine, at its shutdown as well.
"""

from __future__ import annotations

import collections
import contextlib
import glob
import ipaddress
import os
import re

# one directory for each client of NFS 4 (since Linux 5.3); mountd's own list, of versions before
CLIENTS = "/proc/fs/nfsd/clients"
RMTAB = "/var/lib/nfs/rmtab"

# who: an address or a node; export: what it has mounted, '' where the server can't know; at: where, '' likewise
Holder = collections.namedtuple("Holder", "who address export at")

_ADDRESS = re.compile(r'^address: "?\[?([0-9A-Fa-f:.]+?)\]?(?::\d+)?"?$', re.MULTILINE)
_IN_USE = re.compile(r"^([0-9A-Fa-f:.]+):(/.*):0x0*([0-9A-Fa-f]+)$")


def of_kernel(directory=CLIENTS):
    """Clients of NFS 4: the kernel knows their addresses, and not what they have mounted."""
    holders = []
    for path in sorted(glob.glob(os.path.join(directory, "*", "info"))):
        # one that has just gone
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
            match = _ADDRESS.search(stream.read())
            holders += [Holder(match[1], match[1], "", "")] if match else []
    return list(dict.fromkeys(holders))


def of_mountd(path=RMTAB):
    """Clients of NFS 3, and what they once mounted: one that crashed stays in that list."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            matches = [_IN_USE.match(line.rstrip("\n")) for line in stream]
    except OSError:
        return []
    return [Holder(match[1], match[1], match[2], "") for match in matches if match and int(match[3], 16)]


def of_nodes(mounts, servers):
    """Mounts on nodes that deepopsctl does not manage, as far as it is from one of these addresses."""
    return [
        Holder(mount["node"], mount["client"], mount["export"], mount["path"])
        for mount in mounts
        if mount["server"] in servers
    ]


def losing(before, wanted, holders):
    """{directory: [Holder]}: who may have it mounted by the lines of before, and may not by those that are wanted."""
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


def lets_in(line, address):
    """Whether a managed line of exports(5) is for an address; names in it are not looked up."""
    for client in line.split(" ")[1:]:
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(address) in ipaddress.ip_network(client.partition("(")[0]):
                return True
    return False


def sentence(path, holder):
    """The message for an administrator."""
    if holder.at:
        what = "%s has it mounted at %s, not by deepopsctl" % (holder.who, holder.at)
    elif holder.export:
        what = "%s had it mounted when mountd last heard of that" % holder.who
    else:
        what = "%s is a client of this server, and may have it mounted" % holder.who
    values = (path, holder.who, what)
    return "%s is no longer for %s: %s; what is not unmounted there fails, and can hang its shutdown" % values
