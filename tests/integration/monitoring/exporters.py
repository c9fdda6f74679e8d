"""An exporter that runs, asked as Prometheus asks it."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    """An exporter that runs, and the files of its node."""

    port: int
    directory: Path

    def answer(self, shown: Path | None = None, name: str = "scraper") -> int:
        """The HTTP status for a client that trusts this cluster's authority and shows a certificate, or none."""
        context = ssl.create_default_context(cafile=str(self.directory / "authority.crt"))
        if shown:
            context.load_cert_chain(shown / f"{name}.crt", shown / f"{name}.key")
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().status
        finally:
            connection.close()
