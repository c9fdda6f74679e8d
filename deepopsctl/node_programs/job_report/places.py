"""Where the keeper of summaries is told what to do, and notes how far it is."""

from __future__ import annotations

CONFIG = "/etc/deepopsctl/job-summaries.json"
STATE = "/var/lib/deepopsctl/job-summaries.json"
