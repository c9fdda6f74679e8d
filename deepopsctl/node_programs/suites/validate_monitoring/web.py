"""Ask a service over HTTP, with a password that is in no address, argument or message; times as services write them."""

from __future__ import annotations

import base64
import calendar
import contextlib
import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from ..._shared.checks import one_line

TIMEOUT_S = 10.0
_MOMENT = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|([+-])(\d\d):(\d\d))$")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class NoAnswer(Exception):  # noqa: N818 (the service gave no usable answer)
    """Why there is no answer, in words; `code` is HTTP's, 0 without any."""

    def __init__(self, why: str, code: int = 0) -> None:
        super().__init__(why)
        self.code = code


class Service(NamedTuple):
    """One web service; without a user no credentials are sent."""

    url: str
    user: str = ""
    password: str = ""
    # the certificates that may vouch for it; the host's own where this is ''
    ca: str = ""

    def without_password(self) -> Service:
        """The same, without the password."""
        return self._replace(user="", password="")

    def get(self, path: str, timeout: float = TIMEOUT_S, **parameters: str) -> Any:
        """The JSON that a GET gives."""
        return self._json(path, None, timeout, parameters)

    def post(self, path: str, document: Any, timeout: float = TIMEOUT_S) -> Any:
        """The JSON that a POST of JSON gives; None for an empty answer."""
        return self._json(path, json.dumps(document).encode(), timeout, {})

    def http_status(self, path: str) -> int:
        """HTTP's code for a GET; 200 where it is answered."""
        try:
            self._read(path, None, TIMEOUT_S, {})
        except NoAnswer as why:
            if not why.code:
                raise
            return why.code
        return 200

    def _json(self, path: str, data: bytes | None, timeout: float, parameters: dict[str, str]) -> Any:
        text = self._read(path, data, timeout, parameters)
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:
            raise NoAnswer(f"{self.url} answers with something else than JSON") from None

    def _read(self, path: str, data: bytes | None, timeout: float, parameters: dict[str, str]) -> str:
        address = self.url + path + ("?" + urllib.parse.urlencode(parameters) if parameters else "")
        request = urllib.request.Request(address, data)  # noqa: S310 (http or https: from the inventory)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.user:
            word = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            request.add_header("Authorization", "Basic " + word)
        try:
            with self._opener().open(request, timeout=timeout) as answer:
                text: str = answer.read().decode("utf-8", "replace")
                return text
        except urllib.error.HTTPError as error:
            raise NoAnswer(_refused(self.url, error), error.code) from None
        except urllib.error.URLError as error:
            raise NoAnswer(f"{self.url} does not answer: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            # one that stops within its answer, or is not a web server
            why = getattr(error, "strerror", None) or one_line(str(error))
            raise NoAnswer(f"{self.url} does not answer: {why}") from None

    def _opener(self) -> urllib.request.OpenerDirector:
        # a site's proxy is not asked for what is on this node
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.ca or None)))
        return urllib.request.build_opener(*handlers)


def _refused(url: str, error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return f"{url} refuses the password (HTTP {error.code})"
    message = one_line(error.read(2000).decode("utf-8", "replace"))
    with contextlib.suppress(ValueError, AttributeError):
        message = str(json.loads(message).get("error", message))
    return f"{url} answers with HTTP {error.code}: {message}"


Sample = tuple[dict[str, str], float]


class Prometheus(NamedTuple):
    """What is asked of Prometheus."""

    service: Service

    def query(self, text: str) -> list[Sample]:
        """The samples of an instant query: labels and value; of a range its last values."""
        data = self.service.get("/api/v1/query", query=text)["data"]
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        if data["resultType"] == "matrix":
            return [(entry["metric"], float(entry["values"][-1][1])) for entry in data["result"]]
        return [(entry["metric"], float(entry["value"][1])) for entry in data["result"]]

    def by(self, label: str, text: str) -> dict[str, float]:
        """The values of a query by one of its labels."""
        return {labels.get(label, ""): value for labels, value in self.query(text)}

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes."""
        targets: list[dict[str, Any]] = self.service.get("/api/v1/targets", state="active")["data"]["activeTargets"]
        return targets

    def rules(self) -> list[dict[str, Any]]:
        """Groups of rules, with how each went."""
        groups: list[dict[str, Any]] = self.service.get("/api/v1/rules")["data"]["groups"]
        return groups

    def alertmanagers(self) -> list[str]:
        """Where it sends alerts to."""
        active = self.service.get("/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        return [str(entry["url"]) for entry in active]


def unix(text: str) -> float | None:
    """`2026-11-22T09:30:00.123456789Z` as seconds since 1970; None for never, which is the year 1."""
    match = _MOMENT.match(text)
    if not match or text.startswith("0001-"):
        return None
    whole, part, _zone, sign, hours, minutes = match.groups()
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(part or 0)
    if sign:
        away = int(hours) * 3600 + int(minutes) * 60
        seconds -= away if sign == "+" else -away
    return seconds


def written(seconds: float) -> str:
    """Seconds since 1970 as Alertmanager reads them."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + "Z"


def span(text: str) -> float:
    """`1m30s` in seconds; 0 for what is none."""
    return sum(float(count) * _SECONDS[unit] for count, unit in _SPAN.findall(text))
