"""Variables of the roles of monitoring, for a small cluster: what a role needs besides its defaults."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import yaml

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority, new_authority
from tests.support.node_modules import plugin
from tests.support.paths import ROOT
from tests.support.role_templates import render

PASSWORD = "correct-horse-battery-staple"
AUTHORITY = new_authority(validity.today())
JOBS = {"map": "/run/deepops/jobs", "dcgm": "/run/deepops/gpus", "gpus": ["0", "1.7"]}

# a compute node
GPU01: dict[str, Any] = {
    "monitoring_enabled": True,
    "monitoring_node_cluster_name": "hpc",
    "monitoring_node_address": "192.0.2.11",
    "monitoring_node_platform": "Debian 13",
    "monitoring_node_is_controller": False,
    "monitoring_node_runs_jobs": True,
    "monitoring_node_has_slurm": True,
    "monitoring_node_has_database": False,
    "monitoring_node_stores_logs": False,
    "monitoring_node_monitoring_host": "ctl1",
    "monitoring_node_monitoring_address": "192.0.2.1",
    "monitoring_node_prometheus_url": "http://192.0.2.1:9090",
    "monitoring_node_alertmanager_url": "http://192.0.2.1:9093",
    "monitoring_node_web_password": PASSWORD,
    "monitoring_node_in_clear": False,
    "monitoring_node_authority": AUTHORITY,
    "monitoring_node_collectors": {"jobs": JOBS},
    "monitoring_node_gpu_libraries": "/usr/local/lib/deepopsctl/nvitop-exporter-1.7.2",
}
# the first controller, which has the database and all servers
CTL1: dict[str, Any] = {
    **GPU01,
    "monitoring_node_address": "192.0.2.1",
    "monitoring_node_is_controller": True,
    "monitoring_node_runs_jobs": False,
    "monitoring_node_has_database": True,
    "monitoring_node_stores_logs": True,
    "monitoring_node_log_members": ["ctl1", "gpu01"],
    "monitoring_node_collectors": {"certificates": {"paths": ["/etc/ssl/site.pem"]}},
}


def prometheus(**changes: Any) -> dict[str, Any]:
    """Variables of the role prometheus, for a cluster of the controller alone."""
    cluster = {
        "name": "hpc",
        "controller": "ctl1",
        "monitoring_host": "ctl1",
        "addresses": {"ctl1": "192.0.2.1"},
        "mounts": [],
        "nodes": [],
        "settings": {"exporter_tls": changes.get("monitoring_exporter_tls", True)},
        "secrets": {},
    }
    return {
        "prometheus_wanted": True,
        "prometheus_address": "192.0.2.1",
        "prometheus_alertmanager": "192.0.2.1:9093",
        "prometheus_web_password": PASSWORD,
        "prometheus_cluster": cluster,
        "prometheus_members": {"slurm_cluster": ["ctl1"], "monitoring": ["ctl1"], "slurm_controller": ["ctl1"]},
        "prometheus_switched": ["ctl1"],
        **changes,
    }


def alertmanager(**changes: Any) -> dict[str, Any]:
    """Variables of the role alertmanager."""
    required = {"wanted": True, "address": "192.0.2.1", "web_password": PASSWORD}
    return {**{f"alertmanager_{name}": value for name, value in required.items()}, **changes}


def grafana(**changes: Any) -> dict[str, Any]:
    """Variables of the role grafana."""
    return {
        "grafana_wanted": True,
        "grafana_address": "192.0.2.1",
        "grafana_admin_password": "admin-secret",
        "grafana_prometheus_url": "http://192.0.2.1:9090",
        "grafana_alertmanager_url": "http://192.0.2.1:9093",
        "grafana_web_password": "web-$ecret",
        "grafana_catalogue": {"version": "13.2.3", "fingerprint": "0" * 40},
        **changes,
    }


def exporter_files(
    directory: Path, name: str, address: str = "127.0.0.1", platform: str = "Debian 12", authority: str = AUTHORITY
) -> Path:
    """Write the certificate and the web configuration of a node's exporters into a directory."""
    signer = Authority(authority)
    made = signer.identify(name, [address], validity.today())
    web = render(
        "monitoring_node",
        "exporters.yml.j2",
        monitoring_node_platform=platform,
        monitoring_node_monitoring_host="ctl1",
        __monitoring_node_tls_directory=str(directory),
    )
    texts = {
        "authority.crt": signer.certificate,
        "node.crt": made.certificate,
        "node.key": made.key,
        "exporters.yml": web,
    }
    directory.mkdir()
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")
    return scraper_files(directory, "ctl1", name, authority)


def scraper_files(directory: Path, scraper: str, name: str = "", authority: str = AUTHORITY) -> Path:
    """Write whom the exporters of a node accept, and on the monitoring host (`scraper`) its certificate."""
    directory.mkdir(exist_ok=True)
    for file in plugin("filter", "monitoring").monitoring_scraper(authority, scraper, name or scraper, directory, {}):
        Path(file["path"]).write_text(file.get("content") or b64decode(file["secret_base64"]).decode(), "utf-8")
    return directory


def prometheus_config(*, tls: bool = True, targets: str = "/etc/prometheus/targets/deepops.yml", **changes: Any) -> str:
    """prometheus.yml of the role."""
    shared = yaml.safe_load((ROOT / "group_vars" / "all" / "monitoring.yml").read_text(encoding="utf-8"))
    variables = prometheus(
        prometheus_scrape_interval=shared["prometheus_scrape_interval"],
        monitoring_exporter_tls=tls,
        __prometheus_target_limit=64,
        __prometheus_targets=targets,
    )
    return render("prometheus", "prometheus.yml.j2", **{**variables, **changes})
