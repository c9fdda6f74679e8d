"""The program's configuration, a file of root's: it has a password in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields

CONFIG = "/etc/deepopsctl/alertdrain.json"


class SettingsError(Exception):
    """The file is not there, or not as it should be; never with its content."""


@dataclass(frozen=True)
class Settings:
    """Where Alertmanager is, and how much may be done."""

    url: str
    cluster: str
    limit: int
    resume_after_s: float
    user: str = ""
    password: str = field(default="", repr=False)
    # of the authority that signed Alertmanager's certificate; '' for the node's own list
    ca: str = ""
    interval_s: float = 30.0
    textfile: str = "/var/lib/prometheus/node-exporter/alertdrain.prom"


def load(path: str) -> Settings:
    """Read it."""
    try:
        with open(path, encoding="utf-8") as stream:
            config = json.load(stream)
    except (OSError, ValueError) as error:
        raise SettingsError("{}: {}".format(path, error)) from error
    known = {each.name for each in fields(Settings)}
    if not isinstance(config, dict) or not set(config) <= known:
        raise SettingsError("{} has unknown keys".format(path))
    try:
        settings = Settings(**config)
    except TypeError as error:
        raise SettingsError("{}: {}".format(path, error)) from error
    if not settings.url.startswith(("http://", "https://")):
        raise SettingsError("{}: url is no address of http or https".format(path))
    return settings
