"""Slurm 26.05's own metrics: a real slurmctld of Debian sid exports them, and our Prometheus scrapes them there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml

from deepopsctl.monitoring.queries import dashboards
from deepopsctl.slurm.native_metrics import PAGES
from tests.lab.harness import PREFIX, SETTINGS, edit, wait_until
from tests.lab.monitored import Asked, MonitoredCluster, fresh_monitored
from tests.lab.smoke import validate
from tests.support.opened_dashboards import as_opened
from tests.support.paths import ROOT

OURS = "/var/lib/prometheus/node-exporter/slurmmetrics.prom"
SWITCH = "monitoring_slurm_native: true\n"
# its systemd refuses cgroup v1, and v2 alongside v1 has no controllers
UNCONFINED = "slurm_confinement: none\n"
RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
# as slurmctld and as the program call them
OF_SLURM = re.compile(r"\b(deepops_)?slurm_")
THRESHOLD = re.compile(r"\s*(==|>)\s*\d+$")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    """One node for everything."""
    name = f"{PREFIX}-native"
    with fresh_monitored(name, tmp_path_factory, "--single", settings=SWITCH + UNCONFINED, os="sid") as monitored:
        monitored.deploy()
        yield monitored


@pytest.fixture
def busy(cluster: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """A job runs on one of two GPUs, another waits for both, and the node drains."""
    job = cluster.submit("sleep infinity", "--gres=gpu:a100:1", "--mem=10M")
    cluster.wait_for_job(job, "RUNNING")
    cluster.submit("sleep infinity", "--gres=gpu:a100:2", "--mem=10M")
    cluster.root("ctl1", "scontrol update nodename=ctl1 state=drain reason=trial")
    yield cluster
    cluster.root("ctl1", "scancel -u ubuntu; scontrol update nodename=ctl1 state=resume")


def scraped(cluster: MonitoredCluster) -> dict[str, tuple[str, str, str]]:
    """What Prometheus' page of targets has of slurmctld: by page the address, the state and the last error."""
    targets = cluster.ask("/api/v1/targets", state="active")["data"]["activeTargets"]
    return {
        target["labels"]["page"]: (target["scrapeUrl"], target["health"], target["lastError"])
        for target in targets
        if target["scrapePool"] == "slurm"
    }


def rules_of_slurm() -> dict[str, str]:
    """The queries of alerts and recorded series that use Slurm's own metrics, by name; alerts without thresholds."""
    groups = [group for path in RULES.glob("*.yml") for group in yaml.safe_load(path.read_text("utf-8"))["groups"]]
    rules = {rule.get("alert") or rule["record"]: rule["expr"] for group in groups for rule in group["rules"]}
    return {name: THRESHOLD.sub("", expr) for name, expr in rules.items() if re.search(r"\bslurm_", expr)}


def test_every_page_of_slurmctld_is_scraped(cluster: MonitoredCluster) -> None:
    wanted = {page: (f"http://{cluster.address('ctl1')}:6817/metrics/{page}", "up", "") for page in PAGES}

    wait_until("all pages are up", lambda: scraped(cluster) == wanted, details=lambda: str(scraped(cluster)))


def test_the_names_are_slurmctlds_own_and_come_once(busy: MonitoredCluster) -> None:
    for metric in (
        "slurm_jobs_running == 1",
        "slurm_jobs_pending == 1",
        'slurm_partition_jobs_running{partition="gpu"} == 1',
        'slurm_node_gpus_alloc{node="ctl1"} == 1',
    ):
        assert len(busy.wait_for(metric)) == 1, metric

    jobs = {sample["metric"]["job"] for sample in busy.query('{__name__=~"slurm_.+"}')}
    assert jobs == {"slurm"}
    text = busy.root("ctl1", f"cat {OURS}")
    assert "\ndeepops_slurm_up 1" in text
    assert "\nslurm_" not in text


def test_every_panel_and_rule_that_asks_for_slurms_figures_gets_series(busy: MonitoredCluster) -> None:
    prometheus = Asked(busy)
    rules = rules_of_slurm()
    assert "SchedulerStuck" in rules

    def left() -> list[str]:
        panels = [
            (f"{asked.dashboard}: {asked.panel}", asked.text)
            for dashboard in dashboards()
            for asked in as_opened(prometheus, dashboard)
            if OF_SLURM.search(asked.text)
        ]
        assert panels
        return [f"{name}: {text}" for name, text in [*panels, *rules.items()] if not prometheus.count(text)]

    wait_until("every query gives series", lambda: not left(), details=lambda: "\n".join(left()))


def test_the_cluster_passes_its_validation_and_a_second_deploy_changes_nothing(cluster: MonitoredCluster) -> None:
    cluster.wait_until_idle()
    cluster.wait_until_up()

    result = validate(cluster, suite="monitoring")

    assert result.failed() == set(), result.shown
    assert result.code == 0, result.shown
    assert {target for name, target in result.checks if name == "target-up"} >= {f"ctl1/slurm/{page}" for page in PAGES}
    assert cluster.deploy()["changes"] == []


def test_without_the_switch_the_program_exports_the_names_again(cluster: MonitoredCluster) -> None:
    edit(cluster.directory / SETTINGS, SWITCH, "")
    cluster.deploy()

    wait_until("no page is scraped", lambda: not scraped(cluster), details=lambda: str(scraped(cluster)))
    assert cluster.wait_for('slurm_jobs{job="node"}')
    assert "MetricsType" not in cluster.root("ctl1", "cat /etc/slurm/slurm.conf")
