"""What the units of our programs may not do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.monitoring.gpu_exporter_choice import Exporter
from deepopsctl.monitoring.node_plan import plan_node
from deepopsctl.monitoring.resources import MonitoredNode
from deepopsctl.monitoring.systemd_units import (
    OPEN,
    SLURMS_FAMILIES,
    WITHOUT_KEPT_RIGHTS,
    confined,
    confined_with_full_view,
)

CTL1 = MonitoredNode(
    "ctl1",
    "hpc",
    frozenset({"slurm_controller", "slurm_compute"}),
    "192.0.2.1",
    "Debian 13",
    controller="ctl1",
    monitoring_host="ctl1",
    monitoring_address="192.0.2.1",
    settings={
        **dict.fromkeys(("drain", "job_summaries", "logs"), True),
        "drain_limit": 2,
        "drain_resume_after": 900,
        "drain_interval": 30,
        "alerts": {},
        "gpu_exporter": Exporter.NVITOP,
        "gpu_exporter_libraries": "/usr/local/lib/deepopsctl/x",
    },
    secrets={"web_password": "x", "ca_key": "x"},
)
ALL = {line.partition("=")[0] for line in confined()}
VIEW = ALL - {line.partition("=")[0] for line in confined_with_full_view()}
# each unit of our own programs, and what it may do all the same
LEFT_OPEN = {
    "deepops-alertdrain": set[str](),
    "deepops-job-summaries": set[str](),
    "deepops-slurmmetrics": set[str](),
    "deepops-logs": set[str](),
    "deepops-logs-store": set[str](),
    "deepops-logs-tidy": set[str](),
    # it has to see mounts and jobs as they are
    "deepops-nodemetrics": {*VIEW, "CapabilityBoundingSet"},
    # NVIDIA's library; see the unit
    "deepops-gpumetrics": ALL
    - {
        "CapabilityBoundingSet", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp",
        "ProtectControlGroups", "ProtectKernelTunables", "RestrictAddressFamilies", "SystemCallArchitectures",
    },
}  # fmt: skip


def services() -> dict[str, set[str]]:
    """Switches that a unit sets, by unit."""
    machine = replace(CTL1, gpus=("nvidia0",))
    units = [file for file in plan_node(machine).files if "/deepops-" in file.path and file.path.endswith(".service")]
    return {
        file.path.rpartition("/")[2].removesuffix(".service"): {
            line.partition("=")[0] for line in file.content.splitlines() if "=" in line
        }
        for file in units
    }


def test_a_new_unit_has_to_say_what_it_may_do() -> None:
    assert set(services()) == set(LEFT_OPEN)


@pytest.mark.parametrize("unit", LEFT_OPEN)
def test_a_unit_is_closed_but_for_what_is_written_here(unit: str) -> None:
    assert ALL - services()[unit] == LEFT_OPEN[unit]


def test_a_difference_is_one_line_and_an_open_switch_is_none() -> None:
    lines = confined(RestrictAddressFamilies=SLURMS_FAMILIES, PrivateDevices=OPEN, ReadWritePaths="/x")

    assert f"RestrictAddressFamilies={SLURMS_FAMILIES}" in lines
    assert "ReadWritePaths=/x" in lines
    assert not [line for line in lines if line.startswith("PrivateDevices")]
    names = [line.partition("=")[0] for line in lines if line != WITHOUT_KEPT_RIGHTS]
    assert len(names) == len(set(names))


def test_units_of_other_users_start_where_systemd_has_no_capability_to_spare() -> None:
    """In a container with podman's capabilities: no dynamic user, and no filters that CAP_SYS_ADMIN is kept for."""
    machine = replace(CTL1, gpus=("nvidia0",))
    units = [file for file in plan_node(machine).files if file.path.startswith("/etc/systemd/system/")]

    assert not [file.path for file in units if "DynamicUser=yes" in file.content]
    others = [file for file in units if "\nUser=" in file.content]
    assert len(others) == 4
    assert not [file.path for file in others if WITHOUT_KEPT_RIGHTS not in file.content.splitlines()]
