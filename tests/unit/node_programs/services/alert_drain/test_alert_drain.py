"""Drain by alert: what is drained, what is given back, and above all what is not."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared.settings import SettingsError
from deepopsctl.node_programs._shared.slurm_client import NoAnswerError
from deepopsctl.node_programs.services.alert_drain import cli, slurm
from deepopsctl.node_programs.services.alert_drain.alertmanager import AskError, read
from deepopsctl.node_programs.services.alert_drain.decide import Alert, HealthyTimers, Limits, Node, decide
from deepopsctl.node_programs.services.alert_drain.rounds import Rounds, render
from deepopsctl.node_programs.services.alert_drain.settings import Settings, load
from tests.support.files import write_program

OURS = "deepopsctl: alert GpuLost"
LIMITS = Limits(nodes=2, resume_after_s=600)


def alert(node: str, name: str = "GpuLost", **changes: Any) -> Alert:
    return replace(Alert(name, node, drains=True, blinds=False, is_active=True, since="1"), **changes)


def nodes(reasons: dict[str, str] | None = None, *, is_healthy: bool = True) -> dict[str, Node]:
    """gpu01 to gpu09, drained for these reasons."""
    reasons = reasons or {}
    names = [f"gpu0{number}" for number in range(1, 10)]
    return {name: Node(name, name in reasons, reasons.get(name, ""), is_healthy) for name in names}


EVERYWHERE = [alert(name) for name in nodes()]


@pytest.mark.parametrize(
    ("alerts", "drained", "drains"),
    [
        ([alert("gpu01"), alert("gpu02", "DiskFull", drains=False)], {}, ["gpu01"]),
        # the reason of any drain stays
        *(([alert("gpu01")], {"gpu01": reason}, []) for reason in ("new fan", OURS, "")),
        # silenced
        ([alert("gpu01", is_active=False)], {}, []),
        # no node of Slurm's
        ([alert("ctl1"), alert("")], {}, []),
        # a wrong rule drains no cluster: what alerts drained before counts for the limit, what others drained does not
        (EVERYWHERE, {}, ["gpu01", "gpu02"]),
        (EVERYWHERE, {"gpu01": OURS, "gpu02": "new fan"}, ["gpu03"]),
        (EVERYWHERE, {"gpu01": OURS, "gpu02": OURS, "gpu03": OURS}, []),
    ],
)
def test_nodes_with_an_alert_that_drains_are_drained_up_to_the_limit(
    alerts: list[Alert], drained: dict[str, str], drains: list[str]
) -> None:
    result = decide(alerts, nodes(drained), HealthyTimers(), LIMITS, 0)

    assert list(result.drains) == drains
    assert len(result.held_back) == (9 - len(drained) - len(drains) if alerts is EVERYWHERE else 0)
    assert decide(alerts, nodes(drained), HealthyTimers(), Limits(0, 600), 0).drains == {}


def test_the_alert_that_came_first_is_the_reason() -> None:
    alerts = [
        alert("gpu01", "Later", since="2026-11-22T10:00:01Z"),
        alert("gpu01", "First", since="2026-11-22T10:00:00Z"),
    ]

    assert decide(alerts, nodes(), HealthyTimers(), LIMITS, 0).drains == {"gpu01": "deepopsctl: alert First"}


class TestResuming:
    def after(self, *rounds: tuple[float, list[Alert]], reason: str = OURS, is_healthy: bool = True) -> list[str]:
        """What is resumed in the last of these rounds: (seconds, alerts)."""
        memory, result = HealthyTimers(), []
        for now, alerts in rounds:
            result = list(decide(alerts, nodes({"gpu01": reason}, is_healthy=is_healthy), memory, LIMITS, now).resumes)
        return result

    def test_a_node_is_resumed_when_its_alert_has_ended_for_long_enough(self) -> None:
        assert self.after((0, []), (599, [])) == []
        assert self.after((0, []), (599, []), (600, [])) == ["gpu01"]
        # one round is not an evidence
        assert self.after((100_000, [])) == []
        # an alert that comes back begins the wait again
        assert self.after((0, []), (300, [alert("gpu01")]), (600, [])) == []
        assert self.after((0, []), (300, [alert("gpu01")]), (600, []), (1200, [])) == ["gpu01"]
        # what is wrong with another node keeps none
        others = [alert("gpu02"), alert("gpu02", "TargetDown", drains=False, blinds=True)]
        assert self.after((0, others), (600, others)) == ["gpu01"]

    @pytest.mark.parametrize(
        "against",
        [
            alert("gpu01"),
            # silenced, or held back because the node is down: it has not ended
            alert("gpu01", is_active=False),
            # another that drains
            alert("gpu01", "MountMissing"),
            # it can't be seen whether it has ended, on this node or on any
            alert("gpu01", "TargetDown", drains=False, blinds=True),
            alert("gpu01", "NodeDown", drains=False, blinds=True, is_active=False),
            alert("", "SlurmMetricsMissing", drains=False, blinds=True),
        ],
    )
    def test_a_node_stays_drained_while(self, against: Alert) -> None:
        assert self.after((0, [against]), (600, [against]), (1200, [against])) == []
        assert self.after((0, []), (600, [against])) == []

    @pytest.mark.parametrize("reason", ["", "alert GpuLost", "deepopsctl: storage x is not mounted"])
    def test_somebody_elses_drain_is_never_ended(self, reason: str) -> None:
        assert self.after((0, []), (600, []), reason=reason) == []

    def test_a_node_that_slurm_has_as_down_stays_drained(self) -> None:
        assert self.after((0, []), (600, []), is_healthy=False) == []

    def test_it_is_reported_why_a_node_stays_drained(self) -> None:
        result = decide([alert("gpu01")], nodes({"gpu01": OURS, "gpu02": OURS}), HealthyTimers(), LIMITS, 0)

        assert result.waiting == {"gpu01": "GpuLost has not ended", "gpu02": "all is well, but not for long enough"}


def entry(name: str, state: str = "active", **labels: str) -> dict[str, object]:
    return {"labels": {"alertname": name, **labels}, "status": {"state": state}, "startsAt": "2026-11-22T10:00:00Z"}


WATCHDOG = entry("Watchdog", cluster="hpc")


class TestAlertmanagersAnswer:
    def test_is_read_and_has_the_alerts_of_this_cluster(self) -> None:
        lost = {"node": "gpu01", "drain": "true", "blind": "true"}
        others = [entry("GpuLost", "suppressed", cluster="hpc", **lost), entry("GpuLost", cluster="other", **lost)]

        watchdog, result = read(json.dumps([WATCHDOG, *others]).encode(), "hpc")

        assert watchdog == alert("", "Watchdog", drains=False, since="2026-11-22T10:00:00Z")
        assert result == alert("gpu01", blinds=True, is_active=False, since="2026-11-22T10:00:00Z")

    @pytest.mark.parametrize(
        "text",
        [
            # an Alertmanager that has just started has heard of nothing yet
            json.dumps([entry("GpuLost", cluster="hpc", node="gpu01", drain="true")]),
            json.dumps([entry("Watchdog", cluster="other")]),
            '{"status": "error"}',
            '[{"labels": {}}]',
            json.dumps([WATCHDOG])[:-3],
        ],
    )
    def test_what_is_no_whole_answer_is_an_error_and_never_no_alerts(self, text: str) -> None:
        with pytest.raises(AskError):
            read(text.encode(), "hpc")


SHOWN = (
    "NodeName=gpu01 Arch=x86_64 State=IDLE+DRAIN Reason=deepopsctl: alert GpuLost [root@2026-11-22T10:00:00]\n"
    "NodeName=gpu02 State=MIXED Partitions=gpu\n"
    "NodeName=gpu03 State=DOWN*+DRAIN+NOT_RESPONDING Reason=State=IDLE is what I want [alice@2026-11-22T10:00:00]\n"
    "NodeName=gpu04 State=IDLE+DRAIN+REBOOT_ISSUED Reason=deepopsctl: alert GpuLost : reboot issued "
    "[root@2026-11-22T10:00:00]\n"
)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a scontrol was told that only answers; Slurm itself is in the lab's test."""
    (tmp_path / "shown").write_text(SHOWN)
    script = f'echo "$@" >> {tmp_path}/log; test "$2" != show || cat {tmp_path}/shown'
    write_program(tmp_path / "scontrol", script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "log"


class TestSlurmsText:
    def test_is_read(self, asked: Path) -> None:
        assert slurm.nodes() == {
            "gpu01": Node("gpu01", True, OURS, True),
            "gpu02": Node("gpu02", False, "", True),
            "gpu03": Node("gpu03", True, "State=IDLE is what I want", False),
            # away: whether its alert has ended can't be seen
            "gpu04": Node("gpu04", True, f"{OURS} : reboot issued", False),
        }

    def test_a_drain_that_is_no_longer_ours_is_not_ended(self, asked: Path) -> None:
        assert slurm.resume("gpu01")
        assert not slurm.resume("gpu03")
        # it left the cluster in this moment
        assert not slurm.resume("gone")
        assert "nodename=gpu03" not in asked.read_text()

    def test_a_refusal_says_what_scontrol_said(self, asked: Path) -> None:
        write_program(asked.with_name("scontrol"), "echo slurm_update error: Invalid user id\nexit 1")

        with pytest.raises(NoAnswerError, match="Invalid user id"):
            slurm.drain("gpu01", OURS)


def settings(tmp_path: Path, **more: object) -> Path:
    path = tmp_path / "alertdrain.json"
    options = {"url": "http://127.0.0.1:1", "cluster": "hpc", "limit": 2, "resume_after_s": 600}
    path.write_text(json.dumps({**options, "textfile": str(tmp_path / "out.prom"), **more}))
    return path


class TestTheProgram:
    def test_does_nothing_while_nobody_can_be_asked(self, asked: Path, tmp_path: Path) -> None:
        rounds = Rounds(load(str(settings(tmp_path))))
        rounds.timers.clear["gpu01"] = 0.0

        assert not rounds.round()
        assert not asked.exists()
        # what was known before the silence counts no more
        assert rounds.timers.clear == {}
        assert "deepops_alertdrain_up 0\n" in render(rounds.values(up=False))

    def test_a_node_that_slurm_refuses_to_drain_keeps_no_others(
        self, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "deepopsctl.node_programs.services.alert_drain.rounds.ask", lambda _: [alert("gone"), alert("gpu02")]
        )
        write_program(
            asked.with_name("scontrol"),
            f'echo "$@" >> {asked}; case "$*" in *show*) echo "NodeName=gone State=IDLE"; cat {tmp_path}/shown;; '
            '*nodename=gone*) echo "Invalid node name specified" >&2; exit 1;; esac',
        )
        rounds = Rounds(load(str(settings(tmp_path, limit=9))))

        assert not rounds.round()
        assert "nodename=gpu02 state=drain" in asked.read_text()
        assert (rounds.drains, rounds.reported["trouble"].count("Invalid node name")) == (1, 1)
        # gpu01 is well, and its time is not lost
        assert list(rounds.timers.clear) == ["gpu01"]

    def test_metrics_that_cannot_be_written_end_no_round(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rounds = Rounds(load(str(settings(tmp_path, textfile=str(tmp_path / "gone/out.prom")))))
        # the first round is the last
        monkeypatch.setattr(rounds.stop, "wait", lambda _seconds: rounds.stop.set())

        rounds.drain_until_stopped()

        assert str(tmp_path / "gone") in rounds.reported["metrics"]

    def test_its_file_has_what_the_alerts_ask_for(self) -> None:
        rounds = Rounds(Settings("http://127.0.0.1:1", "hpc", 2, 600))

        text = render(rounds.values(up=True))
        assert "# TYPE deepops_alertdrain_held_back gauge\ndeepops_alertdrain_held_back 0\n" in text
        assert "# TYPE deepops_alertdrain_drains_total counter\n" in text

    @pytest.mark.parametrize(
        ("more", "fault"), [({"limits": 1}, "unknown keys"), ({"url": "file:///etc/passwd"}, "not an address of http")]
    )
    def test_a_configuration_that_makes_no_sense_is_refused(
        self, tmp_path: Path, more: dict[str, object], fault: str
    ) -> None:
        with pytest.raises(SettingsError, match=fault):
            load(str(settings(tmp_path, **more)))
        assert cli.main(["--config", str(tmp_path / "alertdrain.json")]) == cli.INVALID

    def test_a_password_is_in_no_word_about_the_settings(self, tmp_path: Path) -> None:
        assert "geheim" not in repr(load(str(settings(tmp_path, password="geheim"))))
