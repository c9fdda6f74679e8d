"""Pages of a cluster with monitoring, where Slurm hides jobs: plots, idle GPUs, and what another user sees of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.lab.chromium import needs_chromium
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, wait_until
from tests.lab.web import deploy_pages, logged_in

pytestmark = needs_chromium
HOST, NODE = "ctl1", "gpu01"
IDLE_MINUTES = 2
WANTED = f"""\
web_grafana_url: https://grafana.example.com/
monitoring_logs: false
job_mail_idle_gpu_minutes: {IDLE_MINUTES}
slurm_config: {{PrivateData: "jobs,usage"}}
slurm_dbd_config: {{PrivateData: "jobs,usage"}}
"""
# what an exporter of GPUs says: of one they do nothing, the other computes
FIGURES = "/var/lib/prometheus/node-exporter/simulated-gpus.prom"
GPUS = "".join(
    f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}",modelName="A100",GPU_I_ID=""}} {value}\n'
    for gpu, use in ((0, 0), (1, 0))
    for name, value in (("DCGM_FI_DEV_GPU_UTIL", use), ("DCGM_FI_DEV_FB_USED", 500), ("DCGM_FI_DEV_FB_FREE", 79500))
)
NOTIFIED = "/var/lib/deepops-idle-gpus/notified.json"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller that has the pages and monitoring, a node with GPUs, two users of one account."""
    options = ("--compute", "1", "--gpus", "a100:2", "--monitoring")
    with fresh_cluster(f"{PREFIX}-webmon", tmp_path_factory, *options) as made:
        deploy_pages(made, "monitoring", settings=WANTED)
        yield made


@pytest.fixture(scope="module")
def job(cluster: LabCluster) -> Iterator[str]:
    """A job of alice's that has both GPUs and uses one core, and no GPU."""
    cluster.root(NODE, f"printf %s '{GPUS}' > {FIGURES}; chmod 644 {FIGURES}")
    command = 'timeout 900 sh -c "while :; do :; done"'
    script = f"sbatch --parsable --gpus=2 --time=20 --chdir=/tmp --output=/dev/null --wrap='{command}'"
    number = cluster.root(HOST, f"su - alice -s /bin/sh <<'END'\n{script}\nEND").split()[-1]
    wait_until("it runs", lambda: state_of(cluster, number) == "RUNNING")
    yield number
    cluster.root(HOST, f"scancel {number}")


def state_of(cluster: LabCluster, number: str) -> str:
    return cluster.root(HOST, f"squeue -h -j {number} -o %T", ok=False)


def test_the_page_of_a_job_has_its_use_over_time(cluster: LabCluster, browser: Browser, job: str) -> None:
    with logged_in(cluster, browser, "alice") as page:

        def drawn() -> set[str]:
            page.goto(f"/hub/jobs/{job}")
            return {each.get_attribute("aria-label") or "" for each in page.locator(".plot svg").all()}

        wait_until("four plots", lambda: len(drawn()) == 4, 240, details=lambda: page.inner_text("main"))
        idle = "Cores over time: 0 cores on average"
        wait_until("its core is busy", lambda: not any(text.startswith(idle) for text in drawn()), 120)
        assert any(text.startswith("GPUs over time: 0 GPUs on average") for text in drawn())
        link = page.get_by_role("link", name=f"Job {job} in Grafana").get_attribute("href")
        assert link is not None
        assert link.startswith(f"https://grafana.example.com/d/deepops-jobs?var-jobid={job}&")


def test_the_owner_of_idle_gpus_is_told_once(cluster: LabCluster, browser: Browser, job: str) -> None:
    def notified() -> list[str]:
        # systemd starts a unit five times in ten seconds, unless it is told to forget them
        cluster.root(HOST, "systemctl reset-failed deepops-idle-gpus; systemctl start deepops-idle-gpus.service")
        return list(json.loads(cluster.root(HOST, f"cat {NOTIFIED} 2>/dev/null || echo '{{}}'")))

    wait_until("alice is told", lambda: job in notified(), 300)
    assert notified() == [job]
    log = cluster.root(HOST, "journalctl -u deepops-idle-gpus -o cat --no-pager")
    assert log.count("1 owners of idle GPUs notified") == 1
    with logged_in(cluster, browser, "alice") as page:
        page.goto(f"/hub/jobs/{job}")
        assert f"done nothing for {IDLE_MINUTES} minutes" in page.inner_text("[role=status]")


def test_another_user_sees_nothing_of_a_job_that_slurm_hides(cluster: LabCluster, browser: Browser, job: str) -> None:
    assert cluster.root(HOST, "su - mallory -c 'squeue -h'") == ""
    with logged_in(cluster, browser, "mallory") as page:
        for path in ("jobs", "jobs?account=def-lab_gpu", f"jobs/{job}", "usage?users=1", "cluster"):
            page.goto(f"/hub/{path}")
            assert "alice" not in page.inner_text("main"), path
            assert page.locator(".plot").count() == 0, path
        page.goto(f"/hub/jobs/{job}")
        assert page.locator("[role=alert]").count() == 1
    # nor by what the page's program has
    refused = cluster.root(HOST, "su - mallory -c 'cat /etc/deepopsctl/web/monitoring.json'", ok=False)
    assert "Permission denied" in refused


def test_prometheus_that_is_down_leaves_the_sums(cluster: LabCluster, browser: Browser, job: str) -> None:
    cluster.root(HOST, "systemctl stop prometheus")
    try:
        with logged_in(cluster, browser, "alice") as page:
            page.goto(f"/hub/jobs/{job}")
            assert "Monitoring gives no answer now" in page.inner_text("main")
            assert page.locator(".bar").count() >= 1
    finally:
        cluster.root(HOST, "systemctl start prometheus")
