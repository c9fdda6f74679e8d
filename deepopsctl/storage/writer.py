"""Mounts -> the section `storage` of cluster.yml; mounts <-> the inventory's `storage_mounts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from deepopsctl.model.storage import Mount, StorageType
from deepopsctl.text.answers import mapping, texts
from deepopsctl.text.node_sets import expand, fold
from deepopsctl.text.yaml_writer import flow


def storage_lines(mounts: Iterable[Mount], *, declared: bool) -> Iterator[str]:
    """Lines of cluster.yml; none where nothing is declared."""
    entries = [f"  - {flow(written(mount))}" for mount in mounts]
    if entries:
        yield from ("", "storage:", *entries)
    elif declared:
        yield from ("", "storage: []")


def written(mount: Mount) -> dict[str, object]:
    """An entry as a person would write it."""
    entry = _common(mount) | {"nodes": mount.written} | _own(mount)
    # `snapshots: {}` has a meaning
    return {key: value for key, value in entry.items() if key in mount.parts or value not in ("", (), [], {}, False)}


def variable(mounts: Iterable[Mount]) -> list[dict[str, object]]:
    """`storage_mounts` of the inventory: what the roles read, every key there."""
    return [_common(mount) | {"nodes": fold(mount.nodes), "server": mount.server} | _own(mount) for mount in mounts]


def from_variable(entries: Iterable[Mapping[str, object]]) -> tuple[Mount, ...]:
    """The same back from the inventory; `written` is lost on the way."""
    return tuple(_from_entry(entry) for entry in entries)


def _from_entry(entry: Mapping[str, object]) -> Mount:
    own, nodes, options = entry.get(str(entry["type"])), str(entry["nodes"]), entry["options"]
    mappings = {key: value for key, value in entry.items() if isinstance(value, Mapping) and key != entry["type"]}
    return Mount(
        name=str(entry["name"]),
        type=StorageType(str(entry["type"])),
        source=str(entry["source"]),
        path=str(entry["path"]),
        nodes=expand(nodes) if nodes else (),
        server=str(entry["server"]),
        options=texts(options),
        required=bool(entry["required"]),
        automount=bool(entry["automount"]),
        automount_idle=str(entry["automount_idle"]),
        user_writable=str(entry["user_writable"]),
        settings=mapping(own),
        parts=mappings,
    )


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
        "automount_idle": mount.automount_idle,
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
