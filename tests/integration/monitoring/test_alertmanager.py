"""A real Alertmanager with our configuration: whom it notifies, what it inhibits, what deepops-alertdrain gets."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.monitoring.alert_routing import Wanted
from deepopsctl.node_programs.alert_drain.alertmanager import AskError, ask
from deepopsctl.node_programs.alert_drain.settings import Settings
from tests.integration.monitoring.alertmanager import SOON, Alertmanager, alertmanager
from tests.integration.monitoring.servers import USER
from tests.integration.monitoring.webhook import receiving
from tests.support.cluster import wait_until


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
