"""Whether the cluster is well and how much of it is in use, on one page."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards import elements
from deepopsctl.monitoring.dashboards.elements import CLUSTER, cluster
from deepopsctl.monitoring.dashboards.model import (
    ANY_IS_BAD,
    ANY_IS_ODD,
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

READY = "~idle|mixed|allocated"
CPUS_ALLOCATED = f"sum(max by (node) (slurm_node_cpus_alloc{cluster()}))"
CPUS = f"sum(max by (node) (slurm_node_cpus{cluster()}))"
GPUS_ALLOCATED = f"sum(deepops_slurm_gpus_allocated{cluster()})"
GPUS = f"sum(deepops_slurm_node_gpus{cluster()})"

NOW = Row(
    "Now",
    (
        Stat(
            title="Nodes that answer",
            description="Nodes whose node exporter was scraped the last time.",
            queries=(Query(f"count(up{cluster(job='node')} == 1)"),),
        ),
        Stat(
            title="Nodes that do not answer",
            description="Nodes that could not be scraped: off, unreachable, or with a stopped exporter.",
            queries=(Query(f"count(up{cluster(job='node')} == 0)", zero=True),),
            thresholds=ANY_IS_BAD,
            needs=Needs.DEAD,
        ),
        Stat(
            title="Nodes ready for jobs",
            description="Compute nodes that are idle, mixed or allocated and not drained.",
            queries=(
                # with a 0 for each node, so that there is a number where none is ready
                Query(
                    f"sum((max by (node) (deepops_slurm_node_state{cluster(state=READY)})"
                    f" unless on (node) deepops_slurm_node_drain{cluster()})"
                    f" or max by (node) (deepops_slurm_node_state{cluster()}) * 0)"
                ),
            ),
        ),
        Stat(
            title="Nodes drained",
            description="Compute nodes that get no new jobs until they are resumed. The reasons are below.",
            queries=(Query(f"count(deepops_slurm_node_drain{cluster()})", zero=True),),
            thresholds=ANY_IS_ODD,
            needs=Needs.DRAINED,
        ),
        Stat(
            title="Jobs running",
            description="Jobs that run now, of all partitions.",
            queries=(Query(f"max(slurm_jobs_running{cluster()})"),),
        ),
        Stat(
            title="Jobs waiting",
            description="Jobs that wait now, of all partitions, those that are held as well.",
            queries=(Query(f"max(slurm_jobs_pending{cluster()})"),),
        ),
        Stat(
            title="GPUs allocated",
            description="Part of the configured GPUs that jobs hold now, whether they use them or not.",
            queries=(Query(f"{GPUS_ALLOCATED} / {GPUS}"),),
            unit=Unit.RATIO,
            maximum=1,
            needs=Needs.GPU_JOBS,
        ),
        Stat(
            title="GPUs busy",
            description="Mean utilization of all GPUs that are there, allocated or not.",
            queries=(Query(f"avg(gpu:utilization:ratio{cluster()})"),),
            unit=Unit.RATIO,
            maximum=1,
            needs=Needs.GPUS,
        ),
        Stat(
            title="CPUs allocated",
            description="Part of the configured CPUs that jobs hold now.",
            queries=(Query(f"{CPUS_ALLOCATED} / {CPUS}"),),
            unit=Unit.RATIO,
            maximum=1,
        ),
        Stat(
            title="GPU power",
            description="What all GPUs draw together.",
            queries=(Query(f"sum(gpu:power:watts{cluster()})"),),
            unit=Unit.WATTS,
            needs=Needs.GPUS,
        ),
        Stat(
            title="Alerts firing",
            description="Alerts that are firing now, of any severity.",
            queries=(Query('count(ALERTS{alertstate="firing"})', zero=True),),
            thresholds=ANY_IS_BAD,
            needs=Needs.ALERTS,
        ),
        Stat(
            title="Longest wait",
            description="How long the job has waited that has waited longest and could start, of all partitions.",
            queries=(Query(f"max(deepops_slurm_queue_oldest_seconds{cluster()})"),),
            unit=Unit.SECONDS,
        ),
    ),
)

USE = Row(
    "Use",
    (
        TimeSeries(
            title="GPUs: configured, allocated, busy",
            description="Between the first two lines GPUs are free; between the last two they are held and not used.",
            queries=(
                Query(GPUS, "configured"),
                Query(GPUS_ALLOCATED, "allocated", needs=Needs.GPU_JOBS),
                Query(f"sum(gpu:utilization:ratio{cluster()})", "busy (sum of utilization)"),
            ),
            needs=Needs.GPUS,
        ),
        TimeSeries(
            title="CPUs: configured, allocated, busy",
            description="Busy is measured by the operating systems of all nodes, including the controllers.",
            queries=(
                Query(CPUS, "configured"),
                Query(CPUS_ALLOCATED, "allocated"),
                Query(f"sum(node:cpu_used:cores{cluster()})", "busy"),
            ),
        ),
        TimeSeries(
            title="Jobs",
            description="Jobs that run and that wait, over time.",
            queries=(
                Query(f"max(slurm_jobs_running{cluster()})", "running"),
                Query(f"max(slurm_jobs_pending{cluster()})", "waiting"),
            ),
        ),
        TimeSeries(
            title="Nodes by state",
            description="Compute nodes by their state in Slurm; flags such as drain count additionally.",
            queries=(Query(f"count by (state) (deepops_slurm_node_state{cluster()})", "{{state}}"),),
        ),
    ),
)

HEALTH = Row(
    "Health",
    (
        StateTimeline(
            title="Slurm's daemons",
            description="Whether slurmctld and slurmdbd answered the last query.",
            queries=(
                Query(f"min(deepops_slurm_up{cluster()})", "slurmctld"),
                Query(f"min(deepops_slurmdbd_up{cluster()})", "slurmdbd"),
            ),
            states=elements.UP,
            height=6,
        ),
        Table(
            title="Drained nodes",
            description="Which nodes get no new jobs, why, who drained them, and since when.",
            queries=(Query(f"max by (node, reason, by) (deepops_slurm_node_drain{cluster()}) * 1000"),),
            columns=(
                Column("Node", "node", link=elements.TO_NODE),
                Column("Reason", "reason"),
                Column("By", "by"),
                Column("Since", 0, Unit.SINCE),
            ),
            sort_by="Since",
            needs=Needs.DRAINED,
            width=12,
            height=6,
        ),
    ),
)

OVERVIEW = Dashboard(
    elements.OVERVIEW,
    "Cluster overview",
    "Whether the cluster is well, and how much of it is in use.",
    (CLUSTER,),
    (NOW, USE, HEALTH),
)
