#!/usr/bin/python
"""Prove on the monitoring host that monitoring sees the cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_check
short_description: Run the monitoring suite on the monitoring host
description:
  - Runs as the connecting user. It asks Prometheus, Alertmanager and Grafana over HTTP, and Slurm by its client tools;
    one small job on every compute node that has room is held until it is seen in the metrics.
  - An alert is sent to Alertmanager and ended again; its label goes to a receiver without any address. Nothing is sent
    where Alertmanager has no such route.
  - The module does not fail because a check fails; the checks say so themselves.
options:
  enabled: {description: Whether there is monitoring at all., type: bool, default: true}
  cluster: {description: The cluster's name., type: str, required: true}
  monitor: {description: This machine's name in the inventory., type: str, required: true}
  judged: {description: The nodes to judge., type: list, elements: str, required: true}
  compute: {description: Those of them that run jobs., type: list, elements: str, required: true}
  expected:
    description: >-
      What should be found, as the filter C(monitoring_expected) makes it: where Prometheus and Alertmanager answer and
      who logs in, C(targets), C(rules), C(textfiles), C(queries), and the route of alerts that are for nobody.
    type: dict
    default: {}
  grafana: {description: Where Grafana answers; empty where there is none., type: str, default: ""}
  password: {description: The password of Prometheus and Alertmanager., type: str, default: ""}
  grafana_user: {description: Who logs in to Grafana., type: str, default: admin}
  grafana_password: {description: Grafana's password., type: str, default: ""}
  ca: {description: Certificates that may vouch for them; the machine's own where empty., type: path, default: ""}
  patience:
    description: Seconds that a job, a figure of Slurm's or a query may take to be seen.
    type: float
    default: 90
  queue_timeout: {description: Seconds a job may wait for resources., type: int, default: 20}
  reservation: {description: A reservation for all jobs; empty for none., type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Run the monitoring suite
  deepopsctl.cluster.monitoring_check:
    cluster: hpc
    monitor: ctl1
    judged: [ctl1, gpu01]
    compute: [gpu01]
    expected: "{{ deepops_monitoring_cluster | deepopsctl.cluster.monitoring_expected(groups, rules_folder) }}"
    password: "{{ monitoring_web_password }}"
"""

RETURN = r"""
deepops: {description: The checks., type: dict, returned: always}
elapsed_s: {description: Seconds the suite took., type: float, returned: always}
"""

import getpass
import os
from typing import Any, Dict

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_gpu import hangup
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_monitoring import (
    alerting,
    checks,
    dashboards,
    suite,
    targets,
    web,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import session, suite_module

SPEC = {
    "enabled": {"type": "bool", "default": True},
    "cluster": {"type": "str", "required": True},
    "monitor": {"type": "str", "required": True},
    "judged": {"type": "list", "elements": "str", "required": True},
    "compute": {"type": "list", "elements": "str", "required": True},
    "expected": {"type": "dict", "default": {}},
    "grafana": {"type": "str", "default": ""},
    "password": {"type": "str", "default": "", "no_log": True},
    "grafana_user": {"type": "str", "default": "admin"},
    "grafana_password": {"type": "str", "default": "", "no_log": True},
    "ca": {"type": "path", "default": ""},
    "patience": {"type": "float", "default": 90},
}
# how long the jobs may be held: longer than anything of the suite takes (seconds; Slurm's limit is in minutes)
HELD_S, HELD_MINUTES = 540, 9


def inputs_of(params: Dict[str, Any]) -> suite.Inputs:
    """What the suite is about."""
    expected = params["expected"]
    route = expected["route"]
    return suite.Inputs(
        cluster=params["cluster"],
        monitor=params["monitor"],
        judged=params["judged"],
        compute=params["compute"],
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
        patience=params["patience"],
    )


def services_of(params: Dict[str, Any]) -> suite.Services:
    """Where they are, and how to get in."""
    expected, ca = params["expected"], params["ca"]

    def service(name: str) -> web.Service:
        return web.Service(expected[name], expected["user"], params["password"], ca)

    grafana = web.Service(params["grafana"].rstrip("/"), params["grafana_user"], params["grafana_password"], ca)
    return suite.Services(service("prometheus"), service("alertmanager"), grafana if params["grafana"] else None)


def run_checks(params: Dict[str, Any]) -> Dict[str, Any]:
    """The whole suite; one check says so where there is no monitoring."""
    if not params["enabled"]:
        text = "monitoring_enabled is false: nothing to test"
        return {"checks": [checks.skip("monitoring-enabled", params["cluster"], text)]}
    jobs = session.Session(
        os.urandom(3).hex(), getpass.getuser(), params["queue_timeout"], HELD_S, checks.SUITE, HELD_MINUTES
    )
    hangup.watch(jobs.close)
    return {"checks": suite.run(inputs_of(params), services_of(params), jobs)}


def main() -> None:
    suite_module.run_suite_module(SPEC, run_checks)


if __name__ == "__main__":
    main()
