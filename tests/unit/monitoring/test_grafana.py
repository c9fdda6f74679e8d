"""What Grafana gets: settings that let nobody in by mistake, data sources, dashboards; and where secrets are."""

from __future__ import annotations

import json
import re

import yaml

from deepopsctl.monitoring.grafana import DASHBOARD_DIRECTORY, PASSWORD, Tls, needs, url
from deepopsctl.monitoring.queries import dashboards
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs

SECRETS = {"web_password": "web-$ecret", "grafana_admin_password": "admin-secret"}
MACHINE = MonitoredNode(
    name="ctl1",
    cluster="hpc",
    groups=frozenset({"monitoring"}),
    address="192.0.2.1",
    platform="Debian 13",
    monitoring_host="ctl1",
    monitoring_address="192.0.2.1",
    secrets=SECRETS,
)
TLS = Tls("/etc/ssl/grafana.pem", "/etc/ssl/grafana.key")


def files(found: Needs) -> dict[str, File]:
    return {file.path: file for file in found.files}


def settings(found: Needs) -> dict[str, str]:
    dropin = files(found)["/etc/systemd/system/grafana-server.service.d/deepopsctl.conf"].content
    return dict(re.findall(r'^Environment="GF_(\w+)=(.*)"$', dropin, re.MULTILINE))


def test_nobody_gets_in_without_a_password_and_nobody_signs_up() -> None:
    found = settings(needs(MACHINE, Tls()))

    assert found["AUTH_ANONYMOUS_ENABLED"] == "false"
    assert found["USERS_ALLOW_SIGN_UP"] == "false"
    assert found["SECURITY_ADMIN_PASSWORD__FILE"] == PASSWORD


def test_it_listens_on_the_management_address_alone_and_asks_nobody_outside() -> None:
    found = settings(needs(MACHINE, Tls()))

    assert (found["SERVER_HTTP_ADDR"], found["SERVER_HTTP_PORT"]) == ("192.0.2.1", "3000")
    assert found["SERVER_ROOT_URL"] == "http://192.0.2.1:3000/"
    assert found["ANALYTICS_REPORTING_ENABLED"] == found["ANALYTICS_CHECK_FOR_UPDATES"] == "false"
    assert found["PLUGINS_PREINSTALL_DISABLED"] == "true"


def test_with_a_certificate_it_speaks_tls_alone() -> None:
    found = settings(needs(MACHINE, TLS))

    assert (found["SERVER_PROTOCOL"], found["SERVER_CERT_FILE"]) == ("https", TLS.certificate)
    assert found["SECURITY_COOKIE_SECURE"] == "true"
    assert found["SERVER_ROOT_URL"] == "https://192.0.2.1:3000/"


def test_a_certificate_without_its_key_is_refused() -> None:
    assert needs(MACHINE, Tls(certificate="/etc/ssl/grafana.pem")).problems == (
        "grafana_tls_certificate and grafana_tls_key belong together: set both, or neither",
    )
    assert needs(MACHINE, TLS).problems == ()


def test_secrets_are_in_files_that_are_treated_as_secret_and_nowhere_else() -> None:
    found = needs(MACHINE, Tls())
    holding = {file.path for file in found.files if re.search("web-|admin-secret", file.content)}

    assert holding == {PASSWORD, "/etc/grafana/provisioning/datasources/deepopsctl.yaml"}
    assert {file.path for file in found.files if file.secret} == holding
    assert not [secret for secret in SECRETS.values() if secret in repr(found)]


def test_what_grafana_reads_has_the_owner_and_mode_that_its_package_gives_it() -> None:
    modes = {(file.mode, file.owner, file.group) for file in needs(MACHINE, Tls()).files if "/etc/grafana" in file.path}

    # or a deploy after an upgrade would find something to change
    assert modes == {("0640", "root", "grafana")}


def test_the_data_source_is_the_one_that_all_panels_name() -> None:
    text = files(needs(MACHINE, Tls()))["/etc/grafana/provisioning/datasources/deepopsctl.yaml"].content
    prometheus, alertmanager = yaml.safe_load(text)["datasources"]

    assert (prometheus["uid"], prometheus["url"]) == ("deepops-prometheus", "http://192.0.2.1:9090")
    assert prometheus["isDefault"]
    assert alertmanager["url"] == "http://192.0.2.1:9093"
    # Grafana fills in variables there
    assert prometheus["secureJsonData"] == {"basicAuthPassword": "web-$$ecret"}


def test_every_dashboard_is_a_file_where_the_provider_looks() -> None:
    found = files(needs(MACHINE, Tls()))
    provider = yaml.safe_load(found["/etc/grafana/provisioning/dashboards/deepopsctl.yaml"].content)["providers"][0]
    written = [
        json.loads(file.content)["uid"] for path, file in found.items() if path.startswith(f"{DASHBOARD_DIRECTORY}/")
    ]

    assert provider["options"]["path"] == DASHBOARD_DIRECTORY
    assert provider["allowUiUpdates"] is False
    assert sorted(written) == sorted(dashboard["uid"] for dashboard in dashboards())
    assert settings(needs(MACHINE, Tls()))["DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in found


def test_another_dashboard_restarts_nothing() -> None:
    (unit,) = needs(MACHINE, Tls()).units

    assert not [path for path in unit.restart_on if path.startswith(DASHBOARD_DIRECTORY)]


def test_an_address_of_ipv6_is_in_brackets() -> None:
    machine = MonitoredNode("ctl1", "hpc", frozenset(), "2001:db8::1", "Debian 13")

    assert url(machine, Tls()) == "http://[2001:db8::1]:3000"
