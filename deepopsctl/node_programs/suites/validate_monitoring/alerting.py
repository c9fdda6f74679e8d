"""Alertmanager: reached by Prometheus, and a test alert arrives, notifies no one, and ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._shared.waiting import wait_until
from . import web
from .checks import check, names, skip
from .web import NoAnswer, Prometheus, Service

ANSWERS, KNOWN, ARRIVES, FORWARDED = "alertmanager-answers", "alertmanager-known", "alert-arrives", "alerts-forwarded"
# Prometheus finds its Alertmanagers as it finds targets
_KNOWN_S = 30.0
_SHOWN_S = 15.0
# the test alert ends by itself after this time (seconds)
_LIVES_S = 120.0
# an alert that has just begun to fire is sent with the next evaluation; so many seconds later it has to be there
_SENT_S = 90.0
NAME = "DeepopsctlValidation"


class Route(NamedTuple):
    """The label of test alerts, and the receiver without an address that they go to."""

    label: str
    value: str
    receiver: str

    @property
    def matcher(self) -> str:
        """As Alertmanager writes it."""
        return f'{self.label}="{self.value}"'


def evaluate(
    prometheus: Prometheus, alertmanager: Service, route: Route, monitor: str, cluster: str, token: str
) -> list[Check]:
    """All that is tried of alerts."""
    try:
        status = alertmanager.get("/api/v2/status")
    except NoAnswer as why:
        rest = "Alertmanager does not answer"
        return [
            check(ANSWERS, monitor, FAIL, "no answer", "an answer", message=str(why)),
            _known(prometheus, alertmanager, monitor),
            skip(ARRIVES, cluster, rest),
            skip(FORWARDED, cluster, rest),
        ]
    version = status.get("versionInfo", {}).get("version", "")
    return [
        check(ANSWERS, monitor, PASS, "an answer", "an answer", message=f"version {version}"),
        _known(prometheus, alertmanager, monitor),
        _arrives(alertmanager, route, status["config"]["original"], cluster, token),
        _forwarded(prometheus, alertmanager, cluster),
    ]


def _known(prometheus: Prometheus, alertmanager: Service, monitor: str) -> Check:
    wanted = alertmanager.url.partition("://")[2].rstrip("/")
    try:
        known_urls = wait_until(
            prometheus.alertmanagers, _KNOWN_S, 1.0, lambda urls: any(wanted in url for url in urls)
        )
    except NoAnswer as why:
        return check(KNOWN, monitor, FAIL, "no answer", wanted, message=str(why))
    if any(wanted in url for url in known_urls):
        return check(KNOWN, monitor, PASS, wanted, wanted)
    text = f"Prometheus sends alerts to {names(known_urls) if known_urls else 'no Alertmanager'}"
    return check(KNOWN, monitor, FAIL, names(known_urls) or "none", wanted, message=text)


def _arrives(alertmanager: Service, route: Route, config: str, cluster: str, token: str) -> Check:
    # without an address in any receiver no one is notified
    if route.matcher not in config and "_configs:" in config:
        # it would go to the default receiver
        text = f"its configuration has no route for {route.matcher}: nothing was sent, so that no one is notified"
        return check(ARRIVES, cluster, FAIL, "no route", "arrived", message=text)
    labels = {"alertname": NAME, route.label: route.value, "cluster": cluster, "validation": token}
    try:
        return _sent(alertmanager, route, labels, cluster)
    except NoAnswer as why:
        return check(ARRIVES, cluster, FAIL, "an error", "arrived", message=str(why))


def _sent(alertmanager: Service, route: Route, labels: Mapping[str, str], cluster: str) -> Check:
    def mine() -> list[dict[str, Any]]:
        received: list[dict[str, Any]] = alertmanager.get(
            "/api/v2/alerts", filter=f'validation="{labels["validation"]}"'
        )
        return received

    started = time.monotonic()
    try:
        _post(alertmanager, labels, _LIVES_S)
        received = wait_until(mine, _SHOWN_S, 0.2)
    finally:
        # ended before a notification is sent, should it have the wrong receiver
        _post(alertmanager, labels, 0)
    took = time.monotonic() - started
    receivers = [entry["name"] for alert in received for entry in alert["receivers"]]
    left = wait_until(mine, _SHOWN_S, 0.2, lambda alerts: not alerts)
    if not received:
        return check(ARRIVES, cluster, FAIL, "nothing", "arrived", message="what was sent to Alertmanager is not there")
    if receivers != [route.receiver]:
        text = f"the trial went to {names(receivers)} instead of {route.receiver}, and was ended at once"
        return check(ARRIVES, cluster, FAIL, names(receivers), route.receiver, message=text)
    if left:
        return check(ARRIVES, cluster, FAIL, "still there", "ended", message="the trial was ended, and is still there")
    text = f"and ended; it went to {route.receiver}, which notifies no one"
    return check(ARRIVES, cluster, PASS, f"{took:.1f}", f"{_SHOWN_S:g}", "s", text)


def _post(alertmanager: Service, labels: Mapping[str, str], seconds: float) -> None:
    now = time.time()
    text = "sent by `deepopsctl validate monitoring`; it ends by itself"
    alert = {"labels": dict(labels), "annotations": {"summary": text}, "endsAt": web.written(now + seconds)}
    if not seconds:
        alert["startsAt"] = web.written(now - 1)
    alertmanager.post("/api/v2/alerts", [alert])


def _forwarded(prometheus: Prometheus, alertmanager: Service, cluster: str) -> Check:
    """What fires in Prometheus is known to Alertmanager; one that has just started is sent it again after a minute."""
    query = f'ALERTS{{alertstate="firing"}} offset {_SENT_S:g}s and ALERTS{{alertstate="firing"}}'

    def compare() -> tuple[int, list[Mapping[str, str]]]:
        firing = prometheus.query(query)
        there = [alert["labels"] for alert in alertmanager.get("/api/v2/alerts")]
        return len(firing), [labels for labels, _value in firing if not any(_same(labels, other) for other in there)]

    try:
        count, missing = wait_until(compare, _SENT_S, 1.0, lambda state: not state[1])
    except NoAnswer as why:
        return check(FORWARDED, cluster, FAIL, "an error", "forwarded", message=str(why))
    if not count:
        return check(FORWARDED, cluster, SKIP, message="no alert fires")
    text = "not known to Alertmanager: " + names(_called(labels) for labels in missing) if missing else ""
    return check(FORWARDED, cluster, FAIL if missing else PASS, count - len(missing), count, "alerts", text)


def _same(labels: Mapping[str, str], other: Mapping[str, str]) -> bool:
    # Prometheus adds its external labels on the way
    return all(other.get(key) == value for key, value in labels.items() if key not in ("__name__", "alertstate"))


def _called(labels: Mapping[str, str]) -> str:
    return one_line(" ".join(filter(None, (labels.get("alertname"), labels.get("node")))))
