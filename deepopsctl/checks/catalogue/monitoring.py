"""The checks of the suite `monitoring` by name, as docs/reference/validate-monitoring.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_SERVERS, _SEEN, _TOLD = "Monitoring servers", "What monitoring sees", "Alerts and dashboards"
_DEPLOY = "`deepopsctl deploy monitoring` starts what should run"

MONITORING = {
    "monitoring-enabled": Entry(
        _SERVERS, "enabled", "The cluster has monitoring to test.",
        "`monitoring_enabled: true` in the cluster's settings, then `deepopsctl deploy monitoring`",
    ),
    "prometheus-answers": Entry(
        _SERVERS, "Prometheus", "Prometheus answers, with the cluster's password.",
        "see `journalctl -u prometheus` on the monitoring host; " + _DEPLOY,
    ),
    "prometheus-stores": Entry(
        _SERVERS, "stores samples", "What Prometheus scrapes is on its disk, and new.",
        "see `df /var/lib/prometheus` and `journalctl -u prometheus` on the monitoring host",
    ),
    "alertmanager-answers": Entry(
        _SERVERS, "Alertmanager", "Alertmanager answers, with the cluster's password.",
        "see `journalctl -u prometheus-alertmanager` on the monitoring host; " + _DEPLOY,
    ),
    "grafana-healthy": Entry(
        _SERVERS, "Grafana", "Grafana answers, its database is well, and the cluster's password opens it.",
        "see `journalctl -u grafana-server` on the monitoring host; " + _DEPLOY,
    ),
    "web-closed": Entry(
        _SERVERS, "wants a password", "No request without the password is answered.",
        "`deepopsctl deploy monitoring` writes the web configuration again; does the service run with it?",
    ),
    "rules-healthy": Entry(
        _SERVERS, "rules", "Every rule of the file is loaded, and evaluated without an error.",
        "`deepopsctl deploy monitoring` installs the files; see Prometheus' page Status, Rules, for the error",
    ),
    "target-up": Entry(
        _SEEN, "scraped", "Prometheus scrapes what cluster.yml says it should, where it should, and has just done so.",
        "is the exporter active on the node, and its port open to the monitoring host? " + _DEPLOY, "scraped",
    ),
    "targets-unexpected": Entry(
        _SEEN, "nothing else scraped", "Prometheus scrapes nothing that cluster.yml does not know.",
        "`deepopsctl deploy monitoring` writes the list of targets again; a site's own targets are only reported here",
    ),
    "textfiles-fresh": Entry(
        _SEEN, "text files fresh", "What the node's own programs write for its exporter is there and new.",
        "see `journalctl -u 'deepops-*'` on the node; " + _DEPLOY, "text files",
    ),
    "clock-monitoring": Entry(
        _SEEN, "clock", "The node's clock agrees with the monitoring host's: else its logs and samples lie.",
        "see `chronyc sources` on the node; " + _DEPLOY, "clock",
    ),
    "job-metrics": Entry(
        _SEEN, "job seen", "A user's job on the node is in the metrics, with its user and account.",
        "see `journalctl -u deepops-nodemetrics -t deepops-prolog` on the node; did the prolog write the job map?",
        "job seen",
    ),
    "log-arrives": Entry(
        _SEEN, "log arrives", "A line that the node logs is found in the journals of the monitoring host.",
        "see `journalctl -t systemd-journal-upload` on the node and `-u 'deepops-logs*'` on the monitoring host",
        "log",
    ),
    "slurm-metrics": Entry(
        _SEEN, "Slurm's figures", "Slurm's metrics are exported, and Slurm answers the collector.",
        "see `journalctl -u deepops-slurmmetrics` on the first controller",
    ),
    "slurm-nodes-agree": Entry(
        _SEEN, "nodes as in Slurm", "Prometheus has the nodes that sinfo has.",
        "see `journalctl -u deepops-slurmmetrics` on the first controller",
    ),
    "slurm-jobs-agree": Entry(
        _SEEN, "jobs as in Slurm", "Prometheus has as many running jobs as squeue.",
        "see `journalctl -u deepops-slurmmetrics` on the first controller",
    ),
    "alertmanager-known": Entry(
        _TOLD, "Prometheus knows it", "Prometheus sends its alerts to this Alertmanager.",
        "`deepopsctl deploy monitoring` writes prometheus.yml again",
    ),
    "alert-arrives": Entry(
        _TOLD, "an alert arrives", "An alert that is sent to Alertmanager arrives, is sent to no one, and ends.",
        "see `amtool config routes` on the monitoring host; `deepopsctl deploy monitoring` writes the routes again",
    ),
    "alerts-forwarded": Entry(
        _TOLD, "alerts passed on", "What fires in Prometheus is known to Alertmanager.",
        "see `journalctl -u prometheus` on the monitoring host for alerts that could not be sent",
    ),
    "dashboard-queries": Entry(
        _TOLD, "dashboard has data", "Every query of the dashboard gives series.",
        "run the panel's query on Prometheus' own page; what it asks for, an exporter no longer hands out",
    ),
}  # fmt: skip
PER_NODE = frozenset({"target-up", "textfiles-fresh", "clock-monitoring", "job-metrics", "log-arrives"})
