"""File systems: how full they are, and whether what cluster.yml mounts is there."""

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
    ANY_IS_BAD,
    FULL,
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

FILES = nodes(fstype=NO_FILES)
MOUNT = "node, mountpoint, fstype"
SIZE = f"max by ({MOUNT}) (node_filesystem_size_bytes{FILES})"
USED = f"1 - max by ({MOUNT}) {writable('node_filesystem_avail_bytes')} / {SIZE}"
# file systems without a fixed number of inodes report 0
INODES = f"(max by ({MOUNT}) (node_filesystem_files{FILES}) > 0)"
INODES_USED = f"1 - max by ({MOUNT}) {writable('node_filesystem_files_free')} / {INODES}"

NOW = Row(
    "Now",
    (
        Stat(
            title="Fullest file system",
            description="Use of the fullest writable file system of the selected nodes.",
            queries=(Query(f"max({USED})"),),
            unit=Unit.RATIO,
            thresholds=FULL,
            maximum=1,
            width=6,
        ),
        Stat(
            title="Most inodes used",
            description="The file system that has used most of its inodes: at 100 % no more files can be made there.",
            queries=(Query(f"max({INODES_USED})"),),
            unit=Unit.RATIO,
            thresholds=FULL,
            maximum=1,
            width=6,
        ),
        Stat(
            title="Mounts",
            description="Mounts of cluster.yml that are mounted, of all selected nodes.",
            queries=(Query(f"sum(deepops_mount{nodes()})"),),
            width=6,
            needs=Needs.STORAGE,
        ),
        Stat(
            title="Mounts missing",
            description="Mounts of cluster.yml that are not mounted.",
            queries=(Query(f"count(deepops_mount{nodes()}) - sum(deepops_mount{nodes()})"),),
            thresholds=ANY_IS_BAD,
            width=6,
            needs=Needs.STORAGE,
        ),
        Table(
            title="File systems",
            description="All that hold files. Ones that are mounted read-only are full at all times, and have no use.",
            queries=(Query(SIZE), Query(USED), Query(INODES_USED)),
            columns=(
                Column("Node", "node", link=elements.TO_NODE),
                Column("Path", "mountpoint"),
                Column("Kind", "fstype"),
                Column("Size", 0, Unit.BYTES),
                Column("Used", 1, Unit.RATIO, FULL),
                Column("Inodes used", 2, Unit.RATIO, FULL),
            ),
            sort_by="Used",
        ),
    ),
)

COURSE = Row(
    "Over time",
    (
        TimeSeries(
            title="Used",
            description=f"Part of each file system that is not available to users any more. {HIGHEST}",
            queries=(Query(highest(USED), "{{node}} {{mountpoint}}"),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_NODE,),
        ),
        TimeSeries(
            title="Inodes used",
            description=f"Part of each file system's inodes that is in use. {HIGHEST}",
            queries=(Query(highest(INODES_USED), "{{node}} {{mountpoint}}"),),
            unit=Unit.RATIO,
            maximum=1,
            links=(elements.TO_NODE,),
        ),
        StateTimeline(
            title="What cluster.yml mounts",
            description=f"Whether each mount is there. A node without one that it must not miss gets no jobs. {LOWEST}",
            queries=(Query(lowest(f"min by (node, path) (deepops_mount{nodes()})"), "{{node}} {{path}}"),),
            states=elements.MOUNTED,
            needs=Needs.STORAGE,
        ),
        TimeSeries(
            title="Requests to local disks",
            description=f"Reads and writes that local disks completed. {HIGHEST}",
            queries=(
                Query(
                    highest(f"sum by (node) (rate(node_disk_reads_completed_total{nodes()}[$__rate_interval]))"),
                    "{{node}}: read",
                ),
                Query(
                    highest(f"sum by (node) (rate(node_disk_writes_completed_total{nodes()}[$__rate_interval]))"),
                    "{{node}}: written",
                ),
            ),
            unit=Unit.OPERATIONS,
            needs=Needs.DISKS,
        ),
    ),
)

STORAGE = Dashboard(
    elements.STORAGE,
    "Storage",
    "How full file systems are, and whether what cluster.yml mounts is there.",
    (CLUSTER, PARTITION, NODE),
    (NOW, COURSE),
)
