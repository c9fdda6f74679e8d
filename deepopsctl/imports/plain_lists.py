"""Lists without structure, with # comments: a hostlist (NAMES or NAMES=ADDRESSES a line) and a hosts file."""

from __future__ import annotations

import ipaddress

from deepopsctl.cluster.builder import Draft, NodeEntry
from deepopsctl.imports.detect import is_ip_address
from deepopsctl.text.node_sets import is_prefixed, prefixed, shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.source import check_markers, significant_lines


def draft_hostlist(text: str, source: str, problems: Problems) -> Draft:
    """The nodes of a hostlist; options set their roles."""
    draft = Draft(source, problems)
    check_markers(text, source, problems)
    for number, line in significant_lines(text):
        names, equals, addresses = line.partition("=")
        where = f"{source}:{number}"
        if equals and not addresses.strip():
            draft.refuse(where, RefusedError("no address after =", "write NAMES=ADDRESSES or only NAMES"))
        else:
            draft.add(NodeEntry(where=where, names=names, addresses=addresses))
    return draft


_HINT = "a line of a hosts file is ADDRESS NAME [ALIAS...]"


def draft_hosts_file(text: str, source: str, problems: Problems) -> Draft:
    """The nodes of a hosts file, by short names; options set their roles."""
    draft = Draft(source, problems)
    check_markers(text, source, problems)
    for number, line in significant_lines(text):
        where, words = f"{source}:{number}", line.split()
        if is_prefixed(words[0]):
            draft.refuse(where, prefixed(words[0]))
        elif not is_ip_address(words[0]):
            draft.refuse(where, RefusedError(f"{shorten(words[0])!r} is no IP address", _HINT))
        elif len(words) == 1:
            draft.refuse(where, RefusedError(f"no name for {words[0]}", _HINT))
        elif not _is_local_entry(words[0], words[1]):
            # Slurm knows nodes by their short names
            draft.add(NodeEntry(where=where, names=words[1].partition(".")[0], addresses=words[0]))
    return draft


def addresses_by_name(text: str) -> dict[str, str]:
    """The first address of every name in a hosts file, short names and all aliases included, in lower case."""
    addresses: dict[str, str] = {}
    for _, line in significant_lines(text):
        address, *names = line.split()
        if is_ip_address(address) and names and not _is_local_entry(address, names[0]):
            for name in names:
                addresses.setdefault(name.lower(), address)
                addresses.setdefault(name.partition(".")[0].lower(), address)
    return addresses


def _is_local_entry(address: str, name: str) -> bool:
    """Whether a line is a default of /etc/hosts, for localhost or IPv6."""
    parsed = ipaddress.ip_address(address)
    return parsed.is_loopback or parsed.is_multicast or name.startswith("ip6-") or name == "broadcasthost"
