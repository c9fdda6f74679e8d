"""What dashboards ask, asked of Prometheus; and Grafana itself, where it is enabled."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Sequence

from .telling import FAIL, PASS, WARN, Verdict, check, names, one_line, until
from .web import Prometheus, Service, Silent

QUERIES, GRAFANA = "dashboard-queries", "grafana-healthy"


class Query(NamedTuple):
    """One query of a panel, its variables filled in; `job` where there has to be a job for it to show something."""

    dashboard: str
    panel: str
    text: str
    job: bool = False


def judge(prometheus: Prometheus, wanted: Sequence[Query], patience: float) -> List[Verdict]:
    """A check for each dashboard: every query of its panels gives series; recording rules follow the first scrapes."""
    empty: Dict[Query, str] = dict.fromkeys(wanted, "")

    def look() -> Dict[Query, str]:
        # those that gave something are not asked again
        for query, said in [(query, _asked(prometheus, query)) for query in list(empty)]:
            if said is None:
                del empty[query]
            else:
                empty[query] = said
        return empty

    until(patience, look, lambda left: not left, 5.0)
    return [_one(name, wanted, empty) for name in dict.fromkeys(query.dashboard for query in wanted)]


def _one(dashboard: str, wanted: Sequence[Query], empty: Mapping[Query, str]) -> Verdict:
    """It fails where nothing at all is shown or a query is refused; what else shows nothing is a warning."""
    count = sum(query.dashboard == dashboard for query in wanted)
    without = {query: said for query, said in empty.items() if query.dashboard == dashboard}
    if not without:
        return check(QUERIES, dashboard, PASS, count, count, "queries")
    panels = {query.panel + (" ({})".format(said) if said else "") for query, said in without.items()}
    status = FAIL if any(without.values()) or len(without) == count else WARN
    return check(QUERIES, dashboard, status, count - len(without), count, "queries", "no series for " + names(panels))


def _asked(prometheus: Prometheus, query: Query) -> "str | None":
    """None where it gives series, else what Prometheus says about it."""
    try:
        return None if prometheus.query(query.text) else ""
    except Silent as why:
        return one_line(str(why), 120)


def grafana(service: Service, monitor: str) -> List[Verdict]:
    """It answers, its database is well, and its password is the cluster's."""
    try:
        health = service.get("/api/health")
        database = str(health.get("database", "unknown"))
        if database == "ok":
            service.get("/api/search", limit="1")
    except Silent as why:
        return [check(GRAFANA, monitor, FAIL, "no answer", "ok", message=str(why))]
    text = "" if database == "ok" else "its database is {}".format(database)
    version = "version {}".format(health["version"]) if health.get("version") else ""
    return [check(GRAFANA, monitor, FAIL if text else PASS, database, "ok", message=text or version)]
