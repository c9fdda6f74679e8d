"""All collectors. A new one is a module with a `COLLECTOR`, and a line here."""

from __future__ import annotations

from typing import Dict

from . import certificates, jobs, mounts
from .samples import Collector

COLLECTORS: Dict[str, Collector] = {
    "jobs": jobs.COLLECTOR,
    "certificates": certificates.COLLECTOR,
    "mounts": mounts.COLLECTOR,
}
