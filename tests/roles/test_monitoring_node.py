"""What each type of node gets of monitoring, as the role monitoring_node asks for it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from deepopsctl.monitoring.problems import CPU_DETAILS
from deepopsctl.node_programs.services.alert_drain.settings import Settings as DrainSettings
from deepopsctl.node_programs.suites.gpu_check.dcgm import SOCKET
from deepopsctl.slurm.job_hooks import PIECES
from tests.roles.content import load, options
from tests.support.monitoring_roles import CTL1, GPU01, JOBS, PASSWORD
from tests.support.recorded_roles import Asked, Recorded, record

UNITS = "/etc/systemd/system"
EXPORTER = f"{UNITS}/prometheus-node-exporter.service.d/deepopsctl.conf"
TLS = "/etc/prometheus/deepops-tls"
PKI = "/etc/deepopsctl/pki"
CERTIFICATE = tuple(f"{TLS}/{name}" for name in ("scrapers.crt", "node.crt", "node.key"))
DCGM = f"{UNITS}/nvidia-dcgm-exporter.service.d/deepopsctl.conf"
NVITOP = f"{UNITS}/deepops-gpumetrics.service"


def node(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    known = options("monitoring_node")
    own = {name: f"monitoring_node_{name}" for name in changes}
    return {**base, **{own[name] if own[name] in known else f"monitoring_{name}": changes[name] for name in changes}}


# Each is a host of one run.
NODES = {
    "gpu01": GPU01,
    "ctl1": CTL1,
    "everything": node(
        CTL1,
        runs_jobs=True,
        collectors={"jobs": JOBS},
        gpu_exporter="nvitop",
        drain=True,
        job_summaries=True,
        job_endings=True,
        slurm_native=True,
        slurmctld_port=6820,
        cpu_details=["cpufreq"],
        logs_keep_days=14,
        logs_keep_gb=50,
    ),
    "dcgm": node(GPU01, gpu_exporter="dcgm", gpu_interval=30, dcgm_port=9500),
    "nvitop": node(GPU01, gpu_exporter="nvitop"),
    "ipv6": node(
        CTL1,
        address="2001:db8::1",
        monitoring_address="2001:db8::1",
        gpu_exporter="dcgm",
        platform="Ubuntu 22.04",
        alertmanager_url="http://[2001:db8::1]:9093",
        drain=True,
    ),
    "ipv6-nvitop": node(GPU01, address="2001:db8::7", gpu_exporter="nvitop"),
    "debian12": node(GPU01, platform="Debian 12"),
    "open": node(CTL1, exporter_tls=False, logs=False, collectors={}, gpu_exporter="nvitop"),
    "waiting": node(GPU01, in_clear=True),
    "idle-mounts": node(GPU01, idle_mounts=["/archive", "/data (old)"]),
    "login1": node(GPU01, runs_jobs=False, collectors={}),
    "mon1": node(GPU01, runs_jobs=False, has_slurm=False, stores_logs=True, log_members=["ctl1", "gpu01", "gpu02"]),
    "refused": node(GPU01, problems=["one thing", "another"]),
    "unwanted": node(CTL1, enabled=False, problems=["one thing"]),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """All of them, in one run of Ansible."""
    return record(tmp_path_factory.mktemp("nodes"), [{"role": "monitoring_node"}], NODES)


def asked(recorded: Recorded, host: str) -> Asked:
    return recorded.step(host, "node")


def units(recorded: Recorded, host: str) -> list[str]:
    return [unit["name"] for unit in asked(recorded, host).units]


def text(recorded: Recorded, host: str, path: str) -> str:
    return asked(recorded, host).texts()[path]


# hosts whose role gets as far as node_state with something to write
WRITTEN = [host for host in NODES if host not in ("refused", "unwanted")]


def test_every_node_has_a_node_exporter_that_listens_on_its_own_address_alone(recorded: Recorded) -> None:
    assert "--web.listen-address=192.0.2.11:9100 " in text(recorded, "gpu01", EXPORTER)
    assert "--web.listen-address=[2001:db8::1]:9100 " in text(recorded, "ipv6", EXPORTER)
    assert {unit["port"] for unit in asked(recorded, "gpu01").units if "port" in unit} == {9100}


def test_details_of_cpus_that_nobody_draws_are_off_unless_a_site_enables_them(recorded: Recorded) -> None:
    for argument in ("cpufreq", "cpu.guest", "schedstat", "softnet"):
        assert f"--no-collector.{argument}" in text(recorded, "gpu01", EXPORTER)
    assert "--no-collector.cpufreq" not in text(recorded, "everything", EXPORTER)
    assert "--no-collector.softnet" in text(recorded, "everything", EXPORTER)
    assert tuple(load("roles/monitoring_node/vars/main.yml")["__monitoring_node_cpu_details"]) == CPU_DETAILS


def test_a_mount_that_goes_without_users_is_left_out_and_systemd_reads_its_path_as_it_is(recorded: Recorded) -> None:
    exporter = text(recorded, "idle-mounts", EXPORTER)

    # systemd's own escapes: $ and \ are doubled, in quotes
    assert '($$|/)|^/archive$$|^/data\\\\ \\\\(old\\\\)$$" \\\n' in exporter
    assert "mount-points-exclude=^/(dev|proc|" in text(recorded, "gpu01", EXPORTER)


@pytest.mark.parametrize("host", WRITTEN)
def test_a_drop_in_replaces_the_packages_command(recorded: Recorded, host: str) -> None:
    for path, content in asked(recorded, host).texts().items():
        if path.endswith(".service.d/deepopsctl.conf") and "ExecStart=" in content.splitlines():
            assert content.index("ExecStart=\n") < content.index("ExecStart=/usr/bin/")
            assert "EnvironmentFile=\n" in content


@pytest.mark.parametrize("host", WRITTEN)
def test_no_line_of_a_unit_is_empty_where_systemd_expects_the_next_argument(recorded: Recorded, host: str) -> None:
    for path, content in asked(recorded, host).texts().items():
        if path.startswith(UNITS):
            assert "\\\n\n" not in content, path
            assert "{" not in content, path
            assert content.endswith("\n"), path


@pytest.mark.parametrize("host", WRITTEN)
def test_a_unit_restarts_only_for_files_that_the_role_writes(recorded: Recorded, host: str) -> None:
    call = asked(recorded, host)
    tls = () if NODES[host].get("monitoring_exporter_tls", True) else CERTIFICATE
    watched = {path for unit in call.units for path in (*unit.get("restart_on", []), *unit.get("reload_on", []))}

    assert watched <= {*call.texts(), *tls}
    assert [unit["name"] for unit in call.units] == list(call.arguments["hold_units"])


@pytest.mark.parametrize("host", WRITTEN)
def test_each_file_and_directory_is_there_once(recorded: Recorded, host: str) -> None:
    call = asked(recorded, host)

    for name in ("files", "directories"):
        paths = [each["path"] for each in call.arguments[name]]
        assert len(set(paths)) == len(paths)
    assert len(set(call.packages)) == len(call.packages)


def test_programs_run_where_their_data_are(recorded: Recorded) -> None:
    always = ["prometheus-node-exporter.service"]
    store = ["deepops-logs.socket", "deepops-logs-store.service", "deepops-logs.service", "deepops-logs-tidy.timer"]
    upload, metrics = ["systemd-journal-upload.service"], ["deepops-nodemetrics.service"]
    slurm, database = ["deepops-slurmmetrics.service"], ["prometheus-mysqld-exporter.service"]

    assert units(recorded, "gpu01") == [*always, *metrics, *upload]
    assert units(recorded, "ctl1") == [*always, *metrics, *slurm, *database, *store, *upload]
    assert units(recorded, "everything") == [
        *always, *metrics, *slurm, "deepops-job-summaries.service", *database, *store, *upload,
        "deepops-gpumetrics.service", "deepops-alertdrain.service",
    ]  # fmt: skip
    assert units(recorded, "dcgm") == [*always, *metrics, *upload, "nvidia-dcgm-exporter.service"]
    assert units(recorded, "login1") == [*always, *upload]
    assert units(recorded, "mon1") == [*always, *metrics, *store, *upload]
    assert units(recorded, "open") == [*always, *slurm, *database, "deepops-gpumetrics.service"]


def test_a_node_that_is_not_wanted_keeps_nothing(recorded: Recorded) -> None:
    wanted = {key: asked(recorded, "unwanted").arguments.get(key) for key in ("packages", "files", "units", "owned")}

    assert wanted == {"packages": None, "files": None, "units": None, "owned": True}


def test_settings_that_cannot_work_are_refused_before_anything_is_touched(recorded: Recorded) -> None:
    assert recorded.failures == {"refused": "one thing; another"}
    assert recorded.asked["refused"] == []


def test_a_secret_is_in_files_that_are_treated_as_secret_and_nowhere_else(recorded: Recorded) -> None:
    shown = [str(file.get("content", "")) for host in WRITTEN for file in asked(recorded, host).files]
    kept = {
        file["path"]: (file["mode"], file.get("group"))
        for file in asked(recorded, "everything").files
        if "secret_base64" in file
    }

    assert not [content for content in shown if PASSWORD in content or "PRIVATE KEY" in content]
    assert kept == {
        f"{TLS}/node.key": ("0640", "prometheus"),
        f"{PKI}/node.key": ("0600", None),
        "/etc/deepopsctl/job-summaries.json": ("0600", None),
        "/etc/deepopsctl/alertdrain.json": ("0600", None),
    }


# What a unit of deepopsctl may do all the same, by the switches of confined.j2 that it leaves open.
PRIVATE_VIEW = {
    "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables", "ProtectKernelModules",
    "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname",
}  # fmt: skip
ALL = PRIVATE_VIEW | {
    "CapabilityBoundingSet", "NoNewPrivileges", "RestrictSUIDSGID", "RestrictNamespaces", "RestrictRealtime",
    "RestrictAddressFamilies", "LockPersonality", "MemoryDenyWriteExecute", "SystemCallArchitectures",
    "SystemCallFilter",
}  # fmt: skip
LEFT_OPEN = {
    **{
        f"deepops-{name}": set[str]()
        for name in ("alertdrain", "job-summaries", "slurmmetrics", "logs", "logs-store", "logs-tidy")
    },
    # it has to see mounts and jobs as they are
    "deepops-nodemetrics": {*PRIVATE_VIEW, "CapabilityBoundingSet"},
    # NVIDIA's library; see the unit
    "deepops-gpumetrics": ALL
    - {
        "CapabilityBoundingSet", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp",
        "ProtectControlGroups", "ProtectKernelTunables", "RestrictAddressFamilies", "SystemCallArchitectures",
    },
}  # fmt: skip


def own_services(recorded: Recorded) -> dict[str, list[str]]:
    """The lines of each unit of deepopsctl."""
    return {
        path.rpartition("/")[2].removesuffix(".service"): content.splitlines()
        for path, content in asked(recorded, "everything").texts().items()
        if path.startswith(f"{UNITS}/deepops-") and path.endswith(".service")
    }


def test_a_unit_is_closed_but_for_what_is_written_here(recorded: Recorded) -> None:
    opened = {name: ALL - {line.partition("=")[0] for line in lines} for name, lines in own_services(recorded).items()}

    assert opened == LEFT_OPEN


def test_no_switch_of_a_unit_is_set_twice_but_the_filter_of_system_calls(recorded: Recorded) -> None:
    for name, lines in own_services(recorded).items():
        switches = [line.partition("=")[0] for line in lines if line.partition("=")[0] in ALL]
        assert len(switches) == len(set(switches)) + (switches.count("SystemCallFilter") > 1), name


def test_units_of_other_users_start_where_systemd_has_no_capability_to_spare(recorded: Recorded) -> None:
    """In a container with podman's capabilities: no dynamic user, and no filters that CAP_SYS_ADMIN is kept for."""
    contents = [content for path, content in asked(recorded, "everything").texts().items() if path.startswith(UNITS)]

    others = [content for content in contents if "\nUser=" in content]
    assert len(others) == 4
    assert not [content for content in contents if "DynamicUser=yes" in content]
    assert not [content for content in others if "SystemCallFilter=~capset" not in content.splitlines()]


def test_exporters_show_certificates_and_answer_the_monitoring_host_alone(recorded: Recorded) -> None:
    web = text(recorded, "gpu01", f"{TLS}/exporters.yml")

    assert f"client_ca_file: {TLS}/scrapers.crt" in web
    assert "client_auth_type: RequireAndVerifyClientCert" in web
    # older exporters don't start with a key that they don't know
    assert text(recorded, "debian12", f"{TLS}/exporters.yml") == web
    assert f"--web.config.file={TLS}/exporters.yml " in text(recorded, "gpu01", EXPORTER)
    assert f"--web.config={TLS}/exporters.yml " in text(recorded, "ipv6", EXPORTER)


@pytest.mark.parametrize("host", ["open", "waiting"])
def test_without_tls_or_before_prometheus_is_in_the_run_no_exporter_uses_it(recorded: Recorded, host: str) -> None:
    call = asked(recorded, host)

    assert not [path for path in call.texts() if path.startswith(TLS)]
    assert not [path for path, content in call.texts().items() if path.startswith(UNITS) and TLS in content]


def test_a_node_that_waits_for_tls_is_done_again_by_the_next_deploy(recorded: Recorded) -> None:
    assert asked(recorded, "waiting").arguments["digest"] == "in clear"
    assert asked(recorded, "gpu01").arguments["digest"] == ""


def test_an_exporter_of_gpus_listens_on_the_management_address_at_its_port_with_tls(recorded: Recorded) -> None:
    dcgm, nvitop = text(recorded, "dcgm", DCGM).split(), text(recorded, "nvitop", NVITOP).split()

    assert {"--address=192.0.2.11:9500", "--collect-interval=30000", "--hpc-job-mapping-dir=/run/deepops/gpus"} <= {
        *dcgm
    }
    # where nvidia-dcgm.service listens
    assert f"--remote-hostengine-info=unix://{SOCKET}" in dcgm
    assert f"--web-config-file={TLS}/exporters.yml" in dcgm
    assert {"--address=192.0.2.11", "--port=9401"} <= {*nvitop}
    of_tls = zip(("authority", "certificate", "key"), CERTIFICATE, strict=True)
    assert {f"--{name}={path}" for name, path in of_tls} <= {*nvitop}
    assert [unit["port"] for unit in asked(recorded, "dcgm").units if "dcgm" in unit["name"]] == [9500]
    assert "--address=[2001:db8::1]:9400" in text(recorded, "ipv6", DCGM)
    assert "--address=2001:db8::7" in text(recorded, "ipv6-nvitop", NVITOP).split()


def test_a_renewed_certificate_restarts_what_has_it_open(recorded: Recorded) -> None:
    restarts = {unit["name"]: set(unit["restart_on"]) for unit in asked(recorded, "everything").units}

    for name in ("systemd-journal-upload.service", "deepops-logs.service"):
        assert {f"{PKI}/{file}" for file in ("authority.crt", "node.crt", "node.key")} <= restarts[name]
    assert {*CERTIFICATE} <= restarts["deepops-gpumetrics.service"]
    # the others read theirs for each connection
    assert not [path for path in restarts["prometheus-node-exporter.service"] if path.startswith(TLS)]


def test_a_program_restarts_for_its_own_files(recorded: Recorded) -> None:
    for unit in asked(recorded, "everything").units:
        name = unit["name"].removesuffix(".service")
        if f"{UNITS}/{name}.service" in unit["restart_on"] and name.startswith("deepops-") and "logs" not in name:
            assert f"/usr/local/sbin/{name}" in unit["restart_on"]
            assert [path for path in unit["restart_on"] if path.startswith("/usr/local/lib/deepopsctl/")]


def test_jobs_are_mapped_to_gpus_by_slurms_prolog_and_epilog_on_compute_nodes_alone(recorded: Recorded) -> None:
    texts = asked(recorded, "gpu01").texts()

    assert texts[f"{PIECES}/prolog.d/20-job-map"] == "#!/bin/sh\nexec /usr/local/sbin/deepops-nodemetrics job-begin\n"
    assert texts[f"{PIECES}/epilog.d/20-job-map"].endswith("deepops-nodemetrics job-end\n")
    assert not [path for path in asked(recorded, "login1").texts() if path.startswith(PIECES)]


def test_what_nodemetrics_collects_is_in_its_settings(recorded: Recorded) -> None:
    settings = json.loads(text(recorded, "gpu01", "/etc/deepopsctl/nodemetrics.json"))

    assert settings == {"schema": 1, "directory": "/var/lib/prometheus/node-exporter", "collectors": {"jobs": JOBS}}


def test_slurm_is_queried_at_the_port_and_address_of_slurmctld(recorded: Recorded) -> None:
    settings = json.loads(text(recorded, "everything", "/etc/deepopsctl/slurmmetrics.json"))

    assert [settings[key] for key in ("native", "address", "port", "interval_s")] == [True, "192.0.2.1", 6820, 30]


def test_job_report_is_wherever_slurms_commands_are(recorded: Recorded) -> None:
    assert "/usr/local/bin/job-report" in asked(recorded, "login1").texts()
    assert "/usr/local/bin/job-report" not in asked(recorded, "mon1").texts()
    ending = f"{PIECES}/epilog.d/10-job-ending"
    assert text(recorded, "everything", ending) == "#!/bin/sh\nexec /usr/local/sbin/deepops-job-ending\n"
    assert ending not in asked(recorded, "gpu01").texts()


def test_job_summaries_ask_prometheus_with_a_password_that_is_roots_alone(recorded: Recorded) -> None:
    settings = json.loads(text(recorded, "everything", "/etc/deepopsctl/job-summaries.json"))

    assert (settings["url"], settings["user"], settings["password"]) == ("http://192.0.2.1:9090", "admin", PASSWORD)
    assert "node_programs.commands.job_report.keeper import main" in text(
        recorded, "everything", "/usr/local/sbin/deepops-job-summaries"
    )


def test_settings_of_drain_by_alert_are_those_that_the_program_knows(recorded: Recorded) -> None:
    settings = json.loads(text(recorded, "ipv6", "/etc/deepopsctl/alertdrain.json"))

    assert set(settings) == {field.name for field in fields(DrainSettings)} - {"ca"}
    assert DrainSettings(**settings).url == "http://[2001:db8::1]:9093"


def test_journals_are_sent_to_the_monitoring_host_which_knows_the_nodes(recorded: Recorded) -> None:
    for host in ("gpu01", "ctl1"):
        upload = text(recorded, host, "/etc/systemd/journal-upload.conf.d/deepopsctl.conf")
        assert "\nURL=https://192.0.2.1:19532\n" in upload
    assert "ListenStream=[2001:db8::1]:19532\n" in text(recorded, "ipv6", f"{UNITS}/deepops-logs.socket")
    assert text(recorded, "ctl1", "/etc/deepopsctl/logs-members") == "ctl1\ngpu01\n"
    assert text(recorded, "mon1", "/etc/deepopsctl/logs-members") == "ctl1\ngpu01\ngpu02\n"
    # the proxy reads it by itself: a node more restarts nothing
    assert not [unit for unit in asked(recorded, "mon1").units if "/etc/deepopsctl/logs-members" in unit["restart_on"]]
    assert "/etc/deepopsctl/logs-members" not in asked(recorded, "gpu01").texts()


def test_a_site_sets_for_how_long_and_how_much_of_journals_is_stored(recorded: Recorded) -> None:
    assert "tidy --days=14 --gigabytes=50\n" in text(recorded, "everything", f"{UNITS}/deepops-logs-tidy.service")
    assert "MaxUse=50G\n" in text(recorded, "everything", "/etc/systemd/journal-remote.conf.d/deepopsctl.conf")


def test_mariadbs_exporter_logs_in_by_the_socket_and_the_role_makes_its_user(recorded: Recorded) -> None:
    assert asked(recorded, "ctl1").arguments["database_logins"] == ["prometheus"]
    assert "socket = /run/mysqld/mysqld.sock" in text(recorded, "ctl1", "/etc/prometheus/deepops-mysqld.cnf")
    assert asked(recorded, "gpu01").arguments["database_logins"] == []
    # an owned step without it removes it
    assert "database_logins" not in asked(recorded, "unwanted").arguments
