"""The Nodes dashboard: resources, their use, and the state of services."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards import elements
from deepopsctl.monitoring.dashboards.elements import (
    CLUSTER,
    HIGHEST,
    LOWEST,
    NO_FILES,
    NODE,
    PARTITION,
    highest,
    lowest,
    nodes,
    writable,
)
from deepopsctl.monitoring.dashboards.model import (
    FULL,
    Column,
    Dashboard,
    Needs,
    Query,
    Row,
    StateTimeline,
    Table,
    TimeSeries,
    Unit,
)

CPUS = f"sum by (node) (node:cpus:count{nodes()})"
CPU_USED = f"sum by (node) (node:cpu_used:cores{nodes()}) / {CPUS}"
MEMORY = f"sum by (node) (node_memory_MemTotal_bytes{nodes()})"
MEMORY_USED = f"1 - sum by (node) (node_memory_MemAvailable_bytes{nodes()}) / {MEMORY}"
FULLEST = (
    f"max by (node) (1 - {writable('node_filesystem_avail_bytes')}"
    f" / node_filesystem_size_bytes{nodes(fstype=NO_FILES)})"
)
NETWORK = nodes(device="!lo|veth.*|docker.*|br-.*|cni.*")

TABLE = Table(
    title="Machines",
    description="The selected nodes. CPU is the mean of the last minute, GPUs is the number configured in Slurm.",
    queries=(
        Query(CPUS),
        Query(CPU_USED),
        Query(f"sum by (node) (node_load5{nodes()})"),
        Query(MEMORY),
        Query(MEMORY_USED),
        Query(FULLEST),
        Query(f"sum by (node) (deepops_slurm_node_gpus{nodes()})", needs=Needs.GPUS),
        Query(f"max by (node) (node_boot_time_seconds{nodes()}) * 1000"),
    ),
    columns=(
        Column("Node", "node", link=elements.TO_GPUS),
        Column("CPUs", 0),
        Column("CPU used", 1, Unit.RATIO),
        Column("Load (5 min)", 2),
        Column("Memory", 3, Unit.BYTES),
        Column("Memory used", 4, Unit.RATIO, FULL),
        Column("Fullest disk", 5, Unit.RATIO, FULL),
        Column("GPUs", 6),
        Column("Started", 7, Unit.SINCE),
    ),
    sort_by="Node",
    descending=False,
)

STATE = Row(
    "State",
    (
        TABLE,
        StateTimeline(
            title="Reachable",
            description=f"Whether the node exporter of each node could be scraped. {LOWEST}",
            queries=(Query(lowest(f"min by (node) (up{nodes(job='node')})"), "{{node}}"),),
            states=elements.UP,
        ),
        StateTimeline(
            title="Services",
            description=f"Services of the cluster that run on the selected nodes. {LOWEST}",
            queries=(
                Query(
                    lowest(f"max by (node, name) (node_systemd_unit_state{nodes(state='active')})"), "{{node}} {{name}}"
                ),
            ),
            states=elements.RUNNING,
        ),
    ),
)

USE = Row(
    "Use",
    (
        TimeSeries(
            title="CPU used",
            description=f"Share of a node's CPU time that is neither idle nor waiting for I/O. {HIGHEST}",
            queries=(Query(highest(CPU_USED), "{{node}}"),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_NODE,),
        ),
        TimeSeries(
            title="CPU allocated",
            description=f"Part of the CPUs of a compute node that jobs hold. {HIGHEST}",
            queries=(
                Query(
                    highest(
                        f"max by (node) (slurm_node_cpus_alloc{nodes()}) / max by (node) (slurm_node_cpus{nodes()})"
                    ),
                    "{{node}}",
                ),
            ),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_NODE,),
        ),
        TimeSeries(
            title="Memory used",
            description=f"Part of the memory that no new process can have; what files fill can be had. {HIGHEST}",
            queries=(Query(highest(MEMORY_USED), "{{node}}"),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_NODE,),
        ),
        TimeSeries(
            title="Load for each CPU",
            description=f"Load of five minutes by CPUs; above 1, processes wait for a CPU or a disk. {HIGHEST}",
            queries=(Query(highest(f"sum by (node) (node_load5{nodes()}) / {CPUS}"), "{{node}}"),),
            links=(elements.TO_NODE,),
        ),
    ),
)

TRAFFIC = Row(
    "Network and disks",
    (
        TimeSeries(
            title="Received",
            description=f"Over all network devices but loopback and those of containers. {HIGHEST}",
            queries=(
                Query(
                    highest(f"sum by (node) (rate(node_network_receive_bytes_total{NETWORK}[$__rate_interval]))"),
                    "{{node}}",
                ),
            ),
            unit=Unit.BYTES_PER_SECOND,
        ),
        TimeSeries(
            title="Sent",
            description=f"Over all network devices but loopback and those of containers. {HIGHEST}",
            queries=(
                Query(
                    highest(f"sum by (node) (rate(node_network_transmit_bytes_total{NETWORK}[$__rate_interval]))"),
                    "{{node}}",
                ),
            ),
            unit=Unit.BYTES_PER_SECOND,
        ),
        TimeSeries(
            title="Read from disks",
            description=f"Over all local disks. {HIGHEST}",
            queries=(
                Query(
                    highest(f"sum by (node) (rate(node_disk_read_bytes_total{nodes()}[$__rate_interval]))"), "{{node}}"
                ),
            ),
            unit=Unit.BYTES_PER_SECOND,
            needs=Needs.DISKS,
        ),
        TimeSeries(
            title="Written to disks",
            description=f"Over all local disks. {HIGHEST}",
            queries=(
                Query(
                    highest(f"sum by (node) (rate(node_disk_written_bytes_total{nodes()}[$__rate_interval]))"),
                    "{{node}}",
                ),
            ),
            unit=Unit.BYTES_PER_SECOND,
            needs=Needs.DISKS,
        ),
        TimeSeries(
            title="Clock offset",
            description=f"Offset of a node's clock from its time server, as reported by its kernel. {HIGHEST}",
            queries=(Query(highest(f"max by (node) (abs(node_timex_offset_seconds{nodes()}))"), "{{node}}"),),
            unit=Unit.SECONDS,
        ),
        TimeSeries(
            title="Processes that wait for a disk",
            description=f"Processes in uninterruptible sleep; many of them hang on a disk or a file server. {HIGHEST}",
            queries=(Query(highest(f"sum by (node) (node_procs_blocked{nodes()})"), "{{node}}"),),
        ),
    ),
)

NODES = Dashboard(
    elements.NODES,
    "Nodes",
    "Resources of the nodes, their use, and the state of services.",
    (CLUSTER, PARTITION, NODE),
    (STATE, USE, TRAFFIC),
)
