"""What a node gets for a file system beside a mount unit: its software, and its secrets. Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeSecret:
    """A file with one of `storage_secrets`, by the secret's `name`; nothing of it is ever shown.

    `is_binary` secrets are in the vault as base64; the others are words, and `before` stands before the word.
    """

    path: str
    name: str
    is_binary: bool = False
    before: str = ""
    mode: str = "0400"


@dataclass(frozen=True, slots=True)
class Archive:
    """One package by its address, and what its file must be."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A signed repository of packages; a flat one has the suite `/` and no components."""

    url: str
    key: str
    fingerprint: str
    suite: str = "/"
    components: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """Software of a file system that belongs to a kernel: it is held together with that kernel.

    `modules` are the kernel modules that must be there for the running kernel; `builds` says that they are compiled on
    the node, which takes the kernel's headers.
    """

    name: str
    version: str
    packages: tuple[str, ...]
    modules: tuple[str, ...] = ()
    builds: bool = True
    repository: Repository | None = None
    archives: tuple[Archive, ...] = ()
