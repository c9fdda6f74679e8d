"""Why settings of monitoring can't work on a node, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepopsctl.content import content_dir
from deepopsctl.monitoring import alert_rules
from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.text.answers import listed

# names of collectors of the node exporter that `monitoring_cpu_details` enables (roles/monitoring_node/vars)
CPU_DETAILS = ("cpufreq", "guest", "schedstat", "softnet")
# scrapes and rounds of the rules, before an alert of missing data even begins to wait for its `for`
SLACK_S = 60


def problems(node: MonitoredNode) -> list[str]:
    """All of them."""
    details = _of_cpu_details(node.settings.get("cpu_details", []))
    return [*(details or _of_tls(node)), *_of_logs(node), *_of_drain(node)]


def _of_cpu_details(wanted: object) -> list[str]:
    details = [str(name) for name in listed(wanted)]
    unknown = [name for name in details if name not in CPU_DETAILS]
    names = ", ".join(CPU_DETAILS)
    return [f"monitoring_cpu_details: there is no {', '.join(unknown)}; write some of [{names}]"] if unknown else []


def _of_tls(node: MonitoredNode) -> list[str]:
    if node.speaks_tls and not node.secrets.get("authority"):
        why = "monitoring_exporter_tls needs cluster_authority, which is not in secrets.yml"
        return [f"{why}: `deepopsctl inventory` adds it"]
    if node.is_on("exporter_tls"):
        return []
    messages = []
    private = {word.strip().lower() for word in str(node.settings.get("private_data", "")).split(",")}
    if "jobs" in private:
        messages.append(
            "PrivateData in slurm_config has jobs, but without TLS the exporters show users' jobs to anyone: "
            "set monitoring_exporter_tls: true"
        )
    if node.is_on("drain"):
        messages.append(
            "monitoring_drain needs to know that a figure comes from the node it is about, and without TLS a job can "
            "answer in a node's place: set monitoring_exporter_tls: true"
        )
    return messages


def _of_logs(node: MonitoredNode) -> list[str]:
    if not node.is_on("logs") or node.secrets.get("authority"):
        return []
    return ["no cluster_authority in secrets.yml yet: `deepopsctl inventory`, or a deploy, adds it"]


def _of_drain(node: MonitoredNode) -> list[str]:
    """Of the program on the first controller that drains nodes by alert."""
    if not node.is_first_controller or not node.is_on("drain"):
        return []
    settings, messages = node.settings, []
    for key, least in (("drain_limit", 0), ("drain_resume_after", 0), ("drain_interval", 1)):
        value = settings[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            messages.append(f"monitoring_{key}: {value} is not a whole number from {least} on")
    changes = settings["alerts"]
    # errors in `alerts` are reported with Prometheus' rules
    if messages or not isinstance(changes, Mapping) or alert_rules.validate_overrides(alerts(), changes):
        return messages
    blind = alert_rules.longest_blindness(alert_rules.with_overrides(alerts(), changes)) + SLACK_S
    if int(str(settings["drain_resume_after"])) < blind:
        messages.append(
            f"monitoring_drain_resume_after: missing data is reported after up to {blind:g} s, and a node would be "
            f"resumed for that: set {blind:g} or more"
        )
    return messages


def alerts() -> dict[str, str]:
    """The rules of alerts, as they come."""
    directory: Path = content_dir() / "roles" / "prometheus" / "files" / "rules"
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(directory.glob(alert_rules.FILES))}
