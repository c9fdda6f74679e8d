"""Who holds what: accounts and users, and how well they use it."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards import elements
from deepopsctl.monitoring.dashboards.elements import ACCOUNT, CLUSTER, USER, people
from deepopsctl.monitoring.dashboards.model import Column, Dashboard, Needs, Query, Row, Table, TimeSeries, Unit

RUNNING = people(state="running")
WAITING = people(state="pending")
EACH = "user, account"

NOW = Row(
    "Now",
    (
        Table(
            title="Users",
            description="What each user's jobs hold, use and wait for. GPUs busy is a mean over those that they hold.",
            queries=(
                Query(f"sum by ({EACH}) (deepops_slurm_jobs{RUNNING})"),
                Query(f"sum by ({EACH}) (deepops_slurm_jobs{WAITING})", needs=Needs.WAITING),
                Query(f"sum by ({EACH}) (deepops_slurm_cpus_allocated{people()})"),
                Query(f"sum by ({EACH}) (deepops_slurm_memory_allocated_bytes{people()})"),
                Query(f"sum by ({EACH}) (deepops_slurm_gpus_allocated{people()})", needs=Needs.GPU_JOBS),
                Query(f"avg by ({EACH}) (job:gpu_utilization:ratio{people()})", needs=Needs.GPU_JOBS),
                Query(f"sum by ({EACH}) (deepops_slurm_gpus_pending{people()})", needs=Needs.WAITING_GPU),
            ),
            columns=(
                Column("User", "user", link=elements.TO_JOBS_OF_USER),
                Column("Account", "account"),
                Column("Running", 0),
                Column("Waiting", 1),
                Column("CPUs", 2),
                Column("Memory", 3, Unit.BYTES),
                Column("GPUs", 4),
                Column("GPUs busy", 5, Unit.RATIO),
                Column("GPUs requested", 6),
            ),
            sort_by="GPUs",
            needs=Needs.JOBS,
        ),
    ),
)

ACCOUNTS = Row(
    "Accounts",
    (
        TimeSeries(
            title="GPUs by account",
            description="GPUs that each account's jobs hold.",
            queries=(Query(f"sum by (account) (deepops_slurm_gpus_allocated{people()})", "{{account}}"),),
            stacked=True,
            needs=Needs.GPU_JOBS,
        ),
        TimeSeries(
            title="CPUs by account",
            description="CPUs that each account's jobs hold.",
            queries=(Query(f"sum by (account) (deepops_slurm_cpus_allocated{people()})", "{{account}}"),),
            stacked=True,
            needs=Needs.JOBS,
        ),
    ),
)

USERS_ROW = Row(
    "Users",
    (
        TimeSeries(
            title="GPUs by user",
            description="GPUs that each user's jobs hold.",
            queries=(Query(f"sum by (user) (deepops_slurm_gpus_allocated{people()})", "{{user}}"),),
            stacked=True,
            links=(elements.TO_JOBS_OF_USER,),
            needs=Needs.GPU_JOBS,
        ),
        TimeSeries(
            title="How busy users' GPUs are",
            description="Mean utilization of the GPUs that each user's jobs hold.",
            queries=(Query(f"avg by (user) (job:gpu_utilization:ratio{people()})", "{{user}}"),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_JOBS_OF_USER,),
            needs=Needs.GPU_JOBS,
        ),
        TimeSeries(
            title="CPUs by user",
            description="CPUs that each user's jobs hold.",
            queries=(Query(f"sum by (user) (deepops_slurm_cpus_allocated{people()})", "{{user}}"),),
            stacked=True,
            links=(elements.TO_JOBS_OF_USER,),
            needs=Needs.JOBS,
        ),
        TimeSeries(
            title="Waiting jobs by user",
            description="Jobs of each user that wait.",
            queries=(Query(f"sum by (user) (deepops_slurm_jobs{WAITING})", "{{user}}"),),
            stacked=True,
            links=(elements.TO_JOBS_OF_USER,),
            needs=Needs.WAITING,
        ),
    ),
)

USERS = Dashboard(
    elements.USERS,
    "Users and accounts",
    "Who holds and waits for what, and how well it is used.",
    (CLUSTER, ACCOUNT, USER),
    (NOW, ACCOUNTS, USERS_ROW),
)
