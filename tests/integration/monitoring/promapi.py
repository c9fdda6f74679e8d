"""What tests ask a Prometheus over HTTP."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

PATIENCE_S = 60


def login(user: str, password: str) -> dict[str, str]:
    """The header of a request to a page that wants a password."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class Prometheus:
    """A Prometheus by its address, with a password where it wants one; a Source of opened dashboards."""

    def __init__(self, url: str, user: str = "", password: str = "") -> None:
        self._url = url
        self._login = login(user, password) if user else {}

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer; a ValueError in Prometheus' words where it refuses."""
        # as a form: a query may be longer than an address
        body = urllib.parse.urlencode(parameters).encode() if path.endswith("/query") else None
        address = f"{self._url}/api/v1/{path}" + ("" if body or not parameters else f"?{self._form(parameters)}")
        request = urllib.request.Request(address, body, self._login)  # noqa: S310 (http, from the test)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 (as above)
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            error_body = error.read().decode()
            if not error_body.startswith("{"):
                # it is starting
                raise ConnectionError(error_body) from error
            raise ValueError(json.loads(error_body)["error"]) from error

    def query(self, text: str) -> list[dict[str, Any]]:
        series: list[dict[str, Any]] = self.get("query", query=text)["result"]
        return series

    def count(self, text: str) -> int:
        return len(self.query(text))

    def label_values(self, selector: str, label: str) -> list[str]:
        """The values of a label, as Grafana asks for them."""
        values: list[str] = self.get(f"label/{label}/values", **{"match[]": selector})
        return values

    def _form(self, parameters: dict[str, str]) -> str:
        return urllib.parse.urlencode(parameters)
