"""How fast nodes are on one entry: one by one where they are few, and all at the same time; the odd one is named."""

from __future__ import annotations

from statistics import median
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from . import telling
from .scene import Scene
from .telling import FAIL, PASS, WARN

# below these shares of what the others reach a node is odd, and broken
ODD, BROKEN = 0.6, 0.3
# a file system with less room than some times what a trial writes is left alone
_ROOM_TIMES = 4
_MIB = 1024 * 1024
_EXTRA_S = 60.0
# how the C library and fio call it
_FULL = ("Disk quota exceeded", "No space left")


class Kind(NamedTuple):
    """One rate: its act, its two checks, its unit and how a sentence calls it."""

    act: str
    name: str
    together: str
    unit: str
    word: str


WRITING = Kind("write_rate", "storage-write-rate", "storage-write-together", "MiB/s", "writes")
READING = Kind("read_rate", "storage-read-rate", "storage-read-together", "MiB/s", "reads")
FILES = Kind(
    "metadata_rate", "storage-metadata-rate", "storage-metadata-together", "files/s", "makes and removes files"
)
KINDS = (WRITING, READING, FILES)


def rates(scene: Scene, nodes: Sequence[str]) -> None:
    """All rates. Each node reads what the one before it wrote where they see the same files, else its own file."""
    reason = _obstacle(scene, nodes)
    if reason:
        for kind in KINDS:
            scene.skip(kind.name, nodes, reason)
        return
    before = {node: {"peer": nodes[place - 1] if scene.entry.shared else node} for place, node in enumerate(nodes)}
    # one by one first: the file that is read is there then
    for kind in KINDS:
        given = _given(scene, kind)
        single: Dict[str, Dict[str, Any]] = {}
        for node in list(nodes) if 1 < len(nodes) <= scene.bounds.alone else []:
            single.update(scene.do(kind.act, [node], _limit(scene), each=before, **given))
        for node in _odd(single):
            # whoever else uses the storage may have had his moment just then: the better one counts
            again = scene.do(kind.act, [node], _limit(scene), each=before, **given).get(node, {})
            single[node] = max(single[node], again, key=lambda result: float(result.get("rate", 0)))
        joint = scene.do(kind.act, [node for node in nodes if node in scene.nodes], _limit(scene), each=before, **given)
        told = scene.good(kind.name, _with_room(scene, kind, single or joint), "a rate")
        _judge(scene, kind, told, alone=bool(single) or len(nodes) == 1)
        _sum(scene, kind, {node: result for node, result in joint.items() if "rate" in result})


def _given(scene: Scene, kind: Kind) -> Dict[str, Any]:
    bounds = scene.bounds
    if kind is FILES:
        return {"folder": scene.folder, "most": bounds.files, "seconds": bounds.seconds}
    path = scene.path("{peer}.rate" if kind is READING else "{node}.rate")
    return {"path": path, "size_mib": bounds.size_mib, "seconds": bounds.seconds}


def _limit(scene: Scene) -> float:
    # a last fsync may take as long as all that it waits for
    return 2 * scene.bounds.seconds + _EXTRA_S


def _obstacle(scene: Scene, nodes: Sequence[str]) -> str:
    if scene.entry.type == "tmpfs":
        return "it is memory: nothing to measure"
    if not scene.bounds.size_mib or not scene.bounds.seconds:
        return "not asked for (validate_storage_size_mib, validate_storage_seconds)"
    together = len(nodes) if scene.entry.shared else 1
    need = _ROOM_TIMES * scene.bounds.size_mib * together
    found = scene.do("room", list(nodes), folder=scene.folder)
    least = min([int(result.get("free", 0)) // _MIB for result in found.values()] or [0])
    return "" if least >= need else "only {} MiB are free for this user, {} are wanted".format(least, need)


def _with_room(scene: Scene, kind: Kind, found: Mapping[str, Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Those that did not come to the end of the user's quota: that is no fault, and no rate."""
    full = [node for node, result in found.items() if any(text in str(result.get("error", "")) for text in _FULL)]
    scene.skip(kind.name, full, "the user may not write as much there: see validate_storage_size_mb")
    return {node: result for node, result in found.items() if node not in full}


def _odd(found: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """Nodes that are well below the others."""
    rates_of = {node: float(result["rate"]) for node, result in found.items() if "rate" in result}
    others = {node: [rate for name, rate in rates_of.items() if name != node] for node in rates_of}
    return [node for node, rate in rates_of.items() if others[node] and rate < ODD * median(others[node])]


def _judge(scene: Scene, kind: Kind, found: Mapping[str, Mapping[str, Any]], alone: bool) -> None:
    """Every node against the median of the others."""
    for node, result in found.items():
        others = [float(other["rate"]) for name, other in found.items() if name != node]
        rate, usual = float(result["rate"]), median(others) if others else 0.0
        how = "{}{}{}".format(
            result["by"], "" if result.get("direct", True) else ", not direct", "" if alone else ", beside all others"
        )
        status, text = PASS, how
        if others and rate < ODD * usual:
            # of two nodes nobody knows which one is as it should be
            status = FAIL if rate < BROKEN * usual and len(others) > 1 else WARN
            text = "{} {} at {:.0f}% of what {} ({})".format(
                node, kind.word, 100 * rate / usual, "the others do" if len(others) > 1 else "the other does", how
            )
        expected = "at least {:.4g}".format(ODD * usual) if others else ""
        scene.checks.append(
            telling.check(kind.name, scene.target(node), status, "{:.4g}".format(rate), expected, kind.unit, text)
        )


def _sum(scene: Scene, kind: Kind, joint: Mapping[str, Mapping[str, Any]]) -> None:
    """What all nodes reach at the same time."""
    if len(joint) < 2 or not scene.entry.shared:
        return
    total = sum(float(result["rate"]) for result in joint.values())
    how = sorted({str(result["by"]) for result in joint.values()})
    text = "{} nodes at the same time, {}".format(len(joint), " and ".join(how))
    scene.checks.append(
        telling.check(kind.together, scene.entry.name, PASS, "{:.4g}".format(total), "", kind.unit, text)
    )
