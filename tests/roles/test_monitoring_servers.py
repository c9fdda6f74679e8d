"""What Prometheus, Alertmanager and Grafana get, as their roles ask for it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml

from deepopsctl.monitoring import alert_rules, ports, targets, web_config
from deepopsctl.monitoring.queries import dashboards
from tests.roles.content import load
from tests.support.files import write_program
from tests.support.local_ansible import play
from tests.support.monitoring_roles import PASSWORD, alertmanager, grafana, prometheus
from tests.support.paths import DATA, ROOT
from tests.support.recorded_roles import Asked, Recorded, record

WRITE = bool(os.environ.get("DEEPOPSCTL_WRITE_GOLDEN"))
CONFIG = "/etc/prometheus/prometheus.yml"
TARGETS = "/etc/prometheus/targets/deepops.yml"
DROPIN = "/etc/systemd/system/{}.service.d/deepopsctl.conf"
LAUNCHER = "/usr/local/lib/deepopsctl/prometheus-within"
HOOK = {"hook": {"webhook": {"secret": "hook"}}}
MORE_NODES = {"ctl1": "192.0.2.1", **{f"gpu{number:02}": f"192.0.2.{10 + number}" for number in range(1, 71)}}


def of_nodes(*names: str) -> dict[str, Any]:
    """A cluster of these nodes."""
    base = prometheus()
    cluster = {**base["prometheus_cluster"], "addresses": MORE_NODES}
    return {
        **base,
        "prometheus_cluster": cluster,
        "prometheus_members": {**base["prometheus_members"], "slurm_cluster": list(names)},
    }


# Each is a host of one run, with the roles' variables.
PROMETHEUS: dict[str, dict[str, Any]] = {
    "plain": prometheus(monitoring_exporter_tls=False, prometheus_retention_size=""),
    "tls": prometheus(),
    "share": prometheus(prometheus_retention_size="40%"),
    "limited": prometheus(prometheus_retention="1y", prometheus_retention_size="100GB"),
    "ipv6": prometheus(
        prometheus_address="2001:db8::1", prometheus_alertmanager="[2001:db8::1]:9093", prometheus_port=9999
    ),
    "slower": prometheus(prometheus_scrape_interval="30s", prometheus_slow_scrape_interval="5m"),
    "a-node-more": of_nodes("ctl1", "gpu01"),
    "many": of_nodes(*MORE_NODES),
    "changed-alert": prometheus(monitoring_alerts={"DiskFull": {"for": "15m"}}),
    "wrong-alert": prometheus(monitoring_alerts={"DiskFul": {"for": "15m"}}),
    "unwanted": prometheus(prometheus_wanted=False, prometheus_retention="x"),
    "wrong-limits": prometheus(prometheus_retention="90", prometheus_retention_size="50%; reboot"),
}
ALERTMANAGER: dict[str, dict[str, Any]] = {
    "plain": alertmanager(),
    "hook": alertmanager(
        alertmanager_receivers=HOOK,
        alertmanager_grouping={"wait": "1s"},
        alertmanager_secrets={"hook": "https://hooks.example.com/x"},
    ),
    "no-secret": alertmanager(alertmanager_receivers=HOOK),
    "wrong-types": alertmanager(alertmanager_receivers=["a"], alertmanager_routes="b"),
    "unwanted": alertmanager(alertmanager_wanted=False, alertmanager_receivers=HOOK),
}
TLS = {"grafana_tls_certificate": "/etc/ssl/100%.pem", "grafana_tls_key": "/etc/ssl/grafana.key"}
GRAFANA: dict[str, dict[str, Any]] = {
    "plain": grafana(),
    "tls": grafana(**TLS),
    "no-key": grafana(grafana_tls_certificate="/etc/ssl/grafana.pem"),
    "no-password": grafana(grafana_admin_password=""),
    "slower": grafana(prometheus_scrape_interval="30s", grafana_web_password="plain_password"),
    "named": grafana(grafana_dashboard_folder="HPC: nodes, GPUs #1"),
    "unwanted": grafana(grafana_wanted=False),
}


@pytest.fixture(scope="module")
def of_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("prometheus"), [{"role": "prometheus"}], PROMETHEUS)


@pytest.fixture(scope="module")
def of_alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("alertmanager"), [{"role": "alertmanager"}], ALERTMANAGER)


@pytest.fixture(scope="module")
def of_grafana(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    modules = ("node_state", "apt_source", "grafana_admin")
    return record(tmp_path_factory.mktemp("grafana"), [{"role": "grafana"}], GRAFANA, modules=modules)


def config(recorded: Recorded, host: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(recorded.step(host, "prometheus").texts()[CONFIG])
    return read


def jobs(recorded: Recorded, host: str) -> dict[str, dict[str, Any]]:
    return {job["job_name"]: job for job in config(recorded, host)["scrape_configs"]}


# what a job has of TLS
OF_TLS = re.compile(r"  scheme: https\n  tls_config:\n(?:    \w+_file: .*\n)+")


def test_the_configuration_of_prometheus_is_as_it_was_reviewed(of_prometheus: Recorded) -> None:
    golden = DATA / "monitoring" / "prometheus-tls.yml"
    text = of_prometheus.step("tls", "prometheus").texts()[CONFIG]
    if WRITE:
        golden.write_text(text, encoding="utf-8")

    assert text == golden.read_text(encoding="utf-8")
    assert of_prometheus.step("plain", "prometheus").texts()[CONFIG] == OF_TLS.sub("", text)


def test_the_scrape_interval_is_a_variable_of_the_role(of_prometheus: Recorded) -> None:
    intervals = {name: job["scrape_interval"] for name, job in jobs(of_prometheus, "slower").items()}

    assert intervals == {
        "node": "30s", "controller": "30s", "gpu": "30s", "prometheus": "30s", "alertmanager": "30s",
        "slurm": "5m", "mysqld": "5m", "grafana": "5m",
    }  # fmt: skip
    assert config(of_prometheus, "slower")["global"]["scrape_interval"] == "30s"


def test_a_node_more_is_a_line_more_and_no_other_file(of_prometheus: Recorded) -> None:
    few, more = (of_prometheus.step(host, "prometheus").texts() for host in ("tls", "a-node-more"))

    assert more[TARGETS].startswith(few[TARGETS])
    assert [path for path in few if few[path] != more[path]] == [TARGETS]


def test_room_for_targets_grows_by_powers_of_two(of_prometheus: Recorded) -> None:
    assert {job["target_limit"] for job in jobs(of_prometheus, "tls").values()} == {64}
    # 71 node exporters and two servers
    assert {job["target_limit"] for job in jobs(of_prometheus, "many").values()} == {128}
    assert jobs(of_prometheus, "many")["controller"]["sample_limit"] == 150_000 + 250 * 128


def test_every_exporter_of_the_targets_has_a_job(of_prometheus: Recorded) -> None:
    lines = yaml.safe_load(of_prometheus.step("many", "prometheus").texts()[TARGETS])

    assert {line["labels"][targets.EXPORTER] for line in lines} == {"node", "controller", "prometheus", "alertmanager"}
    # that each takes its own, and which by TLS, is in the configuration that was reviewed
    assert set(jobs(of_prometheus, "tls")) == {*targets.TLS_JOBS, "slurm", "prometheus", "alertmanager", "grafana"}


def test_each_file_that_has_a_parser_is_checked_after_those_that_it_names(of_prometheus: Recorded) -> None:
    files = of_prometheus.step("tls", "prometheus").files
    checks = {file["path"]: file.get("validate") for file in files}
    order = [file["path"] for file in files]
    rules = [path for path in order if path.startswith("/etc/prometheus/rules/")]

    assert {path.rpartition("/")[2] for path in rules} == {
        path.name for path in (ROOT / "roles/prometheus/files/rules").glob("*.yml")
    }
    assert all(checks[path] == ["promtool", "check", "rules", "%s"] for path in rules)
    assert checks[CONFIG] == ["promtool", "check", "config", "%s"]
    assert checks["/etc/prometheus/deepops-prometheus-web.yml"] == ["promtool", "check", "web-config", "%s"]
    assert order.index(CONFIG) > max(map(order.index, (*rules, TARGETS, "/etc/prometheus/deepops-password")))


def test_what_prometheus_can_read_again_restarts_nothing(of_prometheus: Recorded) -> None:
    (unit,) = of_prometheus.step("plain", "prometheus").units

    assert unit["restart_on"] == [DROPIN.format("prometheus")]
    assert unit["reload_on"] == [CONFIG, "/etc/prometheus/rules/"]
    assert of_prometheus.step("share", "prometheus").units[0]["restart_on"] == [DROPIN.format("prometheus"), LAUNCHER]


def words(recorded: Recorded, host: str) -> list[str]:
    return recorded.step(host, "prometheus").texts()[DROPIN.format("prometheus")].replace("\\\n", "").split()


def test_a_limit_of_size_is_set_where_there_is_one(of_prometheus: Recorded) -> None:
    assert {"--storage.tsdb.retention.time=1y", "--storage.tsdb.retention.size=100GB"} <= set(
        words(of_prometheus, "limited")
    )
    assert not [word for word in words(of_prometheus, "plain") if "retention.size" in word]
    # where a purge of the package does not take it
    assert "--storage.tsdb.path=/var/lib/prometheus/deepops" in words(of_prometheus, "plain")
    assert {"--web.listen-address=[2001:db8::1]:9999", "--web.external-url=http://[2001:db8::1]:9999/"} <= set(
        words(of_prometheus, "ipv6")
    )


def test_a_share_of_the_disk_is_worked_out_at_each_start(of_prometheus: Recorded) -> None:
    command = words(of_prometheus, "share")
    start = command.index(f"ExecStart={LAUNCHER}")

    assert command[start + 1 : start + 4] == ["40", "/var/lib/prometheus/deepops", "/usr/bin/prometheus"]
    (launcher,) = (file for file in of_prometheus.step("share", "prometheus").files if file["path"] == LAUNCHER)
    assert launcher["mode"] == "0755"
    assert LAUNCHER not in of_prometheus.step("limited", "prometheus").texts()


def test_what_is_neither_a_size_nor_a_share_or_no_time_is_refused(of_prometheus: Recorded) -> None:
    assert of_prometheus.failures["wrong-limits"] == (
        "prometheus_retention: 90 is not a time: write 90d, 26w or 1y; "
        "prometheus_retention_size: 50%; reboot is neither a size nor a share: write 100GB or 50%"
    )
    assert of_prometheus.asked["wrong-limits"] == []


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("size", "|100GB|1.5TB|512MiB|1%|50%|100%", "100 GB|100|0%|101%|50 %|half|-1GB|50%; reboot"),
        ("time", "90d|26w|1y|1y6h", "|90|90 d|3 months|d"),
    ],
)
def test_sizes_and_times_are_those_that_prometheus_or_its_launcher_takes(pattern: str, good: str, bad: str) -> None:
    expression = re.compile(load("roles/prometheus/vars/main.yml")[f"__prometheus_{pattern}"])

    assert [text for text in good.split("|") if not expression.match(text)] == []
    assert [text for text in bad.split("|") if expression.match(text)] == []


def test_the_launcher_counts_what_prometheus_has_already_as_its_own(of_prometheus: Recorded, tmp_path: Path) -> None:
    write_program(tmp_path / "df", "echo '  Avail'; echo 1000")
    write_program(tmp_path / "du", "printf '500\\t/data\\n'")
    launcher = tmp_path / "launch"
    launcher.write_text(of_prometheus.step("share", "prometheus").texts()[LAUNCHER], encoding="utf-8")
    launcher.chmod(0o755)
    argv = [str(launcher), "40", "/data", "printf", "%s\\n", "--storage.tsdb.path=x y"]

    done = subprocess.run(argv, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True)

    # 40 % of 1500, and 1 so that it is never none
    assert done.stdout.splitlines() == ["--storage.tsdb.path=x y", "--storage.tsdb.retention.size=601KB"]
    assert "data may take 601 KB: 40 % of 500 KB that it has and 1000 KB that are free" in done.stderr


def test_an_alert_that_a_site_changes_is_in_prometheus_rules_and_one_that_does_not_exist_is_refused(
    of_prometheus: Recorded,
) -> None:
    text = of_prometheus.step("changed-alert", "prometheus").texts()["/etc/prometheus/rules/alerts-storage.yml"]

    assert next(alert for alert in alert_rules.read(text) if alert.name == "DiskFull").wait == "15m"
    assert of_prometheus.failures["wrong-alert"] == (
        "monitoring_alerts: DiskFul: there is no such alert; did you mean DiskFull?"
    )


def test_pages_ask_for_the_vaults_password(of_prometheus: Recorded, of_alertmanager: Recorded) -> None:
    hashes = [
        yaml.safe_load(recorded.step("plain", name).texts()[f"/etc/prometheus/deepops-{name}-web.yml"])[
            "basic_auth_users"
        ]["admin"]
        for name, recorded in (("prometheus", of_prometheus), ("alertmanager", of_alertmanager))
    ]

    assert all(bcrypt.checkpw(PASSWORD.encode(), each.encode()) for each in hashes)
    assert len(set(hashes)) == 2
    # a second deploy has to find nothing to change
    assert web_config.hashed(PASSWORD, "prometheus") == hashes[0]


def holding(asked: Asked, *secrets: str) -> set[str]:
    """Files with a password or its hash."""
    return {path for path, text in asked.texts().items() if any(secret in text for secret in (*secrets, "$2b$"))}


def test_files_with_a_password_are_for_the_daemons_account_alone(
    of_prometheus: Recorded, of_alertmanager: Recorded
) -> None:
    calls = [of_prometheus.step("plain", "prometheus"), of_alertmanager.step("hook", "alertmanager")]
    held = [holding(call, PASSWORD, "hooks.example.com") for call in calls]

    assert held == [
        {"/etc/prometheus/deepops-prometheus-web.yml", "/etc/prometheus/deepops-password"},
        {"/etc/prometheus/deepops-alertmanager-web.yml", "/etc/prometheus/alertmanager.yml"},
    ]
    for call, paths in zip(calls, held, strict=True):
        for file in call.files:
            if file["path"] in paths:
                assert (file["mode"], file["group"], "content" in file) == ("0640", "prometheus", False)


def test_receivers_and_grouping_are_in_alertmanagers_file(of_alertmanager: Recorded) -> None:
    document = yaml.safe_load(of_alertmanager.step("hook", "alertmanager").texts()["/etc/prometheus/alertmanager.yml"])

    assert document["receivers"][1]["webhook_configs"][0]["url"] == "https://hooks.example.com/x"
    assert document["route"]["group_wait"] == "1s"


def test_receivers_that_alertmanager_cannot_use_are_refused(of_alertmanager: Recorded) -> None:
    assert "the vault has no secret hook" in of_alertmanager.failures["no-secret"]
    assert len(of_alertmanager.failures["wrong-types"].split("; ")) == 2
    assert set(of_alertmanager.failures) == {"no-secret", "wrong-types"}


def test_amtool_has_where_alertmanager_is_and_not_the_password_itself(of_alertmanager: Recorded) -> None:
    texts = of_alertmanager.step("plain", "alertmanager").texts()
    amtool = yaml.safe_load(texts["/etc/prometheus/amtool.yml"])
    login = yaml.safe_load(texts[amtool["http.config.file"]])["basic_auth"]

    assert amtool["alertmanager.url"] == "http://192.0.2.1:9093/"
    assert login["password_file"] == "/etc/prometheus/deepops-password"


@pytest.mark.parametrize("step", ["prometheus", "alertmanager", "grafana"])
def test_a_server_that_is_not_wanted_keeps_nothing(
    of_prometheus: Recorded, of_alertmanager: Recorded, of_grafana: Recorded, step: str
) -> None:
    recorded = {"prometheus": of_prometheus, "alertmanager": of_alertmanager, "grafana": of_grafana}[step]
    arguments = recorded.step("unwanted", step).arguments

    assert {"packages", "files", "units", "directories"} & set(arguments) == set()
    assert arguments["owned"] is True


def grafana_settings(recorded: Recorded, host: str) -> dict[str, str]:
    dropin = recorded.step(host, "grafana").texts()[DROPIN.format("grafana-server")]
    return dict(re.findall(r'^Environment="GF_(\w+)=(.*)"$', dropin, re.MULTILINE))


def test_grafana_lets_nobody_in_without_a_password_and_asks_nobody_outside(of_grafana: Recorded) -> None:
    assert (
        grafana_settings(of_grafana, "plain").items()
        >= {
            "AUTH_ANONYMOUS_ENABLED": "false",
            "USERS_ALLOW_SIGN_UP": "false",
            "SECURITY_ADMIN_PASSWORD__FILE": "/etc/grafana/deepops-admin-password",
            "SERVER_HTTP_ADDR": "192.0.2.1",
            "SERVER_HTTP_PORT": "3000",
            "SERVER_ROOT_URL": "http://192.0.2.1:3000/",
            "ANALYTICS_REPORTING_ENABLED": "false",
            "ANALYTICS_CHECK_FOR_UPDATES": "false",
            "PLUGINS_PREINSTALL_DISABLED": "true",
        }.items()
    )


def test_grafana_with_a_certificate_serves_tls_alone(of_grafana: Recorded) -> None:
    assert (
        grafana_settings(of_grafana, "tls").items()
        >= {
            "SERVER_PROTOCOL": "https",
            # systemd's own escape of %
            "SERVER_CERT_FILE": "/etc/ssl/100%%.pem",
            "SECURITY_COOKIE_SECURE": "true",
            "SERVER_ROOT_URL": "https://192.0.2.1:3000/",
        }.items()
    )


def test_settings_that_grafana_cannot_use_are_refused(of_grafana: Recorded) -> None:
    assert of_grafana.failures == {
        "no-key": "grafana_tls_certificate and grafana_tls_key belong together: set both, or neither",
        "no-password": "no grafana_admin_password in secrets.yml: "
        "`deepopsctl inventory` adds what an older one has not",
    }


def test_grafanas_secrets_are_in_files_that_are_treated_as_secret_and_nowhere_else(of_grafana: Recorded) -> None:
    call = of_grafana.step("plain", "grafana")
    paths = holding(call, "web-", "admin-secret")
    own = [file for file in call.files if "/etc/grafana" in file["path"]]

    assert paths == {"/etc/grafana/deepops-admin-password", "/etc/grafana/provisioning/datasources/deepopsctl.yaml"}
    assert {file["path"] for file in call.files if "secret_base64" in file} == paths
    # as its package has it, or a deploy after an upgrade would find something to change
    assert {(file["mode"], file.get("owner", "root"), file["group"]) for file in own} == {("0640", "root", "grafana")}


@pytest.mark.parametrize(("host", "password"), [("plain", "web-$$ecret"), ("slower", "plain_password")])
def test_the_data_source_is_the_one_that_all_panels_name(of_grafana: Recorded, host: str, password: str) -> None:
    text = of_grafana.step(host, "grafana").texts()["/etc/grafana/provisioning/datasources/deepopsctl.yaml"]
    prometheus, alertmanager = yaml.safe_load(text)["datasources"]

    assert (prometheus["uid"], prometheus["url"]) == ("deepops-prometheus", "http://192.0.2.1:9090")
    assert prometheus["isDefault"]
    assert alertmanager["url"] == "http://192.0.2.1:9093"
    # Grafana fills in variables there
    assert prometheus["secureJsonData"] == {"basicAuthPassword": password}


def test_the_directory_of_dashboards_may_have_any_name(of_grafana: Recorded) -> None:
    text = of_grafana.step("named", "grafana").texts()["/etc/grafana/provisioning/dashboards/deepopsctl.yaml"]

    assert yaml.safe_load(text)["providers"][0]["folder"] == "HPC: nodes, GPUs #1"


def test_every_dashboard_is_a_file_where_the_provider_looks_and_changing_one_restarts_nothing(
    of_grafana: Recorded,
) -> None:
    call = of_grafana.step("plain", "grafana")
    provider = yaml.safe_load(call.texts()["/etc/grafana/provisioning/dashboards/deepopsctl.yaml"])["providers"][0]
    directory = provider["options"]["path"]
    written = {path: json.loads(text) for path, text in call.texts().items() if path.startswith(f"{directory}/")}

    assert provider["allowUiUpdates"] is False
    assert written == {f"{directory}/{dashboard['uid']}.json": dashboard for dashboard in dashboards()}
    assert grafana_settings(of_grafana, "plain")["DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in written
    (unit,) = call.units
    assert not [path for path in unit["restart_on"] if path.startswith(directory)]


def test_a_plan_leaves_grafana_in_where_its_package_is_still_to_be_fetched(tmp_path: Path) -> None:
    package = tmp_path / "package.deb"
    package.write_bytes(b"deb")
    values = {
        "grafana_package": package.as_uri(), "grafana_package_sha256": hashlib.sha256(b"deb").hexdigest(),
        "__grafana_archive": str(tmp_path / "missing/grafana.deb"),
    }  # fmt: skip
    tasks = load("roles/grafana/tasks/archive.yml")

    done = play(tmp_path, [{"hosts": "all", "gather_facts": False, "tasks": tasks}], {"mon1": values}, "--check")

    assert "Report a package that can't be fetched" not in {result.task for result in done.results}
    assert done.status == 0, done.output


def test_no_graph_has_a_smaller_step_than_metrics_are_scraped(of_grafana: Recorded) -> None:
    texts = of_grafana.step("slower", "grafana").texts()
    shown = [text for path, text in texts.items() if "/dashboards/deepops-" in path]

    assert len(shown) == len(dashboards())
    assert not [text for text in shown if '"interval": "15s"' in text]
    assert 'timeInterval: "30s"' in texts["/etc/grafana/provisioning/datasources/deepopsctl.yaml"]


def test_ports_that_others_need_are_the_defaults_of_the_roles_and_settings_of_a_site() -> None:
    of_site = load("group_vars/all/monitoring.yml")["deepops_monitoring_settings"]["ports"]

    assert set(of_site) == set(ports.VARIABLES)
    for name, (_role, variable) in ports.VARIABLES.items():
        assert of_site[name] == f"{{{{ {variable} | default('') }}}}"
    assert [ports.default(name) for name in ports.VARIABLES] == [9100, 9104, 9400, 9401, 9090, 9093, 3000]
