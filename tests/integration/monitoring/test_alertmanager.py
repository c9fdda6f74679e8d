"""A real Alertmanager with our configuration: whom it notifies, what it inhibits, what deepops-alertdrain gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.monitoring.alert_routing import Wanted
from deepopsctl.node_programs.services.alert_drain.alertmanager import AskError, ask
from deepopsctl.node_programs.services.alert_drain.settings import Settings
from tests.integration.monitoring.alertmanager import SOON, Alertmanager, alertmanager
from tests.integration.monitoring.promapi import login
from tests.integration.monitoring.servers import USER, Page
from tests.support.cluster import wait_until


@pytest.fixture
def receiver() -> Iterator[Page]:
    with Page(lambda _path: (204, "")) as page:
        yield page


@pytest.fixture
def running(receiver: Page, tmp_path: Path) -> Iterator[Alertmanager]:
    """An Alertmanager that notifies the receiver, with a password."""
    hook = {"webhook": {"url": receiver.url, "user": "hpc", "password_secret": "hook"}}
    with alertmanager(tmp_path, Wanted(receivers={"hook": hook}, grouping=SOON, secrets={"hook": "geheim"})) as started:
        yield started


def named(receiver: Page) -> set[tuple[str, str]]:
    """Which alerts of which nodes were sent."""
    alerts = [alert for message in receiver.posted for alert in json.loads(message)["alerts"]]
    return {(alert["labels"]["alertname"], alert["labels"].get("node", "")) for alert in alerts}


def test_an_alert_reaches_a_receiver_with_its_annotations_and_the_receivers_password(
    running: Alertmanager, receiver: Page
) -> None:
    running.fire({"alertname": "DiskFull", "node": "gpu01"})
    wait_until("the receiver was notified", lambda: receiver.logins)

    message = json.loads(receiver.posted[0])
    assert message["receiver"] == "hook"
    assert message["alerts"][0]["annotations"]["summary"] == "DiskFull!"
    assert receiver.logins[0] == login("hpc", "geheim")["Authorization"]


def test_a_node_that_is_down_sends_one_alert(running: Alertmanager, receiver: Page) -> None:
    others = ["DiskFull", "TargetDown", "TextfileStale", "GpuLost", "MountMissing"]
    running.fire({"alertname": "NodeDown", "node": "gpu01"})
    wait_until("the alert of the node was sent", lambda: named(receiver) == {("NodeDown", "gpu01")})

    running.fire(*({"alertname": name, "node": "gpu01"} for name in others))
    # the last of them shows that those before had their time
    running.fire({"alertname": "DiskFull", "node": "gpu02"}, {"alertname": "Watchdog", "severity": "none"})
    wait_until("the alert of the other node was sent", lambda: ("DiskFull", "gpu02") in named(receiver))

    assert named(receiver) == {("NodeDown", "gpu01"), ("DiskFull", "gpu02")}
    states = {
        (each["labels"]["alertname"], each["labels"].get("node")): each["status"]["state"]
        for each in running.call("/api/v2/alerts")
    }
    assert {name: states[name, "gpu01"] for name in others} == dict.fromkeys(others, "suppressed")


def test_a_chat_gets_one_message_with_a_sentence_for_each_alert(receiver: Page, tmp_path: Path) -> None:
    chat = {"chat": {"slack": {"secret": "chat", "channel": "#gpu"}}}
    with alertmanager(tmp_path, Wanted(receivers=chat, grouping=SOON, secrets={"chat": receiver.url})) as running:
        running.fire({"alertname": "DiskFull", "node": "gpu01"}, {"alertname": "DiskFull", "node": "gpu02"})
        wait_until("the chat was notified", lambda: receiver.posted)

    message = json.loads(receiver.posted[0])
    assert message["channel"] == "#gpu"
    assert message["attachments"][0]["title"] == "2 firing: DiskFull (hpc)"
    assert message["attachments"][0]["text"] == "DiskFull!\nDiskFull!\n"


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
