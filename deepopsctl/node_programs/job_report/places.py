"""Paths of the summary program's configuration and state."""

from __future__ import annotations

CONFIG = "/etc/deepopsctl/job-summaries.json"
STATE = "/var/lib/deepopsctl/job-summaries.json"
