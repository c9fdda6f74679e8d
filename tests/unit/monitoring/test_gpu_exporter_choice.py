"""Which exporter serves the metrics of a node's GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deepopsctl.monitoring.gpu_exporter_choice import Exporter, plan_exporter
from deepopsctl.node_programs.services.gpu_metrics import cli
from tests.support.paths import ROOT

DCGM: dict[str, Any] = {
    "version": "1:4.6.0-1",
    "exporter": {"package": "datacenter-gpu-manager-exporter", "version": "4.8.3-1", "dcgm": "4.6.0"},
}
UNPAIRED = {**DCGM, "version": "1:4.7.0-1"}


@pytest.mark.parametrize(
    ("choice", "has_dcgm", "dcgm", "exporter"),
    [
        ("auto", True, DCGM, Exporter.DCGM),
        ("auto", False, DCGM, Exporter.NVITOP),
        ("auto", True, UNPAIRED, Exporter.NVITOP),
        ("nvitop", True, DCGM, Exporter.NVITOP),
        ("none", True, DCGM, Exporter.NONE),
        ("dcgm", True, DCGM, Exporter.DCGM),
    ],
)
def test_the_exporter_follows_from_the_settings_and_its_package_has_the_version_that_goes_with_dcgm(
    choice: str, has_dcgm: bool, dcgm: dict[str, Any], exporter: Exporter
) -> None:
    plan = plan_exporter(choice, dcgm, has_gpus=True, has_dcgm=has_dcgm)

    assert (plan.exporter, plan.problems) == (exporter, ())
    assert plan.packages == ({"datacenter-gpu-manager-exporter": "4.8.3-1"} if exporter is Exporter.DCGM else {})


@pytest.mark.parametrize(
    ("has_dcgm", "dcgm", "what", "hint"),
    [
        (False, DCGM, "needs DCGM, which is not enabled", "nvidia_dcgm: true"),
        (True, UNPAIRED, "made for DCGM 4.6.0, and this one is 4.7.0", "a pair that NVIDIA has released"),
    ],
)
def test_an_exporter_that_was_asked_for_and_can_not_be_is_refused(
    has_dcgm: bool, dcgm: dict[str, Any], what: str, hint: str
) -> None:
    plan = plan_exporter("dcgm", dcgm, has_gpus=True, has_dcgm=has_dcgm)

    assert plan.packages == {}
    assert [what in problem and hint in todo for problem, todo in plan.problems] == [True]


def test_an_unknown_exporter_is_refused_with_those_that_there_are() -> None:
    plan = plan_exporter("dgcm", DCGM, has_gpus=True, has_dcgm=True)

    assert plan.exporter is Exporter.NONE
    assert plan.problems == (("monitoring_gpu_exporter is 'dgcm'", "choose one of auto, dcgm, nvitop, none"),)


def test_the_pinned_versions_are_a_pair() -> None:
    versions = yaml.safe_load((ROOT / "group_vars" / "all" / "versions.yml").read_text(encoding="utf-8"))

    assert plan_exporter("dcgm", versions["deepops_dcgm"], has_gpus=True, has_dcgm=True).problems == ()


@pytest.mark.parametrize("missing", ["certificate", "key", "authority"])
def test_half_of_what_tls_takes_is_refused_and_never_served_in_clear(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"certificate": "c", "key": "k", "authority": "a", missing: ""}
    options = ["--libraries=/x", "--address=192.0.2.7", "--port=1", *(f"--{name}={values[name]}" for name in values)]
    monkeypatch.setattr("sys.argv", ["deepops-gpumetrics", *options])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 2
    assert "--certificate, --key and --authority go together" in capsys.readouterr().err
