"""apt's sources: where else one is listed, the key that signs it, and its package lists."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ansible.module_utils.urls import open_url
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    openpgp,
    packages as node_packages,
)

MODE = 0o644
# what NVIDIA's driver and its firmware are in; contrib and non-free need main
NON_FREE = ("contrib", "non-free", "non-free-firmware")
# a mirror of Debian, or a list of some as its cloud images have it
_DEBIAN = re.compile(r"/debian(-security)?(\.list)?/?$|\bdebian\.org/?$")
_SCHEME = re.compile(r"^\w+:(//)?")
_KEY_ITSELF = "-----BEGIN"
ETC = "/etc/apt"
# of a name
SOURCES, KEYRINGS = ETC + "/sources.list.d/{}.sources", ETC + "/keyrings/{}.asc"
# what apt takes for no
_NO = ("no", "false", "without", "off", "disable", "0")


class Source(NamedTuple):
    """One address and suite that apt reads."""

    path: str
    types: list[str]
    uri: str
    suite: str
    components: list[str]
    key: str


class SourceError(node_errors.HintedError):
    """A source or its key can't be used."""


def is_the_key(data: bytes | None, fingerprint: str | None) -> bool:
    """Whether a file has this key and no other."""
    try:
        return openpgp.fingerprints(data or b"") == [fingerprint]
    except ValueError:
        return False


def fetch_key(url: str, fingerprint: str | None, hint: str) -> bytes:
    """The key, by its address or itself; raises SourceError where it can't be had or is another."""
    if url.startswith(_KEY_ITSELF):
        name, data = "the key", url.encode("ascii", "replace")
    else:
        name, data = url, _download(url, hint)
    if not is_the_key(data, fingerprint):
        raise SourceError(
            f"{name} is not the key with the fingerprint {fingerprint}",
            "something between the node and the repository changes downloads; nothing was written",
        )
    return data


def _download(url: str, hint: str) -> bytes:
    # urllib raises many kinds, Ansible's wrapper of it still others
    try:
        return bytes(open_url(url, timeout=30).read())
    except Exception as error:
        raise SourceError(f"cannot fetch {url}: {error}", hint) from error


def ensure_key(noted: node_changes.Noted, path: str, url: str, fingerprint: str | None, hint: str) -> bool:
    """The key is there, and is the one that it should be; True where it was written."""
    ids, current = node_files.owner_ids("root", "root"), node_files.read(path)
    known = current if is_the_key(current, fingerprint) else None
    if known and not node_files.differs(path, known, ids, MODE):
        return False
    # fetched in check mode, too: a plan reports what a deploy could not fetch
    data = known or fetch_key(url, fingerprint, hint)
    if not noted.dry:
        node_files.write(path, data, ids, MODE, [])
    noted.did("file", path, "write", detail=f"fingerprint {fingerprint}", new=current is None)
    return True


def named_elsewhere(uri: str, own: str, directory: str = ETC) -> str:
    """The first file but `own` whose sources have this address; '' where there is none.

    Two files that name one source with different keys make apt refuse all work.
    """
    return next((source.path for source in sources(directory, own) if _bare(source.uri) == _bare(uri)), "")


def _bare(uri: str) -> str:
    return _SCHEME.sub("", uri).rstrip("/")


def debian_sources(own: str, directory: str = ETC) -> list[list[Any]]:
    """[[uri, suite, signed_by, [missing component]]] of Debian's `main` on this node; not from the file `own`."""
    codename = re.search("^VERSION_CODENAME=(.+)$", node_files.text("/etc/os-release"), re.MULTILINE)
    names = (codename.group(1) if codename else "stable", "stable", "oldstable")
    components: dict[tuple[str, str], set[str]] = {}
    keys: dict[tuple[str, str], str] = {}
    for source in sources(directory, own):
        named = re.sub("-(updates|security)$", "", source.suite) in names
        # a key in the file itself can't be named elsewhere
        if named and _DEBIAN.search(source.uri) and "deb" in source.types and not source.key.startswith(_KEY_ITSELF):
            components.setdefault((source.uri, source.suite), set()).update(source.components)
            keys.setdefault((source.uri, source.suite), source.key)
    lacking = {entry: [name for name in NON_FREE if name not in there] for entry, there in components.items()}
    return [
        [*entry, keys[entry], lacking[entry]] for entry in lacking if "main" in components[entry] and lacking[entry]
    ]


def sources(directory: str, own: str) -> Iterator[Source]:
    """A Source for each address and suite that apt reads here, but those in the file `own`."""
    for path in [os.path.join(directory, "sources.list")] + sorted(
        glob.glob(os.path.join(directory, "sources.list.d", "*"))
    ):
        read = {".list": _one_line_entries, ".sources": _stanzas}.get(os.path.splitext(path)[1])
        if read and path != own:
            for entry in read(node_files.text(path)):
                yield Source(path, *entry)


def _one_line_entries(text: str) -> Iterator[tuple[list[str], str, str, list[str], str]]:
    """`deb [signed-by=KEY] URI SUITE COMPONENT...`."""
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)([^#]*)", line.strip())
        if match:
            key = re.search(r"signed-by=(\S+)", match.group(1) or "")
            yield ["deb"], match.group(2), match.group(3), match.group(4).split(), key.group(1) if key else ""


def _stanzas(text: str) -> Iterator[tuple[list[str], str, str, list[str], str]]:
    """The deb822 form; what continues in further lines is one value."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line[:1].isspace():
                fields[name] = f"{fields.get(name, '')} {line.strip()}".strip()
            elif not line.startswith("#"):
                name, _separator, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields.get("enabled", "").lower() in _NO:
            continue
        types, components = fields.get("types", "").split(), fields.get("components", "").split()
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield types, uri, suite, components, fields.get("signed-by", "")


def stanza(uri: str, suite: str, components: str, keyring: str) -> str:
    """A source as apt reads it."""
    lines = ["Types: deb", f"URIs: {uri}", f"Suites: {suite}"]
    lines += [f"Components: {components}"] if components else []
    lines += [f"Signed-By: {keyring}"] if keyring else []
    return "".join(f"{line}\n" for line in lines)


def refresh(path: str, lock_wait: int, before: Mapping[str, bytes | None]) -> None:
    """Fetch the package lists of one source file, and nothing else.

    Where any of it fails, puts back the previous files, {path: content or None}, and raises SourceError: with a source
    that can't be used, apt would refuse all other work as well.
    """
    options = [
        f"Dir::Etc::sourcelist={path}",
        "Dir::Etc::sourceparts=-",
        "APT::Get::List-Cleanup=0",
        # a signature that is wrong would be but a warning where there are lists from before
        "APT::Update::Error-Mode=any",
    ]
    try:
        node_packages.refresh([word for option in options for word in ("-o", option)], lock_wait)
    except node_packages.PackageError as error:
        for name, content in before.items():
            if content is not None:
                node_files.write(name, content, node_files.owner_ids("root", "root"), MODE, [])
            elif os.path.exists(name):
                os.unlink(name)
        raise SourceError(str(error), error.hint) from error


def remove_superseded(noted: node_changes.Noted, directory: str, uri: str, own: str, etc: str = ETC) -> None:
    """Remove the repositories in a directory that are not at `uri`, and that no source file but `own` names."""
    files = [os.path.join(etc, "sources.list")] + glob.glob(os.path.join(etc, "sources.list.d", "*"))
    # by their text: what apt does not read now may be switched on again
    named = "\n".join([uri] + [node_files.text(path) for path in files if path != own])
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        path = os.path.join(directory, name)
        if path not in named and os.path.isdir(path) and not os.path.islink(path):
            noted.did("directory", path, "remove")
            if not noted.dry:
                shutil.rmtree(path)


def has_lists(path: str) -> bool:
    """Whether apt has the package lists of a source file; a file that is not there needs none."""
    only = ["-o", f"Dir::Etc::sourcelist={path}", "-o", "Dir::Etc::sourceparts=-"]
    asked = ["apt-get", "indextargets", "--format", "$(FILENAME)"] + only + ["Created-By: Packages"]
    return any(os.path.exists(name) for name in node_packages.output(asked).split())
