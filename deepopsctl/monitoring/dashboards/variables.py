"""The variables that dashboards share."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards.model import Needs, Variable
from deepopsctl.monitoring.dashboards.selectors import cluster, jobs, partitions

# takes in what has no such label at all: controllers are in no partition
EVERYTHING = ".*"
_NODES = "~deepops_slurm_node_partition|node_uname_info"

CLUSTER = Variable("cluster", "Cluster", "up", is_one=True)
PARTITION = Variable("partition", "Partition", f"deepops_slurm_node_partition{cluster()}", all_value=EVERYTHING)
# with all partitions every machine, with some their nodes: the second of the names has no label `partition`
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
