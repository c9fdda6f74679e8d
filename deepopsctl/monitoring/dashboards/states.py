"""What values mean: text and colour, the same on all dashboards."""

from __future__ import annotations

from deepopsctl.monitoring.dashboards.model import GREEN, RED

UP = {0: ("down", RED), 1: ("up", GREEN)}
RUNNING = {0: ("not running", RED), 1: ("running", GREEN)}
MOUNTED = {0: ("missing", RED), 1: ("mounted", GREEN)}
