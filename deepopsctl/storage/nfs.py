"""Storage of type `nfs`: an external server, or an export of a cluster node that deepopsctl manages."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

from deepopsctl.model.storage import Mount, Needs, Platform, StorageType
from deepopsctl.storage.compatibility import unsupported
from deepopsctl.storage.types import Fault, Site, TypeHandler, refused
from deepopsctl.storage.values import check_exported
from deepopsctl.text.answers import texts
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Boolean, Section
from deepopsctl.text.values import check_address, suggest

VERSIONS = ("4.2", "4.1", "4.0", "3")
DEFAULT_VERSION = "4.2"
SQUASH = {"root": "root_squash", "all": "all_squash", "none": "no_root_squash"}
MAX_CONNECTIONS = 16
RDMA_PORT = 20049
# An export to more than this is one to the whole world.
WIDEST = {4: 8, 6: 32}
# Export options: they have no effect on an external server.
EXPORT_KEYS: Mapping[str, object] = {"squash": "root", "read_only": False, "clients": (), "serve": True}

_SOURCE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]+):(/\S*)")


_VERSION_KEY = "nfs: {version: ...}"


class NfsSection(Section):
    """`nfs` of an entry."""

    version: str = DEFAULT_VERSION
    nconnect: str = ""
    rdma: Boolean = False
    serve: Boolean = True
    address: str = ""
    squash: str = "root"
    read_only: Boolean = False
    clients: tuple[str, ...] = ()


def split_source(source: str) -> tuple[str, str]:
    """Server and path of `SERVER:/PATH`; both '' where it is none."""
    match = _SOURCE.fullmatch(source)
    return (match[1].strip("[]"), match[2]) if match else ("", "")


def check_client_range(text: str) -> str:
    """An address or a subnet that may mount an export; never everybody."""
    if "*" in text or "?" in text:
        raise RefusedError(f"{shorten(text)!r} is everybody", "write the subnet of the nodes: 10.0.0.0/24")
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        hint = "write an address or a subnet: 10.0.0.0/24"
        raise RefusedError(f"{shorten(text)!r} is neither an address nor a subnet", hint) from error
    if network.prefixlen < WIDEST[network.version]:
        raise RefusedError(f"{text} is nearly everybody", f"give a subnet of /{WIDEST[network.version]} or narrower")
    return text


def mount_options(settings: Mapping[str, object], options: tuple[str, ...]) -> tuple[str, ...]:
    """The client's mount options, in a fixed order."""
    client_options = [f"vers={settings.get('version', DEFAULT_VERSION)}"]
    client_options += [f"nconnect={settings['nconnect']}"] if settings.get("nconnect") else []
    client_options += ["proto=rdma", f"port={RDMA_PORT}"] if settings.get("rdma") else []
    client_options += ["ro"] if settings.get("read_only") and "ro" not in options else []
    return (*client_options, *options)


def needs(mount: Mount, platform: Platform) -> Needs:
    """A client of a server, which `mount.source` names as it is reached."""
    refusal = unsupported(StorageType.NFS, "", platform)
    return Needs(
        what=mount.source,
        fstype="nfs",
        options=mount_options(mount.settings, mount.options),
        packages={"nfs-common": ""},
        problems=(refusal,) if refusal else (),
    )


def _server(mount: Mount, site: Site) -> str:
    """The cluster node that serves it; '' for an external server or with `serve: false`."""
    host, _ = split_source(mount.source)
    return site.node_named(host) if host and mount.settings.get("serve", True) else ""


def _check(mount: Mount, site: Site) -> Iterator[Fault]:
    host, path = split_source(mount.source)
    if not host:
        what = "names no server" if mount.source.startswith("/") else f"{shorten(mount.source)!r} is not a SERVER:/PATH"
        yield "source", RefusedError(what, "write SERVER:/PATH; SERVER may be a node of this cluster")
        return
    yield from refused("source", check_address, host)
    yield from _check_client(mount.settings)
    export_keys = [key for key in EXPORT_KEYS if key in mount.settings]
    if mount.server:
        yield from _check_export(mount, site, path)
    elif export_keys and not site.node_named(host):
        what = f"{host} is not a node of this cluster: deepopsctl does not manage its exports"
        yield f"nfs.{export_keys[0]}", RefusedError(what, "set it on that server, and leave it out here")
    if "address" in mount.settings and not mount.server:
        yield "nfs.address", RefusedError("is for exports of a node of this cluster", "write it into source")


def _check_client(settings: Mapping[str, object]) -> Iterator[Fault]:
    version, nconnect = str(settings.get("version", DEFAULT_VERSION)), str(settings.get("nconnect", ""))
    if version not in VERSIONS:
        yield "nfs.version", RefusedError(f"{shorten(version)!r} is not a version of NFS", suggest(version, VERSIONS))
    if nconnect and (not re.fullmatch("[0-9]{1,9}", nconnect) or not 1 <= int(nconnect) <= MAX_CONNECTIONS):
        hint = f"give 1 to {MAX_CONNECTIONS}"
        yield "nfs.nconnect", RefusedError(f"{shorten(nconnect)!r} is not a number of connections", hint)


def _check_export(mount: Mount, site: Site, path: str) -> Iterator[Fault]:
    if mount.server not in site.servers:
        what = f"{mount.server} is a node of this cluster without the role nfs_server"
        hint = "add that role, or set `nfs: {serve: false}` if its exports are managed elsewhere"
        yield "source", RefusedError(what, hint)
    try:
        check_exported(path)
    except RefusedError as refusal:
        yield "source", refusal
    yield from _check_network(mount.settings)
    squash = str(mount.settings.get("squash", "root"))
    if squash not in SQUASH:
        yield "nfs.squash", RefusedError(f"{shorten(squash)!r} is not a user to squash", suggest(squash, SQUASH))
    for client in texts(mount.settings.get("clients")):
        try:
            check_client_range(client)
        except RefusedError as refusal:
            yield "nfs.clients", refusal


def _check_network(settings: Mapping[str, object]) -> Iterator[Fault]:
    """The server's address on another network than cluster.yml's, where its nodes have others as well."""
    if "address" not in settings:
        return
    try:
        check_address(str(settings["address"]))
    except RefusedError as refusal:
        yield "nfs.address", refusal
    if not settings.get("clients"):
        what = "needs clients: on that network the nodes come from addresses that cluster.yml does not know"
        yield "nfs.address", RefusedError(what, "write that network's subnet: clients: [10.2.0.0/16]")


HANDLER = TypeHandler(
    NfsSection, _check, needs, server=_server,
    owned={
        "vers": _VERSION_KEY, "nfsvers": _VERSION_KEY, "minorversion": _VERSION_KEY, "nconnect": "nfs: {nconnect: N}",
        "rdma": "nfs: {rdma: true}", "proto": "nfs: {rdma: true}", "port": "nfs: {rdma: true}",
    },
)  # fmt: skip
