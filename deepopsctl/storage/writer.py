"""Mounts -> the section `storage` of cluster.yml, and -> the inventory's `storage_mounts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from deepopsctl.nodelist import fold
from deepopsctl.storage.model import Mount
from deepopsctl.yamlout import flow


def storage_lines(mounts: Iterable[Mount]) -> Iterator[str]:
    """Lines of cluster.yml; none where nothing is declared."""
    entries = [f"  - {flow(written(mount))}" for mount in mounts]
    if entries:
        yield from ("", "storage:", *entries)


def written(mount: Mount) -> dict[str, object]:
    """An entry as a person would write it."""
    found = _common(mount) | {"nodes": mount.written} | _own(mount)
    return {key: value for key, value in found.items() if value not in ("", (), [], {}, False)}


def variable(mounts: Iterable[Mount]) -> list[dict[str, object]]:
    """`storage_mounts` of the inventory: what the roles read, every key there."""
    return [_common(mount) | {"nodes": fold(mount.nodes), "server": mount.server} | _own(mount) for mount in mounts]


def _common(mount: Mount) -> dict[str, object]:
    return {
        "name": mount.name,
        "type": mount.type.value,
        "source": mount.source,
        "path": mount.path,
        "nodes": "",
        "options": list(mount.options),
        "required": mount.required,
        "automount": mount.automount,
        "user_writable": mount.user_writable,
    }


def _own(mount: Mount) -> dict[str, object]:
    return {mount.type.value: _plain(mount.settings), **{key: _plain(part) for key, part in mount.parts.items()}}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
