"""Which exporter serves a node's GPU metrics, what it needs, and what prevents it.

Versions, wheels and which DCGM an exporter goes with are data (group_vars/all/versions.yml).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Exporter(StrEnum):
    """NVIDIA's own, nvitop's, or none."""

    DCGM = "dcgm"
    NVITOP = "nvitop"
    NONE = "none"


AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ExporterPlan:
    """The exporter; for DCGM's its package, {name: version}. Problems are (what, what to do)."""

    exporter: Exporter
    packages: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()


def plan_exporter(requested: str, dcgm: Mapping[str, Any], *, has_gpus: bool, has_dcgm: bool) -> ExporterPlan:
    """`requested` is `monitoring_gpu_exporter`, `has_dcgm` whether DCGM is enabled on the node.

    Settings alone decide: Prometheus has to know it of nodes that are down.
    """
    if requested not in (AUTO, *Exporter):
        what = f"monitoring_gpu_exporter is {requested!r}"
        return ExporterPlan(Exporter.NONE, problems=((what, f"choose one of {', '.join((AUTO, *Exporter))}"),))
    if not has_gpus or requested == Exporter.NONE:
        return ExporterPlan(Exporter.NONE)
    problems = tuple(_why_no_dcgm_exporter(dcgm, has_dcgm=has_dcgm))
    if requested == Exporter.NVITOP or (requested == AUTO and problems):
        return ExporterPlan(Exporter.NVITOP)
    exporter = dcgm["exporter"]
    packages = {} if problems else {str(exporter["package"]): str(exporter["version"])}
    return ExporterPlan(Exporter.DCGM, packages, problems)


def _why_no_dcgm_exporter(dcgm: Mapping[str, Any], *, has_dcgm: bool) -> Iterator[tuple[str, str]]:
    other = "or monitoring_gpu_exporter: nvitop"
    if not has_dcgm:
        yield "DCGM exporter needs DCGM, which is not enabled on this node", f"nvidia_dcgm: true, {other}"
    exporter, version = dcgm["exporter"], _upstream(str(dcgm["version"]))
    if version != str(exporter["dcgm"]):
        what = f"DCGM exporter {exporter['version']} is made for DCGM {exporter['dcgm']}, and this one is {version}"
        yield what, f"set both versions of deepops_dcgm to a pair that NVIDIA has released, {other}"


def _upstream(version: str) -> str:
    """`4.6.0` of the package's `1:4.6.0-1`."""
    return version.rpartition(":")[2].partition("-")[0]
