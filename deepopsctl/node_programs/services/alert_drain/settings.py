"""The program's configuration, a file of root's: it has a password in it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ..._shared import settings
from ..._shared.prometheus_text import TEXTFILE_DIRECTORY
from ..._shared.settings import SettingsError

CONFIG = "/etc/deepopsctl/alertdrain.json"


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
    textfile: str = TEXTFILE_DIRECTORY + "/alertdrain.prom"


def load(path: str) -> Settings:
    """Read it."""
    config = settings.load(path)
    if not set(config) <= {each.name for each in fields(Settings)}:
        raise SettingsError(f"{path} has unknown keys")
    try:
        result = Settings(**config)
    except TypeError as error:
        raise SettingsError(f"{path}: {error}") from error
    if not result.url.startswith(("http://", "https://")):
        raise SettingsError(f"{path}: url is not an address of http or https")
    return result
