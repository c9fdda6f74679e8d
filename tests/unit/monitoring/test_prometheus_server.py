"""What Prometheus and Alertmanager are told: targets, configuration, who may ask."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import bcrypt
import pytest
import yaml

from deepopsctl.monitoring import prometheus_server, retention, scrape_config, targets, web_config
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs
from tests.support.paths import DATA
from tests.unit.monitoring.test_node_plan import CTL1, GPU01

GOLDEN = DATA / "monitoring"
PASSWORD = "correct-horse-battery-staple"
SETTINGS = {"retention": "90d", "retention_size": ""}
HOST = replace(
    CTL1,
    address="192.0.2.1",
    groups=CTL1.groups | {"monitoring"},
    monitoring_host="ctl1",
    monitoring_address="192.0.2.1",
    settings=SETTINGS,
    secrets={"web_password": PASSWORD},
)
NODE = replace(GPU01, monitoring_host="ctl1", monitoring_address="192.0.2.1", settings=SETTINGS)


def prometheus(machine: MonitoredNode = HOST, **rules: str) -> Needs:
    return prometheus_server.prometheus(
        machine, targets.render([machine, NODE]), {f"{name}.yml": rules[name] for name in rules}
    )


def file_of(needs: Needs, name: str) -> File:
    return next(file for file in needs.files if file.path.endswith(name))


def test_a_line_of_targets_says_whose_it_is_and_which_job_takes_it() -> None:
    (only,) = yaml.safe_load(targets.render([NODE]))

    assert only == {
        "targets": ["192.0.2.11:9100"],
        "labels": {"__exporter": "node", "cluster": "hpc", "node": "gpu01", "instance": "gpu01"},
    }


def test_a_node_more_is_a_line_more_and_no_other_file() -> None:
    few, many = targets.render([HOST]), targets.render([HOST, NODE])
    differ = [
        old.path.rpartition("/")[2]
        for old, new in zip(
            prometheus_server.prometheus(HOST, few, {}).files,
            prometheus_server.prometheus(HOST, many, {}).files,
            strict=True,
        )
        if old != new
    ]

    assert many.startswith(few)
    assert differ == ["deepops.yml"]
    assert not any(path.endswith("deepops.yml") for unit in prometheus().units for path in unit.reload_on)


def test_every_exporter_of_the_targets_has_a_job_that_takes_it() -> None:
    found = {target.exporter for machine in (HOST, NODE) for target in targets.targets_of(machine)}

    assert found <= {job.name for job in scrape_config.JOBS}


def test_the_configuration_is_as_it_was_looked_at() -> None:
    assert file_of(prometheus(), "prometheus.yml").content == (GOLDEN / "prometheus.yml").read_text("utf-8")


def test_pages_ask_for_the_vaults_password() -> None:
    web = yaml.safe_load(file_of(prometheus(), "deepops-prometheus-web.yml").content)

    assert bcrypt.checkpw(PASSWORD.encode(), web["basic_auth_users"]["admin"].encode())
    assert not bcrypt.checkpw(b"another", web["basic_auth_users"]["admin"].encode())


def test_a_password_has_one_hash_for_each_purpose() -> None:
    assert web_config.hashed(PASSWORD, "prometheus") == web_config.hashed(PASSWORD, "prometheus")
    assert web_config.hashed(PASSWORD, "prometheus") != web_config.hashed(PASSWORD, "alertmanager")


def test_files_with_a_password_are_for_the_daemons_account_alone() -> None:
    files = [*prometheus().files, *prometheus_server.alertmanager(HOST).files]
    secret = [file for file in files if PASSWORD in file.content or "$2b$" in file.content]

    assert len(secret) == 3
    assert all((file.secret, file.mode, file.group) == (True, "0640", "prometheus") for file in secret)


def test_each_file_that_has_a_parser_is_checked_after_those_that_it_names() -> None:
    found = prometheus(gpu="groups: []\n")
    order = [file.path.rpartition("/")[2] for file in found.files]

    assert file_of(found, "rules/gpu.yml").validate == ("promtool", "check", "rules", "%s")
    assert file_of(found, "prometheus.yml").validate == ("promtool", "check", "config", "%s")
    assert file_of(prometheus_server.alertmanager(HOST), "alertmanager.yml").validate == (
        "amtool",
        "check-config",
        "%s",
    )
    assert order.index("prometheus.yml") > max(map(order.index, ("gpu.yml", "deepops.yml", "deepops-password")))


def test_what_a_daemon_can_read_anew_restarts_nothing() -> None:
    (unit,) = prometheus(gpu="groups: []\n").units

    assert unit.restart_on == ("/etc/systemd/system/prometheus.service.d/deepopsctl.conf",)
    assert unit.reload_on == ("/etc/prometheus/prometheus.yml", "/etc/prometheus/rules/")


def test_histories_are_not_where_a_purge_of_the_packages_takes_them() -> None:
    commands = [file.content for needs in (prometheus(), prometheus_server.alertmanager(HOST)) for file in needs.files]

    assert any("--storage.tsdb.path=/var/lib/prometheus/deepops " in text for text in commands)
    assert any("--storage.path=/var/lib/prometheus/deepops-alertmanager " in text for text in commands)


def test_a_limit_of_size_is_set_where_there_is_one() -> None:
    limited = replace(HOST, settings={"retention": "1y", "retention_size": "100GB"})
    text = file_of(prometheus(limited), "deepopsctl.conf").content

    assert "--storage.tsdb.retention.time=1y " in text
    assert "--storage.tsdb.retention.size=100GB " in text
    assert "retention.size" not in file_of(prometheus(), "deepopsctl.conf").content


def test_a_share_of_the_disk_is_told_at_each_start_for_what_is_free_then() -> None:
    needs = prometheus(replace(HOST, settings={**SETTINGS, "retention_size": "40%"}))
    words = file_of(needs, "deepopsctl.conf").content.replace("\\\n", "").split()
    start = words.index(f"ExecStart={retention.LAUNCHER}")

    # systemd's own escapes: there are none
    assert words[start + 1 : start + 4] == ["40", prometheus_server.HISTORY, "/usr/bin/prometheus"]
    assert file_of(needs, retention.LAUNCHER).mode == "0755"
    assert retention.LAUNCHER in needs.units[0].restart_on


@pytest.mark.parametrize("size", ["", "100GB", "1.5TB", "512MiB", "1%", "50%", "100%"])
def test_sizes_that_prometheus_or_its_launcher_takes_are_taken(size: str) -> None:
    assert prometheus(replace(HOST, settings={"retention": "1y2w", "retention_size": size})).problems == ()


@pytest.mark.parametrize("size", ["100 GB", "100", "0%", "101%", "50 %", "half", "-1GB", "50%; reboot"])
def test_what_is_neither_a_size_nor_a_share_is_refused(size: str) -> None:
    (problem,) = prometheus(replace(HOST, settings={**SETTINGS, "retention_size": size})).problems

    assert problem == f"monitoring_retention_size: {size} is neither a size nor a share: write 100GB or 50%"


@pytest.mark.parametrize("time", ["90", "90 d", "", "3 months", "d"])
def test_what_is_no_time_is_refused(time: str) -> None:
    (problem,) = prometheus(replace(HOST, settings={"retention": time})).problems

    assert problem == f"monitoring_retention: {time} is not a time: write 90d, 26w or 1y"


def test_the_launcher_counts_what_prometheus_has_already_as_its_own(tmp_path: Path) -> None:
    needs = prometheus(replace(HOST, settings={**SETTINGS, "retention_size": "40%"}))
    programs = {
        "df": "#!/bin/sh\necho '  Avail'\necho 1000\n",
        "du": "#!/bin/sh\nprintf '500\\t/data\\n'\n",
        "launch": file_of(needs, retention.LAUNCHER).content,
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    argv = [str(tmp_path / "launch"), "40", "/data", "printf", "%s\\n", "--storage.tsdb.path=x y"]

    done = subprocess.run(argv, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True)

    # 40 % of 1500, and 1 so that it is never none
    assert done.stdout.splitlines() == ["--storage.tsdb.path=x y", "--storage.tsdb.retention.size=601KB"]
    assert "data may take 601 KB: 40 % of 500 KB that it has and 1000 KB that are free" in done.stderr


def test_amtool_is_told_where_alertmanager_is_and_not_the_password_itself() -> None:
    needs = prometheus_server.alertmanager(HOST)
    told = yaml.safe_load(file_of(needs, prometheus_server.AMTOOL).content)

    assert told["alertmanager.url"] == "http://192.0.2.1:9093/"
    assert (
        PASSWORD
        not in file_of(needs, prometheus_server.AMTOOL).content + file_of(needs, told["http.config.file"]).content
    )
