"""Storage of type `lustre`: the client's packages, LNet's networks and routes, and the mount.

LNet is set up in one of two ways, never both: options of its kernel module, or /etc/lnet.conf that lnet.service loads.
Sources: the Lustre operations manual (ConfiguringLNet), lustre-release's debian/control.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import Field

from deepopsctl.model.storage import Client, Mount, Needs, NodeFile, Platform, StorageType
from deepopsctl.storage.client_packages import (
    HEADER,
    INTERFACE,
    SOURCE_KEYS,
    ClientSection,
    archives_of,
    check_source,
    check_words,
    disagreements,
    incompatibility,
    pairs_of,
    repository_of,
    text_of,
)
from deepopsctl.storage.types import Fault, Site, TypeHandler
from deepopsctl.text.answers import mapping
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.values import suggest

MODULES = ("dkms", "packages")
LNET = ("modprobe", "service")
MODPROBE = "/etc/modprobe.d/deepopsctl-lustre.conf"
LNET_CONF = "/etc/lnet.conf"
LNET_SERVICE = "lnet.service"
# LNet's own settings: a node has them once
LNET_KEYS = ("networks", "routes", "lnet", "module_options")

_NET = re.compile(r"(?:tcp|o2ib|kfi|gni)(?:[1-9][0-9]{0,4}|0)?")
_NID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]*@((?:tcp|o2ib|kfi|gni)[0-9]{0,5})")
_FILE_SYSTEM = re.compile(r"[A-Za-z0-9_-]{1,8}(?:/[A-Za-z0-9._/+-]*)?")


class LustreSection(ClientSection):
    """`lustre` of an entry."""

    networks: dict[str, list[str]] = Field(default_factory=dict)
    routes: dict[str, list[str]] = Field(default_factory=dict)
    lnet: str = LNET[0]
    module_options: dict[str, dict[str, str]] = Field(default_factory=dict)


def split_source(source: str) -> tuple[tuple[str, ...], str]:
    """NIDs of the management servers, and file system with directory; both empty if it is not a Lustre source."""
    servers, separator, rest = source.partition(":/")
    nids = tuple(nid for server in servers.split(":") for nid in server.split(","))
    sound = separator and all(_NID.fullmatch(nid) for nid in nids) and _FILE_SYSTEM.fullmatch(rest)
    return (nids, rest) if sound else ((), "")


def network_of(nid: str) -> str:
    """LNet's network of a NID in full: `o2ib` is `o2ib0`."""
    return full_network(nid.rpartition("@")[2])


def full_network(name: str) -> str:
    """A network's name with its number."""
    return name if name[-1:].isdigit() and name != "o2ib" else f"{name}0"


def _check(mount: Mount, _site: Site) -> Iterator[Fault]:
    yield from check_source(StorageType.LUSTRE, mount.settings, MODULES)
    if not (mount.settings.get("repository") or mount.settings.get("archives")):
        hint = "set repository, key and fingerprint, or archives: see docs/deploy/lustre.md"
        yield "lustre", RefusedError("its packages come from nowhere: Lustre's own repository is not signed", hint)
    nids, _ = split_source(mount.source)
    if not nids:
        hint = "write MGS@NET:/NAME, for two management servers MGS1@NET:MGS2@NET:/NAME"
        yield "source", RefusedError(f"{shorten(mount.source)!r} is not a file system of Lustre", hint)
    yield from _check_lnet(mount.settings, nids)


def _check_lnet(settings: Mapping[str, object], nids: Iterable[str]) -> Iterator[Fault]:
    networks, routes = _lists(settings, "networks"), _lists(settings, "routes")
    by = text_of(settings, "lnet", LNET[0])
    if by not in LNET:
        yield "lustre.lnet", RefusedError(f"{shorten(by)!r} is not a way to set up LNet", suggest(by, LNET))
    for field, values in (("networks", networks), ("routes", routes)):
        for name in values:
            if not _NET.fullmatch(name):
                yield f"lustre.{field}", RefusedError(f"{shorten(name)!r} is not a network", "write tcp0 or o2ib0")
    for interface in (name for names in networks.values() for name in names):
        if not INTERFACE.fullmatch(interface):
            yield "lustre.networks", RefusedError(f"{shorten(interface)!r} is not an interface", "write ib0 or eth0")
    if any(not names for names in (*networks.values(), *routes.values())):
        what = RefusedError("has a network with nothing behind it", "write {o2ib0: [ib0]}")
        yield "lustre.networks" if any(not names for names in networks.values()) else "lustre.routes", what
    yield from _check_ways(networks, routes, nids)
    yield from _check_module_options(settings)


def _check_ways(
    networks: Mapping[str, Sequence[str]], routes: Mapping[str, Sequence[str]], nids: Iterable[str]
) -> Iterator[Fault]:
    """Gateways are on a network of the node's own, and the servers on one that it reaches."""
    own = {full_network(name) for name in networks}
    if routes and not own:
        yield "lustre.routes", RefusedError("needs networks: a gateway is on one of them", "write {o2ib0: [ib0]}")
        return
    for gateway in (nid for nids in routes.values() for nid in nids):
        if not _NID.fullmatch(gateway):
            yield "lustre.routes", RefusedError(f"{shorten(gateway)!r} is not a gateway", "write ADDRESS@NET")
        elif network_of(gateway) not in own:
            yield "lustre.routes", RefusedError(f"{gateway} is on no network of the node", "it must be in networks")
    reached = own | {full_network(name) for name in routes}
    for nid in nids:
        if own and network_of(nid) not in reached:
            hint = f"add {network_of(nid)} to networks, or a route to it"
            yield "source", RefusedError(f"the node has no way to {nid}", hint)


def _check_module_options(settings: Mapping[str, object]) -> Iterator[Fault]:
    for module, options in pairs_of(settings, "module_options").items():
        pairs = mapping(options)
        values = (word for value in pairs.values() for word in str(value).split(","))
        yield from check_words("lustre.module_options", (module, *pairs, *values))
        for key in ("networks", "routes", "ip2nets") if module == "lnet" else ():
            if key in pairs:
                what = RefusedError(f"{key} is written by deepopsctl", "use networks and routes")
                yield "lustre.module_options", what


def _lists(settings: Mapping[str, object], key: str) -> Mapping[str, tuple[str, ...]]:
    pairs = pairs_of(settings, key).items()
    return {name: tuple(map(str, values)) for name, values in pairs if isinstance(values, (list, tuple))}


def modprobe_conf(settings: Mapping[str, object]) -> str:
    """Options of the kernel modules; LNet's networks only where nothing else sets them up."""
    lines = []
    if text_of(settings, "lnet", LNET[0]) == "modprobe":
        networks, routes = _lists(settings, "networks"), _lists(settings, "routes")
        ways = ",".join(f"{full_network(name)}({','.join(interfaces)})" for name, interfaces in networks.items())
        via = "; ".join(f"{full_network(name)} {nid}" for name, interfaces in routes.items() for nid in interfaces)
        parameters = [f'networks="{ways}"'] * bool(ways) + [f'routes="{via}"'] * bool(via)
        lines += [f"options lnet {' '.join(parameters)}"] * bool(parameters)
    for module, options in pairs_of(settings, "module_options").items():
        interfaces = mapping(options)
        lines.append(f"options {module} {' '.join(f'{key}={value}' for key, value in interfaces.items())}")
    return "".join(f"{line}\n" for line in (HEADER, *lines)) if lines else ""


def lnet_conf(settings: Mapping[str, object]) -> str:
    """What `lnetctl import` reads: a local interface of LNet for each of the node's, and a route for each gateway."""
    lines = [HEADER, "net:"]
    for network, interfaces in _lists(settings, "networks").items():
        lines += [f"  - net type: {full_network(network)}", "    local NI(s):"]
        for interface in interfaces:
            lines += ["      - interfaces:", f"          0: {interface}"]
    routes = _lists(settings, "routes")
    lines += ["route:"] if routes else []
    for network, gateways in routes.items():
        for gateway in gateways:
            lines += [f"  - net: {full_network(network)}", f"    gateway: {gateway}"]
    return "".join(f"{line}\n" for line in lines)


def client(settings: Mapping[str, object], platform: Platform) -> Client:
    """The packages: modules for exactly this kernel, or their source, which DKMS compiles."""
    builds = text_of(settings, "modules", MODULES[0]) == "dkms"
    modules = "lustre-client-modules-dkms" if builds else f"lustre-client-modules-{platform.kernel}"
    return Client(
        name="lustre",
        version=text_of(settings, "version"),
        packages=(modules, "lustre-client-utils"),
        modules=("lnet", "lustre"),
        builds=builds,
        repository=repository_of(settings),
        archives=archives_of(settings),
    )


def needs(mount: Mount, platform: Platform) -> Needs:
    """The client, LNet, and the mount after it."""
    settings = mount.settings
    by_service = text_of(settings, "lnet", LNET[0]) == "service"
    why = incompatibility(mount, platform)
    texts = {MODPROBE: modprobe_conf(settings), LNET_CONF: lnet_conf(settings) if by_service else ""}
    units = (LNET_SERVICE,) if by_service else ()
    return Needs(
        what=mount.source,
        fstype="lustre",
        options=mount.options,
        files=tuple(NodeFile(path, text) for path, text in texts.items() if text),
        after=units,
        requires=units,
        problems=(why,) if why else (),
        client=client(settings, platform),
        checks=(("lfs", "check", "servers"), ("lfs", "df", mount.path)),
    )


def find_conflicts(mounts: Sequence[Mount]) -> Iterator[tuple[Mount, Fault]]:
    """All Lustre file systems of a node share its client and its LNet."""
    return disagreements(StorageType.LUSTRE, (*SOURCE_KEYS, *LNET_KEYS), mounts)


HANDLER = TypeHandler(LustreSection, _check, find_conflicts=find_conflicts, needs=needs)
