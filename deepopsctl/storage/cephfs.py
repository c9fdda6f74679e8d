"""Storage of type `cephfs`: the kernel's client, or ceph-fuse, of the distribution's own packages.

The form of the source is the one that every mount.ceph and every kernel knows: MON[,MON]:/PATH. The key of the Ceph
user is in a file that mount.ceph reads (`secretfile`), never in an option. Sources: mount.ceph(8), mount.fuse.ceph(8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepopsctl.model.storage import Mount, Needs, NodeFile, NodeSecret, Platform
from deepopsctl.storage.client_packages import HEADER, check_words, text_of
from deepopsctl.storage.compatibility import unsupported
from deepopsctl.storage.types import Fault, Site, TypeHandler
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Section
from deepopsctl.text.values import check_address, suggest

DRIVERS = ("kernel", "fuse")
MS_MODES = ("legacy", "crc", "secure", "prefer-crc", "prefer-secure")
DIRECTORY = "/etc/ceph"
PORTS = {"legacy": "6789"}
NEW_PORT = "3300"

_SOURCE = re.compile(r"([A-Za-z0-9.,:\[\]-]+):(/[A-Za-z0-9._/+@=-]*)")
_MONITOR = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class CephfsSection(Section):
    """`cephfs` of an entry."""

    user: str = ""
    fs: str = ""
    driver: str = DRIVERS[0]
    secret: str = ""
    ms_mode: str = "legacy"


def split_source(source: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Monitors, each with its port or '', and the directory; both empty if it is not a CephFS source."""
    match = _SOURCE.fullmatch(source)
    monitors = [_MONITOR.fullmatch(text) for text in match[1].split(",")] if match else []
    if not match or not all(monitors):
        return (), ""
    return tuple((monitor[1], monitor[2] or "") for monitor in monitors if monitor), match[2]


def _check(mount: Mount, _site: Site) -> Iterator[Fault]:
    settings = mount.settings
    monitors, _ = split_source(mount.source)
    if not monitors:
        hint = "write MON,MON,MON:/ or MON:/volumes/..., each with its port where it is another"
        yield "source", RefusedError(f"{shorten(mount.source)!r} is not a CephFS", hint)
    for host, _ in monitors:
        try:
            check_address(host.strip("[]"))
        except RefusedError as refusal:
            yield "source", refusal
    for field, known in (("driver", DRIVERS), ("ms_mode", MS_MODES)):
        chosen = text_of(settings, field, known[0])
        if chosen not in known:
            yield f"cephfs.{field}", RefusedError(f"{shorten(chosen)!r} is not known", suggest(chosen, known))
    user = text_of(settings, "user")
    if not user:
        hint = "write cephfs: {user: NAME}, as in `ceph fs authorize FS client.NAME / rw`"
        yield "cephfs", RefusedError("names no Ceph user", hint)
    elif not _USER.fullmatch(user) or user.startswith("client."):
        yield (
            "cephfs.user",
            RefusedError(f"{shorten(user)!r} is not a name of a Ceph user", "write it without `client.`"),
        )
    for field in ("fs", "secret"):
        yield from check_words(f"cephfs.{field}", (text_of(settings, field),) if settings.get(field) else ())


def _port(mount: Mount, port: str) -> str:
    return port or PORTS.get(text_of(mount.settings, "ms_mode", "legacy"), NEW_PORT)


def secret_name(mount: Mount) -> str:
    """Which of `storage_secrets` is the user's key."""
    return text_of(mount.settings, "secret") or mount.name


def needs(mount: Mount, platform: Platform) -> Needs:
    """The packages, the user's key, and the options of the driver."""
    why = unsupported(mount.type, "", platform)
    driver_needs = _fuse(mount) if text_of(mount.settings, "driver", DRIVERS[0]) == "fuse" else _kernel(mount)
    return Needs(
        what=driver_needs.what,
        fstype=driver_needs.fstype,
        options=driver_needs.options,
        packages=driver_needs.packages,
        files=driver_needs.files,
        secrets=driver_needs.secrets,
        problems=(why,) if why else (),
    )


def _kernel(mount: Mount) -> Needs:
    settings, (monitors, path) = mount.settings, split_source(mount.source)
    secret = NodeSecret(f"{DIRECTORY}/deepopsctl-{mount.name}.secret", secret_name(mount))
    fs, ms_mode = text_of(settings, "fs"), text_of(settings, "ms_mode", "legacy")
    options = [f"name={text_of(settings, 'user')}", f"secretfile={secret.path}"]
    options += [f"fs={fs}"] * bool(fs) + [f"ms_mode={ms_mode}"] * (ms_mode != "legacy")
    return Needs(
        what=f"{','.join(f'{host}:{_port(mount, port)}' for host, port in monitors)}:{path}",
        fstype="ceph",
        options=(*options, *mount.options),
        packages={"ceph-common": ""},
        secrets=(secret,),
    )


def _fuse(mount: Mount) -> Needs:
    user, (_, path) = text_of(mount.settings, "user"), split_source(mount.source)
    conf = f"{DIRECTORY}/deepopsctl-{mount.name}.conf"
    keyring = f"{DIRECTORY}/deepopsctl-{mount.name}.keyring"
    # what else ceph-fuse takes stands in its configuration: fewer words that a helper hands to a shell
    return Needs(
        what="none",
        fstype="fuse.ceph",
        options=(f"ceph.id={user}", f"ceph.conf={conf}", *mount.options),
        packages={"ceph-fuse": ""},
        files=(NodeFile(conf, ceph_conf(mount, keyring, path)),),
        secrets=(NodeSecret(keyring, secret_name(mount), before=f"[client.{user}]\n\tkey = "),),
    )


def ceph_conf(mount: Mount, keyring: str, path: str) -> str:
    """The least that ceph-fuse needs: the monitors, the key, what of which file system."""
    monitors, _ = split_source(mount.source)
    ms_mode, fs = text_of(mount.settings, "ms_mode", "legacy"), text_of(mount.settings, "fs")
    protocol = "v1" if ms_mode == "legacy" else "v2"
    hosts = ",".join(f"{protocol}:{host}:{_port(mount, port)}" for host, port in monitors)
    lines = [HEADER, "[global]", f"mon_host = {hosts}", "[client]", f"keyring = {keyring}"]
    lines += [f"client_mountpoint = {path}"] * (path != "/") + [f"client_fs = {fs}"] * bool(fs)
    if protocol == "v2":
        lines.append(f"ms_client_mode = {'secure' if 'secure' in ms_mode else 'crc'}")
    return "".join(f"{line}\n" for line in lines)


_KEY = "cephfs: {secret: NAME}"
HANDLER = TypeHandler(
    CephfsSection, _check, needs=needs,
    owned={
        "name": "cephfs: {user: NAME}", "secret": _KEY, "secretfile": _KEY, "fs": "cephfs: {fs: NAME}",
        "mds_namespace": "cephfs: {fs: NAME}", "ms_mode": "cephfs: {ms_mode: ...}", "mon_addr": "source",
        "conf": "source", "ceph.id": "cephfs: {user: NAME}", "ceph.name": "cephfs: {user: NAME}", "ceph.conf": "source",
        "ceph.key": _KEY, "ceph.keyring": _KEY, "ceph.keyfile": _KEY,
    },
)  # fmt: skip
