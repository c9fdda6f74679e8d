"""What dashboards ask, asked of Prometheus; and Grafana itself, where it is enabled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..._shared.checks import FAIL, PASS, WARN, Check, one_line
from ..._shared.waiting import wait_until
from .checks import check, names
from .web import NoAnswer, Prometheus, Service

QUERIES, GRAFANA = "dashboard-queries", "grafana-healthy"


class Query(NamedTuple):
    """One query of a panel, its variables filled in; `job` where there has to be a job for it to show something."""

    dashboard: str
    panel: str
    text: str
    job: bool = False


def evaluate(prometheus: Prometheus, wanted: Sequence[Query], patience: float) -> list[Check]:
    """A check for each dashboard: every query of its panels gives series; recording rules follow the first scrapes."""
    empty: dict[Query, str] = dict.fromkeys(wanted, "")

    def query_empty() -> dict[Query, str]:
        # those that gave something are not asked again
        for query, error in [(query, _query_error(prometheus, query)) for query in list(empty)]:
            if error is None:
                del empty[query]
            else:
                empty[query] = error
        return empty

    wait_until(query_empty, patience, 5.0, lambda left: not left)
    return [_one(name, wanted, empty) for name in dict.fromkeys(query.dashboard for query in wanted)]


def _one(dashboard: str, wanted: Sequence[Query], empty: Mapping[Query, str]) -> Check:
    """It fails where nothing at all is shown or a query is refused; what else shows nothing is a warning."""
    count = sum(query.dashboard == dashboard for query in wanted)
    without = {query: error for query, error in empty.items() if query.dashboard == dashboard}
    if not without:
        return check(QUERIES, dashboard, PASS, count, count, "queries")
    panels = {query.panel + (f" ({error})" if error else "") for query, error in without.items()}
    status = FAIL if any(without.values()) or len(without) == count else WARN
    return check(QUERIES, dashboard, status, count - len(without), count, "queries", "no series for " + names(panels))


def _query_error(prometheus: Prometheus, query: Query) -> str | None:
    """None where the query gives series, else Prometheus's error ('' for an empty result)."""
    try:
        return None if prometheus.query(query.text) else ""
    except NoAnswer as why:
        return one_line(str(why), 120)


def grafana(service: Service, monitor: str) -> list[Check]:
    """It answers, its database is well, and its password is the cluster's."""
    try:
        health = service.get("/api/health")
        database = str(health.get("database", "unknown"))
        if database == "ok":
            service.get("/api/search", limit="1")
    except NoAnswer as why:
        return [check(GRAFANA, monitor, FAIL, "no answer", "ok", message=str(why))]
    text = "" if database == "ok" else f"its database is {database}"
    version = f"version {health['version']}" if health.get("version") else ""
    return [check(GRAFANA, monitor, FAIL if text else PASS, database, "ok", message=text or version)]
