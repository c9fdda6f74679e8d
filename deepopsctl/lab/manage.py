"""`lab down` and `lab status`: list labs and remove them completely."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepopsctl.lab import layout
from deepopsctl.lab.containers import Container, list_containers, remove_containers, remove_network
from deepopsctl.lab.podman import detect
from deepopsctl.lab.state import LabRecord, LabStore
from deepopsctl.model.cluster import Gpus


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: podman's word for its state, or `missing`; roles and GPUs are known for finished labs only."""

    name: str
    roles: tuple[str, ...]
    gpus: Gpus | None
    address: str
    state: str


@dataclass(frozen=True, slots=True)
class LabStatus:
    """One lab. `os` is '' and the paths are None if no `lab up` of this user has finished."""

    name: str
    os: str
    nodes: tuple[NodeStatus, ...]
    node_list: Path | None
    password_file: Path | None


def down(store: LabStore, name: str) -> int:
    """Remove every trace of a lab; returns how many nodes it had. No such lab is not an error."""
    layout.check_name(name)
    detect()
    with store.lock(name):
        containers = list_containers(name)
        remove_containers(container.id for container in containers)
        remove_network(name)
        store.lab_dir(name).remove()
    return len(containers)


def status(store: LabStore) -> tuple[LabStatus, ...]:
    """All labs of this machine, by name."""
    detect()
    containers = list_containers()
    names = sorted({*store.names(), *(container.lab for container in containers)})
    return tuple(_lab_status(store, name, [c for c in containers if c.lab == name]) for name in names)


def _lab_status(store: LabStore, name: str, containers: list[Container]) -> LabStatus:
    lab_dir = store.lab_dir(name)
    record = lab_dir.load()
    return LabStatus(
        name=name,
        os=record.os if record else "",
        nodes=node_statuses(record, containers),
        node_list=lab_dir.node_list if record and lab_dir.node_list.exists() else None,
        password_file=lab_dir.password if record else None,
    )


def node_statuses(record: LabRecord | None, containers: list[Container]) -> tuple[NodeStatus, ...]:
    """The nodes of a lab's record, in order, then unknown containers."""
    by_node = {container.node: container for container in containers}
    rows = []
    for node in record.nodes if record else ():
        container = by_node.pop(node.name, None)
        address, state = (container.address, container.state) if container else ("", "missing")
        rows.append(NodeStatus(node.name, tuple(str(role) for role in node.roles), node.gpus, address, state))
    strays = sorted(by_node.values(), key=lambda container: container.node)
    return (*rows, *(NodeStatus(c.node, (), None, c.address, c.state) for c in strays))
