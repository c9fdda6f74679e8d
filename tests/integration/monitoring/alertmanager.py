"""A real Alertmanager for tests."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deepopsctl.monitoring.alert_routing import Wanted, routing
from deepopsctl.node_programs.services.alert_drain.settings import Settings
from tests.integration.monitoring import servers
from tests.integration.monitoring.promapi import login
from tests.support.role_templates import render

# no test waits longer than it has to
SOON = {"wait": "100ms", "interval": "200ms"}


class Alertmanager:
    def __init__(self, server: servers.Server) -> None:
        self.url, self.log = server.url, server.log
        self.settings = Settings(self.url, "hpc", 2, 600, servers.USER, servers.PASSWORD)
        self._login = login(servers.USER, servers.PASSWORD)

    def text(self, path: str, data: object = None) -> str:
        headers = {**self._login, "Content-Type": "application/json"}
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.url}{path}", body, headers)  # noqa: S310 (http, from the test)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (as above)
            read: str = answer.read().decode()
        return read

    def call(self, path: str, data: object = None) -> Any:
        text = self.text(path, data)
        return json.loads(text) if text.startswith(("[", "{")) else None

    def fire(self, *alerts: dict[str, str], **annotations: str) -> None:
        """As Prometheus does it."""
        self._post_alerts(alerts, annotations, {})

    def end(self, *alerts: dict[str, str]) -> None:
        """The same, for what is over."""
        self._post_alerts(alerts, {}, {"endsAt": "2020-01-02T00:00:00Z", "startsAt": "2020-01-01T00:00:00Z"})

    def _post_alerts(
        self, alerts: Iterable[dict[str, str]], annotations: dict[str, str], times: dict[str, str]
    ) -> None:
        body = [
            {
                "labels": {"cluster": "hpc", "severity": "critical", **labels},
                "annotations": {"summary": f"{labels['alertname']}!", **annotations},
                **times,
            }
            for labels in alerts
        ]
        self.call("/api/v2/alerts", body)

    def silence(self, name: str) -> None:
        """Until long after the test."""
        matcher = {"name": "alertname", "value": name, "isRegex": False, "isEqual": True}
        times = {"startsAt": "2020-01-01T00:00:00Z", "endsAt": "2100-01-01T00:00:00Z"}
        self.call("/api/v2/silences", {"matchers": [matcher], "createdBy": "test", "comment": "test", **times})


@contextmanager
def alertmanager(directory: Path, wanted: Wanted, **environment: str) -> Iterator[Alertmanager]:
    routes = routing(wanted)
    assert routes.problems == ()
    config = render("alertmanager", "alertmanager.yml.j2", __alertmanager_routing=asdict(routes))
    with servers.alertmanager(directory, config, **environment) as server:
        yield Alertmanager(server)
