"""Grafana's dashboards, as data that is checked before Grafana ever sees it."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards.alerts import ALERTS
from deepopsctl.monitoring.dashboards.gpus import GPUS
from deepopsctl.monitoring.dashboards.jobs import JOBS
from deepopsctl.monitoring.dashboards.nodes import NODES
from deepopsctl.monitoring.dashboards.overview import OVERVIEW
from deepopsctl.monitoring.dashboards.queue import QUEUE
from deepopsctl.monitoring.dashboards.storage import STORAGE
from deepopsctl.monitoring.dashboards.users import USERS

DASHBOARDS = (OVERVIEW, NODES, GPUS, QUEUE, JOBS, STORAGE, USERS, ALERTS)
