"""Lines of exports(5): wanted, previous, and what the server exports. Pure."""

from __future__ import annotations

import ipaddress

EXPORTS = "/etc/exports.d/deepopsctl.exports"
HEADER = "# Written by deepopsctl from cluster.yml; the next deploy overwrites changes made here.\n"


def lines_of(text):
    """{directory: line} of the managed file."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.split(" ")[0]: line for line in lines}


def text_of(lines):
    """The file."""
    return HEADER + "".join("%s\n" % line for line in lines.values())


def merged(old, new):
    """A directory's line for those who had it and those who are to have it; the new rules, where both name a client."""
    names = [client.partition("(")[0] for client in new.split(" ")]
    return " ".join([new] + [client for client in old.split(" ")[1:] if client.partition("(")[0] not in names])


def closing(before, wanted):
    """{directory: line} of what somebody may still have mounted who is to have it no more."""
    wide = {path: merged(line, wanted[path]) if path in wanted else line for path, line in before.items()}
    return {path: line for path, line in wide.items() if line != wanted.get(path)}


def has_all(shown, lines):
    """Whether `exportfs -s` shows every client of every directory; names are shown as they resolve, so not compared."""
    known = set()
    for line in shown.splitlines():
        path, _separator, client = line.partition("(")[0].partition(" ")
        known.add((path, _range(client.strip())))
    wanted = ((path, _range(client.partition("(")[0])) for path in lines for client in lines[path].split(" ")[1:])
    return all(pair in known for pair in wanted if pair[1])


def _range(client):
    """Addresses in one spelling; None for a name."""
    try:
        return ipaddress.ip_network(client)
    except ValueError:
        return None
