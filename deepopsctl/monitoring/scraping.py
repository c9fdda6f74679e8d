"""Prometheus's configuration as a mapping: whom it asks, how often, and what it makes of labels. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deepopsctl.monitoring import exportertls, webconfig
from deepopsctl.monitoring.needs import Machine


@dataclass(frozen=True, slots=True)
class Job:
    """One scrape job: it takes the lines of the file of targets that name its exporter."""

    name: str
    interval: str = "15s"
    # what answers only to the password of the web pages
    asks_password: bool = False
    # an exporter that may want to see a certificate
    may_use_tls: bool = False
    more: Mapping[str, object] = field(default_factory=dict)


# what programs of ours write names nodes and jobs itself: that stays
_HONOUR = {"honor_labels": True}

JOBS = (
    Job("node", may_use_tls=True, more=_HONOUR),
    Job("gpu", may_use_tls=True, more=_HONOUR),
    # Slurm's own figures cost slurmctld a look at all jobs
    Job("slurm", interval="60s", more=_HONOUR),
    Job("mysqld", interval="60s", may_use_tls=True),
    Job("prometheus", asks_password=True),
    Job("alertmanager", asks_password=True),
    Job("grafana", interval="60s"),
)


def config(machine: Machine, alertmanager: str, rules: str, targets: str) -> dict[str, object]:
    """All of it; `alertmanager` is HOST:PORT, `rules` a pattern of paths, `targets` the path of the file of targets."""
    return {
        "global": {
            "scrape_interval": "15s",
            "scrape_timeout": "10s",
            "evaluation_interval": "15s",
            "external_labels": {"cluster": machine.cluster},
        },
        "rule_files": [rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}], "basic_auth": _password()}]},
        "scrape_configs": [_scraped(machine, job, targets) for job in JOBS],
    }


def _scraped(machine: Machine, job: Job, targets: str) -> dict[str, object]:
    return {
        "job_name": job.name,
        "scrape_interval": job.interval,
        **job.more,
        **(exportertls.scraped(machine) if job.may_use_tls else {}),
        **({"basic_auth": _password()} if job.asks_password else {}),
        "file_sd_configs": [{"files": [targets]}],
        "relabel_configs": [{"source_labels": ["__exporter"], "regex": job.name, "action": "keep"}],
    }


def _password() -> dict[str, str]:
    return {"username": webconfig.USER, "password_file": webconfig.password_file()}
