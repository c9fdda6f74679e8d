"""Whether a node needs anything of a component: the answer to the gate of a deploy."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    drift as node_drift,
    platform as node_platform,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    detect as slurm_detect,
    needs as slurm_needs,
    readiness as slurm_readiness,
)

Params = Dict[str, Any]


def answer(params: Params) -> dict[str, Any]:
    """What the module `drift_check` returns; only `msg` and `hint` for a node that must not be deployed."""
    differences = _reasons(params)
    problem, out_of_service = slurm_readiness.out_of_service(params["registered"])
    differences += [problem] if problem else []
    differences += [f"{name}: {node.sentence()}" for name, node in out_of_service.items()]
    message, hint = node_platform.refusal(params["requires"]) if differences else ("", "")
    if message:
        return {"msg": f"{message}; nothing was changed", "hint": hint}
    facts = dict(
        node_platform.os_release(),
        **node_platform.cgroup_facts(),
        **node_platform.memory_facts(),
        **node_platform.pmix_facts(),
    )
    return {
        "clean": not differences,
        "settled": _settled(params, not differences),
        "recorded": node_record.steps(params["component"]),
        "reasons": differences,
        "unregistered": list(out_of_service),
        "unmet": _unmet(params["needs"]),
        "slurm_ids": slurm_needs.slurm_ids(),
        "restore_begun": params["foreign"] and slurm_detect.restore_begun(),
        "foreign": slurm_detect.foreign(params["component"]) if params["foreign"] else {},
        "ansible_facts": facts,
    }


def _settled(params: Params, clean: bool) -> list[str]:
    """Other components of the run that need nothing here.

    Of those that are wanted, the later ones before the first that does: its work may change the next answer. Of those
    that are not, all that have left nothing.
    """
    components, may_follow = [], False
    for entry in params["run"]:
        if entry["component"] == params["component"]:
            may_follow = clean
        elif not entry["steps"]:
            may_follow = may_follow and not node_drift.is_left_of(entry["component"])
            components += [] if node_drift.is_left_of(entry["component"]) else [entry["component"]]
        elif may_follow:
            may_follow = not _differences(params, entry)
            components += [entry["component"]] if may_follow else []
    return components


def _reasons(params: Params) -> list[str]:
    """Why the node needs the component that the call is about."""
    if params["steps"]:
        return _differences(params, params)
    return ["no longer wanted"] if node_drift.is_left_of(params["component"]) else []


def _differences(params: Params, entry: Params) -> list[str]:
    """What differs from the last deploy of a component, and of its steps."""
    digest = params["digests"].get(entry["component"], "")
    return node_drift.reasons(entry["component"], digest, entry["steps"])


def _unmet(needs: dict[str, Any]) -> list[dict[str, Any]]:
    """What Slurm's settings need and this node lacks."""
    version = slurm_client.version() if needs.get("plugstack") else ""
    return slurm_needs.unmet(needs, version)
