"""Where the packages of a storage client come from: a signed repository, or single packages that are checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.urls import open_url
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_failure,
    files as node_files,
    packages_query,
    packages_sources as apt_source,
)

SOURCES = apt_source.SOURCES.format("deepopsctl-storage-%s")
KEYRINGS = apt_source.KEYRINGS.format("deepopsctl-storage-%s")
ARCHIVES = "/var/cache/deepopsctl/storage-%s"
_PART = 1 << 20


class ArchiveError(node_failure.HintedError):
    """A package can't be had, or is another than the one that was named."""


_HINT = "let the node reach it, or change the address: `repository`, `key` or `archives` of the entry in cluster.yml"


def paths(name: str) -> list[str]:
    """The files of a client's source that the gate compares; those that are not there are no part of it."""
    return [path for path in (SOURCES % name, KEYRINGS % name) if os.path.exists(path)]


def ensure(
    noted: node_changes.Noted,
    name: str,
    repository: Mapping[str, Any] | None,
    archives: Sequence[Mapping[str, str]],
    lock_wait: int,
) -> None:
    """The source of one client as it is wanted, with its package lists; what can't be used is put back."""
    path = SOURCES % name
    before = node_files.read(path)
    written = False
    if repository:
        written = apt_source.ensure_key(noted, KEYRINGS % name, repository["key"], repository["fingerprint"], _HINT)
        address = (repository["url"], repository["suite"], repository["components"])
        text = apt_source.stanza(*address, KEYRINGS % name)
    elif archives:
        written = ensure_archives(noted, ARCHIVES % name, archives)
        text = f"Types: deb\nURIs: file:{ARCHIVES % name}/\nSuites: ./\nTrusted: yes\n"
    else:
        node_files.remove(noted, path)
    if repository or archives:
        written = bool(node_files.ensure(noted, path, (node_files.HEADER + text).encode("utf-8"))) or written
    # what the source from before needed
    if not repository:
        node_files.remove(noted, KEYRINGS % name)
    if not archives:
        drop_archives(noted, ARCHIVES % name)
    if (repository or archives) and not noted.dry and (written or not apt_source.has_lists(path)):
        apt_source.refresh(path, lock_wait, {path: before})


def drop_archives(noted: node_changes.Noted, directory: str) -> None:
    """Remove the packages and their directory."""
    for entry in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        node_files.remove(noted, os.path.join(directory, entry))
    if os.path.isdir(directory) and not noted.dry:
        os.rmdir(directory)


def ensure_archives(noted: node_changes.Noted, directory: str, archives: Sequence[Mapping[str, str]]) -> bool:
    """The packages, each with its hash, and their index; True where any of it was not there."""
    wanted = {os.path.basename(archive["url"]): archive for archive in archives}
    missing = [name for name in wanted if _digest(os.path.join(directory, name)) != wanted[name]["sha256"]]
    for name in missing:
        path = os.path.join(directory, name)
        if noted.dry:
            # a plan reports what a deploy could not fetch
            _open(wanted[name]["url"]).close()
        else:
            os.makedirs(directory, mode=0o755, exist_ok=True)
            fetch(wanted[name]["url"], wanted[name]["sha256"], path)
        noted.did("file", path, "write", detail=f"sha256 {wanted[name]['sha256']}")
    there = os.listdir(directory) if os.path.isdir(directory) else []
    gone = [name for name in there if name.endswith(".deb") and name not in wanted]
    for name in gone:
        node_files.remove(noted, os.path.join(directory, name))
    if noted.dry:
        return bool(missing or gone)
    text = "".join(index_entry(directory, name) for name in sorted(wanted))
    return bool(node_files.ensure(noted, os.path.join(directory, "Packages"), text.encode("utf-8"))) or bool(missing)


def fetch(url: str, sha256: str, path: str) -> None:
    """Download a file that must have this hash; nothing is left of another."""
    temporary = path + ".new"
    try:
        _download(url, temporary)
        digest = _digest(temporary)
        if digest == sha256:
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    if digest != sha256:
        raise ArchiveError(
            f"{url} is another file: its SHA-256 is {digest}",
            "compare it with the one of the file that you made, and correct `archives` in cluster.yml",
        )


def _download(url: str, path: str) -> None:
    with _open(url) as source, open(path, "wb") as stream:
        for part in iter(lambda: _read(url, source), b""):
            stream.write(part)
        length = source.headers.get("Content-Length", "")
        if length.isdigit() and stream.tell() < int(length):
            raise ArchiveError(f"cannot fetch {url}: it ended after {stream.tell()} of {length} bytes", _HINT)


def _read(url: str, source: Any) -> bytes:
    try:
        return bytes(source.read(_PART))
    except Exception as error:
        raise ArchiveError(f"cannot fetch {url}: {error}", _HINT) from error


def _open(url: str) -> Any:
    # urllib and Ansible's wrapper raise many types
    try:
        return open_url(url, timeout=60)
    except Exception as error:
        raise ArchiveError(f"cannot fetch {url}: {error}", _HINT) from error


def index_entry(directory: str, name: str) -> str:
    """A package's entry in the index of its directory."""
    path = os.path.join(directory, name)
    control = packages_query.control(path)
    return f"{control}\nFilename: ./{name}\nSize: {os.path.getsize(path)}\nSHA256: {_digest(path)}\n\n"


def _digest(path: str) -> str:
    hasher = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for part in iter(lambda: stream.read(_PART), b""):
                hasher.update(part)
    except OSError:
        return ""
    return hasher.hexdigest()


def is_of_version(version: str, wanted: str) -> bool:
    """Whether a package's version is of a release: `20:8.3.1-1` is of 8.3, and `8.30-1` is not."""
    bare = version.split(":", 1)[-1]
    return bare == wanted or (bare.startswith(wanted) and not bare[len(wanted)].isdigit())


def choose(available: Sequence[str], wanted: str) -> str:
    """The newest of a package's versions, newest first, that is of a release; '' where none is."""
    return next((version for version in available if is_of_version(version, wanted)), "")
