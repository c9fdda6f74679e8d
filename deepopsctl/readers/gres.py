"""Gres= of slurm.conf, and what gres.conf adds to it that deepopsctl would not write itself."""

from __future__ import annotations

import re
from pathlib import Path

from deepopsctl import values
from deepopsctl.carryover import Carryover
from deepopsctl.gpuspec import join_kinds
from deepopsctl.model import Gpus
from deepopsctl.nodelist import expand, shorten
from deepopsctl.problems import Problems, RefusedError
from deepopsctl.readers.slurmlines import Line, read_lines
from deepopsctl.slurmgres import gres_counts

# deepopsctl finds them by its own means, in the order of the driver.
_SILENT = frozenset({"nodename", "name", "type", "file", "count"})


def read_gpus(gres: str, where: str, name: str, carryover: Carryover) -> Gpus | None:
    """The GPUs in a Gres= value; other resources are noted as left out."""
    found: dict[str, Gpus] = {}
    for item in re.split(r",(?![^(]*\))", gres):
        kind, _, rest = item.partition("(")[0].strip().partition(":")
        if kind != "gpu":
            if item.strip():
                carryover.leave(f"Gres={item}", where, f"{name}: only GPUs are managed", "`slurm: {}` has no Gres")
            continue
        words = [word for word in rest.split(":") if word != "no_consume"]
        count = words.pop() if words and re.fullmatch(r"[0-9]+", words[-1]) else "1"
        gpus = values.parse_gpus(words[0] if words else "", count)
        if gpus.type in found or (found and not (gpus.type and all(found))):
            carryover.leave(f"Gres={item}", where, f"{name}: of several kinds of GPU each needs a type of its own")
            continue
        found[gpus.type] = gpus
    return join_kinds(list(found.values())) if found else None


def read_gres_conf(
    text: str, source: str, folder: Path | None, gpus: dict[str, Gpus], carryover: Carryover, problems: Problems
) -> None:
    """Compare a gres.conf with the GPUs that slurm.conf declares; `gpus` is by node name in lower case."""
    for line in read_lines(text, source, folder, problems):
        try:
            _compare(line, gpus, carryover)
        except RefusedError as refusal:
            problems.refuse(line.where, "", refusal)


def _compare(line: Line, gpus: dict[str, Gpus], carryover: Carryover) -> None:
    name = line.get("name")
    for pair in line.pairs:
        if pair.name == "autodetect" and pair.value.lower() != "off":
            carryover.leave(f"AutoDetect={pair.value}", line.where, "GPUs are declared in cluster.yml, not detected")
        elif pair.name not in _SILENT and pair.name != "autodetect":
            carryover.leave(pair.key, line.where, f"gres.conf is generated, {shorten(pair.value)} is not part of it")
    if name and name.lower() != "gpu":
        carryover.leave(f"Name={name}", line.where, "only GPUs are managed")
        return
    nodes = [node.lower() for node in expand(line.get("nodename"))] if line.get("nodename") else list(gpus)
    declared = [gpus[node] for node in nodes if node in gpus]
    if name and not declared:
        carryover.leave(f"Name={name}", line.where, "no Gres= in slurm.conf declares GPUs there", "add them by --gpus")
    kind = line.get("type")
    if kind and declared and not any(filter(None, (name for found in declared for name in gres_counts(found)))):
        carryover.leave(
            f"Type={kind}", line.where, "Gres= in slurm.conf names no type", "add it to gpus: in cluster.yml"
        )
    files = line.get("file")
    if files and not re.fullmatch(r"/dev/nvidia(\[?[0-9,-]+\]?)", files):
        carryover.leave(f"File={files}", line.where, "GPUs are /dev/nvidia0 and so on")
