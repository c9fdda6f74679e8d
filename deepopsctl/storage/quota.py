"""`quota` of an entry: limits by user or project, set on managed servers and only reported for others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from deepopsctl.model.storage import NETWORKED, Mount, StorageType
from deepopsctl.storage.nfs import split_source
from deepopsctl.storage.types import Fault, SharedOption, Site, refused
from deepopsctl.storage.values import KIB, is_below, parse_count, parse_size, parse_time
from deepopsctl.text.answers import mapping
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Section
from deepopsctl.text.values import suggest

# Project IDs that deepopsctl assigns; lower ones are left to the site.
FIRST_ID = 100_000
_LAST_ID = 2**32 - 2
_NUMBER = re.compile("[0-9]{1,10}")
DEFAULT_GRACE = "7d"
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}|[1-9][0-9]{0,9}")
# /etc/projid and /etc/projects end a field with a colon
_PROJECT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}")
_FOLDER = re.compile(r"[A-Za-z0-9._+@=-]+(/[A-Za-z0-9._+@=-]+)*")


class QuotaType(StrEnum):
    """What the space is counted by."""

    USER = "user"
    PROJECT = "project"


class LimitsSection(Section):
    """How much; what is missing has no limit."""

    space: str = ""
    space_soft: str = ""
    files: str = ""
    files_soft: str = ""


class ProjectSection(LimitsSection):
    """One of `projects`: a directory below the mount point."""

    path: str = ""
    id: str = ""


class QuotaSection(Section):
    """`quota` of an entry."""

    kind: str = QuotaType.USER.value
    default: LimitsSection = LimitsSection()
    grace: str = DEFAULT_GRACE
    users: dict[str, LimitsSection] | None = None
    projects: dict[str, ProjectSection] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Space in bytes and numbers of files; 0 is not a limit."""

    space: int = 0
    space_soft: int = 0
    files: int = 0
    files_soft: int = 0

    @property
    def as_setquota(self) -> list[int]:
        """Soft and hard space in KiB, soft and hard files: the order of setquota."""
        return [self.space_soft // KIB, self.space // KIB, self.files_soft, self.files]


@dataclass(frozen=True, slots=True)
class Project:
    """One project: its ID, and its directory below the mount point."""

    name: str
    number: int
    path: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class Quota:
    """What is declared for one file system."""

    kind: QuotaType
    default: Limits = field(default_factory=Limits)
    grace: int = 0
    users: Mapping[str, Limits] = field(default_factory=dict)
    projects: tuple[Project, ...] = ()


def quota_of(mount: Mount) -> Quota | None:
    """What an entry that was checked declares; None where it has no `quota`."""
    part = mount.parts.get("quota")
    if part is None:
        return None
    users, projects = mapping(part.get("users")), mapping(part.get("projects"))
    default = _limits(mapping(part.get("default")))
    return Quota(
        kind=QuotaType(str(part.get("kind", QuotaType.USER))),
        default=default,
        grace=parse_time(str(part.get("grace", DEFAULT_GRACE))),
        users={name: _limits(mapping(limits)) for name, limits in users.items()},
        projects=tuple(_projects(projects, default)),
    )


def number_of(name: str) -> int:
    """A stable project ID, independent of other projects: it is stored in every inode of the directory."""
    digest = 0x811C9DC5
    for byte in name.encode():
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return FIRST_ID + digest % (2**31 - FIRST_ID)


def served(mounts: Iterable[Mount], host: str) -> list[dict[str, object]]:
    """What a server sets up, one for each export with quotas; two entries of one export are one."""
    quotas: dict[str, dict[str, object]] = {}
    for mount in mounts:
        quota = quota_of(mount)
        if quota is None or mount.server != host:
            continue
        directory = split_source(mount.source)[1]
        quotas.setdefault(directory, {"name": mount.name, "path": directory, **_as_object(quota, directory)})
    return list(quotas.values())


def _limits(settings: Mapping[str, object]) -> Limits:
    space, soft = str(settings.get("space", "")), str(settings.get("space_soft", ""))
    files, files_soft = str(settings.get("files", "")), str(settings.get("files_soft", ""))
    return Limits(
        parse_size(space) if space else 0,
        parse_size(soft) if soft else 0,
        parse_count(files) if files else 0,
        parse_count(files_soft) if files_soft else 0,
    )


def _projects(projects: Mapping[str, object], default: Limits) -> Iterator[Project]:
    for name, written in projects.items():
        project = mapping(written)
        own = {key: value for key, value in project.items() if key not in ("path", "id")}
        number = int(str(project["id"])) if project.get("id") else number_of(name)
        yield Project(name, number, str(project.get("path") or name), _limits(own) if own else default)


def _check(mount: Mount, _site: Site) -> Iterator[Fault]:
    part = mount.parts["quota"]
    quota_type = str(part.get("kind", QuotaType.USER))
    if quota_type not in list(QuotaType):
        yield (
            "quota.kind",
            RefusedError(f"{shorten(quota_type)!r} is not a type of quota", suggest(quota_type, list(QuotaType))),
        )
        return
    yield from refused("quota.grace", parse_time, str(part.get("grace", DEFAULT_GRACE)))
    yield from _check_limits("quota.default", mapping(part.get("default")))
    yield from _check_users(quota_type, mapping(part.get("users")))
    yield from _check_projects(mount, quota_type, mapping(part.get("projects")))
    yield from _check_place(mount, part)


def _check_limits(key: str, settings: Mapping[str, object]) -> Iterator[Fault]:
    faults = []
    for name, check in (("space", parse_size), ("files", parse_count)):
        for end in ("", "_soft"):
            text = str(settings.get(name + end, ""))
            faults += list(refused(f"{key}.{name}{end}", check, text) if text else ())
    yield from faults
    if faults:
        return
    limits = _limits(settings)
    for soft, hard, what in (
        (limits.space_soft, limits.space, "space"),
        (limits.files_soft, limits.files, "files"),
    ):
        if hard and soft > hard:
            yield f"{key}.{what}_soft", RefusedError(f"is more than {what}", "the soft limit is the lower one")


def _check_users(quota_type: str, users: Mapping[str, object]) -> Iterator[Fault]:
    if users and quota_type != QuotaType.USER:
        yield "quota.users", RefusedError("are for kind: user", "a file system counts by users or by projects here")
    for name, limits in users.items():
        if not _USER.fullmatch(name) or name == "root":
            what = "root has no limits" if name == "root" else f"{shorten(name)!r} is not a user"
            yield "quota.users", RefusedError(what, "write names of accounts")
        yield from _check_limits(f"quota.users.{name}", mapping(limits))


def _check_projects(mount: Mount, quota_type: str, projects: Mapping[str, object]) -> Iterator[Fault]:
    if projects and quota_type != QuotaType.PROJECT:
        yield "quota.projects", RefusedError("are for kind: project", "write kind: project")
    numbers: dict[int, str] = {}
    directories: dict[str, str] = {}
    for name, written in projects.items():
        settings = mapping(written)
        key = f"quota.projects.{name}"
        directory, number = str(settings.get("path") or name), str(settings.get("id", ""))
        if not _PROJECT.fullmatch(name):
            yield key, RefusedError(f"{shorten(name)!r} is not a project", "use letters, digits, . _ and -")
        if not _FOLDER.fullmatch(directory) or {".", ".."} & set(directory.split("/")):
            yield (
                f"{key}.path",
                RefusedError(f"{shorten(directory)!r} is not a directory below {mount.path}", "write def-prof"),
            )
        if number and not (_NUMBER.fullmatch(number) and 1 <= int(number) <= _LAST_ID):
            yield f"{key}.id", RefusedError(f"{shorten(number)!r} is not a number of a project", "leave it out")
            continue
        yield from _check_limits(key, {item: text for item, text in settings.items() if item not in ("path", "id")})
        yield from _check_alone(key, name, int(number) if number else number_of(name), directory, numbers, directories)


def _check_alone(
    key: str, name: str, number: int, directory: str, numbers: dict[int, str], directories: dict[str, str]
) -> Iterator[Fault]:
    """A file is in one project."""
    if other := numbers.get(number):
        yield f"{key}.id", RefusedError(f"{number} is already that of {other}", "give one of them another id")
    for known, other in directories.items():
        if directory == known or is_below(directory, known) or is_below(known, directory):
            yield (
                f"{key}.path",
                RefusedError(f"has the same directory as {other}", "project directories must not be nested"),
            )
    numbers.setdefault(number, name)
    directories.setdefault(directory, name)


def _check_place(mount: Mount, part: Mapping[str, object]) -> Iterator[Fault]:
    """Limits can be set only on managed servers; for external servers the type and the projects are reported."""
    if mount.server:
        return
    projects = [mapping(project) for project in mapping(part.get("projects")).values()]
    limits = [name for project in projects for name in project if name not in ("path", "id")]
    if part.get("default") or part.get("users") or part.get("grace") or limits:
        what = "limits can only be set where this cluster serves the file system"
        yield "quota", RefusedError(what, "set them on its server; set kind here, and projects with their paths")


def _as_object(quota: Quota, directory: str) -> dict[str, object]:
    return {
        "kind": quota.kind.value,
        "grace": quota.grace,
        "default": quota.default.as_setquota,
        "users": {name: limits.as_setquota for name, limits in quota.users.items()},
        "projects": [
            {
                "name": each.name,
                "id": each.number,
                "path": f"{directory}/{each.path}",
                "limits": each.limits.as_setquota,
            }
            for each in quota.projects
        ],
    }


OPTION = SharedOption(QuotaSection, _check, frozenset({*NETWORKED, StorageType.LOCAL}))
