"""The monitoring suite: checks that need no job, and checks that wait for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, NamedTuple

from ..._shared.checks import FAIL, PASS, Check, one_line
from ..._slurm_jobs.session import Session
from ..._slurm_jobs.snapshot import read_snapshot
from . import alerting, dashboards, jobs, rules, targets
from .alerting import Route
from .checks import check, place, skip
from .dashboards import Query
from .targets import Wanted
from .web import NoAnswer, Prometheus, Service

ANSWERS, CLOSED = "prometheus-answers", "web-closed"
# what is not tried where Prometheus does not answer; a report says so instead of being silent
NEEDS_PROMETHEUS = (
    targets.UP, targets.STORES, rules.RULES, targets.TEXTFILES, targets.CLOCK, jobs.JOB, jobs.SLURM, jobs.NODES,
    jobs.COUNT, alerting.KNOWN, alerting.FORWARDED, dashboards.QUERIES,
)  # fmt: skip
# asked of each service without the password
_INSIDE = {"prometheus": "/api/v1/targets", "alertmanager": "/api/v2/alerts", "grafana": "/api/search"}


class Inputs(NamedTuple):
    """What is expected of the cluster. `selected` are the nodes of this run, `compute` those of them that run jobs."""

    cluster: str
    monitor: str
    selected: Sequence[str]
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
    grafana: Service | None = None


def verify_monitoring(inputs: Inputs, services: Services, session: Session) -> list[Check]:
    """All checks; the session's jobs are gone at the end, also after a failure."""
    prometheus = Prometheus(services.prometheus)
    closed = [entry for name, url in _INSIDE.items() for entry in _closed(name, getattr(services, name), url)]
    grafana = dashboards.grafana(services.grafana, inputs.monitor) if services.grafana else []
    try:
        version = services.prometheus.get("/api/v1/status/buildinfo")["data"]["version"]
    except NoAnswer as why:
        lost = [check(ANSWERS, inputs.monitor, FAIL, "no answer", "an answer", message=str(why))]
        lost += [skip(name, inputs.cluster, "Prometheus does not answer") for name in NEEDS_PROMETHEUS]
        return lost + closed + grafana
    answers = check(ANSWERS, inputs.monitor, PASS, "an answer", "an answer", message=f"version {version}")
    parts = (
        (targets.UP, lambda: _scraped(inputs, prometheus)),
        (rules.RULES, lambda: rules.evaluate(prometheus, inputs.cluster, inputs.rules)),
        (alerting.ARRIVES, lambda: _alerts(inputs, services, prometheus, session.token)),
        (jobs.JOB, lambda: _jobs(inputs, prometheus, session)),
    )
    try:
        with ThreadPoolExecutor(len(parts)) as pool:
            results = list(pool.map(lambda part: _safely(part[0], inputs.cluster, part[1]), parts))
    finally:
        session.close()
    return [answers, *closed, *(entry for part in results for entry in part), *grafana]


def _safely(name: str, target: str, part: Callable[[], list[Check]]) -> list[Check]:
    """One part's trouble is not another's."""
    try:
        return part()
    except NoAnswer as why:
        return [check(name, target, FAIL, "no answer", "an answer", message=str(why))]
    except Exception as error:  # noqa: BLE001 (reported with the other parts' checks)
        return [check(name, target, FAIL, "an error", "", message=one_line(repr(error)))]


def _closed(name: str, service: Service | None, url: str) -> list[Check]:
    """The service refuses requests without the password."""
    if service is None:
        return []
    try:
        code = service.without_password().http_status(url)
    except NoAnswer:
        # another check reports that it does not answer
        return []
    shut = code in (401, 403)
    text = "" if shut else f"{service.url} answers without a password"
    return [check(CLOSED, name, PASS if shut else FAIL, f"HTTP {code}", "HTTP 401", message=text)]


def _scraped(inputs: Inputs, prometheus: Prometheus) -> list[Check]:
    checks = targets.evaluate(prometheus, inputs.cluster, inputs.wanted, inputs.selected)
    up = {entry["target"] for entry in checks if entry["name"] == targets.UP and entry["status"] != FAIL}
    nodes = [node for node in inputs.selected if place(node, "node") in up]
    return [
        targets.stores(prometheus, inputs.monitor),
        *checks,
        *targets.textfiles(prometheus, inputs.textfiles, nodes),
        *targets.clocks(prometheus, nodes, inputs.monitor),
    ]


def _alerts(inputs: Inputs, services: Services, prometheus: Prometheus, token: str) -> list[Check]:
    return alerting.evaluate(prometheus, services.alertmanager, inputs.route, inputs.monitor, inputs.cluster, token)


def _jobs(inputs: Inputs, prometheus: Prometheus, session: Session) -> list[Check]:
    """A job on every node; while they run, Slurm's figures and the dashboards' are compared and asked for."""
    snapshot = read_snapshot()
    measured = snapshot.config.get("ProctrackType") == "proctrack/cgroup"
    trial = jobs.Trial(prometheus, session, inputs.cluster, inputs.compute, inputs.patience, measured)
    if not snapshot.answered:
        silent = [check(jobs.JOB, inputs.cluster, FAIL, "no job", "a job", message=snapshot.silence)]
        silent += [skip(name, inputs.cluster, "slurmctld does not answer") for name in (jobs.NODES, jobs.COUNT)]
        return silent + dashboards.evaluate(
            prometheus, [query for query in inputs.queries if not query.job], inputs.patience
        )
    held, checks = jobs.hold(trial, snapshot)
    try:
        if held:
            with ThreadPoolExecutor(len(held)) as pool:
                for job_checks in pool.map(lambda job: jobs.in_prometheus(trial, job), held):
                    checks += job_checks
        checks += jobs.compare_with_slurm(trial)
        # most of what needs a job is about what it uses
        runs = measured and any(entry["name"] == jobs.JOB and entry["status"] == PASS for entry in checks)
        checks += dashboards.evaluate(
            prometheus, [query for query in inputs.queries if runs or not query.job], inputs.patience
        )
    finally:
        for job in held:
            job.running.release()
        for job in held:
            job.running.ended(10)
    return checks
