"""Where the program is told what to do."""

from __future__ import annotations

CONFIG = "/etc/deepopsctl/nodemetrics.json"
