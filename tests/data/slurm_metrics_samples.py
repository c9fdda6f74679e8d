"""Recorded output of the commands of three releases of Slurm on one small cluster, and the metrics made of it.

Recorded on a controller with five nodes of which one never came, two partitions, a third without nodes, two drained
nodes (one with a reason of two lines), running and pending jobs, a job array and a held job. The pages of 26.05 are
without their HELP and TYPE, and without the third partition, of which nothing is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from deepopsctl.node_programs.services.slurm_metrics.asking import AskingError
from deepopsctl.node_programs.services.slurm_metrics.snapshot import SlurmReader, Snapshot
from tests.support.paths import TESTS

DATA = TESTS / "data" / "slurm_metrics"
RELEASES = ("22.05", "24.11", "26.05")
# when the commands ran, as sdiag prints it
_WHEN = re.compile(r"sdiag output at .*\(([0-9]+)\)")
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def recorded(release: str, *, but: dict[str, str | AskingError] | None = None) -> Callable[[Sequence[str], float], str]:
    """The commands' answers by release; `but` has other answers for some."""
    texts: dict[str, str | AskingError] = {
        command: (DATA / release / f"{command}.txt").read_text(encoding="utf-8")
        for command in ("squeue", "sinfo", "sdiag")
    }
    texts |= {"sacctmgr": "rig\n", **(but or {})}

    def asked(command: Sequence[str], limit_s: float) -> str:
        del limit_s
        answer = f"slurm-wlm {release}.8\n" if "--version" in command else texts[command[0]]
        if isinstance(answer, AskingError):
            raise answer
        return answer

    return asked


def when(release: str) -> int:
    """When it was recorded, in Unix seconds."""
    match = _WHEN.search((DATA / release / "sdiag.txt").read_text(encoding="utf-8"))
    assert match
    return int(match[1])


def snapshot_of(release: str, *, but: dict[str, str | AskingError] | None = None) -> Snapshot:
    """A snapshot of the recorded Slurm, at its time."""
    return SlurmReader(None, recorded(release, but=but)).read_snapshot(when(release))


def samples(text: str) -> dict[str, float]:
    """{`name{labels}`: value} of a text in Prometheus' format."""
    return {f"{name}{{{labels}}}" if labels else name: float(value) for name, labels, value in _SAMPLE.findall(text)}


def names(text: str) -> set[str]:
    """The names alone."""
    return {name for name, _, _ in _SAMPLE.findall(text)}
