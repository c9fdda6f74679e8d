"""Which nodes are asked what at the end of a deploy."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROOF = {"version": "24.11.5", "failed": False}
TEXTS = {"slurm_conf_text": "ClusterName=hpc\n", "slurm_conf_gres": "", "slurm_conf_cgroup": "x\n"}
GATED = {"node_gate_result": {"clean": False}}


@pytest.fixture(scope="module")
def filters() -> Any:
    spec = spec_from_file_location("slurm_filters", ROOT / "plugins" / "filter" / "slurm.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_are_expected_only_where_the_controller_was_proven(filters: Any) -> None:
    nodes = {"gpu01": TEXTS}

    proven = filters.slurm_fetched_files("ctl1", {"ctl1": {**GATED, "slurm_converged_result": PROOF}, **nodes}, "gpu01")
    assert sorted(proven) == ["cgroup.conf", "slurm.conf"]
    assert all(len(digest) == 64 for digest in proven.values())
    assert filters.slurm_fetched_files("ctl1", {"ctl1": {}, **nodes}, "gpu01") == {}


def test_nodes_are_not_asked_to_agree_with_a_controller_that_failed(filters: Any) -> None:
    assert filters.slurm_can_be_asked("ctl1", {"ctl1": {**GATED, "slurm_converged_result": PROOF}})
    assert not filters.slurm_can_be_asked("ctl1", {"ctl1": GATED})
    assert not filters.slurm_can_be_asked("ctl1", {"ctl1": {**GATED, "slurm_converged_result": {"failed": True}}})
    # a run with --limit, without the controller
    assert filters.slurm_can_be_asked("ctl1", {"ctl1": {}})


def test_only_nodes_without_work_are_asked_for_on_the_controller(filters: Any) -> None:
    clean = {"node_gate_result": {"clean": True}}
    hosts = {"gpu01": clean, "gpu02": GATED, "gpu03": {}, "gpu04": clean}

    # Slurm has gpu04 out of service: it was brought in
    assert filters.slurm_left_alone(list(hosts), hosts, ["gpu02", "gpu04"]) == ["gpu01"]
