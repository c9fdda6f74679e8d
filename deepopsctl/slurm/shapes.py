"""What the nodes of each partition have, as job_submit.lua reads it to say which requests can't fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deepopsctl.text.node_sets import expand

_PLAIN = re.compile(r"[A-Za-z0-9_.:+@-]+")
_COUNT = re.compile(r"([0-9]+)([KkMm]?)")
_FACTOR = {"": 1, "k": 1024, "m": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class _Shape:
    """One kind of node: `gpus` by type, '' where Slurm knows none; memory in MiB."""

    cpus: int
    memory: int
    gpus: tuple[tuple[str, int], ...]
    features: tuple[str, ...] = field(default=())

    def lua(self, count: int) -> str:
        gpus = ", ".join(f'["{name}"] = {number}' for name, number in self.gpus)
        features = ", ".join(f'["{name}"] = true' for name in self.features if _PLAIN.fullmatch(name))
        numbers = f"nodes = {count}, cpus = {self.cpus}, memory = {self.memory}"
        return f"{{ {numbers}, gpus = {{ {gpus} }}, features = {{ {features} }} }}"


def lua_table(node_lines: Iterable[str], partition_lines: Iterable[str]) -> str:
    """A table of Lua's, by partition: the kinds of its nodes. What can't be read is left out, and then not compared."""
    shapes: dict[str, _Shape] = {}
    for line in node_lines:
        values = _values(line)
        shape = _shape(values)
        if shape:
            shapes.update(dict.fromkeys(expand(values["nodename"]), shape))
    parts = [f'["{name}"] = {{ {text} }}' for name, text in _partitions(partition_lines, shapes)]
    return "{" + "".join(f"\n  {part}," for part in parts) + "\n}"


def _partitions(lines: Iterable[str], shapes: Mapping[str, _Shape]) -> Iterable[tuple[str, str]]:
    for line in lines:
        values = _values(line)
        name, nodes = values.get("partitionname", ""), values.get("nodes", "")
        names = list(shapes) if nodes.upper() == "ALL" else expand(nodes) if nodes else []
        if _PLAIN.fullmatch(name) and names and all(each in shapes for each in names):
            kinds = Counter(shapes[each] for each in names)
            yield name, ", ".join(shape.lua(count) for shape, count in kinds.items())


def _values(line: str) -> dict[str, str]:
    return {key.lower(): value for key, _, value in (word.partition("=") for word in line.split())}


def _shape(values: Mapping[str, str]) -> _Shape | None:
    cpus, memory = values.get("cpus", ""), values.get("realmemory", "")
    gpus: Counter[str] = Counter()
    for item in values.get("gres", "").split(","):
        name, *words = item.partition("(")[0].split(":")
        if name.lower() != "gpu":
            continue
        count = _COUNT.fullmatch(words[-1]) if words else None
        kind = [word for word in words if word != "no_consume"][: -1 if count else None]
        if not all(map(_PLAIN.fullmatch, kind)):
            return None
        gpus[":".join(kind)] += int(count[1]) * _FACTOR[count[2].lower()] if count else 1
    if not cpus.isdecimal() or not memory.isdecimal():
        return None
    features = [*values.get("features", "").split(","), *values.get("feature", "").split(",")]
    return _Shape(int(cpus), int(memory), tuple(sorted(gpus.items())), tuple(sorted({*features} - {""})))
