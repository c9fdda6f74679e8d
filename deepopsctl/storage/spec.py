"""The section `storage` of cluster.yml, read value by value into a StorageDraft."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from deepopsctl.model.storage import Mount, StorageType
from deepopsctl.policy.builder import Place
from deepopsctl.storage.builder import Entry, StorageDraft
from deepopsctl.storage.registry import shared_options, type_handlers
from deepopsctl.storage.types import TypeHandler
from deepopsctl.storage.values import check_path, is_below
from deepopsctl.text.answers import items, mapping
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Section, SectionReader, StorageSection, dotted
from deepopsctl.text.values import suggest
from deepopsctl.text.yaml_reader import Path

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SOURCE = re.compile(r"[A-Za-z0-9._/+@:=,\[\]-]+")
_IDLE = re.compile(r"[1-9][0-9]{0,4}[smh]")
_OPTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=\[\]-]*")
# Options that the mount units set, with the key to use instead.
_OWNED = {
    "defaults": "no options", "auto": "automount", "noauto": "automount", "nofail": "required",
    "_netdev": "nothing: it follows from the type", "user": "nothing: units are mounted by root",
    "users": "nothing: units are mounted by root",
}  # fmt: skip
# Of each of these only one can hold.
_OPPOSITES = (
    ("ro", "rw"), ("hard", "soft"), ("sync", "async"), ("exec", "noexec"), ("suid", "nosuid"), ("dev", "nodev"),
    ("atime", "noatime"), ("fg", "bg"),
)  # fmt: skip


class StorageReader:
    """Fills a StorageDraft from the section of one document."""

    def __init__(self, reader: SectionReader, draft: StorageDraft) -> None:
        self.reader = reader
        self.draft = draft
        self.handlers = type_handlers()

    def read(self, whole: Mapping[str, object]) -> None:
        """Read entry by entry: a fault in one must not hide the faults of the others."""
        listed = whole.get("storage")
        self.draft.declared = self.draft.declared or isinstance(listed, list)
        for index, item in enumerate(items(listed)):
            self._entry(item, ("storage", index))

    def _entry(self, item: object, path: Path) -> None:
        section = self.reader.fit(StorageSection, item, path, other_keys=self._mapping_keys())
        if section is None:
            return
        before = len(self.reader.problems)
        storage_type = self.reader.value((*path, "type"), self._type, section.type, None)
        written = mapping(item)
        if storage_type is None:
            return
        handler = self.handlers[storage_type]
        where = self.reader.value((*path, "path"), check_path, section.path, section.path)
        settings = self._settings(handler, storage_type, written, path)
        mount = Mount(
            name=self.reader.value((*path, "name"), _check_name, section.name, section.name),
            type=storage_type,
            source=self._source(handler, section.source, path),
            path=where,
            nodes=(),
            written=section.nodes.strip(),
            options=tuple(self._options(handler, section.options, path)),
            required=section.required,
            automount=section.automount,
            automount_idle=self.reader.value((*path, "automount_idle"), _idle_of(section), section.automount_idle, ""),
            user_writable=self.reader.value((*path, "user_writable"), _below(where), section.user_writable, ""),
            settings=settings,
            parts=self._parts(storage_type, written, path),
        )
        is_sound = len(self.reader.problems) == before
        places = {key: self.reader.at((*path, *key.split("."))) for key in _keys(written)}
        self.draft.entries.append(Entry(Place(self.reader.at(path), dotted(path)), places, mount, is_sound))

    def _mapping_keys(self) -> frozenset[str]:
        """Keys of an entry that are mappings: one for each type, and the shared options."""
        return frozenset((*(handler.value for handler in self.handlers), *shared_options()))

    def _type(self, text: str) -> StorageType:
        known = [handler.value for handler in self.handlers]
        if text not in known:
            raise RefusedError(f"{shorten(text)!r} is not a type of storage", suggest(text, known))
        return StorageType(text)

    def _source(self, handler: TypeHandler, source: str, path: Path) -> str:
        if not source and not handler.needs_source:
            return ""
        return self.reader.value((*path, "source"), _check_source, source, source)

    def _settings(
        self, handler: TypeHandler, name: StorageType, written: Mapping[str, object], path: Path
    ) -> Mapping[str, object]:
        """The mapping named as the type; a mapping of another type is an error."""
        for other in self.handlers:
            if other is not name and other.value in written:
                refusal = RefusedError(f"is for entries of type {other.value}, this one is {name.value}", "remove it")
                place = (*path, other.value)
                self.reader.problems.refuse(self.reader.at(place), dotted(place), refusal)
        return self._mapping(handler.section, written.get(name.value), (*path, name.value))

    def _parts(
        self, name: StorageType, written: Mapping[str, object], path: Path
    ) -> Mapping[str, Mapping[str, object]]:
        parts = {}
        for key, part in shared_options().items():
            if key in written and name not in part.types:
                can = ", ".join(sorted(part.types))
                refusal = RefusedError(f"can't be set for type {name.value}", f"it is for {can}")
                self.reader.problems.refuse(self.reader.at((*path, key)), dotted((*path, key)), refusal)
            elif key in written:
                parts[key] = self._mapping(part.section, written[key], (*path, key))
        return parts

    def _mapping(self, section: type[Section], content: object, path: Path) -> Mapping[str, object]:
        if content is None:
            return {}
        read = self.reader.fit(section, content, path)
        return read.model_dump(exclude_unset=True) if read else {}

    def _options(self, handler: TypeHandler, options: list[str], path: Path) -> Iterator[str]:
        seen: dict[str, str] = {}
        for index, text in enumerate(options):
            place = (*path, "options", index)
            option = self.reader.value(place, lambda value: _check_option(value, handler.owned), text, "")
            key = option.partition("=")[0]
            rival = next((other for pair in _OPPOSITES if key in pair for other in pair if other != key), "")
            clash = seen.get(key) or seen.get(rival)
            if option and clash:
                refusal = RefusedError(f"{option} and {clash} contradict each other", "remove one of them")
                self.reader.problems.refuse(self.reader.at(place), dotted(place), refusal)
            elif option:
                seen[key] = option
                yield option


def _keys(written: Mapping[str, object]) -> Iterator[str]:
    """Keys of an entry, and `key.key` for those of its mappings, however deep."""
    for key, value in written.items():
        yield str(key)
        if isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner in _keys(value))


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        hint = "use up to 32 lower-case letters, digits, - and _, beginning with a letter"
        raise RefusedError(f"{shorten(name)!r} can't be the name of storage", hint)
    return name


def _check_source(source: str) -> str:
    if not source:
        raise RefusedError("is missing", "set what is mounted: SERVER:/PATH, a disk, a directory")
    if not _SOURCE.fullmatch(source):
        hint = "no blanks, quotes, % or #"
        raise RefusedError(f"{shorten(source)!r} can't be written into a mount unit", hint)
    return source


def _below(path: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text and text != path and not is_below(check_path(text), path):
            raise RefusedError(f"{shorten(text)} is not in {path}", "name a directory below the mount point")
        return text

    return check


def _idle_of(section: StorageSection) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text and not section.automount:
            raise RefusedError("needs automount", "set `automount: true`, or leave it out")
        if text and not _IDLE.fullmatch(text):
            raise RefusedError(f"{shorten(text)!r} is not a valid time without use", "write 30s, 10m or 2h")
        return text

    return check


def _check_option(text: str, owned: Mapping[str, str]) -> str:
    if "," in text:
        raise RefusedError(f"{shorten(text)!r} is several options", "write a list: [ro, noatime]")
    if not _OPTION.fullmatch(text):
        raise RefusedError(f"{shorten(text)!r} is not a mount option", "write WORD or WORD=VALUE")
    key = text.partition("=")[0]
    if key.startswith("x-"):
        raise RefusedError(f"{key} is written by deepopsctl", "units are generated: use required and automount")
    if key in owned or key in _OWNED:
        raise RefusedError(f"{key} is written by deepopsctl", f"use {owned.get(key) or _OWNED[key]}")
    return text
