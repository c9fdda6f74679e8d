"""Pieces of fields that panels and tables share: thresholds, links, names of queries."""

from __future__ import annotations

import re
from typing import Any

from deepopsctl.monitoring.dashboards.model import GREEN, RED, Link, Needs, Thresholds, Variable

# where Grafana finds a label: at a series, and in a row of a table
OF_A_SERIES = "__field.labels."
OF_A_ROW = "__data.fields."


def letter(place: int) -> str:
    """The name of a panel's query by its place: A, B ..."""
    return chr(ord("A") + place)


def threshold_steps(thresholds: Thresholds) -> dict[str, Any]:
    """Colours by value."""
    steps = [{"value": value, "color": color} for value, color in thresholds.steps]
    return {"mode": "absolute", "steps": [{"value": None, "color": thresholds.base}, *steps]}


def url(link: Link, source: str) -> str:
    """The address of another dashboard, for the same cluster and time."""
    chosen = [f"var-{variable}=${{{source}{name}}}" for variable, name in link.variables.items()]
    return f"/d/{link.dashboard}?" + "&".join([*chosen, "${cluster:queryparam}", "${__url_time_range}"])


MOST = 50
# for a panel's description
HIGHEST = f"Of more than {MOST}, those that are highest on average."
LOWEST = f"Of more than {MOST}, those that are lowest on average."

_SELECTED = re.compile(r"([\w:]+\{[^{}]*\})(\[[^\]]*\])?")


def highest(expr: str) -> str:
    """The same series, but of more than MOST those that are highest in the mean of all the time shown."""
    return f"({expr}) and topk({MOST}, {_in_the_mean(expr)})"


def lowest(expr: str) -> str:
    """Those that are lowest."""
    return f"({expr}) and bottomk({MOST}, {_in_the_mean(expr)})"


def _in_the_mean(expr: str) -> str:
    """One value for each series of an expression, also for nodes removed during the time range."""
    return _SELECTED.sub(_of_all_the_time, expr)


def _of_all_the_time(match: re.Match[str]) -> str:
    window = f"{match[1]}[$__range] @ end()"
    # what has a window is within rate() already
    return window if match[2] else f"avg_over_time({window})"


OVERVIEW = "deepops-overview"
NODES = "deepops-nodes"
GPUS = "deepops-gpus"
QUEUE = "deepops-queue"
JOBS = "deepops-jobs"
STORAGE = "deepops-storage"
USERS = "deepops-users"
ALERTS = "deepops-alerts"

TO_NODE = Link(NODES, "The node", {"node": "node"})
TO_GPUS = Link(GPUS, "The node's GPUs", {"node": "node"})
TO_JOB = Link(JOBS, "The job", {"jobid": "jobid"})
TO_JOBS_OF_USER = Link(JOBS, "The user's jobs", {"user": "user"})
TO_USER = Link(USERS, "The user", {"user": "user"})
TO_QUEUE = Link(QUEUE, "The partition's queue", {"partition": "partition"})


# Grafana fills these in; a variable with several values becomes a pattern
_CLUSTER = 'cluster=~"$cluster"'
_PARTITION = 'partition=~"$partition"'
_NODE = 'node=~"$node"'
_ACCOUNT = 'account=~"$account"'
_USER = 'user=~"$user"'
_JOB = 'jobid=~"$jobid"'


# file systems without users' files
NO_FILES = "!tmpfs|ramfs|squashfs|efivarfs|iso9660|autofs|devtmpfs"


def cluster(**labels: str) -> str:
    """Series of the chosen cluster."""
    return _selector(_CLUSTER, **labels)


def partitions(**labels: str) -> str:
    """Series of the chosen partitions."""
    return _selector(_CLUSTER, _PARTITION, **labels)


def nodes(**labels: str) -> str:
    """Series of the chosen nodes."""
    return _selector(_CLUSTER, _NODE, **labels)


def writable(metric: str) -> str:
    """A figure of file systems that can fill: what is mounted read-only (CVMFS, images) is full at all times."""
    files = nodes(fstype=NO_FILES)
    return f"({metric}{files} unless node_filesystem_readonly{files} == 1)"


def people(**labels: str) -> str:
    """Series of the chosen accounts and users."""
    return _selector(_CLUSTER, _ACCOUNT, _USER, **labels)


def jobs(**labels: str) -> str:
    """Series of the chosen users' jobs."""
    return _selector(_CLUSTER, _USER, **labels)


def job(**labels: str) -> str:
    """Series of the chosen job."""
    return _selector(_CLUSTER, _JOB, **labels)


def _selector(*fixed: str, **labels: str) -> str:
    return "{" + ", ".join([*fixed, *(_matcher(label, value) for label, value in labels.items())]) + "}"


def _matcher(label: str, value: str) -> str:
    operator = {"~": "=~", "!": "!~"}.get(value[:1], "=")
    return f'{label}{operator}"{value if operator == "=" else value[1:]}"'


UP = {0: ("down", RED), 1: ("up", GREEN)}
RUNNING = {0: ("not running", RED), 1: ("running", GREEN)}
MOUNTED = {0: ("missing", RED), 1: ("mounted", GREEN)}


# takes in what has no such label at all: controllers are in no partition
EVERYTHING = ".*"
_NODES = "~deepops_slurm_node_partition|node_uname_info"

CLUSTER = Variable("cluster", "Cluster", "up", is_one=True)
PARTITION = Variable("partition", "Partition", f"deepops_slurm_node_partition{cluster()}", all_value=EVERYTHING)
# with all partitions every node, with some only their nodes: the second metric has no label `partition`
NODE = Variable("node", "Node", partitions(__name__=_NODES))
ACCOUNT = Variable("account", "Account", f"deepops_slurm_jobs{cluster()}", all_value=EVERYTHING, needs=Needs.JOBS)
USER = Variable("user", "User", f"deepops_slurm_jobs{cluster()}", all_value=EVERYTHING, needs=Needs.JOBS)
JOB = Variable(
    "jobid",
    "Job",
    f"deepops_job_info{jobs()}",
    is_one=True,
    newest_first=True,
    example=f"job:gpu_utilization:ratio{jobs()}",
    needs=Needs.JOBS,
)
