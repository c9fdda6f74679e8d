"""Storage of type `beegfs`: client 7.4 or 8, its kernel module, and a configuration of its own for each file system.

Mounting is done by deepopsctl's mount units; BeeGFS's own service only builds and loads the module. Sources:
doc.beegfs.io (authentication, client_dkms, multiple mounts), the client's init script, mount.beegfs and debian/control.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from deepopsctl.model.storage import Client, Mount, Needs, NodeFile, NodeSecret, Platform, Repository, StorageType
from deepopsctl.storage.client_packages import (
    HEADER,
    INTERFACE,
    SOURCE_KEYS,
    ClientSection,
    archives_of,
    check_number,
    check_source,
    check_words,
    disagreements,
    incompatibility,
    pairs_of,
    repository_of,
    text_of,
    texts_of,
)
from deepopsctl.storage.compatibility import parse_version
from deepopsctl.storage.types import Fault, Site, TypeHandler, refused
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Boolean
from deepopsctl.text.values import check_address

MODULES = ("dkms", "service")
DIRECTORY = "/etc/beegfs"
SERVICE = "beegfs-client.service"
HELPER = "beegfs-helperd.service"
LOADED = "modprobe@beegfs.service"
MANAGEMENT_PORT = "8008"
CLIENT_PORT = "8004"
VENDOR = "https://www.beegfs.io/release/beegfs_{series}"
# as BeeGFS's own page of packages has it
FINGERPRINT = "0683AF2B9AC5BC7D59B2D62340CE4E243CD50804"
CODENAMES = {"Debian 12": "bookworm", "Debian 13": "trixie", "Ubuntu 22.04": "jammy", "Ubuntu 24.04": "noble"}
# Keys of the client's configuration that other keys of the entry set.
OWNED = {
    "sysMgmtdHost": "source", "connAuthFile": "secret", "connDisableAuthentication": "authentication",
    "connInterfacesFile": "interfaces", "connRDMAInterfacesFile": "rdma_interfaces", "connClientPort": "client_port",
    "connClientPortUDP": "client_port", "connMgmtdPort": "source", "connMgmtdPortTCP": "source",
    "connMgmtdPortUDP": "source",
}  # fmt: skip

_SOURCE = re.compile(r"([A-Za-z0-9.-]+)(?::([0-9]{1,5}))?")
_KEY = re.compile(r"[a-z][A-Za-z0-9]+")
_ARGUMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=/+-]*|-j[0-9]{0,3}")


_CFG = "beegfs: {client: {KEY: VALUE}}"


def is_old(settings: Mapping[str, object]) -> bool:
    """Whether it is client 7, with a port for each protocol and a helper."""
    return (parse_version(text_of(settings, "version")) or (8, 0, 0))[0] < 8


def client(settings: Mapping[str, object], platform: Platform) -> Client:
    """The packages: the module's (DKMS or service), the tools, and for client 7 the helper."""
    version, old = text_of(settings, "version"), is_old(settings)
    builder = "beegfs-client-dkms" if text_of(settings, "modules", MODULES[0]) == "dkms" else "beegfs-client"
    repository, archives = repository_of(settings), archives_of(settings)
    # the vendor has a repository for all 8.3.x, and of 7 one for each release
    series = version if old else ".".join(version.split(".")[:2])
    base = repository.url if repository else VENDOR.format(series=series)
    if not archives:
        key, fingerprint = f"{base}/gpg/GPG-KEY-beegfs", FINGERPRINT
        if repository:
            key, fingerprint = repository.key, repository.fingerprint
        repository = Repository(base, key, fingerprint, CODENAMES.get(platform.name, ""), "non-free")
    return Client(
        name="beegfs",
        version=version,
        packages=(builder, *(("beegfs-helperd", "beegfs-utils") if old else ("beegfs-tools",))),
        # its own service builds the module when it starts
        modules=("beegfs",) if builder == "beegfs-client-dkms" else (),
        repository=repository,
        archives=archives,
    )


class BeegfsSection(ClientSection):
    """`beegfs` of an entry."""

    authentication: Boolean = True
    secret: str = ""
    client_port: str = ""
    interfaces: tuple[str, ...] = ()
    rdma_interfaces: tuple[str, ...] = ()
    client: dict[str, str] = Field(default_factory=dict)
    build_arguments: tuple[str, ...] = ()


def conf_path(mount: Mount) -> str:
    """The client's configuration of one file system."""
    return f"{DIRECTORY}/beegfs-client-{mount.name}.conf"


def auth_path(mount: Mount) -> str:
    """Path of the connection secret, by the secret's name: file systems may share one."""
    return f"{DIRECTORY}/conn-{secret_name(mount)}.auth"


def secret_name(mount: Mount) -> str:
    """Which of `storage_secrets` it is."""
    return text_of(mount.settings, "secret") or mount.name


def client_conf(mount: Mount) -> str:
    """beegfs-client.conf: what is not here is as BeeGFS has it."""
    settings, match = mount.settings, _SOURCE.fullmatch(mount.source)
    host, port = (match[1], match[2] or MANAGEMENT_PORT) if match else (mount.source, MANAGEMENT_PORT)
    own = text_of(settings, "client_port", CLIENT_PORT) or CLIENT_PORT
    pairs = {"sysMgmtdHost": host}
    if is_old(settings):
        pairs |= {"connMgmtdPortTCP": port, "connMgmtdPortUDP": port, "connClientPortUDP": own}
    else:
        pairs |= {"connMgmtdPort": port, "connClientPort": own}
    pairs |= _authentication(mount)
    pairs["connInterfacesFile"] = _interfaces_path(mount, "interfaces")
    pairs["connRDMAInterfacesFile"] = _interfaces_path(mount, "rdma_interfaces")
    # without it the servers do not count a client's writes for any user
    pairs |= {"quotaEnabled": "true"} if "quota" in mount.parts else {}
    pairs |= {key: str(value) for key, value in pairs_of(settings, "client").items()}
    return "".join(f"{line}\n" for line in (HEADER, *(f"{key} = {value}".rstrip() for key, value in pairs.items())))


def needs(mount: Mount, platform: Platform) -> Needs:
    """The client, the secret, the configuration, and the mount once the module is there."""
    settings = mount.settings
    why = incompatibility(mount, platform)
    if not why and platform.name not in CODENAMES and not settings.get("archives"):
        why = f"BeeGFS has no repository for {platform.name}: give archives"
    by_service = text_of(settings, "modules", MODULES[0]) == "service"
    services = ((HELPER,) if is_old(settings) else ()) + ((SERVICE,) if by_service else ())
    unit = SERVICE if by_service else LOADED
    secret = NodeSecret(auth_path(mount), secret_name(mount), is_binary=True)
    tool = ("beegfs-ctl", "--listnodes", "--nodetype=management", f"--cfgFile={conf_path(mount)}")
    return Needs(
        what="beegfs_nodev",
        fstype="beegfs",
        options=(f"cfgFile={conf_path(mount)}", *mount.options),
        files=tuple(_files(mount, by_service=by_service)),
        after=tuple(dict.fromkeys((*services, unit))),
        requires=tuple(dict.fromkeys((*services, unit))),
        problems=(why,) if why else (),
        secrets=(secret,) if settings.get("authentication", True) else (),
        client=client(settings, platform),
        checks=(tool,) if is_old(settings) else (),
    )


def find_conflicts(mounts: Sequence[Mount]) -> Iterator[tuple[Mount, Fault]]:
    """BeeGFS file systems of one node share the client's packages; each needs its own port."""
    yield from disagreements(StorageType.BEEGFS, (*SOURCE_KEYS, "build_arguments"), mounts)
    # the helper of client 7 knows one secret for all file systems of its node
    yield from disagreements(
        StorageType.BEEGFS,
        ("secret",),
        [mount for mount in mounts if is_old(mount.settings)],
        value_of=lambda mount, _key: _authentication(mount),
        hint="client 7 knows one: write the same `secret` and `authentication` in both entries",
    )
    for index, mount in enumerate(mounts):
        port = text_of(mount.settings, "client_port", CLIENT_PORT) or CLIENT_PORT
        for other in mounts[:index]:
            same = port == (text_of(other.settings, "client_port", CLIENT_PORT) or CLIENT_PORT)
            if same and set(mount.nodes) & set(other.nodes):
                what = f"{port} is already the port of {other.name} on the same node"
                hint = f"give one of them another: client_port: {int(port) + 10}"
                yield mount, ("beegfs.client_port", RefusedError(what, hint))
                break


def _check(mount: Mount, _site: Site) -> Iterator[Fault]:
    settings = mount.settings
    yield from check_source(StorageType.BEEGFS, settings, MODULES)
    match = _SOURCE.fullmatch(mount.source)
    if not match:
        hint = "write the host of its management service: HOST or HOST:PORT"
        yield "source", RefusedError(f"{shorten(mount.source)!r} is not a file system of BeeGFS", hint)
    else:
        yield from refused("source", check_address, match[1])
        yield from check_number("source", match[2] or "", 65535)
    yield from check_number("beegfs.client_port", text_of(settings, "client_port"), 65535)
    yield from check_words("beegfs.secret", (text_of(settings, "secret"),) if settings.get("secret") else ())
    for field in ("interfaces", "rdma_interfaces"):
        for name in texts_of(settings, field):
            if not INTERFACE.fullmatch(name):
                yield f"beegfs.{field}", RefusedError(f"{shorten(name)!r} is not an interface", "write ib0 or eth0")
    yield from _check_client_keys(settings)
    elsewhere = settings.get("repository") or settings.get("archives")
    if is_old(settings) and text_of(settings, "version").count(".") == 1 and not elsewhere:
        what = RefusedError("BeeGFS has a repository for each release of 7, not for the series", "write 7.4.6")
        yield "beegfs.version", what
    for argument in texts_of(settings, "build_arguments"):
        if not _ARGUMENT.fullmatch(argument):
            hint = "write OFED_INCLUDE_PATH=/usr/src/ofa_kernel/default/include"
            yield "beegfs.build_arguments", RefusedError(f"{shorten(argument)!r} is not an argument of make", hint)
    if settings.get("build_arguments") and text_of(settings, "modules", MODULES[0]) != "service":
        hint = "leave it out, or `modules: service`"
        yield "beegfs.build_arguments", RefusedError("is for the service that builds the module", hint)


def _check_client_keys(settings: Mapping[str, object]) -> Iterator[Fault]:
    for key, value in pairs_of(settings, "client").items():
        if key in OWNED:
            yield "beegfs.client", RefusedError(f"{key} is written by deepopsctl", f"use {OWNED[key]}")
        elif not _KEY.fullmatch(key):
            hint = "keys are as in beegfs-client.conf: tuneFileCacheType"
            yield "beegfs.client", RefusedError(f"{shorten(key)!r} is not a key of the client", hint)
        yield from check_words("beegfs.client", (str(value),) if str(value) else ())


def _interfaces_path(mount: Mount, field: str) -> str:
    return f"{DIRECTORY}/{field.replace('_', '-')}-{mount.name}" if mount.settings.get(field) else ""


def _authentication(mount: Mount) -> dict[str, str]:
    if mount.settings.get("authentication", True):
        return {"connAuthFile": auth_path(mount), "connDisableAuthentication": "false"}
    return {"connAuthFile": "", "connDisableAuthentication": "true"}


def _files(mount: Mount, *, by_service: bool) -> Iterator[NodeFile]:
    settings = mount.settings
    yield NodeFile(conf_path(mount), client_conf(mount))
    for field in ("interfaces", "rdma_interfaces"):
        path = _interfaces_path(mount, field)
        if path:
            yield NodeFile(path, "".join(f"{name}\n" for name in texts_of(settings, field)))
    if is_old(settings):
        authentication = "".join(f"{key} = {value}".rstrip() + "\n" for key, value in _authentication(mount).items())
        yield NodeFile(f"{DIRECTORY}/beegfs-helperd.conf", f"{HEADER}\n{authentication}")
    if by_service:
        # each file system has its own mount unit: the service has none to mount
        yield NodeFile(f"{DIRECTORY}/beegfs-mounts.conf", f"{HEADER}\n")
        arguments = " ".join(("-j", *texts_of(settings, "build_arguments")))
        text = f"{HEADER}\nbuildEnabled=true\nbuildArgs={arguments}\n"
        yield NodeFile(f"{DIRECTORY}/beegfs-client-autobuild.conf", text)


HANDLER = TypeHandler(
    BeegfsSection, _check, find_conflicts=find_conflicts, needs=needs,
    owned={"cfgFile": _CFG, "sysMgmtdHost": "source", "connMgmtdPort": "source", "connPortShift": _CFG},
)  # fmt: skip
