"""The Queue dashboard: waiting jobs, their wait times, and the load of the scheduler."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards import elements
from deepopsctl.monitoring.dashboards.elements import CLUSTER, PARTITION, cluster, partitions
from deepopsctl.monitoring.dashboards.model import Column, Dashboard, Needs, Query, Row, Stat, Table, TimeSeries, Unit

WAITING = partitions(state="pending")
WAIT = "deepops_slurm_queue_wait_seconds"

NOW = Row(
    "Now",
    (
        Stat(
            title="Running",
            description="Jobs that run in the chosen partitions.",
            queries=(Query(f"sum(max by (partition) (slurm_partition_jobs_running{partitions()}))"),),
        ),
        Stat(
            title="Waiting",
            description="Jobs that wait for the chosen partitions, those that are held as well.",
            queries=(Query(f"sum(max by (partition) (slurm_partition_jobs_pending{partitions()}))"),),
        ),
        Stat(
            title="GPUs requested",
            description="GPUs that waiting jobs request in total.",
            queries=(Query(f"sum(deepops_slurm_gpus_pending{partitions()})", zero=True),),
            needs=Needs.WAITING_GPU,
        ),
        Stat(
            title="Longest wait",
            description="How long the job has waited that has waited longest and could start.",
            queries=(Query(f"max(deepops_slurm_queue_oldest_seconds{partitions()})"),),
            unit=Unit.SECONDS,
        ),
        Stat(
            title="Usual wait",
            description="Half of the jobs that started within the last hour waited no longer than this.",
            queries=(Query(f"max({WAIT}{partitions(quantile='0.5')})"),),
            unit=Unit.SECONDS,
            needs=Needs.STARTED,
        ),
        Stat(
            title="Long wait",
            description="Nine of ten jobs that started within the last hour waited no longer than this.",
            queries=(Query(f"max({WAIT}{partitions(quantile='0.9')})"),),
            unit=Unit.SECONDS,
            needs=Needs.STARTED,
        ),
        Table(
            title="Partitions",
            description="What each partition has, runs, and what waits for it. A node may be in several partitions.",
            queries=(
                Query(f"count by (partition) (deepops_slurm_node_partition{partitions()})"),
                Query(f"max by (partition) (slurm_partition_jobs_running{partitions()})"),
                Query(f"max by (partition) (slurm_partition_jobs_pending{partitions()})"),
                Query(f"sum by (partition) (deepops_slurm_cpus_allocated{partitions()})", needs=Needs.JOBS),
                Query(f"sum by (partition) (deepops_slurm_gpus_allocated{partitions()})", needs=Needs.GPU_JOBS),
                Query(f"max by (partition) (deepops_slurm_queue_oldest_seconds{partitions()})"),
            ),
            columns=(
                Column("Partition", "partition", link=elements.TO_QUEUE),
                Column("Nodes", 0),
                Column("Running", 1),
                Column("Waiting", 2),
                Column("CPUs allocated", 3),
                Column("GPUs allocated", 4),
                Column("Longest wait", 5, Unit.SECONDS),
            ),
            sort_by="Waiting",
            height=6,
        ),
    ),
)

QUEUE_ROW = Row(
    "Queue",
    (
        TimeSeries(
            title="Jobs that wait",
            description="By partition.",
            queries=(Query(f"max by (partition) (slurm_partition_jobs_pending{partitions()})", "{{partition}}"),),
            stacked=True,
        ),
        TimeSeries(
            title="Jobs that run",
            description="By partition.",
            queries=(Query(f"max by (partition) (slurm_partition_jobs_running{partitions()})", "{{partition}}"),),
            stacked=True,
        ),
        TimeSeries(
            title="How long jobs waited",
            description="Of the jobs that started within the last hour, half and nine of ten waited no longer.",
            queries=(
                Query(f"{WAIT}{partitions(quantile='0.5')}", "{{partition}}: half"),
                Query(f"{WAIT}{partitions(quantile='0.9')}", "{{partition}}: nine of ten"),
            ),
            unit=Unit.SECONDS,
            needs=Needs.STARTED,
        ),
        TimeSeries(
            title="Longest wait",
            description="How long the job has waited that has waited longest and could start, by partition.",
            queries=(Query(f"deepops_slurm_queue_oldest_seconds{partitions()}", "{{partition}}"),),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="GPUs requested",
            description="GPUs that waiting jobs request, by type; jobs that request no type are under none.",
            queries=(Query(f"sum by (gpu_type) (deepops_slurm_gpus_pending{partitions()})", "{{gpu_type}}"),),
            stacked=True,
            needs=Needs.WAITING_GPU,
        ),
        TimeSeries(
            title="GPUs allocated",
            description="GPUs that jobs hold, by type.",
            queries=(Query(f"sum by (gpu_type) (deepops_slurm_gpus_allocated{partitions()})", "{{gpu_type}}"),),
            stacked=True,
            needs=Needs.GPU_JOBS,
        ),
        TimeSeries(
            title="Waiting jobs by account",
            description="Who waits.",
            queries=(Query(f"sum by (account) (deepops_slurm_jobs{WAITING})", "{{account}}"),),
            stacked=True,
            needs=Needs.WAITING,
        ),
        TimeSeries(
            title="Jobs by state",
            description="All jobs that Slurm's controller still knows, those that ended a few minutes ago as well.",
            queries=(Query(f"sum by (state) (deepops_slurm_jobs{partitions()})", "{{state}}"),),
            stacked=True,
            needs=Needs.JOBS,
        ),
    ),
)

SCHEDULER = Row(
    "Scheduler",
    (
        TimeSeries(
            title="Length of the main scheduler's cycles",
            description="The last cycle, and the longest since Slurm counts. While one runs, little else is answered.",
            queries=(
                Query(f"max(slurm_schedule_cycle_last{cluster()})", "last"),
                Query(f"max(slurm_schedule_cycle_max{cluster()})", "longest"),
            ),
            unit=Unit.MICROSECONDS,
        ),
        TimeSeries(
            title="Length of the backfill scheduler's cycles",
            description="The last cycle, and the longest since Slurm counts. It gives way to others.",
            queries=(
                Query(f"max(slurm_bf_cycle_last{cluster()})", "last"),
                Query(f"max(slurm_bf_cycle_max{cluster()})", "longest"),
            ),
            unit=Unit.MICROSECONDS,
        ),
        TimeSeries(
            title="Messages that wait",
            description="For nodes (agents) and for the accounting database. Both should fall back to 0.",
            queries=(
                Query(f"max(slurm_agent_queue_size{cluster()})", "for nodes"),
                Query(f"max(deepops_slurmdbd_queue_size{cluster()})", "for slurmdbd"),
            ),
        ),
        TimeSeries(
            title="Threads of slurmctld",
            description="Requests that it answers at this moment; at 256 it makes others wait.",
            queries=(Query(f"max(slurm_server_thread_cnt{cluster()})", "threads"),),
        ),
    ),
)

QUEUE = Dashboard(
    elements.QUEUE,
    "Slurm queue",
    "Waiting jobs, their wait times, and the load of Slurm's scheduler.",
    (CLUSTER, PARTITION),
    (NOW, QUEUE_ROW, SCHEDULER),
)
