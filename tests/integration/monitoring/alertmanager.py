"""A real Alertmanager for tests."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bcrypt

from deepopsctl.monitoring.alert_routing import Wanted, routing
from deepopsctl.node_programs.alert_drain.settings import Settings
from tests.integration.monitoring.promapi import login
from tests.support.cluster import wait_until
from tests.support.ports import free_port
from tests.support.role_templates import render

# nobody waits longer than has to be
SOON = {"wait": "100ms", "interval": "200ms"}
USER, PASSWORD = "admin", "correct horse"


class Alertmanager:
    """One that runs, and asks for a password."""

    def __init__(self, port: int, log: Path) -> None:
        self._log = log
        self.url = f"http://127.0.0.1:{port}"
        self.settings = Settings(self.url, "hpc", 2, 600, USER, PASSWORD)
        self._login = login(USER, PASSWORD)

    def log(self) -> str:
        """Its log so far."""
        return self._log.read_text(encoding="utf-8")

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

    def answers(self) -> bool:
        try:
            return self.call("/api/v2/status") is not None
        except OSError:
            return False


@contextmanager
def alertmanager(directory: Path, wanted: Wanted, **environment: str) -> Iterator[Alertmanager]:
    """Running with this configuration, and gone at the end."""
    config, web, port = directory / "alertmanager.yml", directory / "web.yml", free_port()
    routes = routing(wanted)
    assert routes.problems == ()
    config.write_text(
        render("alertmanager", "alertmanager.yml.j2", __alertmanager_routing=asdict(routes)), encoding="utf-8"
    )
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    web.write_text(f'basic_auth_users: {{{USER}: "{hashed}"}}\n', encoding="utf-8")
    argv = [
        "prometheus-alertmanager", f"--config.file={config}", f"--web.config.file={web}",
        f"--storage.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **environment}) as process,
    ):
        try:
            running = Alertmanager(port, directory / "log")
            wait_until("Alertmanager answers", running.answers)
            yield running
        finally:
            process.terminate()
            process.wait(60)
