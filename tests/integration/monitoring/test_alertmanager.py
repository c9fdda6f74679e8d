"""A real Alertmanager with our configuration: whom it notifies, what it inhibits, what deepops-alertdrain gets."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from deepopsctl.monitoring.alert_routing import Wanted, routing
from deepopsctl.node_programs.alert_drain.alertmanager import AskError, ask
from deepopsctl.node_programs.alert_drain.settings import Settings
from tests.integration.monitoring.promapi import login
from tests.integration.monitoring.test_queries import free_port
from tests.integration.monitoring.webhook import receiving
from tests.support.cluster import wait_until
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


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[Alertmanager, Callable[[], list[dict[str, Any]]]]]:
    """An Alertmanager that notifies a receiver with a password, and the messages of that receiver."""
    path = tmp_path / "messages"
    path.touch()

    def messages() -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    with receiving(path) as port:
        hook = {"webhook": {"url": f"http://127.0.0.1:{port}/", "user": "hpc", "password_secret": "hook"}}
        wanted = Wanted(receivers={"hook": hook}, grouping=SOON, secrets={"hook": "geheim"})
        with alertmanager(tmp_path, wanted) as running:
            yield running, messages


Receiver = tuple[Alertmanager, Callable[[], list[dict[str, Any]]]]


def named(messages: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Which alerts of which nodes were sent."""
    alerts = [alert for message in messages for alert in message["alerts"]]
    return {(alert["labels"]["alertname"], alert["labels"].get("node", "")) for alert in alerts}


def test_an_alert_reaches_a_receiver_with_its_annotations_and_the_receivers_password(receiver: Receiver) -> None:
    running, messages = receiver

    running.fire({"alertname": "DiskFull", "node": "gpu01"})
    wait_until("the receiver was notified", lambda: bool(messages()))

    message = messages()[0]
    assert message["receiver"] == "hook"
    assert message["alerts"][0]["annotations"]["summary"] == "DiskFull!"
    assert message["authorization"] == "Basic " + base64.b64encode(b"hpc:geheim").decode()


def test_a_node_that_is_down_sends_one_alert(receiver: Receiver) -> None:
    running, messages = receiver
    others = ["DiskFull", "TargetDown", "TextfileStale", "GpuLost", "MountMissing"]
    running.fire({"alertname": "NodeDown", "node": "gpu01"})
    wait_until("the alert of the node was sent", lambda: named(messages()) == {("NodeDown", "gpu01")})

    running.fire(*({"alertname": name, "node": "gpu01"} for name in others))
    # the last of them shows that those before had their time
    running.fire({"alertname": "DiskFull", "node": "gpu02"}, {"alertname": "Watchdog", "severity": "none"})
    wait_until("the alert of the other node was sent", lambda: ("DiskFull", "gpu02") in named(messages()))

    assert named(messages()) == {("NodeDown", "gpu01"), ("DiskFull", "gpu02")}
    states = {
        (each["labels"]["alertname"], each["labels"].get("node")): each["status"]["state"]
        for each in running.call("/api/v2/alerts")
    }
    assert {name: states[name, "gpu01"] for name in others} == dict.fromkeys(others, "suppressed")


def test_a_chat_gets_one_message_with_a_sentence_for_each_alert(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.touch()
    with receiving(path) as port:
        chat = {"chat": {"slack": {"secret": "chat", "channel": "#gpu"}}}
        secrets = {"chat": f"http://127.0.0.1:{port}/services/x"}
        with alertmanager(tmp_path, Wanted(receivers=chat, grouping=SOON, secrets=secrets)) as running:
            running.fire({"alertname": "DiskFull", "node": "gpu01"}, {"alertname": "DiskFull", "node": "gpu02"})
            wait_until("the chat was notified", lambda: path.read_text(encoding="utf-8"))

    message = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert message["channel"] == "#gpu"
    assert message["attachments"][0]["title"] == "2 firing: DiskFull (hpc)"
    assert message["attachments"][0]["text"] == "DiskFull!\nDiskFull!\n"


def test_without_a_receiver_alerts_are_there_to_be_seen(tmp_path: Path) -> None:
    with alertmanager(tmp_path, Wanted(grouping=SOON)) as running:
        running.fire({"alertname": "DiskFull", "node": "gpu01"})

        wait_until("it is there", lambda: len(running.call("/api/v2/alerts")) == 1)
        assert running.call("/api/v2/alerts")[0]["receivers"] == [{"name": "nobody"}]


def test_drain_by_alert_gets_all_alerts_or_none(tmp_path: Path) -> None:
    with alertmanager(tmp_path, Wanted(grouping=SOON)) as running:
        with pytest.raises(AskError, match="Watchdog does not fire"):
            ask(running.settings)

        running.fire(
            {"alertname": "Watchdog"},
            {"alertname": "GpuLost", "node": "gpu01", "drain": "true"},
            {"alertname": "GpuXidFatal", "node": "gpu02", "drain": "true"},
            {"alertname": "NodeDown", "node": "gpu03", "blind": "true"},
        )
        running.silence("GpuXidFatal")

        def heard() -> dict[str, tuple[str, bool, bool, bool]]:
            return {each.name: (each.node, each.drains, each.blinds, each.is_active) for each in ask(running.settings)}

        expected = {
            "Watchdog": ("", False, False, True),
            "GpuLost": ("gpu01", True, False, True),
            "GpuXidFatal": ("gpu02", True, False, False),
            "NodeDown": ("gpu03", False, True, True),
        }
        wait_until("all alerts are sent as they are", lambda: heard() == expected)
        with pytest.raises(AskError, match="401"):
            ask(Settings(running.url, "hpc", 2, 600, USER, "wrong"))
    with pytest.raises(AskError, match="does not answer"):
        ask(running.settings)
