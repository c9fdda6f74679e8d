"""What each member of a group has in the group's directory, from the results of the nightly count."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .rows import COUNTED, PROJECT, USER, Amount, FileSystem, Person, Row, Usage
from .table import count, size

RESULTS = ".stats"
MEMBER = "member"
# who has less is left out unless everybody is asked for
FEW_FILES, LITTLE_SPACE = 100_000, 1 << 30
_LARGEST = 4 << 20
_HEAD = ("User", "# of files", "Space")


def read(where: FileSystem, person: Person, owner: int = 0) -> list[Row]:
    """A row for each user in each of the person's groups, for root of all; a result counts only where it is root's."""
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        directory = _open(where, owner, stack)
        if directory is None:
            return rows
        everything = person.is_self and person.uid == 0
        for name in _all_names(directory) if everything else _names(person):
            result = _result(directory, name + ".json", owner)
            # directories of users are one table: they are of the same file system
            together = everything and "user" in result
            path = where.path if together else os.path.join(where.path, name)
            when = (_when(result)[:10] if together else _when(result)) if result else ""
            rows += [_row(where, path, each, when) for each in result.get("users", ())]
    return sorted(rows, key=lambda row: (row.path, -(row.usage.space.used or 0)))


def totals(where: FileSystem, person: Person, owner: int = 0) -> list[Row]:
    """What is in the person's own directory and in those of their groups, as far as the nightly count has them."""
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        directory = _open(where, owner, stack)
        if directory is None:
            return rows
        for name in dict.fromkeys([person.name, *_names(person)]):
            result = _result(directory, name + ".json", owner)
            kind = next((kind for key, kind in (("user", USER), ("group", PROJECT)) if result.get(key) == name), "")
            if kind and (kind == PROJECT or name == person.name):
                # also what others have written there: it is in this directory
                bytes_used, files = (sum(int(each[key]) for each in result["users"]) for key in ("bytes", "files"))
                path, usage = os.path.join(where.path, name), Usage(Amount(bytes_used), Amount(files))
                rows.append(Row(where.name, path, kind, name, COUNTED + _when(result), usage))
    return rows


def _open(where: FileSystem, owner: int, stack: contextlib.ExitStack) -> int | None:
    """The directory of results; None where there is none, or where it is not root's."""
    try:
        directory = os.open(os.path.join(where.path, RESULTS), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        # most file systems have none
        return None
    stack.callback(os.close, directory)
    return directory if _is_roots(os.fstat(directory), owner) else None


def _all_names(directory: int) -> list[str]:
    names = (name for name in os.listdir(directory) if not name.startswith("."))
    return sorted(name[: -len(".json")] for name in names if name.endswith(".json"))


def _is_roots(status: os.stat_result, owner: int) -> bool:
    return status.st_uid == owner and not status.st_mode & 0o022


def _names(person: Person) -> Iterator[str]:
    for gid in sorted(set(person.groups)):
        with contextlib.suppress(KeyError):
            yield grp.getgrgid(gid).gr_name


def _result(directory: int, name: str, owner: int) -> dict[str, Any]:
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return {}
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or not _is_roots(status, owner) or status.st_size > _LARGEST:
            return {}
        return dict(json.loads(stream.read()))


def _row(where: FileSystem, path: str, entry: dict[str, int], when: str) -> Row:
    usage = Usage(Amount(int(entry["bytes"])), Amount(int(entry["files"])))
    return Row(where.name, path, MEMBER, _user(int(entry["uid"])), when, usage)


def _when(result: dict[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(int(result["finished"])))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def render(rows: Sequence[Row], *, everybody: bool) -> str:
    """A table for each group, with the time of the count."""
    tables: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if not row.problem:
            tables.setdefault((row.path, row.source), []).append(row)
    if not tables:
        return "\nPer user: nothing was counted in your groups' directories yet\n"
    return "".join(_table(path, when, of_group, everybody=everybody) for (path, when), of_group in tables.items())


def _table(path: str, when: str, rows: Sequence[Row], *, everybody: bool) -> str:
    shown = [row for row in rows if everybody or _is_much(row)]
    lines = [_HEAD, *((row.who, count(row.usage.files.used), size(row.usage.space.used)) for row in shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    text = ["", f"{path}, counted {when}"]
    text += [
        "  ".join([line[0].ljust(widths[0]), line[1].rjust(widths[1]), line[2].rjust(widths[2])]) for line in lines
    ]
    if len(shown) < len(rows):
        text.append(f"{len(rows) - len(shown)} with less than 100k files and 1 GiB: --all_users shows them")
    return "\n".join(text) + "\n"


def _is_much(row: Row) -> bool:
    return (row.usage.files.used or 0) > FEW_FILES or (row.usage.space.used or 0) > LITTLE_SPACE
