"""File systems, from the JSON file that deploy writes, and rows of the table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..._shared import settings
from ..._shared.settings import SettingsError

CONFIG = "/etc/deepopsctl/diskusage.json"
LIMIT_S = 10
USER, PROJECT, WHOLE = "user", "project", "whole"
# the source of a usage that the nightly count has, before its time
COUNTED = "counted "


@dataclass(frozen=True)
class Project:
    """A directory with a quota of its own."""

    name: str
    path: str


@dataclass(frozen=True)
class Person:
    """The user whose usage is queried; `is_self` if it is the caller."""

    name: str
    uid: int
    groups: Sequence[int]
    is_self: bool = True


@dataclass(frozen=True)
class FileSystem:
    """One mounted file system; `quota` is what its quotas count: `user`, `project` or '' for none that we know of.

    `mounted`: its path must be a mount point, else another file system would be queried.
    """

    name: str
    path: str
    type: str
    quota: str = ""
    projects: tuple[Project, ...] = ()
    mounted: bool = False


@dataclass(frozen=True)
class Config:
    """All of them, and how long each may take to answer, in seconds."""

    file_systems: tuple[FileSystem, ...]
    limit_s: float = LIMIT_S


@dataclass(frozen=True)
class Amount:
    """Used, and the limits; None if there is none or it is unknown."""

    used: int | None = None
    soft: int | None = None
    hard: int | None = None

    @property
    def limit(self) -> int | None:
        """What a user has to stay below: the soft limit, if there is one."""
        return self.soft or self.hard

    @property
    def is_over(self) -> bool:
        """Whether it is used up."""
        return self.used is not None and bool(self.limit) and self.used > (self.limit or 0)


@dataclass(frozen=True)
class Usage:
    """Usage of one user or project; `grace` is when the soft limit becomes hard (seconds since 1970)."""

    space: Amount = field(default_factory=Amount)
    files: Amount = field(default_factory=Amount)
    grace: int | None = None


@dataclass(frozen=True)
class Row:
    """One line: the use of a file system, its source, or the problem."""

    name: str
    path: str
    kind: str
    who: str
    source: str = ""
    usage: Usage = field(default_factory=Usage)
    problem: str = ""


def load(path: str) -> Config:
    """Read the file."""
    if not os.path.exists(path):
        raise SettingsError(f"{path} is not there: deploy writes it where storage is mounted")
    config = settings.load(path)
    try:
        return Config(
            tuple(_file_system(each) for each in config["filesystems"]), float(config.get("limit_s", LIMIT_S))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path}: {error!r}") from error


def _file_system(entry: dict[str, Any]) -> FileSystem:
    projects = tuple(Project(**each) for each in entry.get("projects", ()))
    quota, mounted = entry.get("quota", ""), bool(entry.get("mounted", False))
    return FileSystem(entry["name"], entry["path"], entry["type"], quota, projects, mounted)
