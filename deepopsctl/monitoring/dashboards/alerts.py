"""What fires, and whether monitoring itself is well."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards import elements
from deepopsctl.monitoring.dashboards.elements import CLUSTER, cluster
from deepopsctl.monitoring.dashboards.model import (
    ANY_IS_BAD,
    Column,
    Dashboard,
    Needs,
    Query,
    Row,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
    Unit,
)

FIRING = 'ALERTS{alertstate="firing"}'

NOW = Row(
    "Alerts",
    (
        Table(
            title="Firing now",
            description="What to do is in docs/reference/alerts.md; Alertmanager, on port 9093, silences them.",
            # its value is when the alert began, in seconds
            queries=(Query(f"ALERTS_FOR_STATE * 1000 and ignoring (alertstate) {FIRING}"),),
            columns=(
                Column("Alert", "alertname"),
                Column("Severity", "severity"),
                Column("Node", "node", link=elements.TO_NODE),
                Column("Since", 0, Unit.SINCE),
            ),
            sort_by="Since",
            needs=Needs.ALERTS,
            width=16,
        ),
        TimeSeries(
            title="Alerts over time",
            description="Alerts that fire, by severity.",
            queries=(Query(f"count by (severity) ({FIRING})", "{{severity}}"),),
            stacked=True,
            needs=Needs.ALERTS,
            width=8,
        ),
    ),
)

SCRAPES = Row(
    "Monitoring itself",
    (
        Stat(
            title="Targets",
            description="What Prometheus scrapes.",
            queries=(Query(f"count(up{cluster()})"),),
            width=6,
        ),
        Stat(
            title="Targets that do not answer",
            description="What Prometheus could not scrape the last time.",
            queries=(Query(f"count(up{cluster()} == 0)", zero=True),),
            thresholds=ANY_IS_BAD,
            width=6,
            needs=Needs.DEAD,
        ),
        Stat(
            title="Series",
            description="Series that Prometheus holds in memory.",
            queries=(Query("prometheus_tsdb_head_series"),),
            width=6,
        ),
        Stat(
            title="Prometheus' memory",
            description="What the process holds.",
            queries=(Query('process_resident_memory_bytes{job="prometheus"}'),),
            unit=Unit.BYTES,
            width=6,
        ),
        StateTimeline(
            title="Targets by type",
            description="Down if a target of the type does not answer.",
            queries=(Query(f"min by (job) (up{cluster()})", "{{job}}"),),
            states=elements.UP,
        ),
        TimeSeries(
            title="Time of a scrape",
            description="The slowest target of each type.",
            queries=(Query(f"max by (job) (scrape_duration_seconds{cluster()})", "{{job}}"),),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Samples of a scrape",
            description="Samples per scrape of all targets of a type.",
            queries=(Query(f"sum by (job) (scrape_samples_scraped{cluster()})", "{{job}}"),),
        ),
        TimeSeries(
            title="Prometheus' data",
            description="What it has written on disk (not the last hours), and how much that may be.",
            queries=(
                Query("prometheus_tsdb_storage_blocks_bytes", "taken"),
                Query("prometheus_tsdb_retention_limit_bytes", "limit"),
            ),
            unit=Unit.BYTES,
        ),
        TimeSeries(
            title="Time of asking Slurm",
            description="Duration of the queries to slurmctld and slurmdbd for Slurm's metrics.",
            queries=(Query(f"max(deepops_slurm_collect_seconds{cluster()})", "seconds"),),
            unit=Unit.SECONDS,
        ),
    ),
)

ALERTS = Dashboard(
    elements.ALERTS,
    "Alerts and monitoring",
    "What fires, and whether monitoring itself is well.",
    (CLUSTER,),
    (NOW, SCRAPES),
)
