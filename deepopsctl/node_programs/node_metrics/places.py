"""Path of the program's configuration."""

from __future__ import annotations

CONFIG = "/etc/deepopsctl/nodemetrics.json"
