"""Prometheus and Alertmanager on the monitoring host: their packages, files and units. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from deepopsctl.monitoring import alert_routing, alert_rules, retention, scrape_config, web_config
from deepopsctl.monitoring.resources import Directory, File, MonitoredNode, Needs, Target, Unit, at
from deepopsctl.monitoring.systemd_units import started_by
from deepopsctl.text.header import MANAGED_HEADER

PROMETHEUS_PORT = 9090
ALERTMANAGER_PORT = 9093
RULES = "/etc/prometheus/rules"
TARGETS = "/etc/prometheus/targets"
TARGETS_FILE = f"{TARGETS}/deepops.yml"
# not the packages' directory: purging the package would delete it, and the history must survive a change of package
HISTORY = "/var/lib/prometheus/deepops"
SILENCES = "/var/lib/prometheus/deepops-alertmanager"
# Configuration of Debian's amtool: Alertmanager listens at the node's own address and needs a
# password: root can read it.
AMTOOL = "/etc/prometheus/amtool.yml"
_AMTOOL_LOGIN = "/etc/prometheus/deepops-amtool.yml"
# an address that is not there yet, at boot, is no reason to give up
_COMES_BACK = ("Restart=always", "RestartSec=5")


def prometheus(node: MonitoredNode, targets: str, rules: Mapping[str, str]) -> Needs:
    """Prometheus; `targets` is the text of its target file, `rules` has texts by file name."""
    changes = node.settings.get("alerts", {})
    problems = alert_rules.validate_overrides(rules, changes)
    rule_files = [
        File(f"{RULES}/{name}", text, validate=("promtool", "check", "rules", "%s"))
        for name, text in (rules if problems else alert_rules.with_overrides(rules, changes)).items()
    ]
    web = web_config.for_people("prometheus", node)
    password = web_config.secret(web_config.password_file(), node.secrets["web_password"])
    config = File(
        "/etc/prometheus/prometheus.yml",
        MANAGED_HEADER
        + _yaml(
            scrape_config.config(
                node,
                at(node.address, ALERTMANAGER_PORT),
                f"{RULES}/*.yml",
                TARGETS_FILE,
                count=targets.count("\n- "),
            )
        ),
        # it follows the names of the other files, so these are there before
        validate=("promtool", "check", "config", "%s"),
    )
    flags = retention.retention_flags(node.settings, HISTORY)
    command = (
        *flags.command_prefix,
        "/usr/bin/prometheus",
        f"--config.file={config.path}",
        f"--storage.tsdb.path={HISTORY}",
        *flags.arguments,
        f"--web.listen-address={at(node.address, PROMETHEUS_PORT)}",
        f"--web.external-url=http://{at(node.address, PROMETHEUS_PORT)}/",
        f"--web.config.file={web.path}",
    )
    dropin = started_by("prometheus.service", command, *_COMES_BACK)
    return Needs(
        packages=("prometheus",),
        directories=(
            Directory(RULES),
            Directory(TARGETS),
            Directory(HISTORY, mode="0750", owner="prometheus", group="prometheus"),
        ),
        files=(*rule_files, File(TARGETS_FILE, targets), web, password, config, *flags.files, dropin),
        units=(
            Unit(
                "prometheus.service",
                restart_on=(dropin.path, *(file.path for file in flags.files)),
                # targets and passwords it sees by itself
                reload_on=(config.path, f"{RULES}/"),
                port=PROMETHEUS_PORT,
            ),
        ),
        problems=(*problems, *flags.problems),
    )


def alertmanager(node: MonitoredNode) -> Needs:
    """Alertmanager and its receivers."""
    routing = alert_routing.routing(alert_routing.wanted_by(node))
    web = web_config.for_people("alertmanager", node)
    config = File(
        "/etc/prometheus/alertmanager.yml",
        routing.text,
        mode="0640",
        group=web_config.GROUP,
        validate=("amtool", "check-config", "%s"),
        secret=True,
    )
    command = (
        "/usr/bin/prometheus-alertmanager",
        f"--config.file={config.path}",
        f"--storage.path={SILENCES}",
        f"--web.listen-address={at(node.address, ALERTMANAGER_PORT)}",
        f"--web.external-url=http://{at(node.address, ALERTMANAGER_PORT)}/",
        f"--web.config.file={web.path}",
        # a single instance: no cluster port
        "--cluster.listen-address=",
    )
    dropin = started_by("prometheus-alertmanager.service", command, *_COMES_BACK)
    return Needs(
        packages=("prometheus-alertmanager",),
        directories=(Directory(SILENCES, mode="0750", owner="prometheus", group="prometheus"),),
        files=(web, config, *_amtool(node), dropin),
        units=(
            Unit(
                "prometheus-alertmanager.service",
                restart_on=(dropin.path,),
                reload_on=(config.path,),
                port=ALERTMANAGER_PORT,
            ),
        ),
        problems=routing.problems,
    )


def _amtool(node: MonitoredNode) -> tuple[File, ...]:
    """Configuration with which root uses amtool without further options."""
    amtool_config = {
        "alertmanager.url": f"http://{at(node.address, ALERTMANAGER_PORT)}/",
        "http.config.file": _AMTOOL_LOGIN,
    }
    login = {"basic_auth": {"username": web_config.USER, "password_file": web_config.password_file()}}
    return File(_AMTOOL_LOGIN, MANAGED_HEADER + _yaml(login)), File(AMTOOL, MANAGED_HEADER + _yaml(amtool_config))


def targets(node: MonitoredNode) -> tuple[Target, ...]:
    """Both watch themselves, too."""
    if node.name != node.monitoring_host:
        return ()
    return (
        Target("prometheus", at(node.address, PROMETHEUS_PORT)),
        Target("alertmanager", at(node.address, ALERTMANAGER_PORT)),
    )


def _yaml(content: Mapping[str, object]) -> str:
    """One key a line, at any depth: people read it, and a diff shows what changed."""
    return yaml.safe_dump(dict(content), sort_keys=False, width=120)
