"""The section `spaces` of cluster.yml: read, checked against `storage`, and what a node has of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from deepopsctl.environment.homes import made_in
from deepopsctl.model.spaces import NAMES, Owner, Space
from deepopsctl.model.storage import Mount, StorageType
from deepopsctl.storage.nfs import split_source
from deepopsctl.storage.quota import quota_of
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import SectionReader, SpaceSection, dotted
from deepopsctl.text.values import suggest
from deepopsctl.text.yaml_reader import Path
from deepopsctl.text.yaml_writer import flow

KEY = "spaces"
# they know what each user has, also without a quota
_COUNTING = (StorageType.LUSTRE, StorageType.BEEGFS, StorageType.CEPHFS)
_COMMENT = "# Where users keep files: names of user guides, and the entries of storage that have them."


def read_spaces(reader: SectionReader, whole: Mapping[str, object], mounts: Sequence[Mount]) -> tuple[Space, ...]:
    """The spaces of a cluster.yml whose `storage` has these mounts; problems are added to the reader's."""
    content = whole.get(KEY)
    if content is None:
        return ()
    if not isinstance(content, dict):
        _refuse(reader, (KEY,), RefusedError("must be keys with values", "write {scratch: {storage: scratch}}"))
        return ()
    return tuple(_spaces(reader, content, {mount.name: mount for mount in mounts}))


def _spaces(reader: SectionReader, content: Mapping[str, object], mounts: Mapping[str, Mount]) -> Iterator[Space]:
    used: dict[str, str] = {}
    for name, item in content.items():
        path: Path = (KEY, name)
        if name not in NAMES:
            _refuse(reader, path, RefusedError("is not a name of a space", suggest(name, list(NAMES))))
            continue
        section = reader.fit(SpaceSection, item, path)
        if section is None:
            continue
        mount = mounts.get(section.storage)
        by = _owner(reader, section.by, name, (*path, "by"))
        for key, refusal in [("storage", _unknown(section.storage, mounts))] if mount is None else _faults(mount, used):
            _refuse(reader, (*path, key), refusal)
        used.setdefault(section.storage, name)
        yield Space(name, section.storage, by)


def _owner(reader: SectionReader, text: str, name: str, path: Path) -> Owner:
    known = [owner.value for owner in Owner]
    if text and text not in known:
        _refuse(reader, path, RefusedError(f"{text!r} has no directories", suggest(text, known)))
    elif name == "home" and text == Owner.GROUP.value:
        _refuse(reader, path, RefusedError("homes are users'", "leave it out"))
    return Owner(text) if text in known else NAMES[name].by


def _unknown(name: str, mounts: Mapping[str, Mount]) -> RefusedError:
    hint = suggest(name, list(mounts)) if mounts else "declare it under `storage:`"
    return RefusedError(f"storage has no entry {name}", hint)


def _faults(mount: Mount, used: Mapping[str, str]) -> Iterator[tuple[str, RefusedError]]:
    if mount.name in used:
        hint = "give each space an entry of its own"
        yield "storage", RefusedError(f"{mount.name} is already the space {used[mount.name]}", hint)
    if mount.type is StorageType.TMPFS:
        yield "storage", RefusedError(f"{mount.name} is memory: it is empty after a restart", "name another entry")
    if mount.settings.get("read_only") or "ro" in mount.options:
        yield "storage", RefusedError(f"{mount.name} is mounted read-only", "mount it for writing, or name another")


def _refuse(reader: SectionReader, path: Path, refusal: RefusedError) -> None:
    reader.problems.refuse(reader.at(path), dotted(path), refusal)


def space_lines(spaces: Iterable[Space]) -> Iterator[str]:
    """Lines of cluster.yml; none without spaces."""
    entries = [f"  {space.name}: {flow(space.written())}" for space in spaces]
    if entries:
        yield from ("", _COMMENT, f"{KEY}:", *entries)


def spaces_on(spaces: Iterable[Mapping[str, str]], mounts: Sequence[Mount], host: str) -> list[dict[str, str]]:
    """What users of a node find, from `environment_spaces`: name, path, by, variable, link."""
    result = []
    for space, mount in _with_mount(spaces, mounts):
        here = mount.server == host and split_source(mount.source)[1] == mount.path
        if host in mount.nodes or here:
            naming = NAMES[space["name"]]
            entry = {"name": space["name"], "path": mount.path, "by": space["by"]}
            result.append({**entry, "variable": naming.variable, "link": naming.link})
    return result


def spaces_made_on(
    spaces: Iterable[Mapping[str, str]], mounts: Sequence[Mount], host: str, first_choice: Sequence[str]
) -> list[dict[str, object]]:
    """Where a node makes the directories of users and groups: path, by, and whether something must be mounted there.

    `counted`: what users have there is counted every night, as no quota knows it. Homes are made with their users.
    """
    made = [
        (made_in(mount, host, first_choice), space, mount)
        for space, mount in _with_mount(spaces, mounts)
        if space["name"] != "home"
    ]
    return [
        {"path": path, "by": space["by"], "mounted": not mount.server, "counted": _is_counted(space, mount)}
        for path, space, mount in made
        if path
    ]


def _is_counted(space: Mapping[str, str], mount: Mount) -> bool:
    """Directories of groups, for `--per_user`; those of users where the file system itself counts nothing."""
    return space["by"] == Owner.GROUP.value or (quota_of(mount) is None and mount.type not in _COUNTING)


def _with_mount(
    spaces: Iterable[Mapping[str, str]], mounts: Sequence[Mount]
) -> Iterator[tuple[Mapping[str, str], Mount]]:
    by_name = {mount.name: mount for mount in mounts}
    return ((space, by_name[space["storage"]]) for space in spaces)
