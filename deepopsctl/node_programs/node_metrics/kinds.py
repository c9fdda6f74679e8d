"""The collectors that there are. A new one is a module with a `KIND`, and a line here."""

from __future__ import annotations

from typing import Dict

from . import certificates, jobs, mounts
from .samples import Kind

KINDS: Dict[str, Kind] = {
    "jobs": jobs.KIND,
    "certificates": certificates.KIND,
    "mounts": mounts.KIND,
}
