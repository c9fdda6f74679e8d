"""Clients that do not come with the distribution: where their packages are from, and what belongs to the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pydantic import Field

from deepopsctl.model.storage import Archive, Mount, Platform, Repository, StorageType
from deepopsctl.storage.compatibility import parse_version, unknown_version, unsupported_version
from deepopsctl.storage.types import Fault
from deepopsctl.text.answers import mapping, texts
from deepopsctl.text.header import MANAGED_HEADER_FROM_CLUSTER
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Boolean, Section
from deepopsctl.text.values import suggest

HEADER = MANAGED_HEADER_FROM_CLUSTER.rstrip()
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")

_URL = re.compile(r"(?:https?|file)://[A-Za-z0-9._~:/@%+-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
# a package file is NAME_VERSION_ARCH.deb
_ARCHIVE = re.compile(r".*/([a-z0-9][a-z0-9+.-]+)_([A-Za-z0-9.+~:%-]+)_([a-z0-9]+)\.deb")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:+/-]*")


class ClientSection(Section):
    """Keys of an entry that select the client's packages: a node has one client for all its mounts of a type."""

    version: str = ""
    modules: str = "dkms"
    repository: str = ""
    key: str = ""
    fingerprint: str = ""
    archives: dict[str, str] = Field(default_factory=dict)
    untested: Boolean = False


SOURCE_KEYS = tuple(ClientSection.model_fields)
# A key that is left out equals one with its default.
_DEFAULTS = {key: ClientSection.model_fields[key].default for key in ("modules", "untested")}


def text_of(settings: Mapping[str, object], key: str, otherwise: str = "") -> str:
    """A value of the mapping named as the type."""
    return str(settings.get(key, otherwise))


def texts_of(settings: Mapping[str, object], key: str) -> tuple[str, ...]:
    """A list of it."""
    return texts(settings.get(key))


def pairs_of(settings: Mapping[str, object], key: str) -> Mapping[str, object]:
    """A mapping in it."""
    return mapping(settings.get(key))


def archives_of(settings: Mapping[str, object]) -> tuple[Archive, ...]:
    """The packages listed one by one, in the order of their addresses."""
    return tuple(Archive(url, str(digest)) for url, digest in sorted(pairs_of(settings, "archives").items()))


def repository_of(settings: Mapping[str, object]) -> Repository | None:
    """The repository that an entry names; it is a flat one, unless its type knows better."""
    url = text_of(settings, "repository").rstrip("/")
    fingerprint = clean_fingerprint(text_of(settings, "fingerprint"))
    return Repository(url, text_of(settings, "key"), fingerprint) if url else None


def clean_fingerprint(text: str) -> str:
    """Fingerprint for comparison: without blanks, in upper case."""
    return text.replace(" ", "").upper()


def check_source(storage_type: StorageType, settings: Mapping[str, object], modules: Sequence[str]) -> Iterator[Fault]:
    """Version, kernel modules, and where the packages come from."""
    yield from check_version(storage_type, settings)
    chosen = text_of(settings, "modules", modules[0])
    if chosen not in modules:
        yield (
            f"{storage_type.value}.modules",
            RefusedError(f"{shorten(chosen)!r} is not a way to them", suggest(chosen, modules)),
        )
    if settings.get("archives") and settings.get("repository"):
        what = RefusedError("can't be set together with repository", "set either archives or repository")
        yield f"{storage_type.value}.archives", what
    yield from _check_repository(storage_type, settings)
    for url, digest in pairs_of(settings, "archives").items():
        yield from ((f"{storage_type.value}.archives", refusal) for refusal in _check_archive(url, str(digest)))


def check_version(storage_type: StorageType, settings: Mapping[str, object]) -> Iterator[Fault]:
    """The version is well-formed, and known unless `untested: true` is set."""
    version = text_of(settings, "version")
    if not version:
        yield storage_type.value, RefusedError("names no version", f"write {storage_type.value}: {{version: ...}}")
        return
    unknown, is_one = unknown_version(storage_type, version), parse_version(version) is not None
    if unknown and not (is_one and settings.get("untested")):
        hint = "take one that is, or `untested: true`" if is_one else "write 2.17.0 or 8.3"
        yield f"{storage_type.value}.version", RefusedError(unknown, hint)


def incompatibility(mount: Mount, platform: Platform) -> str:
    """Why a node can't have the client of an entry; '' if it can, or if the entry has `untested: true`."""
    if mount.settings.get("untested"):
        return ""
    why = unsupported_version(mount.type, text_of(mount.settings, "version"), platform)
    return f"{why}; `untested: true` in its entry tries it all the same" if why else ""


def check_words(field: str, words: Iterable[str]) -> Iterator[Fault]:
    """Values that are written into files unchanged."""
    for word in words:
        if not _WORD.fullmatch(word):
            hint = "use letters, digits and _ . @ : + / -"
            yield field, RefusedError(f"{shorten(word)!r} can't be written into its file", hint)


def check_number(field: str, text: str, last: int) -> Iterator[Fault]:
    """'' or a number from 1 to `last`."""
    if text and not (text.isdecimal() and len(text) < 10 and 1 <= int(text) <= last):
        yield (
            field,
            RefusedError(f"{shorten(text)!r} is not a valid number from 1 to {last}", "correct it, or leave it out"),
        )


def _value_of(mount: Mount, key: str) -> object:
    return mount.settings.get(key) or _DEFAULTS.get(key) or None


def disagreements(
    storage_type: StorageType,
    keys: Sequence[str],
    mounts: Sequence[Mount],
    *,
    value_of: Callable[[Mount, str], object] = _value_of,
    hint: str = "",
) -> Iterator[tuple[Mount, Fault]]:
    """Entries of one type that share a node and differ in settings that a node has only once."""
    hint = hint or f"a node has one client for {storage_type.value}: write the same in both entries"
    for index, mount in enumerate(mounts):
        for other in mounts[:index]:
            differing = [key for key in keys if value_of(mount, key) != value_of(other, key)]
            if differing and set(mount.nodes) & set(other.nodes):
                shared_node = next(node for node in mount.nodes if node in other.nodes)
                what = f"is another than in {other.name}, and {shared_node} mounts both"
                yield mount, (f"{storage_type.value}.{differing[0]}", RefusedError(what, hint))
                break


def _check_repository(storage_type: StorageType, settings: Mapping[str, object]) -> Iterator[Fault]:
    url, key = text_of(settings, "repository"), text_of(settings, "key")
    fingerprint = clean_fingerprint(text_of(settings, "fingerprint"))
    for name, value in (("repository", url), ("key", key)):
        if value and not _URL.fullmatch(value):
            yield (
                f"{storage_type.value}.{name}",
                RefusedError(f"{shorten(value)!r} is not a valid address", "write https://..."),
            )
    if url and not (key and fingerprint):
        hint = "give the address of its key and that key's fingerprint (`gpg --show-keys`)"
        yield (
            f"{storage_type.value}.repository",
            RefusedError("needs key and fingerprint", hint),
        )
    elif (key or fingerprint) and not url:
        name = "key" if key else "fingerprint"
        yield f"{storage_type.value}.{name}", RefusedError("is set without repository", "leave it out")
    if fingerprint and not _FINGERPRINT.fullmatch(fingerprint):
        yield (
            f"{storage_type.value}.fingerprint",
            RefusedError("is not a valid fingerprint", "it has 40 hexadecimal digits"),
        )


def _check_archive(url: str, digest: str) -> Iterator[RefusedError]:
    if not _URL.fullmatch(url) or not _ARCHIVE.fullmatch(url):
        yield RefusedError(f"{shorten(url)!r} is not a package", "write https://.../NAME_VERSION_ARCH.deb")
    if not _SHA256.fullmatch(digest):
        hint = "`sha256sum FILE` prints it, 64 hexadecimal digits"
        yield RefusedError(f"{shorten(url)} has no SHA-256 that could be compared", hint)
