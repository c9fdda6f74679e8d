"""What nodes try together on one entry: write, see each other's files, replace them, lock them."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from . import acts
from .scene import Scene
from .telling import FAIL, PASS, WARN, trouble

WRITE, VISIBLE, NAMES, RENAME, LOCK, FLOCK = (
    "storage-write",
    "storage-visible",
    "storage-names",
    "storage-rename",
    "storage-lock",
    "storage-flock",
)
TOGETHER = (VISIBLE, NAMES, RENAME, LOCK, FLOCK)
_SIZE = 65536
_RENAMING_S = 2.0
# options by which locks are each node's own matter, or nobody's; by kind of lock
_OWN_LOCKS = {
    "fcntl": ("nolock", "local_lock=posix", "local_lock=all", "localflock", "noflock"),
    "flock": ("nolock", "local_lock=flock", "local_lock=all", "localflock", "noflock"),
}
# file systems whose locks reach other nodes only where their own configuration says so
_BY_CONFIGURATION = ("beegfs", "lustre", "glusterfs")


def read_only(scene: Scene) -> None:
    """Mounted `ro`: the kernel must refuse."""
    # a name of its own for each: where it can be written, one must not find what another is about to remove
    name = scene.name + "-{node}"
    for node, result in scene.do("refused", scene.nodes, folder=scene.entry.path, name=name).items():
        if result.get("refused") == "EROFS":
            scene.tell(WRITE, node, PASS, "EROFS", "EROFS", "mounted read-only, and the kernel refuses to write")
        else:
            was = trouble(result) or result["refused"] or "written"
            scene.tell(WRITE, node, FAIL, was, "EROFS", "it should be read-only")


def write(scene: Scene) -> List[str]:
    """Every node writes a file as an ordinary user; those that could, in the trial's folder."""
    answers = scene.good(WRITE, scene.do("base", scene.nodes, path=scene.entry.path, wanted=scene.entry.user_writable),
                         "a folder to write to")  # fmt: skip
    for node, result in answers.items():
        if not result["folder"]:
            text = "an ordinary user can write to none of {}".format(", ".join(result["tried"]))
            scene.tell(WRITE, node, FAIL, "no folder", "a folder to write to", text)
    able = [node for node in scene.nodes if answers.get(node, {}).get("folder")]
    if not able:
        return []
    scene.folder = "{}/{}".format(answers[able[0]]["folder"].rstrip("/"), scene.name)
    scene.do("mine", able, folders=[scene.folder])
    makers = able[:1] if scene.entry.shared else able
    made = scene.good(WRITE, scene.do("make", makers, folder=scene.folder), "a new folder")
    if scene.entry.shared and not made:
        scene.skip(WRITE, [node for node in able if node not in makers], "no folder could be made for the trial")
        return []
    ready = [node for node in able if node in scene.nodes and (scene.entry.shared or node in made)]
    if scene.entry.shared:
        # before anybody makes them: a client may remember that a name was not there
        scene.do("absent", ready, path=scene.path("late"))
    wrote = _write_all(scene, ready, 1)
    done = scene.good(WRITE, wrote, "a file of {} KiB".format(_SIZE // 1024))
    expected = {node: acts.digest(acts.content(node, 1, _SIZE)) for node in done}
    for node, result in done.items():
        same = result["digest"] == expected[node]
        text = "" if same else "what was read back is not what was written"
        scene.tell(WRITE, node, PASS if same else FAIL, "written" if same else "other data", "written", text)
    return [node for node in ready if node in done]


def _write_all(scene: Scene, nodes: Sequence[str], version: int) -> Dict[str, Dict[str, Any]]:
    return scene.do("write", nodes, path=scene.path("{node}.data"), label="{node}", version=version, size=_SIZE)


def visible(scene: Scene, nodes: Sequence[str]) -> None:
    """Everyone reads what the one before it wrote: the new file, then its second version."""
    before = {node: {"peer": nodes[place - 1]} for place, node in enumerate(nodes)}
    first = scene.do("read", nodes, path=scene.path("{peer}.data"), each=before)
    _write_all(scene, nodes, 2)
    second = scene.do("read", nodes, path=scene.path("{peer}.data"), each=before)
    for node in [node for node in nodes if node in first and node in second]:
        peer = before[node]["peer"]
        wrong = [
            text
            for result, version, text in ((first[node], 1, "the new file"), (second[node], 2, "its second version"))
            if result.get("digest") != acts.digest(acts.content(peer, version, _SIZE))
        ]
        bound = scene.seen[node].data_bound
        if not wrong:
            scene.tell(VISIBLE, node, PASS, "at once", "at once", "read what {} had written and closed".format(peer))
        elif bound and wrong == ["its second version"]:
            text = "{} was not seen at once; its options allow {:g} s".format(wrong[0], bound)
            scene.tell(VISIBLE, node, WARN, "later", "at once", text)
        else:
            said = trouble(second[node]) or trouble(first[node])
            text = "{} of {} was not what was read here{}".format(
                " and ".join(wrong), peer, " ({})".format(said) if said else ""
            )
            scene.tell(VISIBLE, node, FAIL, "other data", "at once", text)


def renames(scene: Scene, nodes: Sequence[str]) -> None:
    """One node replaces a file by rename again and again; the others must always find a whole one."""
    writer, readers, path = nodes[0], list(nodes[1:]), scene.path("replaced")
    start = scene.do("write", [writer], path=path, label="version", version=0)
    if "digest" not in start.get(writer, {}):
        scene.skip(RENAME, readers, "{} could not write the file: {}".format(writer, trouble(start.get(writer, {}))))
        return
    limit = _RENAMING_S + scene.bounds.answer_s
    wrote, found = scene.ask(
        scene.order("replace", [writer], limit, path=path, seconds=_RENAMING_S),
        scene.order("follow", readers, limit, path=path, seconds=_RENAMING_S),
    )
    count = wrote[writer].get("renames", 0)
    if not count:
        scene.tell(RENAME, writer, FAIL, "no rename", "atomic", trouble(wrote[writer]))
        return
    good = scene.good(RENAME, {node: result for node, result in found.items() if node in scene.nodes}, "atomic")
    for node, result in good.items():
        _judge_rename(scene, node, writer, count, result)


def _judge_rename(scene: Scene, node: str, writer: str, count: int, result: Mapping[str, Any]) -> None:
    stale_allowed = scene.entry.type == "nfs"
    wrong = ["{} times there was no such name".format(result["missing"])] if result["missing"] else []
    wrong += ["{} times it was not whole".format(result["torn"])] if result["torn"] else []
    told = "{} times the opened one was gone (ESTALE){}".format(
        result["stale"], ", as NFS allows" if stale_allowed else ""
    )
    wrong += [told] if result["stale"] and not stale_allowed else []
    text = "{} renames by {}, {} reads".format(count, writer, result["reads"])
    notes = [told] if result["stale"] and stale_allowed else []
    said = ": ".join([text, "; ".join([*wrong, *notes])]) if wrong or notes else text
    scene.tell(RENAME, node, FAIL if wrong else PASS, "not atomic" if wrong else "atomic", "atomic", said)


def locks(scene: Scene, nodes: Sequence[str]) -> None:
    """What one node has locked, no other gets; once it is given back, all do."""
    for kind, name in (("fcntl", LOCK), ("flock", FLOCK)):
        _lock(scene, nodes, kind, name)


def _lock(scene: Scene, nodes: Sequence[str], kind: str, name: str) -> None:
    holder, others, path = nodes[0], list(nodes[1:]), scene.path("locked")
    local = sorted({*scene.seen[holder].options, *scene.entry.options} & set(_OWN_LOCKS[kind]))
    if local:
        scene.skip(name, others, "locks are each node's own, by its option {}".format(local[0]))
        return
    servers = [node for node in nodes if scene.seen[node].served_here] if kind == "flock" else []
    if servers:
        # knfsd keeps clients' flocks as fcntl locks: a flock of the server itself is another thing
        scene.skip(name, servers, "it serves this: its own flocks and those of NFS clients do not meet")
        others = [node for node in others if node not in servers]
        if not others or holder in servers:
            return
    scene.do("write", [holder], path=path, label="locked", version=1)
    held = scene.do("hold", [holder], path=path, kind=kind, key=kind).get(holder, {})
    if held.get("lock") != acts.FREE:
        why = trouble(held) or "this file system has no such locks"
        status = WARN if scene.entry.type in _BY_CONFIGURATION and held.get("lock") == acts.NONE else FAIL
        scene.tell(name, holder, status, "no lock", "a lock", "{} could not lock a file: {}".format(holder, why))
        scene.do("release", [holder], key=kind)
        return
    during = scene.do("probe", others, path=path, kind=kind)
    scene.do("release", [holder], key=kind)
    after = scene.do("probe", others, path=path, kind=kind)
    for node in [node for node in others if node in during and node in after]:
        _judge_lock(scene, name, node, holder, during[node], after[node])


def _judge_lock(
    scene: Scene, name: str, node: str, holder: str, during: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    said = trouble(during) or trouble(after)
    if said:
        scene.tell(name, node, FAIL, "an error", "excluded", said)
    elif during["lock"] == acts.FREE:
        text = "it got the lock that {} was holding".format(holder)
        scene.tell(
            name, node, WARN if scene.entry.type in _BY_CONFIGURATION else FAIL, "not excluded", "excluded", text
        )
    elif acts.NONE in (during["lock"], after["lock"]):
        scene.tell(name, node, FAIL, "no lock", "excluded", "this node has no locks here, {} has".format(holder))
    elif after["lock"] != acts.FREE:
        text = "it did not get the lock after {} had given it back".format(holder)
        scene.tell(name, node, FAIL, "still held", "excluded", text)
    else:
        scene.tell(name, node, PASS, "excluded", "excluded", "not while {} held it, at once afterwards".format(holder))


def make_late(scene: Scene, nodes: Sequence[str]) -> None:
    """Make the name that all have looked for in vain; who sees it when is asked at the end."""
    scene.do("write", list(nodes)[:1], path=scene.path("late"), label="late", version=1)


def late(scene: Scene, nodes: Sequence[str], since: float) -> None:
    """The new name must be there within what the mount promises; `since` are the seconds it has had already."""
    others = list(nodes[1:])
    bound = max([scene.seen[node].name_bound for node in others] or [0.0])
    left = max(0.0, bound - since)
    found = scene.do("appears", others, left + scene.bounds.answer_s, path=scene.path("late"), seconds=left)
    for node, result in scene.good(NAMES, found, "within {:g} s".format(bound)).items():
        own, after = scene.seen[node].name_bound, result["after"]
        expected = "at once" if not own else "within {:g} s".format(own)
        if after is None:
            text = "a new name that {} made is not seen here".format(nodes[0])
            scene.tell(NAMES, node, FAIL, "never", expected, text)
        else:
            when = (
                "at the first look, {:.0f} s later".format(since)
                if after < 1
                else "after {:.0f} s".format(since + after)
            )
            scene.tell(NAMES, node, PASS, "seen", expected, "a name that was not there before: seen " + when)
