"""`lab up`: create a lab, or add nodes to one, several nodes at once; changes are undone when it fails."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TypeVar

from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.files import write_atomic
from deepopsctl.lab import layout
from deepopsctl.lab.boot import finish_node, wait_for_ssh
from deepopsctl.lab.containers import (
    Container,
    container_name,
    ensure_network,
    list_containers,
    remove_containers,
    remove_network,
    run_argv,
)
from deepopsctl.lab.image import Notify, Recipe, build_image, ensure_image, own_mirror
from deepopsctl.lab.layout import LabNode, LabRequest
from deepopsctl.lab.podman import Engine, check_room, detect, inotify_instances, podman
from deepopsctl.lab.rootfs import USER
from deepopsctl.lab.state import LabDir, LabRecord, LabStore

NVIDIA_MAJOR = 195

# podman takes a lock for most of a start, and the nodes' own boot wants the CPUs too.
AT_ONCE = 4

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab that is up: its nodes with their addresses, and the files the next commands read."""

    name: str
    os: str
    nodes: tuple[tuple[LabNode, str], ...]
    added: tuple[str, ...]
    node_list: Path
    password_file: Path
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Task:
    """One `lab up`: the lab before (None: it is new) and after."""

    engine: Engine
    lab_dir: LabDir
    before: LabRecord | None
    record: LabRecord
    missing: tuple[LabNode, ...]
    stopped: tuple[LabNode, ...]
    image: str
    notify: Notify


def up(
    store: LabStore, request: LabRequest, notify: Notify, *, output: Path | None = None, rebuild: bool = False
) -> Lab:
    """Create a lab with at least the requested nodes; running nodes are not changed."""
    started = time.monotonic()
    layout.check_name(request.name)
    lab_dir = store.lab_dir(request.name)
    node_list = output.absolute() if output else lab_dir.node_list
    if output and not node_list.parent.is_dir():
        raise InputError.single("--output", f"there is no directory {node_list.parent}", "create it first")
    engine = detect()
    with store.lock(request.name):
        before = lab_dir.load()
        record = _target(request, before)
        everywhere = list_containers()
        present = _present(request.name, lab_dir, before, everywhere)
        elsewhere = sum(container.lab != request.name for container in everywhere if container.runs)
        check_room(elsewhere + len(record.nodes), inotify_instances())
        task = Task(
            engine=engine,
            lab_dir=lab_dir,
            before=before,
            record=record,
            missing=tuple(node for node in record.nodes if node.name not in present),
            stopped=tuple(n for n in record.nodes if n.name in present and not present[n.name].runs),
            image=_image(store, record.os, notify, rebuild=rebuild),
            notify=notify,
        )
        nodes = _start_lab(task, node_list)
    return Lab(
        name=record.name,
        os=record.os,
        nodes=nodes,
        added=tuple(node.name for node in task.missing),
        node_list=node_list,
        password_file=lab_dir.password,
        elapsed_s=time.monotonic() - started,
    )


class NodePool:
    """Runs the same work on many nodes; `stopped` signals waiting work to stop."""

    def __init__(self) -> None:
        self.stopped = Event()
        self._pool = ThreadPoolExecutor(max_workers=AT_ONCE)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply `work` to all items and return the results in order; the first failure is raised."""
        return list(self._pool.map(work, items))

    def halt(self) -> None:
        """Start no more work; running work continues. Returns at once."""
        self.stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for running work."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _target(request: LabRequest, before: LabRecord | None) -> LabRecord:
    """The lab's new record: the requested nodes and the existing ones."""
    if before is None:
        os_name = request.os or layout.DEFAULT_OS
        nodes = layout.plan_nodes(request)
        return LabRecord(request.name, os_name, request.gpus, request.sudo_asks, nodes, request.monitoring)
    problems = layout.contradictions(
        request, os=before.os, gpus=before.gpus, sudo_asks=before.sudo_asks, single=before.single
    )
    if problems:
        raise InputError(problems)
    wanted = layout.plan_nodes(replace(request, gpus=before.gpus))
    have = {node.name for node in before.nodes}
    added = (node for node in wanted if node.name not in have)
    monitoring = before.monitoring or request.monitoring
    return replace(before, nodes=layout.in_order((*before.nodes, *added)), monitoring=monitoring)


def _present(
    name: str, lab_dir: LabDir, before: LabRecord | None, everywhere: Sequence[Container]
) -> dict[str, Container]:
    """The lab's containers by node; leftovers of an `up` that was killed are removed."""
    containers = [container for container in everywhere if container.lab == name]
    if containers and not lab_dir.path.exists():
        raise DeepOpsError(
            f"a lab {name!r} has containers but no state directory {lab_dir.path}: it may belong to another user",
            f"choose another --name, or remove it with `deepopsctl lab down --name {name}`",
        )
    known = {node.name for node in before.nodes} if before else set()
    remove_containers(container.id for container in containers if container.node not in known)
    return {container.node: container for container in containers if container.node in known}


def _image(store: LabStore, os_name: str, notify: Notify, *, rebuild: bool) -> str:
    recipe = Recipe.for_os(os_name, own_mirror())
    # one process builds for all; others wait and then use the image
    with store.wait_lock(f".image-{os_name}"):
        if rebuild:
            build_image(recipe, notify)
        return ensure_image(recipe, notify)


def _start_lab(task: Task, node_list: Path) -> tuple[tuple[LabNode, str], ...]:
    pool = NodePool()
    try:
        nodes = _start(task, pool)
        node_list.write_text(_node_list(task.record, nodes), encoding="utf-8")
        task.lab_dir.save(task.record)
        task.lab_dir.hand_over(node_list)
    except BaseException:  # Ctrl-C too: nothing half-made stays behind
        _undo(task, pool)
        raise
    pool.join()
    return nodes


def _node_list(record: LabRecord, nodes: tuple[tuple[LabNode, str], ...]) -> str:
    return layout.render_node_list(record.name, USER, nodes, monitoring=record.monitoring)


def _start(task: Task, pool: NodePool) -> tuple[tuple[LabNode, str], ...]:
    """Start missing and stopped nodes and wait until they are usable; returns all nodes with their addresses."""
    record = task.record
    password = _prepare_directory(task.lab_dir, record)
    network = ensure_network(record.name)
    if task.stopped:
        task.notify(f"starting again: {', '.join(node.name for node in task.stopped)}")
        podman("start", *(container_name(record.name, node.name) for node in task.stopped))
    if task.missing:
        count = len(task.missing)
        task.notify(f"starting {count} node{'s' if count > 1 else ''} of lab {record.name!r} ({record.os})")
    pool.each(
        lambda node: podman(*run_argv(task.engine, record.name, task.image, node, network, task.lab_dir)),
        task.missing,
    )
    addresses = {container.node: container.address for container in list_containers(record.name)}
    pool.each(
        lambda node: wait_for_ssh(container_name(record.name, node.name), addresses[node.name], pool.stopped),
        record.nodes,
    )
    _wait_for_systemd(task, pool, password, (*task.missing, *task.stopped))
    return tuple((node, addresses[node.name]) for node in record.nodes)


def _wait_for_systemd(task: Task, pool: NodePool, password: str, nodes: Sequence[LabNode]) -> None:
    names = [container_name(task.record.name, node.name) for node in nodes]
    failed = pool.each(lambda name: finish_node(name, password, sudo_asks=task.record.sudo_asks), names)
    for name, units in zip(names, failed, strict=True):
        if units:
            task.notify(f"warning: {name} is up, but these units failed: {', '.join(units)}")


def _undo(task: Task, pool: NodePool) -> None:
    """Remove everything that this `up` created; never hides the original error."""
    name = task.record.name
    task.notify("removing what was started")
    try:
        pool.halt()
        new = {node.name for node in task.missing}
        for _ in range(2):  # twice: a container may have been on its way in the first time
            # by label, not by name: a container of that name may be why this `up` failed, and another user's
            remove_containers(container.id for container in list_containers(name) if container.node in new)
            pool.join()
        if task.before is None:
            remove_network(name)
            task.lab_dir.remove()
    except DeepOpsError as err:
        task.notify(f"not all of it: {err.message}; `deepopsctl lab down --name {name}` removes the rest")


def _prepare_directory(lab_dir: LabDir, record: LabRecord) -> str:
    """Create the lab's directory, password, shared directory and device files; returns the password."""
    lab_dir.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not lab_dir.password.exists():
        write_atomic(lab_dir.password, secrets.token_urlsafe(12) + "\n", 0o600)
    # writable for everybody like /tmp, below a directory that is root's
    lab_dir.shared.mkdir(exist_ok=True)
    lab_dir.shared.chmod(0o1777)
    if record.gpus:
        _make_devices(lab_dir.devices, record.gpus.count)
    return lab_dir.password.read_text(encoding="utf-8").strip()


def _make_devices(directory: Path, count: int) -> None:
    directory.mkdir(exist_ok=True, mode=0o700)
    for minor in range(count):
        device = directory / f"nvidia{minor}"
        if not device.exists():
            # The real driver's numbers: without it, opening one says "no such device or address", while a
            # job that may not use it gets "operation not permitted". That distinguishes the two.
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(NVIDIA_MAJOR, minor))
            device.chmod(0o666)
