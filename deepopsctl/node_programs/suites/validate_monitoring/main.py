"""What `node_program` starts on the monitoring host: `suite` as a user, `logs` as root, `scraped` after a deploy."""

from __future__ import annotations

import os
from typing import Any

from ..._shared import hangup
from ..._slurm_jobs import suite as suite_of_jobs
from . import alerting, checks, dashboards, logs, suite, targets, web

Request = dict[str, Any]
Result = dict[str, Any]
# how long the jobs may be held: longer than anything of the suite takes (seconds; Slurm's limit is in minutes)
HELD_S, HELD_MINUTES = 540, 9
MOST_NAMED = 10
# there while a deploy leaves Grafana out (plugins/module_utils/node/record.py)
GRAFANA_LEFT_OUT = "/var/lib/deepopsctl/left-out/monitoring.grafana_source.json"


def main(request: Request) -> Result:
    """One phase."""
    if request["phase"] == "suite":
        return suite_of_jobs.run_trials(request, trials)
    return {"logs": query_logs, "scraped": verify_scraped}[request["phase"]](request)


def trials(request: Request) -> Result:
    """Ask Prometheus, Alertmanager and Grafana over HTTP, and Slurm by its commands.

    One small job on every compute node that has room is held until it is seen in the metrics. An alert is sent to
    Alertmanager and ended again; its label goes to a receiver without any address, and nothing is sent where there is
    no such route. `expected` is what the filter monitoring_expected makes of the inventory.
    """
    if not request["enabled"]:
        text = "monitoring_enabled is false: nothing to test"
        return {"checks": [checks.skip("monitoring-enabled", request["cluster"], text)]}
    session = suite_of_jobs.session(request, checks.SUITE, HELD_S, HELD_MINUTES)

    def finish() -> None:
        session.close()

    hangup.watch(finish)
    skipped = []
    if request["grafana"] and os.path.exists(GRAFANA_LEFT_OUT):
        wanted = [target for target in request["expected"]["targets"] if target["job"] != "grafana"]
        request = dict(request, grafana="", expected=dict(request["expected"], targets=wanted))
        text = "the last deploy left it out: `deepopsctl status` says why"
        skipped = [checks.skip(dashboards.GRAFANA, request["monitor"], text)]
    return {"checks": suite.verify_monitoring(_inputs(request), _services(request), session) + skipped}


def query_logs(request: Request) -> Result:
    """Wait until the line that each node has logged has arrived, at most `timeout` seconds."""
    if request["check_mode"]:
        return {"deepops": {"checks": []}}
    log_checks = logs.evaluate(request["directory"], request["line"], request["selected"], float(request["timeout"]))
    return {"deepops": {"checks": log_checks}}


def verify_scraped(request: Request) -> Result:
    """Fail with what Prometheus can't scrape; waits for what it has not asked yet, or not since a restart.

    `plan` is what the filter monitoring_scraped_plan makes: where Prometheus answers, and the targets that are there.
    """
    plan = request["plan"]
    wanted = [targets.Wanted(**target) for target in plan["targets"]]
    if request["check_mode"]:
        return {"targets": len(wanted)}
    prometheus = web.Prometheus(web.Service(plan["prometheus"], plan["user"], request["password"]))
    try:
        problems = targets.problems(prometheus, wanted)
    except web.NoAnswer as why:
        return {
            "failed": True,
            "msg": f"Prometheus at {plan['prometheus']} does not answer: {why}",
            "hint": "see `journalctl -u prometheus` on this node",
        }
    if problems:
        more = len(problems) - MOST_NAMED
        shown = problems[:MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])
        return {
            "failed": True,
            "msg": f"Prometheus cannot scrape: {'; '.join(shown)}",
            "hint": "see the exporter's unit on the node, and a firewall between it and this node",
        }
    return {"targets": len(wanted)}


def _inputs(request: Request) -> suite.Inputs:
    expected = request["expected"]
    route = expected["route"]
    return suite.Inputs(
        cluster=request["cluster"],
        monitor=request["monitor"],
        selected=request["selected"],
        compute=request["compute"],
        wanted=[targets.Wanted(**target) for target in expected["targets"]],
        rules={name: int(count) for name, count in expected["rules"].items()},
        textfiles={
            node: {name: float(age) for name, age in ages.items()} for node, ages in expected["textfiles"].items()
        },
        queries=[
            dashboards.Query(entry["dashboard"], entry["panel"], entry["text"], bool(entry["job"]))
            for entry in expected["queries"]
        ],
        route=alerting.Route(route["label"], route["value"], route["receiver"]),
        patience=float(request["patience"]),
    )


def _services(request: Request) -> suite.Services:
    """Where they are, and how to get in."""
    expected = request["expected"]

    def service(name: str) -> web.Service:
        return web.Service(expected[name], expected["user"], request["password"])

    grafana = web.Service(request["grafana"].rstrip("/"), "admin", request["grafana_password"])
    return suite.Services(service("prometheus"), service("alertmanager"), grafana if request["grafana"] else None)
