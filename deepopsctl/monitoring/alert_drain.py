"""Drain by alert: the program on the first controller that asks Alertmanager which nodes to take out of service."""

from __future__ import annotations

import json
from pathlib import Path

from deepopsctl.content import content_dir
from deepopsctl.monitoring import alert_rules, web_config
from deepopsctl.monitoring.node_exporter import TEXTFILES
from deepopsctl.monitoring.programs import program_files
from deepopsctl.monitoring.prometheus_server import ALERTMANAGER_PORT
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs, Unit, at
from deepopsctl.monitoring.systemd_units import SLURMS_FAMILIES, confined, service
from deepopsctl.node_programs import alert_drain
from deepopsctl.node_programs.alert_drain.settings import CONFIG

NAME = "deepops-alertdrain"
PROGRAM = f"/usr/local/sbin/{NAME}"
# scrapes and rounds of the rules, before an alert of missing data even begins to wait for its `for`
SLACK_S = 60


def needs(node: MonitoredNode) -> Needs:
    """The program with its settings; nothing on other nodes, or if it is not enabled."""
    if not node.is_first_controller or not node.is_on("drain"):
        return Needs()
    settings = node.settings
    config_values = {
        "url": f"http://{at(node.monitoring_address, ALERTMANAGER_PORT)}",
        "cluster": node.cluster,
        "limit": settings["drain_limit"],
        "resume_after_s": settings["drain_resume_after"],
        "interval_s": settings["drain_interval"],
        "user": web_config.USER,
        "password": node.secrets["web_password"],
        "textfile": f"{TEXTFILES}/alertdrain.prom",
    }
    config = File(CONFIG, json.dumps(config_values, indent=1) + "\n", mode="0600", secret=True)
    sources = program_files(alert_drain, PROGRAM)
    unit = service(
        NAME,
        "drains nodes while a draining alert fires",
        (PROGRAM,),
        # it needs root only for Slurm: it reads its settings, queries, and writes one file
        *confined(ReadWritePaths=TEXTFILES, RestrictAddressFamilies=SLURMS_FAMILIES),
        "MemoryMax=256M",
    )
    files = (*sources, config, unit)
    return Needs(
        files=files,
        units=(Unit(f"{NAME}.service", restart_on=tuple(file.path for file in files)),),
        problems=tuple(_problems(node)),
    )


def _problems(node: MonitoredNode) -> list[str]:
    settings, problems = node.settings, []
    for key, least in (("drain_limit", 0), ("drain_resume_after", 0), ("drain_interval", 1)):
        value = settings[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            problems.append(f"monitoring_{key}: {value} is no whole number from {least} on")
    changes = settings["alerts"]
    # errors in `alerts` are reported with Prometheus' rules
    if problems or not isinstance(changes, dict) or alert_rules.validate_overrides(rule_files(), changes):
        return problems
    blind = alert_rules.longest_blindness(alert_rules.with_overrides(rule_files(), changes)) + SLACK_S
    if int(str(settings["drain_resume_after"])) < blind:
        problems.append(
            f"monitoring_drain_resume_after: missing data is reported after up to {blind:g} s, and a node would be "
            f"resumed for that: set {blind:g} or more"
        )
    return problems


def rule_files() -> dict[str, str]:
    """The rules of alerts, as they come."""
    directory: Path = content_dir() / "roles" / "prometheus" / "files" / "rules"
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(directory.glob(alert_rules.FILES))}
