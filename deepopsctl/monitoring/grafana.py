"""Grafana on the monitoring host: what it reads when it starts, the data sources and the dashboards. Pure.

Its own grafana.ini stays as the package has it: a drop-in of the unit overrides it.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepopsctl.content import content_dir
from deepopsctl.monitoring import web_config
from deepopsctl.monitoring.prometheus_server import ALERTMANAGER_PORT, PROMETHEUS_PORT
from deepopsctl.monitoring.resources import Directory, File, MonitoredNode, Needs, Target, Unit, at
from deepopsctl.text.header import MANAGED_HEADER
from deepopsctl.text.yaml_writer import block

PORT = 3000
UNIT = "grafana-server.service"
ADMIN = "admin"
GROUP = "grafana"
# read once, when its database is made
PASSWORD = "/etc/grafana/deepops-admin-password"  # noqa: S105 (a path)
PROVISIONING = "/etc/grafana/provisioning"
DASHBOARD_DIRECTORY = "/usr/local/share/deepopsctl/dashboards"
# prefix of the UID of each Grafana directory
TITLE, FOLDER_UID = "Cluster", "deepops"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the monitoring host that Grafana can read; '' for plain HTTP."""

    certificate: str = ""
    key: str = ""


def needs(node: MonitoredNode, tls: Tls) -> Needs:
    """All but the package, which has a source and a version of its own."""
    dropin = File(f"/etc/systemd/system/{UNIT}.d/deepopsctl.conf", _dropin(node, tls))
    data_sources = _read_by_grafana(f"{PROVISIONING}/datasources/deepopsctl.yaml", _data_sources(node), secret=True)
    provider = _read_by_grafana(f"{PROVISIONING}/dashboards/deepopsctl.yaml", _provider(), secret=False)
    return Needs(
        directories=(Directory(DASHBOARD_DIRECTORY),),
        files=(
            _read_by_grafana(PASSWORD, node.secrets["grafana_admin_password"], secret=True),
            data_sources,
            provider,
            *_dashboards(),
            dropin,
        ),
        # it reloads dashboards by itself; the role waits for its slow first start
        units=(Unit(UNIT, restart_on=(dropin.path, data_sources.path, provider.path)),),
        problems=_problems(node, tls),
    )


def _dashboards() -> list[File]:
    files = sorted((content_dir() / "roles" / "grafana" / "files" / "dashboards").glob("*.json"))
    return [File(f"{DASHBOARD_DIRECTORY}/{path.name}", path.read_text(encoding="utf-8")) for path in files]


def url(node: MonitoredNode, tls: Tls) -> str:
    """Where it answers."""
    return f"{'https' if tls.certificate else 'http'}://{at(node.address, PORT)}"


def targets(node: MonitoredNode) -> tuple[Target, ...]:
    """Its own metrics need no password, like those of node exporters."""
    if node.name != node.monitoring_host or not node.is_on("grafana_is_scraped"):
        return ()
    return (Target("grafana", at(node.address, PORT)),)


def _problems(node: MonitoredNode, tls: Tls) -> tuple[str, ...]:
    problems = []
    if bool(tls.certificate) != bool(tls.key):
        problems.append("grafana_tls_certificate and grafana_tls_key belong together: set both, or neither")
    if not node.secrets.get("grafana_admin_password"):
        problems.append(
            "no grafana_admin_password in secrets.yml: `deepopsctl inventory` adds what an older one has not"
        )
    return tuple(problems)


def _read_by_grafana(path: str, content: str, *, secret: bool) -> File:
    # an upgrade of the package gives all files there this owner and mode
    return File(path, content, mode="0640", group=GROUP, secret=secret)


def _dropin(node: MonitoredNode, tls: Tls) -> str:
    # SECTION_KEY of grafana.ini
    settings = {
        "SERVER_HTTP_ADDR": node.address,
        "SERVER_HTTP_PORT": str(PORT),
        "SERVER_ROOT_URL": f"{url(node, tls)}/",
        "SECURITY_ADMIN_USER": ADMIN,
        "SECURITY_ADMIN_PASSWORD__FILE": PASSWORD,
        # no gravatars: they would send users' addresses to a third party
        "SECURITY_DISABLE_GRAVATAR": "true",
        "AUTH_ANONYMOUS_ENABLED": "false",
        "USERS_ALLOW_SIGN_UP": "false",
        "USERS_ALLOW_ORG_CREATE": "false",
        "DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": f"{DASHBOARD_DIRECTORY}/deepops-overview.json",
        # no requests to the internet: sites without access would wait for them
        "ANALYTICS_REPORTING_ENABLED": "false",
        "ANALYTICS_CHECK_FOR_UPDATES": "false",
        "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "NEWS_NEWS_FEED_ENABLED": "false",
        "PLUGINS_PREINSTALL_DISABLED": "true",
        "SNAPSHOTS_EXTERNAL_ENABLED": "false",
    }
    if tls.certificate:
        settings |= {
            "SERVER_PROTOCOL": "https",
            "SERVER_CERT_FILE": tls.certificate,
            "SERVER_CERT_KEY": tls.key,
            "SECURITY_COOKIE_SECURE": "true",
        }
    lines = [f'Environment="GF_{name}={value.replace("%", "%%")}"' for name, value in settings.items()]
    # an address that is not there yet, at boot, is no reason to give up
    return "\n".join([MANAGED_HEADER + "[Service]", *lines, "Restart=always", "RestartSec=5", ""])


def _data_sources(node: MonitoredNode) -> str:
    password = node.secrets["web_password"]
    common = {
        "access": "proxy",
        "basicAuth": True,
        "basicAuthUser": web_config.USER,
        # Grafana stores it encrypted; `$` would begin a variable
        "secureJsonData": {"basicAuthPassword": password.replace("$", "$$")},
        "editable": False,
    }
    prometheus = {
        "name": "Prometheus",
        "uid": "deepops-prometheus",
        "type": "prometheus",
        "url": f"http://{at(node.address, PROMETHEUS_PORT)}",
        "isDefault": True,
        # a query that names a thousand nodes is too long for an address
        "jsonData": {"httpMethod": "POST", "timeInterval": "15s"},
        **common,
    }
    alertmanager = {
        "name": "Alertmanager",
        "uid": "deepops-alertmanager",
        "type": "alertmanager",
        "url": f"http://{at(node.address, ALERTMANAGER_PORT)}",
        "jsonData": {"implementation": "prometheus", "handleGrafanaManagedAlerts": False},
        **common,
    }
    return MANAGED_HEADER + block({"apiVersion": 1, "prune": True, "datasources": [prometheus, alertmanager]})


def _provider() -> str:
    provider = {
        "name": "deepopsctl",
        "folder": TITLE,
        "folderUid": FOLDER_UID,
        "type": "file",
        # dashboards whose file is removed are deleted
        "disableDeletion": False,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 30,
        "options": {"path": DASHBOARD_DIRECTORY},
    }
    return MANAGED_HEADER + block({"apiVersion": 1, "providers": [provider]})
