"""Jobs: all that run, and one of them, running or ended: what did job 4711 do with its GPUs?"""

from __future__ import annotations

from deepopsctl.monitoring.dashboards import elements
from deepopsctl.monitoring.dashboards.elements import CLUSTER, JOB, USER, cluster, job, jobs
from deepopsctl.monitoring.dashboards.model import (
    FULL,
    Column,
    Dashboard,
    Needs,
    Query,
    Row,
    Stat,
    Table,
    TimeSeries,
    Unit,
)

ONE_GPU = "{{node}} GPU {{gpu}}"
OF_CHOSEN_USERS = f"and on (jobid) deepops_job_info{jobs()}"


def _sum_for_each_job(metric: str) -> str:
    """The name has no user: jobs are found by their number."""
    return f"sum by (jobid) ({metric}{cluster()} {OF_CHOSEN_USERS})"


def _in_range(function: str, metric: str) -> str:
    """Over the shown time, so that a job that has ended is still there."""
    return f"{function}({metric}{job()}[$__range])"


RUNNING = Row(
    "Jobs that run",
    (
        Table(
            title="Jobs that run",
            description="The chosen users' jobs: what they hold, and what they use of it now.",
            queries=(
                Query(f"max by (jobid, user, account, partition) (deepops_job_info{jobs()})"),
                Query(f"count by (jobid) (deepops_job_info{jobs()})"),
                Query(_sum_for_each_job("deepops_job_cpus")),
                Query(f"sum by (jobid) (job:cpu_used:cores{jobs()})"),
                Query(_sum_for_each_job("deepops_job_memory_requested_bytes")),
                Query(f"sum by (jobid) (job:memory_used:bytes{jobs()})"),
                Query(f"count by (jobid) (deepops_job_gpu{cluster()} {OF_CHOSEN_USERS})", needs=Needs.GPU_JOBS),
                Query(f"avg by (jobid) (job:gpu_utilization:ratio{jobs()})", needs=Needs.GPU_JOBS),
            ),
            columns=(
                Column("Job", "jobid", link=elements.TO_JOB),
                Column("User", "user", link=elements.TO_USER),
                Column("Account", "account"),
                Column("Partition", "partition"),
                Column("Nodes", 1),
                Column("CPUs", 2),
                Column("CPUs busy", 3),
                Column("Memory requested", 4, Unit.BYTES),
                Column("Memory used", 5, Unit.BYTES),
                Column("GPUs", 6),
                Column("GPUs busy", 7, Unit.RATIO),
            ),
            sort_by="Job",
            needs=Needs.JOBS,
        ),
    ),
)

SUMMARY = Row(
    "Job $jobid",
    (
        Stat(
            title="GPUs busy",
            description="Mean utilization of the job's GPUs over the shown time.",
            queries=(Query(f"avg({_in_range('avg_over_time', 'job:gpu_utilization:ratio')})"),),
            unit=Unit.RATIO,
            maximum=1,
            width=5,
            needs=Needs.GPU_JOBS,
        ),
        Stat(
            title="Most GPU memory",
            description="The most that one of the job's GPUs held in the shown time.",
            queries=(Query(f"max({_in_range('max_over_time', 'job:gpu_memory_used:bytes')})"),),
            unit=Unit.BYTES,
            width=5,
            needs=Needs.GPU_JOBS,
        ),
        Stat(
            title="CPUs busy",
            description="Mean over the shown time, as a part of the CPUs that the job holds.",
            queries=(
                Query(
                    f"sum({_in_range('avg_over_time', 'job:cpu_used:cores')})"
                    f" / sum({_in_range('last_over_time', 'deepops_job_cpus')})"
                ),
            ),
            unit=Unit.RATIO,
            maximum=1,
            width=5,
            needs=Needs.JOBS,
        ),
        Stat(
            title="Most memory",
            description="The most that it held on a node, as a part of its request there; at 100 % it is killed.",
            queries=(
                Query(
                    f"max({_in_range('max_over_time', 'deepops_job_memory_peak_bytes')}"
                    f" / {_in_range('last_over_time', 'deepops_job_memory_requested_bytes')})"
                ),
            ),
            unit=Unit.RATIO,
            thresholds=FULL,
            maximum=1,
            width=5,
            needs=Needs.JOBS,
        ),
        Stat(
            title="GPU power",
            description="What the job's GPUs drew together.",
            queries=(Query(f"sum(job:gpu_power:watts{job()})"),),
            unit=Unit.WATTS,
            needs=Needs.GPU_JOBS,
        ),
        Table(
            title="Job $jobid on its nodes",
            description="What the job held and used on each node, over the shown time.",
            queries=(
                Query(f"max by (node, user, account, partition) ({_in_range('last_over_time', 'deepops_job_info')})"),
                Query(f"sum by (node) ({_in_range('last_over_time', 'deepops_job_cpus')})"),
                Query(f"sum by (node) ({_in_range('avg_over_time', 'job:cpu_used:cores')})"),
                Query(f"sum by (node) ({_in_range('last_over_time', 'deepops_job_memory_requested_bytes')})"),
                Query(f"sum by (node) ({_in_range('max_over_time', 'deepops_job_memory_peak_bytes')})"),
                Query(f"count by (node) ({_in_range('last_over_time', 'deepops_job_gpu')})", needs=Needs.GPU_JOBS),
                Query(
                    f"avg by (node) ({_in_range('avg_over_time', 'job:gpu_utilization:ratio')})", needs=Needs.GPU_JOBS
                ),
            ),
            columns=(
                Column("Node", "node", link=elements.TO_NODE),
                Column("User", "user", link=elements.TO_USER),
                Column("Account", "account"),
                Column("Partition", "partition"),
                Column("CPUs", 1),
                Column("CPUs busy", 2),
                Column("Memory requested", 3, Unit.BYTES),
                Column("Most memory", 4, Unit.BYTES),
                Column("GPUs", 5),
                Column("GPUs busy", 6, Unit.RATIO),
            ),
            sort_by="Node",
            descending=False,
            needs=Needs.JOBS,
            height=6,
        ),
    ),
)

COURSE = Row(
    "Course of job $jobid",
    (
        TimeSeries(
            title="GPU utilization",
            description="Of each GPU that the job held.",
            queries=(Query(f"job:gpu_utilization:ratio{job()}", ONE_GPU),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_GPUS,),
            needs=Needs.GPU_JOBS,
        ),
        TimeSeries(
            title="GPU memory",
            description="Of each GPU that the job held.",
            queries=(Query(f"job:gpu_memory_used:bytes{job()}", ONE_GPU),),
            unit=Unit.BYTES,
            links=(elements.TO_GPUS,),
            needs=Needs.GPU_JOBS,
        ),
        TimeSeries(
            title="GPU power",
            description="Of each GPU that the job held.",
            queries=(Query(f"job:gpu_power:watts{job()}", ONE_GPU),),
            unit=Unit.WATTS,
            needs=Needs.GPU_JOBS,
        ),
        TimeSeries(
            title="CPUs",
            description="CPUs that the job kept busy on each node, and those that it held there.",
            queries=(
                Query(f"sum by (node) (job:cpu_used:cores{job()})", "{{node}}: busy"),
                Query(f"sum by (node) (deepops_job_cpus{job()})", "{{node}}: held"),
            ),
            links=(elements.TO_NODE,),
            needs=Needs.JOBS,
        ),
        TimeSeries(
            title="Memory",
            description="Memory that the job used on each node, and the memory requested there.",
            queries=(
                Query(f"sum by (node) (job:memory_used:bytes{job()})", "{{node}}: used"),
                Query(f"sum by (node) (deepops_job_memory_requested_bytes{job()})", "{{node}}: requested"),
            ),
            unit=Unit.BYTES,
            links=(elements.TO_NODE,),
            needs=Needs.JOBS,
            width=24,
        ),
    ),
)

JOBS = Dashboard(
    elements.JOBS,
    "Jobs",
    "Jobs that run, and what one job did with its GPUs, CPUs and memory, while it runs and afterwards.",
    (CLUSTER, USER, JOB),
    (SUMMARY, COURSE, RUNNING),
)
