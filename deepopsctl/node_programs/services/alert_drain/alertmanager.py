"""Query Alertmanager for all alerts that have not ended. An incomplete answer is an error, never "no alerts"."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.request
from typing import Any

from .decide import WATCHDOG, Alert
from .settings import Settings

PATIENCE_S = 10
# what a thousand nodes with ten alerts each come to, several times
LONGEST = 64 << 20


class AskError(Exception):
    """The alerts could not be read."""


def ask(settings: Settings) -> list[Alert]:
    """All alerts of this cluster, including silenced and inhibited ones."""
    url = settings.url.rstrip("/") + "/api/v2/alerts"
    request = urllib.request.Request(url, headers=_login(settings))  # noqa: S310 - settings take http and https alone
    try:
        # straight there: a proxy in the environment is for the world outside
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *_tls(settings))
        with opener.open(request, timeout=PATIENCE_S) as answer:
            text = answer.read(LONGEST + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AskError(f"Alertmanager does not answer: {error}") from error
    if len(text) > LONGEST:
        raise AskError("Alertmanager's answer is too long")
    return read(text, settings.cluster)


def read(text: bytes, cluster: str) -> list[Alert]:
    """The alerts in an answer; AskError where it is none, or lacks the alert that always fires."""
    try:
        alerts = [_alert(each) for each in json.loads(text) if each["labels"].get("cluster", cluster) == cluster]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AskError(f"Alertmanager's answer can't be read: {error!r}") from error
    if not any(alert.name == WATCHDOG for alert in alerts):
        raise AskError(f"{WATCHDOG} does not fire: alerts do not reach Alertmanager")
    return alerts


def _alert(entry: Any) -> Alert:
    labels = entry["labels"]
    return Alert(
        name=str(labels["alertname"]),
        node=str(labels.get("node", "")),
        drains=labels.get("drain") == "true",
        blinds=labels.get("blind") == "true",
        is_active=entry["status"]["state"] == "active",
        since=str(entry["startsAt"]),
    )


def _login(settings: Settings) -> Any:
    if not settings.user:
        return {}
    word = f"{settings.user}:{settings.password}".encode()
    return {"Authorization": "Basic " + base64.b64encode(word).decode()}


def _tls(settings: Settings) -> list[Any]:
    if not settings.ca:
        return []
    return [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=settings.ca))]
