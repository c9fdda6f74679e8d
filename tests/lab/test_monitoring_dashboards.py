"""Every query of every dashboard is asked of a cluster's own Prometheus, after real jobs ran there.

What this cluster can't have is simulated: a GPU exporter's made-up text (replay.py), a mount, a
node that is off, an alert that fires.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.monitoring.replay import TEXTS
from tests.lab.harness import wait_until
from tests.lab.monitored import Asked, MonitoredCluster
from tests.support.opened_dashboards import empty_in

TARGETS = "/etc/prometheus/targets/deepops.yml"
RULE = "/etc/prometheus/rules/trial.yml"
TEXTFILE = "/var/lib/prometheus/node-exporter/trial.prom"
REPLAY, PORT = "/srv/replay", 9409
MOUNT = 'deepops_mount{name="home",path="/home",required="true"} 1'


def line(cluster: str, exporter: str, address: str, node: str) -> str:
    """A line more for the file of targets; the node has an exporter of its own by that name."""
    labels = {"__exporter": exporter, "cluster": cluster, "node": node, "instance": "trial", "__scheme__": "http"}
    return "- " + json.dumps({"targets": [address], "labels": labels}) + "\n"


@pytest.fixture
def busy(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """A job that runs on a GPU of a node that drains, one that waits for two; and what can't be had here."""
    cluster = monitored
    user, controller = cluster.user, "ctl1"
    replay = (TEXTS.parent / "replay.py").read_text(encoding="utf-8")
    text = (TEXTS / "dcgm.prom").read_text(encoding="utf-8")
    cluster.root("gpu01", f"mkdir -p {REPLAY}/texts && cat >{REPLAY}/replay.py <<'END'\n{replay}END")
    cluster.root("gpu01", f"cat >{REPLAY}/texts/dcgm.prom <<'END'\n{text}END\necho '{MOUNT}' >{TEXTFILE}")
    address = cluster.address("gpu01")
    serve = f"python3 {REPLAY}/replay.py dcgm --address {address} --port {PORT}"
    cluster.root("gpu01", f"systemd-run --quiet --unit=replay {serve}")
    name = cluster.wait_for("up")[0]["metric"]["cluster"]
    listed = line(name, "gpu", f"{address}:{PORT}", "gpu01") + line(name, "node", f"{address}:1", "gpu99")
    alert = json.dumps({"groups": [{"name": "trial", "rules": [{"alert": "Trial", "expr": "vector(1)"}]}]})
    cluster.root(controller, f"cp {TARGETS} {TARGETS}.kept; cat >>{TARGETS} <<'END'\n{listed}END")
    cluster.root(controller, f"echo '{alert}' >{RULE}; systemctl reload prometheus")
    try:
        user(controller, "sbatch -w gpu01 --gres=gpu:1 --mem=100M --wrap 'while :; do :; done'")
        wait_until(
            "the job runs", lambda: user(controller, "squeue -h -t R"), details=lambda: user(controller, "squeue")
        )
        user(controller, "sbatch -w gpu01 --gres=gpu:2 --mem=100M --wrap 'sleep infinity'")
        cluster.root(controller, "scontrol update nodename=gpu01 state=drain reason=trial")
        yield cluster
    finally:
        cluster.root(controller, "scancel -u ubuntu; scontrol update nodename=gpu01 state=resume")
        cluster.root(controller, f"mv {TARGETS}.kept {TARGETS}; rm {RULE}; systemctl reload prometheus")
        cluster.root("gpu01", f"systemctl stop replay; rm -r {REPLAY} {TEXTFILE}")
        cluster.wait_until_idle()


def test_every_panel_shows_something_after_real_jobs_ran(busy: MonitoredCluster) -> None:
    prometheus = Asked(busy)

    def left() -> list[str]:
        queries = [empty.asked for empty in empty_in(prometheus)]
        return [f"{asked.dashboard}: {asked.panel}: {asked.text}" for asked in queries]

    wait_until("every query gives series", lambda: not left(), details=lambda: "\n".join(left()))
