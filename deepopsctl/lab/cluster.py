"""`lab up`, `lab down`, `lab status`: what happens in which order, and what is undone when it fails."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from deepopsctl.errors import DeepOpsError, InputError
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
from deepopsctl.lab.engine import detect
from deepopsctl.lab.image import Recipe, Say, build_image, ensure_image
from deepopsctl.lab.layout import LabNode, LabRequest
from deepopsctl.lab.podman import podman
from deepopsctl.lab.rootfs import USER
from deepopsctl.lab.state import LabFolder, LabRecord, LabStore, write_private

NVIDIA_MAJOR = 195
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


def up(
    store: LabStore, request: LabRequest, say: Say, *, output: Path | None = None, rebuild: bool = False
) -> Lab:
    """Bring a lab to at least the nodes asked for; nodes that run are left alone."""
    started = time.monotonic()
    layout.check_name(request.name)
    engine = detect()
    folder = store.folder(request.name)
    with store.lock(request.name):
        before = folder.load()
        record = _target(request, before)
        present = _present(request.name, folder, before)
        recipe = Recipe.for_os(record.os)
        with store.wait_lock(f".image-{record.os}"):
            if rebuild:
                build_image(recipe, say)
            image = ensure_image(recipe, say)
        missing = [node for node in record.nodes if node.name not in present]
        stopped = [
            present[n.name].id
            for n in record.nodes
            if n.name in present and present[n.name].state != "running"
        ]
        try:
            password = _prepare_folder(folder, record)
            network = ensure_network(record.name)
            if stopped:
                podman("start", *stopped)
            if missing:
                say(
                    f"starting {len(missing)} node{'s' if len(missing) > 1 else ''} of lab {record.name!r} ({record.os})"
                )
            _in_parallel(
                lambda node: podman(*run_argv(engine, record.name, image, node, network, folder.devices)),
                missing,
            )
            _finish(record, missing, password, say)
            addresses = {c.node: c.address for c in list_containers(record.name)}
            _wait_for_ssh(record, addresses)
            nodes = tuple((node, addresses[node.name]) for node in record.nodes)
            node_list = output or folder.node_list
            node_list.write_text(layout.render_node_list(record.name, USER, nodes), encoding="utf-8")
            folder.save(record)
        except BaseException:
            say("removing what was started")
            _roll_back(folder, before, record, missing)
            raise
    return Lab(
        name=record.name,
        os=record.os,
        nodes=nodes,
        added=tuple(node.name for node in missing),
        node_list=node_list,
        password_file=folder.password,
        elapsed_s=time.monotonic() - started,
    )


def down(store: LabStore, name: str) -> int:
    """Remove every trace of a lab; returns how many containers it had. A lab that is not there is no error."""
    layout.check_name(name)
    with store.lock(name):
        found = list_containers(name)
        remove_containers(container.id for container in found)
        remove_network(name)
        store.folder(name).remove()
    return len(found)


def status(store: LabStore) -> dict[str, tuple[LabRecord | None, tuple[Container, ...]]]:
    """All labs by name: their record (None: not of this user, or never finished) and their containers."""
    containers = list_containers()
    names = sorted({*store.names(), *(container.lab for container in containers)})
    return {
        name: (
            store.folder(name).load(),
            tuple(sorted((c for c in containers if c.lab == name), key=lambda c: c.node)),
        )
        for name in names
    }


def _target(request: LabRequest, before: LabRecord | None) -> LabRecord:
    """The lab as it shall be: what was asked for, and what it has already."""
    if before is None:
        os_name = request.os or layout.DEFAULT_OS
        return LabRecord(
            request.name, os_name, request.gpus, request.sudo_password, layout.plan_nodes(request)
        )
    problems = layout.contradictions(
        request, os=before.os, gpus=before.gpus, sudo_password=before.sudo_password
    )
    if problems:
        raise InputError(problems)
    wanted = layout.plan_nodes(replace(request, gpus=before.gpus))
    have = {node.name for node in before.nodes}
    return replace(before, nodes=before.nodes + tuple(node for node in wanted if node.name not in have))


def _present(name: str, folder: LabFolder, before: LabRecord | None) -> dict[str, Container]:
    """The lab's containers by node; leftovers of an `up` that was killed are removed."""
    found = list_containers(name)
    if found and not folder.path.exists():
        raise DeepOpsError(
            f"containers of a lab {name!r} exist, but not its state folder {folder.path}: it may be somebody else's",
            f"choose another --name, or remove it with `deepopsctl lab down --name {name}`",
        )
    known = {node.name for node in before.nodes} if before else set()
    remove_containers(container.id for container in found if container.node not in known)
    return {container.node: container for container in found if container.node in known}


def _prepare_folder(folder: LabFolder, record: LabRecord) -> str:
    """Make the lab's folder, password and device files; returns the password."""
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not folder.password.exists():
        write_private(folder.password, secrets.token_urlsafe(12) + "\n")
    folder.devices.mkdir(exist_ok=True, mode=0o700)
    for minor in range(record.gpus.count if record.gpus else 0):
        device = folder.devices / f"nvidia{minor}"
        if not device.exists():
            # The real driver's numbers: without it, opening one says "no such device or address", while a
            # job that may not use it gets "operation not permitted". That tells the two apart.
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(NVIDIA_MAJOR, minor))
            device.chmod(0o666)
    return folder.password.read_text(encoding="utf-8").strip()


def _finish(record: LabRecord, nodes: Sequence[LabNode], password: str, say: Say) -> None:
    names = [container_name(record.name, node.name) for node in nodes]
    failed = _in_parallel(lambda name: finish_node(name, password, sudo_password=record.sudo_password), names)
    for name, units in zip(names, failed, strict=True):
        if units:
            say(f"warning: {name} is up, but these units failed: {', '.join(units)}")


def _wait_for_ssh(record: LabRecord, addresses: dict[str, str]) -> None:
    _in_parallel(
        lambda node: wait_for_ssh(container_name(record.name, node.name), addresses[node.name]), record.nodes
    )


def _roll_back(
    folder: LabFolder, before: LabRecord | None, record: LabRecord, missing: Sequence[LabNode]
) -> None:
    remove_containers(container_name(record.name, node.name) for node in missing)
    if before is None:
        remove_network(record.name)
        folder.remove()


def _in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply `work` to all, a few at once; the first failure ends it and is raised."""
    pool = ThreadPoolExecutor(max_workers=AT_ONCE)
    try:
        return list(pool.map(work, items))
    finally:
        # on failure or Ctrl-C: what has not begun never begins
        pool.shutdown(wait=True, cancel_futures=True)
