"""What machines get so that their journals are on the log host, and what the log host gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import new_authority
from deepopsctl.monitoring import logs, node_certificate
from deepopsctl.monitoring.resources import File, MonitoredNode

SECRETS = {"authority": new_authority(validity.today())}
SETTINGS = {"logs": True, "logs_keep_days": 14, "logs_keep_gb": 50}
GPU01 = MonitoredNode(
    "gpu01",
    "hpc",
    frozenset({"slurm_compute"}),
    "192.0.2.11",
    "Debian 13",
    monitoring_host="ctl1",
    monitoring_address="192.0.2.1",
    settings=SETTINGS,
    secrets=SECRETS,
)
CTL1 = replace(
    GPU01,
    name="ctl1",
    groups=frozenset({"slurm_controller", "monitoring"}),
    address="192.0.2.1",
    members=("ctl1", "gpu01"),
)


def file_of(machine: MonitoredNode, path: str) -> File:
    return next(file for file in logs.needs(machine).files if file.path == path)


def test_every_machine_sends_to_the_monitoring_host_and_only_that_one_collects() -> None:
    for machine in (GPU01, CTL1):
        text = file_of(machine, "/etc/systemd/journal-upload.conf.d/deepopsctl.conf").content
        assert "\nURL=https://192.0.2.1:19532\n" in text
    assert [unit.name for unit in logs.needs(GPU01).units] == ["systemd-journal-upload.service"]
    assert [unit.name for unit in logs.needs(CTL1).units] == [
        "deepops-logs.socket",
        "deepops-logs-store.service",
        "deepops-logs.service",
        "deepops-logs-tidy.timer",
        "systemd-journal-upload.service",
    ]


def test_an_address_of_ipv6_is_written_as_systemd_reads_it() -> None:
    machine = replace(CTL1, address="2001:db8::1", monitoring_address="2001:db8::1")

    assert "URL=https://[2001:db8::1]:19532\n" in file_of(machine, logs._UPLOAD_CONF).content
    assert "ListenStream=[2001:db8::1]:19532\n" in file_of(machine, "/etc/systemd/system/deepops-logs.socket").content


def test_without_logs_a_machine_gets_nothing_of_it() -> None:
    for machine in (GPU01, CTL1):
        off = logs.needs(replace(machine, settings={"logs": False}))
        assert (off.packages, off.files, off.units) == ((), (), ())


def test_a_key_is_a_secret_that_only_root_reads() -> None:
    key = file_of(GPU01, node_certificate.KEY)

    assert (key.secret, key.mode, key.owner) == (True, "0600", "root")
    assert key.content.startswith("-----BEGIN PRIVATE KEY-----")
    assert not [file.path for file in logs.needs(GPU01).files if "PRIVATE KEY" in file.content and not file.secret]


def test_a_renewed_certificate_restarts_what_has_it_open() -> None:
    units = {unit.name: set(unit.restart_on) for unit in logs.needs(CTL1).units}
    for name in ("systemd-journal-upload.service", "deepops-logs.service"):
        assert {node_certificate.AUTHORITY, node_certificate.CERTIFICATE, node_certificate.KEY} <= units[name]


def test_the_same_day_plans_the_same_files() -> None:
    assert logs.needs(CTL1) == logs.needs(CTL1)


def test_a_site_sets_for_how_long_and_how_much_is_kept() -> None:
    assert "tidy --days=14 --gigabytes=50\n" in file_of(CTL1, "/etc/systemd/system/deepops-logs-tidy.service").content
    assert "MaxUse=50G\n" in file_of(CTL1, "/etc/systemd/journal-remote.conf.d/deepopsctl.conf").content


def test_a_vault_without_an_authority_is_a_problem_with_what_to_do() -> None:
    (problem,) = logs.needs(replace(GPU01, secrets={})).problems

    assert "no cluster_authority in secrets.yml" in problem
    assert "deepopsctl inventory" in problem


@pytest.mark.parametrize("machine", [GPU01, CTL1], ids=lambda machine: machine.name)
def test_units_restart_only_for_files_that_are_brought(machine: MonitoredNode) -> None:
    plan = logs.needs(machine)

    assert {path for unit in plan.units for path in unit.restart_on} <= {file.path for file in plan.files}


def test_the_log_host_knows_who_is_of_the_cluster_and_a_machine_more_restarts_nothing() -> None:
    more = replace(CTL1, members=(*CTL1.members, "gpu02"))

    assert file_of(CTL1, logs.MEMBERS).content == "ctl1\ngpu01\n"
    assert file_of(more, logs.MEMBERS).content == "ctl1\ngpu01\ngpu02\n"
    assert not any(logs.MEMBERS in unit.restart_on for unit in logs.needs(more).units)
    assert logs.MEMBERS not in [file.path for file in logs.needs(GPU01).files]
