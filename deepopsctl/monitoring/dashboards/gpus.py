"""GPUs: how busy they are, who holds them, and whether they are well."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards import elements
from deepopsctl.monitoring.dashboards.elements import CLUSTER, HIGHEST, LOWEST, NODE, PARTITION, highest, lowest, nodes
from deepopsctl.monitoring.dashboards.model import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    HOT,
    BarGauge,
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

ONE = "{{node}} GPU {{gpu}}"
MEMORY_USED = f"sum by (node, gpu) (gpu:memory_used:bytes{nodes()})"
MEMORY = f"sum by (node, gpu) (gpu:memory_total:bytes{nodes()})"
OF_A_JOB = "node, gpu, jobid, user, account, partition"

NOW = Row(
    "Now",
    (
        Stat(
            title="GPUs",
            description="GPUs that were seen the last time, on the chosen nodes.",
            queries=(Query(f"sum(gpu:present:bool{nodes()})"),),
            needs=Needs.GPUS,
        ),
        Stat(
            title="Busy",
            description="Mean utilization of the chosen GPUs.",
            queries=(Query(f"avg(gpu:utilization:ratio{nodes()})"),),
            unit=Unit.RATIO,
            maximum=1,
            needs=Needs.GPUS,
        ),
        Stat(
            title="Memory used",
            description="Part of the memory of the chosen GPUs that is in use.",
            queries=(Query(f"sum(gpu:memory_used:bytes{nodes()}) / sum(gpu:memory_total:bytes{nodes()})"),),
            unit=Unit.RATIO,
            maximum=1,
            needs=Needs.GPUS,
        ),
        Stat(
            title="Power",
            description="What the chosen GPUs draw together.",
            queries=(Query(f"sum(gpu:power:watts{nodes()})"),),
            unit=Unit.WATTS,
            needs=Needs.GPUS,
        ),
        Stat(
            title="Hottest",
            description="Temperature of the hottest of the chosen GPUs.",
            queries=(Query(f"max(gpu:temperature:celsius{nodes()})"),),
            unit=Unit.CELSIUS,
            thresholds=HOT,
            needs=Needs.GPUS,
        ),
        Stat(
            title="Slowed down",
            description="GPUs that run slower than they could because of heat or power.",
            queries=(Query(f"sum(gpu:throttled:bool{nodes()})"),),
            thresholds=ANY_IS_ODD,
            needs=Needs.GPUS,
        ),
        Table(
            title="GPUs that jobs hold, the least busy first",
            description="Mean utilization of the last ten minutes. A GPU at 0 for long is held for nothing.",
            queries=(
                Query(f"avg by ({OF_A_JOB}) (avg_over_time(job:gpu_utilization:ratio{nodes()}[10m]))"),
                Query(f"max by ({OF_A_JOB}) (job:gpu_memory_used:bytes{nodes()})"),
            ),
            columns=(
                Column("Node", "node", link=elements.TO_NODE),
                Column("GPU", "gpu"),
                Column("Job", "jobid", link=elements.TO_JOB),
                Column("User", "user", link=elements.TO_USER),
                Column("Account", "account"),
                Column("Partition", "partition"),
                Column("Busy", 0, Unit.RATIO),
                Column("Memory used", 1, Unit.BYTES),
            ),
            sort_by="Busy",
            descending=False,
            needs=Needs.GPU_JOBS,
        ),
    ),
)

USE = Row(
    "Use",
    (
        TimeSeries(
            title="Utilization",
            description=f"Part of the time in which a GPU computed anything at all. {HIGHEST}",
            queries=(Query(highest(f"max by (node, gpu) (gpu:utilization:ratio{nodes()})"), ONE),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_NODE,),
            needs=Needs.GPUS,
        ),
        TimeSeries(
            title="Memory used",
            description=f"Part of a GPU's memory that is in use. {HIGHEST}",
            queries=(Query(highest(f"{MEMORY_USED} / {MEMORY}"), ONE),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_NODE,),
            needs=Needs.GPUS,
        ),
        TimeSeries(
            title="Power",
            description=f"What each GPU draws. {HIGHEST}",
            queries=(Query(highest(f"max by (node, gpu) (gpu:power:watts{nodes()})"), ONE),),
            unit=Unit.WATTS,
            needs=Needs.GPUS,
        ),
        TimeSeries(
            title="Temperature",
            description=f"Temperature of each GPU's chip. {HIGHEST}",
            queries=(Query(highest(f"max by (node, gpu) (gpu:temperature:celsius{nodes()})"), ONE),),
            unit=Unit.CELSIUS,
            needs=Needs.GPUS,
        ),
        TimeSeries(
            title="Clock of the multiprocessors",
            description=f"Falls where a GPU is idle, too hot, or at its power limit. {LOWEST}",
            queries=(Query(lowest(f"max by (node, gpu) (gpu:sm_clock:hertz{nodes()})"), ONE),),
            unit=Unit.HERTZ,
            needs=Needs.GPUS,
        ),
        BarGauge(
            title="Busy by node",
            description=f"Mean utilization of each node's GPUs. {LOWEST}",
            queries=(Query(lowest(f"avg by (node) (gpu:utilization:ratio{nodes()})"), "{{node}}"),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_GPUS,),
            needs=Needs.GPUS,
        ),
    ),
)

HEALTH = Row(
    "Health",
    (
        Table(
            title="Health of each GPU",
            description="Last XID (0: none), recovery action of the driver (0: none, 2 and 7: a reboot, else "
            "a reset), uncorrected memory errors, whether rows wait to be remapped by a reset.",
            queries=(
                Query(f"max by (node, gpu, uuid, model) (gpu:xid:last{nodes()})"),
                Query(f"max by (node, gpu, uuid, model) (gpu:ecc_uncorrected:total{nodes()})"),
                Query(f"max by (node, gpu, uuid, model) (gpu:row_remap_pending:bool{nodes()})"),
                Query(f"max by (node, gpu, uuid, model) (gpu:throttled:bool{nodes()})"),
                Query(f"max by (node, gpu, uuid, model) (gpu:temperature:celsius{nodes()})"),
                Query(f"max by (node, gpu, uuid, model) (gpu:recovery_action:code{nodes()})"),
            ),
            columns=(
                Column("Node", "node", link=elements.TO_NODE),
                Column("GPU", "gpu"),
                Column("Model", "model"),
                Column("UUID", "uuid"),
                Column("Last XID", 0, thresholds=ANY_IS_BAD),
                Column("To be done", 5, thresholds=ANY_IS_BAD),
                Column("Uncorrected errors", 1, thresholds=ANY_IS_BAD),
                Column("Rows to remap", 2, thresholds=ANY_IS_BAD),
                Column("Slowed down", 3, thresholds=ANY_IS_ODD),
                Column("Temperature", 4, Unit.CELSIUS, HOT),
            ),
            sort_by="Last XID",
            needs=Needs.GPUS,
        ),
    ),
)

GPUS = Dashboard(
    elements.GPUS,
    "GPUs",
    "How busy the GPUs are, which jobs hold them, and whether they are well.",
    (CLUSTER, PARTITION, NODE),
    (NOW, USE, HEALTH),
)
