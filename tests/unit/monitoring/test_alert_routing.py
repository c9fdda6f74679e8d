"""Who is told of which alert: a site's settings become a configuration that Alertmanager takes, or a sentence."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from deepopsctl.monitoring.alert_routing import Routing, Wanted, routing
from tests.support.role_templates import render

SECRETS = {"chat": "https://hooks.example.com/T0/B0", "mail": "geheim", "pager": "geheimer"}
WHOLE = """
receivers:
  ops: {email: [ops@example.com, two@example.com]}
  chat: {slack: {secret: chat, channel: "#gpu"}}
  pager: {webhook: {url: "https://pager.example.com/hook", user: hpc, password_secret: pager}}
  duty: {alertmanager: {pagerduty_configs: [{routing_key: x}]}}
routes:
  - {watchdog: true, receivers: [pager], repeat: 1m}
  - {severity: critical, receivers: [pager, ops]}
  - {match: {alertname: "Gpu.*", node: "gpu0\\\\d"}, receivers: chat, repeat: 1d, continue: true}
  - {severity: [warning, info], receivers: [duty]}
email: {server: "mail.example.com:587", from: hpc@example.com, user: hpc, secret: mail}
grouping: {wait: 1s}
"""


def wanted(text: str) -> Wanted:
    return Wanted(**yaml.safe_load(text), secrets=SECRETS)


def text_of(routes: Routing) -> str:
    return render("alertmanager", "alertmanager.yml.j2", __alertmanager_routing=asdict(routes))


def amtool(tmp_path: Path, text: str, *words: str) -> str:
    """The output of amtool on a configuration, whose path CONFIG stands for."""
    path = tmp_path / "alertmanager.yml"
    path.write_text(text, encoding="utf-8")
    argv = ["amtool", *(word.replace("CONFIG", str(path)) for word in words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("text", ["{}", WHOLE])
def test_alertmanager_takes_what_is_written(tmp_path: Path, text: str) -> None:
    result = routing(wanted(text))

    assert result.problems == ()
    assert "SUCCESS" in amtool(tmp_path, text_of(result), "check-config", "CONFIG")


TWO = "receivers: {a: {webhook: {url: http://x.example.com}}, b: {slack: {secret: chat}}}"


@pytest.mark.parametrize(
    ("settings", "labels", "receivers"),
    [
        ("{}", "alertname=DiskFull severity=critical", "nobody"),
        # without routes everything goes to everybody but the watchdog
        (TWO, "alertname=DiskFull severity=info", "a, b"),
        (TWO, "alertname=Watchdog severity=none", "nobody"),
        (WHOLE, "alertname=Watchdog severity=none", "pager"),
        (WHOLE, "alertname=NodeDown severity=critical", "pager, ops"),
        (WHOLE, "alertname=GpuXid severity=warning node=gpu07", "chat,duty"),
        (WHOLE, "alertname=GpuXid severity=warning node=gpu17", "duty"),
        (WHOLE, "alertname=Other severity=odd", "nobody"),
    ],
)
def test_alertmanager_itself_notifies_by_the_first_route_that_fits(
    tmp_path: Path, settings: str, labels: str, receivers: str
) -> None:
    text, test = text_of(routing(wanted(settings))), ("config", "routes", "test", "--config.file", "CONFIG")

    assert amtool(tmp_path, text, *test, *labels.split()) == receivers


def test_secrets_are_in_the_text_and_nowhere_else() -> None:
    options = wanted(WHOLE)

    result = routing(options)
    assert all(secret in text_of(result) for secret in SECRETS.values())
    assert not any(secret in repr((options, result)) for secret in SECRETS.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("receivers: {a: {pigeon: 1}}", "pigeon is not a channel"),
        ("receivers: {a: {}}", "has no channel"),
        ("receivers: {nobody: {webhook: {url: http://x}}}", "choose another name"),
        ("receivers: {1: {webhook: {url: http://x}}}", "1: choose another name"),
        ("receivers: {a: {email: [x@example.com]}}", "email needs a server"),
        ("{receivers: {a: {email: [x]}}, email: {server: m, from: x}}", "email is a list of addresses"),
        (
            "{receivers: {a: {email: {to: x@example.com}}}, email: {server: m, from: x}}",
            "email is a list of addresses",
        ),
        ("email: {server: m}", "alertmanager_email has no from"),
        ("email: {server: m, from: x, secret: none}", "the vault has no secret none"),
        ("email: {server: m, from: x, user: hpc}", "user needs secret"),
        ("receivers: {a: {webhook: {url: 'https://x', user: hpc}}}", "user needs password_secret"),
        ("receivers: {a: {slack: {secret: gone}}}", "the vault has no secret gone"),
        ("receivers: {a: {slack: {channel: x}}}", "give its address as url, or secret"),
        ("receivers: {a: {webhook: {url: ftp://x}}}", "does not begin with http"),
        ("receivers: {a: {webhook: {url: http://x, pasword: y}}}", "pasword is not known"),
        ("receivers: {a: {alertmanager: {pagerduty: []}}}", "pagerduty is not a list of Alertmanager's"),
        ("routes: [{severity: critical}]", "number 1 names no receivers"),
        ("routes: [{receivers: [a]}]", "alertmanager_receivers has no a"),
        ("{receivers: {a: {webhook: {url: http://x}}}, routes: [{receivers: [a], severity: fatal}]}", "severity fatal"),
        (
            "{receivers: {a: {webhook: {url: http://x}}}, routes: [{receivers: [a], match: [x]}]}",
            "match is not a mapping",
        ),
        (
            "{receivers: {a: {webhook: {url: http://x}}}, routes: [{receivers: [a], repeats: 1h}]}",
            "repeats is not known",
        ),
        ("grouping: {every: 1h}", "every is not known"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(text: str, message: str) -> None:
    result = routing(wanted(text))

    assert (result.receivers, result.routes) == ((), ())
    assert len(result.problems) == 1
    assert message in result.problems[0]
