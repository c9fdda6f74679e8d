"""`restore --only monitoring`: the history of Prometheus and the database of Grafana, back on the monitoring host.

Slurm does not wait for it: it may be large, and a controller is restored first. What the host has seen since stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.lifecycle.backup import MONITORING, snapshots
from deepopsctl.model.cluster import Node, Role
from deepopsctl.nodes.workflow import Flow, Operator, Report, StoppedError, require_success
from deepopsctl.run.request import RunRequest
from deepopsctl.text.answers import mapping, number, texts

PLAYBOOK = "operate/restore/restore-monitoring"


def restore_monitoring(directory: ClusterDir, snapshot: str, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; it can be repeated."""
    host = directory.cluster().with_role(Role.MONITORING)[0]
    flow = Flow(directory, base, operator, Report("restore", (host.name,)))
    with flow.reporting(), flow.lock():
        _restore(flow, host, snapshot)
    return flow.report


def _restore(flow: Flow, host: Node, snapshot: str) -> None:
    cluster = flow.directory.cluster()
    flow.survey(cluster, slurm=False)
    if MONITORING not in flow.deployed:
        raise StoppedError("monitoring is not deployed: nothing was changed", "`deepopsctl deploy` first")
    entry = _chosen(flow, snapshot)
    when = datetime.fromisoformat(str(entry["time"])[:19])
    flow.confirm(
        f"restore monitoring of {when:%F %H:%M} ({entry['id']}) on {host.name}? What Prometheus has stays, "
        "Grafana's database is set aside",
        cluster,
    )
    # what Prometheus scrapes follows from all nodes of a run
    names = [node.name for node in cluster.nodes]
    outcome = flow.run_playbooks(cluster, (PLAYBOOK, MONITORING), names, deepops_restore_snapshot=entry["id"])
    require_success(outcome, (host,), "not all was restored", "fix it, then run it again")
    done = next((result.data["restored"] for result in outcome.summary.results if "restored" in result.data), {})
    blocks = number(mapping(done).get("blocks"))
    flow.report.closing = (
        f"{host.name} has the history of {entry['id']} again: {blocks} blocks of Prometheus were missing"
    )


def _chosen(flow: Flow, asked: str) -> Mapping[str, object]:
    """The set asked for, else the newest one with monitoring's data."""
    for entry in snapshots(flow.directory, flow.base.login):
        if MONITORING in texts(entry.get("parts")) and asked[:8] in ("", entry["id"]):
            return entry
    which = f"snapshot {asked} with monitoring's data" if asked else "monitoring's data"
    raise StoppedError(f"the repository has no {which}: nothing was changed", "see `deepopsctl backup list`")
