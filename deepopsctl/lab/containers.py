"""A lab's containers and network in podman: found by label, made, started, removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import cast

from deepopsctl.lab.layout import LabNode
from deepopsctl.lab.podman import Engine, PodmanError, podman, podman_json, podman_succeeds
from deepopsctl.lab.state import LabDir

LABEL = "deepopsctl.lab"
NODE_LABEL = "deepopsctl.node"
# mount point of the directory that nodes share
SHARED = "/srv/shared"
ATTEMPTS = 5
# the nodes' fixed places (layout.py) reach up to host 250
LONGEST_PREFIX = 24


@dataclass(frozen=True, slots=True)
class Container:
    """A node's container as podman sees it; `address` is '' while it does not run."""

    id: str
    lab: str
    node: str
    state: str
    address: str

    @property
    def runs(self) -> bool:
        """Whether the node is on."""
        return self.state == "running"


def container_name(lab: str, node: str) -> str:
    """The container of one node."""
    return f"{lab}-{node}"


def network_name(lab: str) -> str:
    """The podman network of one lab."""
    return f"deepopsctl-{lab}"


def list_containers(lab: str = "") -> tuple[Container, ...]:
    """All containers of one lab, or of all labs, whatever their state: two calls however many there are."""
    label = f"{LABEL}={lab}" if lab else LABEL
    for attempt in range(1, ATTEMPTS + 1):
        ids = podman("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split()
        if not ids:
            break
        try:
            inspected = cast("list[dict[str, object]]", podman_json("inspect", "--type", "container", *ids))
        except PodmanError:
            # between the two calls another process may have removed a lab
            if attempt == ATTEMPTS:
                raise
            continue
        return tuple(parse_container(item) for item in inspected)
    return ()


def parse_container(item: dict[str, object]) -> Container:
    """Read one object of `podman inspect`."""
    try:
        labels = cast("dict[str, str]", cast("dict[str, object]", item["Config"])["Labels"])
        settings = cast("dict[str, object]", item["NetworkSettings"])
        networks = cast("dict[str, dict[str, object]]", settings.get("Networks") or {})
        lab = labels[LABEL]
        return Container(
            id=str(item["Id"]),
            lab=lab,
            node=labels[NODE_LABEL],
            state=str(cast("dict[str, object]", item["State"])["Status"]),
            address=str(networks.get(network_name(lab), {}).get("IPAddress", "")),
        )
    except (KeyError, TypeError) as err:
        raise PodmanError(f"`podman inspect` lacks {err}", "deepopsctl lab knows podman 4 and 5") from err


def ensure_network(lab: str) -> IPv4Network:
    """The lab's own network, created if it is missing; podman picks a free subnet."""
    name = network_name(lab)
    if not podman_succeeds("network", "exists", name):
        # no DNS: nodes use the host's own servers, and the deploy writes their /etc/hosts
        podman("network", "create", "--disable-dns", "--label", f"{LABEL}={lab}", name)
    inspected = cast("list[dict[str, object]]", podman_json("network", "inspect", name))
    subnets = cast("list[dict[str, str]]", inspected[0]["subnets"])
    network = IPv4Network(next(entry["subnet"] for entry in subnets if "." in entry["subnet"]))
    if network.prefixlen > LONGEST_PREFIX:
        raise PodmanError(
            f"network {name} got {network}, too small for a lab",
            "set default_subnet_pools in containers.conf to networks of size 24",
        )
    return network


def run_argv(
    engine: Engine, lab: str, image: str, node: LabNode, network: IPv4Network, lab_dir: LabDir
) -> tuple[str, ...]:
    """podman's arguments that start one node."""
    gpus = range(node.gpus.count if node.gpus else 0)
    return (
        *engine.global_options,
        "run",
        "--detach",
        "--pull=never",
        f"--name={container_name(lab, node.name)}",
        f"--hostname={node.name}",
        f"--label={LABEL}={lab}",
        f"--label={NODE_LABEL}={node.name}",
        f"--network={network_name(lab)}",
        f"--ip={node.address(network)}",
        f"--mac-address={mac_address(node.address(network))}",
        # podman's own /etc/hosts is a bind mount, which cannot be replaced as on a real machine
        "--no-hosts",
        "--systemd=always",
        # ping for everybody, as Debian's own sysctl settings have it
        "--sysctl=net.ipv4.ping_group_range=0 2147483647",
        *engine.run_options,
        f"--volume={lab_dir.shared}:{SHARED}",
        *(f"--device={lab_dir.devices}/nvidia{k}:/dev/nvidia{k}" for k in gpus),
        image,
    )


def mac_address(address: IPv4Address) -> str:
    """A fixed address per node: podman's would change at each start, and neighbour tables would have the old one."""
    return f"02:42:{address.packed.hex(':')}"


def remove_containers(ids: Iterable[str]) -> None:
    """Remove containers in any state; missing ones are not an error."""
    wanted = tuple(ids)
    if wanted:
        podman("rm", "--force", "--ignore", "--time=0", "--volumes", *wanted)


def remove_network(lab: str) -> None:
    """Remove the lab's network; one that is not there is no error."""
    if podman_succeeds("network", "exists", network_name(lab)):
        podman("network", "rm", "--force", network_name(lab))
