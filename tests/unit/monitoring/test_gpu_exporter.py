"""Which exporter tells of a node's GPUs, and how each is started."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deepopsctl.monitoring import gpu_exporters, scrape_config
from deepopsctl.monitoring.gpu_exporter_choice import Exporter, ExporterPlan, plan_exporter
from deepopsctl.monitoring.resources import MonitoredNode, Needs
from deepopsctl.node_programs.gpu_metrics import cli
from tests.support.paths import ROOT

DCGM: dict[str, Any] = {
    "version": "1:4.6.0-1",
    "exporter": {"package": "datacenter-gpu-manager-exporter", "version": "4.8.3-1", "dcgm": "4.6.0"},
}
UNPAIRED = {**DCGM, "version": "1:4.7.0-1"}


def machine(exporter: str, address: str = "192.0.2.7", **more: object) -> MonitoredNode:
    libraries = "/usr/local/lib/deepopsctl/nvitop-exporter-1.7.2"
    settings: dict[str, object] = {"gpu_exporter": exporter, "gpu_exporter_libraries": libraries, **more}
    return MonitoredNode(
        "gpu01", "hpc", frozenset({"nvidia_gpu"}), address, "Debian 12", monitoring_host="ctl1", settings=settings
    )


@pytest.mark.parametrize(
    ("wish", "has_dcgm", "dcgm", "exporter"),
    [
        ("auto", True, DCGM, Exporter.DCGM),
        ("auto", False, DCGM, Exporter.NVITOP),
        ("auto", True, UNPAIRED, Exporter.NVITOP),
        ("nvitop", True, DCGM, Exporter.NVITOP),
        ("none", True, DCGM, Exporter.NONE),
        ("dcgm", True, DCGM, Exporter.DCGM),
    ],
)
def test_the_exporter_follows_from_the_settings(
    wish: str, has_dcgm: bool, dcgm: dict[str, Any], exporter: Exporter
) -> None:
    plan = plan_exporter(wish, dcgm, has_gpus=True, has_dcgm=has_dcgm)

    assert (plan.exporter, plan.problems) == (exporter, ())


@pytest.mark.parametrize("wish", ["auto", "dcgm", "nvitop", "none"])
def test_a_node_without_gpus_has_no_exporter(wish: str) -> None:
    assert plan_exporter(wish, DCGM, has_gpus=False, has_dcgm=True) == ExporterPlan(Exporter.NONE)


def test_the_package_comes_in_the_version_that_goes_with_dcgm() -> None:
    plan = plan_exporter("auto", DCGM, has_gpus=True, has_dcgm=True)

    assert plan.packages == {"datacenter-gpu-manager-exporter": "4.8.3-1"}


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


def test_a_machine_without_gpus_needs_no_exporter() -> None:
    assert gpu_exporters.needs(machine("none")) == Needs()


@pytest.mark.parametrize(("exporter", "port"), [("dcgm", 9400), ("nvitop", 9401)])
def test_an_exporter_listens_on_the_management_address_alone(exporter: str, port: int) -> None:
    needs = gpu_exporters.needs(machine(exporter))
    text = "".join(file.content for file in needs.files if file.path.startswith("/etc/systemd/"))

    assert "192.0.2.7" in text
    assert str(port) in text
    assert [unit.port for unit in needs.units] == [port]


def test_dcgm_exporter_asks_the_host_engine_that_runs_and_reads_the_map_of_jobs() -> None:
    text = gpu_exporters.needs(machine("dcgm")).files[1].content

    assert "--remote-hostengine-info=unix:///run/nvidia-dcgm/nv-hostengine" in text
    assert "--hpc-job-mapping-dir=/run/deepops/gpus" in text
    # an empty line takes NVIDIA's own command away
    assert "\nExecStart=\n" in text


def test_an_exporter_restarts_for_whatever_it_reads() -> None:
    for exporter in ("dcgm", "nvitop"):
        needs = gpu_exporters.needs(machine(exporter))
        assert set(needs.units[0].restart_on) >= {file.path for file in needs.files}


def test_an_ipv6_address_is_written_as_each_exporter_wants_it() -> None:
    assert "--address=[2001:db8::7]:9400" in gpu_exporters.needs(machine("dcgm", "2001:db8::7")).files[1].content
    assert "--address=2001:db8::7" in gpu_exporters.needs(machine("nvitop", "2001:db8::7")).files[-1].content


@pytest.mark.parametrize("exporter", ["dcgm", "nvitop"])
def test_an_exporter_speaks_tls_where_the_others_do(exporter: str) -> None:
    options = {
        "dcgm": ["--web-config-file=/etc/prometheus/deepops-tls/exporters.yml"],
        "nvitop": [
            "--certificate=/etc/prometheus/deepops-tls/node.crt",
            "--key=/etc/prometheus/deepops-tls/node.key",
            "--authority=/etc/prometheus/deepops-tls/authority.crt",
            "--client=ctl1",
        ],
    }
    units = "".join(file.content for file in gpu_exporters.needs(machine(exporter, exporter_tls=True)).files)

    assert set(options[exporter]) <= set(units.split())


@pytest.mark.parametrize("missing", ["certificate", "key", "authority", "client"])
def test_half_of_what_tls_takes_is_refused_and_never_served_in_clear(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"certificate": "c", "key": "k", "authority": "a", "client": "n", missing: ""}
    options = ["--libraries=/x", "--address=192.0.2.7", "--port=1", *(f"--{name}={given[name]}" for name in given)]
    monkeypatch.setattr("sys.argv", ["deepops-gpumetrics", *options])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 2
    assert "--certificate, --key, --authority and --client go together" in capsys.readouterr().err


def test_what_reads_its_certificates_once_restarts_for_others() -> None:
    (unit,) = gpu_exporters.needs(machine("nvitop")).units

    assert {"/etc/prometheus/deepops-tls/node.crt", "/etc/prometheus/deepops-tls/node.key"} <= set(unit.restart_on)


def test_prometheus_shows_gpu_exporters_the_certificate_that_they_ask_for() -> None:
    found = scrape_config.config(machine("none", exporter_tls=True), "192.0.2.1:9093", "rules", "targets", 1)[
        "scrape_configs"
    ]

    assert isinstance(found, list)
    assert {job["job_name"]: job.get("scheme") for job in found if job["job_name"] in ("node", "gpu", "slurm")} == {
        "node": "https", "gpu": "https", "slurm": None,
    }  # fmt: skip
