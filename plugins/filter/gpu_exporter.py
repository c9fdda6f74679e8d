"""Jinja filter for the role gpu_exporter: a thin wrapper over deepopsctl.monitoring.gpu_exporter_choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.monitoring.gpu_exporter_choice import plan_exporter


def gpu_exporter_plan(requested: object, has_gpus: object, has_dcgm: object, dcgm: Any) -> dict[str, Any]:
    """The exporter's name and packages; problems as sentences."""
    plan = plan_exporter(str(requested), dcgm, has_gpus=bool(has_gpus), has_dcgm=bool(has_dcgm))
    problems = [f"{message}: {hint}" for message, hint in plan.problems]
    return {"exporter": plan.exporter.value, "packages": dict(plan.packages), "problems": problems}


def gpu_exporters(names: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, str]:
    """{node: exporter} of these nodes with GPUs, whether they are reached or not."""
    exporters = {}
    for name in names:
        of_node = hostvars[name]
        requested, has_dcgm = of_node["monitoring_gpu_exporter"], boolean(of_node.get("nvidia_dcgm", False))
        exporters[name] = gpu_exporter_plan(requested, True, has_dcgm, of_node["deepops_dcgm"])["exporter"]
    return exporters


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())
