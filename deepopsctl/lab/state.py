"""State of labs between commands: one private directory per lab, one lock per name."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepopsctl.errors import DeepOpsError
from deepopsctl.files import write_atomic
from deepopsctl.lab.layout import LabNode
from deepopsctl.model.cluster import Gpus, Role

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class LabRecord:
    """A lab after its last `lab up`."""

    name: str
    os: str
    gpus: Gpus | None
    sudo_asks: bool
    nodes: tuple[LabNode, ...]
    # whether its node list asks for it
    monitoring: bool = False

    @property
    def single(self) -> bool:
        """Whether its controller computes as well."""
        return Role.COMPUTE in self.nodes[0].also


@dataclass(frozen=True, slots=True)
class LabDir:
    """The files of one lab."""

    path: Path

    @property
    def record(self) -> Path:
        """The record file of the lab."""
        return self.path / "lab.json"

    @property
    def password(self) -> Path:
        """The login password of the lab's user (0600)."""
        return self.path / "password"

    @property
    def node_list(self) -> Path:
        """The default path of the node list."""
        return self.path / "nodes.yml"

    @property
    def devices(self) -> Path:
        """The simulated GPUs' device files."""
        return self.path / "devices"

    @property
    def shared(self) -> Path:
        """The directory that all nodes share, like a site's file system."""
        return self.path / "shared"

    def load(self) -> LabRecord | None:
        """The lab's record, or None if no `lab up` has finished here."""
        try:
            return _parse_record(json.loads(self.record.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as err:
            raise DeepOpsError(
                f"{self.record} cannot be read: {err!r}",
                f"`deepopsctl lab down --name {self.path.name}` clears it",
            ) from err

    def save(self, record: LabRecord) -> None:
        """Write the record file."""
        write_atomic(self.record, json.dumps(_record_object(record), indent=1) + "\n", 0o600)

    def hand_over(self, *more: Path) -> None:
        """Change the owner of the lab's files, and of `more`, to the owner of the directory of all labs."""
        owner = self.path.parent.stat()
        for path in (self.path, self.record, self.password, self.node_list, *more):
            if path.exists():
                os.chown(path, owner.st_uid, owner.st_gid)

    def remove(self) -> None:
        """Remove the lab's directory."""
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class LabStore:
    """All labs of this user, below $XDG_STATE_HOME/deepopsctl/labs."""

    root: Path

    @classmethod
    def default(cls) -> LabStore:
        """The store the XDG base directory rules put it in."""
        state_home = os.environ.get("XDG_STATE_HOME", "")
        base = Path(state_home) if state_home.startswith("/") else Path.home() / ".local" / "state"
        return cls(base / "deepopsctl" / "labs")

    def lab_dir(self, name: str) -> LabDir:
        """The directory of one lab, which need not exist."""
        return LabDir(self.root / name)

    def names(self) -> tuple[str, ...]:
        """Names of the labs that have a directory."""
        try:
            return tuple(sorted(path.name for path in self.root.iterdir() if path.is_dir()))
        except FileNotFoundError:
            return ()

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold lab `name` for this process; a second process is refused at once."""
        with self._locked(name, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def wait_lock(self, name: str) -> Iterator[None]:
        """Hold `name`, waiting for the process that has it: for the image, which one process builds for all."""
        with self._locked(name, fcntl.LOCK_EX):
            yield

    @contextmanager
    def _locked(self, name: str, mode: int) -> Iterator[None]:
        path = self.root / f"{name}.lock"
        while True:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                handle = path.open("a", encoding="ascii")
            except FileNotFoundError:
                continue  # the last lab was removed just now, with this directory
            try:
                fcntl.flock(handle, mode)
            except BlockingIOError as err:
                handle.close()
                raise DeepOpsError(
                    f"another `deepopsctl lab` command works on lab {name!r}", "wait for it, or choose another --name"
                ) from err
            if _is_same_file(path, handle.fileno()):
                break
            handle.close()  # its holder removed it while we waited: take the new one
        try:
            yield
        finally:
            # removed while held, so that `lab down` leaves no trace
            path.unlink(missing_ok=True)
            handle.close()
            with suppress(OSError):
                self.root.rmdir()


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _record_object(record: LabRecord) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "name": record.name,
        "os": record.os,
        "gpus": _gpus_object(record.gpus),
        "sudo_password": record.sudo_asks,
        "nodes": [
            {"name": node.name, "role": str(node.role), "host": node.host, "gpus": _gpus_object(node.gpus)}
            | ({"also": [str(role) for role in node.also]} if node.also else {})
            for node in record.nodes
        ],
        "monitoring": record.monitoring,
    }


def _gpus_object(gpus: Gpus | None) -> dict[str, object] | None:
    return {"type": gpus.type, "count": gpus.count} if gpus else None


def _parse_record(data: dict[str, object]) -> LabRecord:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']}")
    nodes = data["nodes"]
    if not isinstance(nodes, list):
        raise TypeError("nodes is not a list")
    return LabRecord(
        name=str(data["name"]),
        os=str(data["os"]),
        gpus=_parse_gpus(data["gpus"]),
        sudo_asks=bool(data["sudo_password"]),
        nodes=tuple(_parse_node(node) for node in nodes),
        monitoring=bool(data.get("monitoring", False)),
    )


def _parse_node(data: dict[str, Any]) -> LabNode:
    also = tuple(Role(role) for role in data.get("also", ()))
    return LabNode(str(data["name"]), Role(data["role"]), int(data["host"]), _parse_gpus(data["gpus"]), also)


def _parse_gpus(data: object) -> Gpus | None:
    return Gpus(str(data["type"]), int(data["count"])) if isinstance(data, dict) else None
