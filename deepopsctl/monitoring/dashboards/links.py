"""Addresses of the dashboards, and links between them."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards.model import Link

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
