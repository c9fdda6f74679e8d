"""Storage of type `glusterfs`: the FUSE client of the distribution. Source: mount.glusterfs(8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepopsctl.model.storage import Mount, Needs, Platform
from deepopsctl.storage.client_packages import text_of
from deepopsctl.storage.compatibility import unsupported
from deepopsctl.storage.types import Fault, Site, TypeHandler
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Section
from deepopsctl.text.values import check_address, suggest

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "NONE")
DEFAULT_LEVEL = "WARNING"

_SOURCE = re.compile(r"([A-Za-z0-9.,-]+):/([A-Za-z0-9_-]+(?:/[A-Za-z0-9._/+@=-]*)?)")


class GlusterfsSection(Section):
    """`glusterfs` of an entry."""

    log_level: str = DEFAULT_LEVEL


def split_source(source: str) -> tuple[tuple[str, ...], str]:
    """Servers of the volume, and the volume with an optional directory; both empty if it is not a GlusterFS source."""
    match = _SOURCE.fullmatch(source)
    return (tuple(match[1].split(",")), match[2]) if match else ((), "")


def _check(mount: Mount, _site: Site) -> Iterator[Fault]:
    servers, _ = split_source(mount.source)
    if not servers:
        hint = "write SERVER,SERVER:/VOLUME"
        yield "source", RefusedError(f"{shorten(mount.source)!r} is not a volume of GlusterFS", hint)
    for server in servers:
        try:
            check_address(server)
        except RefusedError as refusal:
            yield "source", refusal
    level = text_of(mount.settings, "log_level", DEFAULT_LEVEL)
    if level not in LEVELS:
        yield "glusterfs.log_level", RefusedError(f"{shorten(level)!r} is not a valid level", suggest(level, LEVELS))


def needs(mount: Mount, platform: Platform) -> Needs:
    """The client; the other servers are used if the first does not answer."""
    (first, *others), volume = split_source(mount.source)
    why = unsupported(mount.type, "", platform)
    backup = [f"backup-volfile-servers={':'.join(others)}"] * bool(others)
    return Needs(
        what=f"{first}:/{volume}",
        fstype="glusterfs",
        options=(*backup, f"log-level={text_of(mount.settings, 'log_level', DEFAULT_LEVEL)}", *mount.options),
        packages={"glusterfs-client": ""},
        problems=(why,) if why else (),
    )


_SERVERS = "source: SERVER,SERVER:/VOLUME"
HANDLER = TypeHandler(
    GlusterfsSection, _check, needs=needs,
    owned={
        "backup-volfile-servers": _SERVERS, "backupvolfile-server": _SERVERS,
        "log-level": "glusterfs: {log_level: ...}",
    },
)  # fmt: skip
