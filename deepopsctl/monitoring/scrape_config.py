"""Prometheus' configuration as a mapping: scrape jobs, intervals and relabeling. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from deepopsctl.monitoring import tls, web_config
from deepopsctl.monitoring.node_exporter import CONTROLLER
from deepopsctl.monitoring.resources import MonitoredNode


@dataclass(frozen=True, slots=True)
class Job:
    """One scrape job: it takes the lines of the file of targets that name its exporter.

    More than `samples` and `samples_per_node` for each node of the cluster fail a scrape; so do longer pages.
    """

    name: str
    interval: str = "15s"
    # what answers only to the password of the web pages
    asks_password: bool = False
    # an exporter that may require a client certificate
    may_use_tls: bool = False
    samples: int = 20_000
    samples_per_node: int = 0
    # further rules for targets, and for the samples of each
    relabel: Sequence[Mapping[str, object]] = ()
    metric_relabel: Sequence[Mapping[str, object]] = ()


# Labels of a target override those of its page: an exporter of one node can't report another node. Only where Slurm
# is queried for the whole cluster, the label `node` of Slurm's metrics names the node that they are about.
_SLURMS = "(?:deepops_)?slurm_[a-z0-9_]+"
_SLURMS_NODES: Sequence[Mapping[str, object]] = [
    {
        "source_labels": ["__name__", "exported_node"],
        "regex": f"{_SLURMS};(.+)",
        "target_label": "node",
        "replacement": "$1",
    },
    {"source_labels": ["__name__"], "regex": _SLURMS, "target_label": "exported_node", "replacement": ""},
]
# slurmctld's own pages come without TLS
_SLURMS_ALONE = {"source_labels": ["__name__"], "regex": "slurm_[a-z0-9_]+", "action": "keep"}
# twice a node of 256 processors with a thousand jobs; and Slurm's metrics of a node in a hundred partitions
_MACHINE, _SLURM, _SLURMS_NODE = 50_000, 100_000, 250
# a path of a mount may have 4096
_LONGEST_VALUE, _MOST_LABELS = 8192, 64
_BYTES_A_SAMPLE = 250

JOBS = (
    Job("node", may_use_tls=True, samples=_MACHINE),
    # the node exporter of the first controller, which also serves all Slurm metrics
    Job(
        CONTROLLER,
        may_use_tls=True,
        samples=_MACHINE + _SLURM,
        samples_per_node=_SLURMS_NODE,
        relabel=[{"target_label": "job", "replacement": "node"}],
        metric_relabel=_SLURMS_NODES,
    ),
    Job("gpu", may_use_tls=True),
    # for Slurm's own metrics slurmctld walks all jobs
    Job(
        "slurm",
        interval="60s",
        samples=_SLURM,
        samples_per_node=_SLURMS_NODE,
        metric_relabel=[_SLURMS_ALONE, *_SLURMS_NODES],
    ),
    Job("mysqld", interval="60s", may_use_tls=True),
    Job("prometheus", asks_password=True),
    Job("alertmanager", asks_password=True),
    Job("grafana", interval="60s"),
)


def label_of(job: str) -> str:
    """The label `job` of a scrape job's figures: the first controller's node exporter is one like the others."""
    return "node" if job == CONTROLLER else job


def config(node: MonitoredNode, alertmanager: str, rules: str, targets: str, count: int) -> dict[str, object]:
    """All of it; `alertmanager` is HOST:PORT, `rules` a pattern of paths, `targets` the path of a file of so many."""
    # in powers of two: a node more is no new configuration
    room = max(64, 1 << count.bit_length())
    return {
        "global": {
            "scrape_interval": "15s",
            "scrape_timeout": "10s",
            "evaluation_interval": "15s",
            "external_labels": {"cluster": node.cluster},
        },
        "rule_files": [rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}], "basic_auth": _password()}]},
        "scrape_configs": [_scraped(node, job, targets, room) for job in JOBS],
    }


def _scraped(node: MonitoredNode, job: Job, targets: str, room: int) -> dict[str, object]:
    own = {"source_labels": ["__exporter"], "regex": job.name, "action": "keep"}
    samples = job.samples + job.samples_per_node * room
    return {
        "job_name": job.name,
        "scrape_interval": job.interval,
        "sample_limit": samples,
        "label_limit": _MOST_LABELS,
        "label_value_length_limit": _LONGEST_VALUE,
        "body_size_limit": f"{samples * _BYTES_A_SAMPLE}B",
        "target_limit": room,
        **(tls.scraped(node) if job.may_use_tls else {}),
        **({"basic_auth": _password()} if job.asks_password else {}),
        "file_sd_configs": [{"files": [targets]}],
        "relabel_configs": [
            own,
            *deepcopy(job.relabel),
        ],
        **({"metric_relabel_configs": deepcopy(job.metric_relabel)} if job.metric_relabel else {}),
    }


def _password() -> dict[str, str]:
    return {"username": web_config.USER, "password_file": web_config.password_file()}
