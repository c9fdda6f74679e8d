"""The monitoring suite: what can be judged at once, and what has to wait for a job to be seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import picture
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.session import Session

from . import alerting, dashboards, jobs, ruled, scraped
from .alerting import Route
from .dashboards import Query
from .scraped import Wanted
from .telling import FAIL, PASS, Verdict, check, one_line, skip
from .web import Prometheus, Service, Silent

ANSWERS, CLOSED = "prometheus-answers", "web-closed"
# what is not tried where Prometheus does not answer; a report says so instead of being silent
NEEDS_PROMETHEUS = (
    scraped.UP, scraped.STORES, ruled.RULES, scraped.TEXTFILES, scraped.CLOCK, jobs.JOB, jobs.SLURM, jobs.NODES,
    jobs.COUNT, alerting.KNOWN, alerting.FORWARDED, dashboards.QUERIES,
)  # fmt: skip
# asked of each service without the password
_INSIDE = {"prometheus": "/api/v1/targets", "alertmanager": "/api/v2/alerts", "grafana": "/api/search"}


class Inputs(NamedTuple):
    """What the cluster should look like. `judged` are the nodes of this run, `compute` those of them that run jobs."""

    cluster: str
    monitor: str
    judged: Sequence[str]
    compute: Sequence[str]
    wanted: Sequence[Wanted]
    # rules by file; oldest age in seconds by node and file
    rules: Mapping[str, int]
    textfiles: Mapping[str, Mapping[str, float]]
    queries: Sequence[Query]
    route: Route
    # what a job, a figure of Slurm's or a query may take to be seen (seconds)
    patience: float = 90.0


class Services(NamedTuple):
    """Where they answer; Grafana only where it is enabled."""

    prometheus: Service
    alertmanager: Service
    grafana: Optional[Service] = None


def run(inputs: Inputs, services: Services, session: Session) -> List[Verdict]:
    """All checks; the session's jobs are gone at the end, also after a failure."""
    prometheus = Prometheus(services.prometheus)
    closed = [verdict for name, url in _INSIDE.items() for verdict in _closed(name, getattr(services, name), url)]
    grafana = dashboards.grafana(services.grafana, inputs.monitor) if services.grafana else []
    try:
        version = services.prometheus.get("/api/v1/status/buildinfo")["data"]["version"]
    except Silent as why:
        lost = [check(ANSWERS, inputs.monitor, FAIL, "no answer", "an answer", message=str(why))]
        lost += [skip(name, inputs.cluster, "Prometheus does not answer") for name in NEEDS_PROMETHEUS]
        return lost + closed + grafana
    answers = check(ANSWERS, inputs.monitor, PASS, "an answer", "an answer", message="version {}".format(version))
    parts = (
        (scraped.UP, lambda: _scraped(inputs, prometheus)),
        (ruled.RULES, lambda: ruled.judge(prometheus, inputs.cluster, inputs.rules)),
        (alerting.ARRIVES, lambda: _alerts(inputs, services, prometheus, session.token)),
        (jobs.JOB, lambda: _jobs(inputs, prometheus, session)),
    )
    try:
        with ThreadPoolExecutor(len(parts)) as pool:
            found = list(pool.map(lambda part: _safely(part[0], inputs.cluster, part[1]), parts))
    finally:
        session.close()
    return [answers, *closed, *(verdict for part in found for verdict in part), *grafana]


def _safely(name: str, target: str, part: Callable[[], List[Verdict]]) -> List[Verdict]:
    """One part's trouble is no other's."""
    try:
        return part()
    except Silent as why:
        return [check(name, target, FAIL, "no answer", "an answer", message=str(why))]
    except Exception as error:  # noqa: BLE001 (told, with all that others have found)
        return [check(name, target, FAIL, "an error", "", message=one_line(repr(error)))]


def _closed(name: str, service: Optional[Service], url: str) -> List[Verdict]:
    """Nobody gets in without the password."""
    if service is None:
        return []
    try:
        code = service.stranger().refuses(url)
    except Silent:
        # that it does not answer is told once
        return []
    shut = code in (401, 403)
    text = "" if shut else "{} answers without a password".format(service.url)
    return [check(CLOSED, name, PASS if shut else FAIL, "HTTP {}".format(code), "HTTP 401", message=text)]


def _scraped(inputs: Inputs, prometheus: Prometheus) -> List[Verdict]:
    checks = scraped.judge(prometheus, inputs.cluster, inputs.wanted, inputs.judged)
    up = {found["target"] for found in checks if found["name"] == scraped.UP and found["status"] != FAIL}
    nodes = [node for node in inputs.judged if scraped.place(node, "node") in up]
    return [
        scraped.stores(prometheus, inputs.monitor),
        *checks,
        *scraped.textfiles(prometheus, inputs.textfiles, nodes),
        *scraped.clocks(prometheus, nodes, inputs.monitor),
    ]


def _alerts(inputs: Inputs, services: Services, prometheus: Prometheus, token: str) -> List[Verdict]:
    return alerting.judge(prometheus, services.alertmanager, inputs.route, inputs.monitor, inputs.cluster, token)


def _jobs(inputs: Inputs, prometheus: Prometheus, session: Session) -> List[Verdict]:
    """A job on every node; while they run, Slurm's figures and the dashboards' are compared and asked for."""
    seen = picture.take()
    measured = seen.config.get("ProctrackType") == "proctrack/cgroup"
    trial = jobs.Trial(prometheus, session, inputs.cluster, inputs.compute, inputs.patience, measured)
    if not seen.answered:
        silent = [check(jobs.JOB, inputs.cluster, FAIL, "no job", "a job", message=seen.silence)]
        silent += [skip(name, inputs.cluster, "slurmctld does not answer") for name in (jobs.NODES, jobs.COUNT)]
        return silent + dashboards.judge(
            prometheus, [query for query in inputs.queries if not query.job], inputs.patience
        )
    held, checks = jobs.hold(trial, seen)
    try:
        if held:
            with ThreadPoolExecutor(len(held)) as pool:
                checks += [found for found in pool.map(lambda job: jobs.shown(trial, job), held) for found in found]
        checks += jobs.agree(trial)
        # most of what needs a job is about what it uses
        runs = measured and any(found["name"] == jobs.JOB and found["status"] == PASS for found in checks)
        checks += dashboards.judge(
            prometheus, [query for query in inputs.queries if runs or not query.job], inputs.patience
        )
    finally:
        for job in held:
            job.running.release()
        for job in held:
            job.running.ended(10)
    return checks
