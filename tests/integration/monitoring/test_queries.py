"""A real Prometheus answers every query of every dashboard.

Node exporters are real; what they export besides the host is written manually (cluster/), GPUs are replayed. What real
jobs and real daemons export is tested in tests/lab.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deepopsctl.monitoring.queries import Asked, Needs, for_cluster
from tests.integration.monitoring import servers
from tests.integration.monitoring.promapi import Prometheus
from tests.integration.monitoring.replay import TEXTS
from tests.support.cluster import wait_until
from tests.support.opened_dashboards import empty_in
from tests.support.paths import ROOT
from tests.support.ports import free_port

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
WRITTEN = Path(__file__).with_name("cluster")
CLUSTER = "hpc-1"
ALERT = {"alert": "Trial", "expr": "vector(1)", "labels": {"severity": "info"}}


def target(node: str, port: int) -> dict[str, object]:
    labels = {"cluster": CLUSTER, "node": node, "instance": node}
    return {"targets": [f"127.0.0.1:{port}"], "labels": labels}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with a rate of everything that counts."""
    directory, own = tmp_path_factory.mktemp("prometheus"), free_port()
    made_up = (TEXTS / "dcgm.prom").read_text(encoding="utf-8")
    # a port where nothing listens: a node that is off
    nodes = [target("gpu02", free_port())]
    with ExitStack() as started:
        for written in sorted(WRITTEN.glob("*.prom")):
            texts = directory / "texts" / written.stem
            texts.mkdir(parents=True)
            shutil.copy(written, texts)
            nodes.append(target(written.stem, started.enter_context(servers.node_exporter(texts)).port))
        gpus = started.enter_context(servers.Page(lambda _path: (200, made_up)))
        login = {"basic_auth": {"username": servers.USER, "password": servers.PASSWORD}}
        jobs = [
            {"job_name": "node", "honor_labels": True, "static_configs": nodes},
            {"job_name": "gpu", "static_configs": [target("gpu01", gpus.port)]},
            {"job_name": "prometheus", "static_configs": [target("ctl1", own)], **login},
        ]
        often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        trial = {"groups": [{"name": "trial", "rules": [ALERT]}]}
        (directory / "trial.yml").write_text(json.dumps(trial))
        config = {"global": often, "scrape_configs": jobs, "rule_files": [f"{RULES}/*.yml", "trial.yml"]}
        server = started.enter_context(servers.prometheus(directory, config, own))
        api = Prometheus(server.url, servers.USER, servers.PASSWORD)
        wait_until("every query gives series", lambda: all_queries_have_series(api), details=lambda: str(empty(api)))
        yield api


def all_queries_have_series(prometheus: Prometheus) -> bool:
    try:
        return not empty_in(prometheus)
    except OSError:
        # it has only just been started
        return False


def empty(prometheus: Prometheus) -> list[str]:
    return described([query.asked for query in empty_in(prometheus)])


def described(asked: list[Asked]) -> list[str]:
    return [f"{one.dashboard}: {one.panel}: {one.text}" for one in asked]


def test_every_query_of_every_dashboard_gives_series(prometheus: Prometheus) -> None:
    assert empty(prometheus) == []


def test_every_query_of_a_live_cluster_gives_series(prometheus: Prometheus) -> None:
    asked = for_cluster(CLUSTER, set(Needs))

    assert described([one for one in asked if not prometheus.count(one.text)]) == []


def test_a_cluster_without_gpus_and_jobs_is_not_asked_for_theirs() -> None:
    few = for_cluster(CLUSTER, set())

    assert {asked.needs for asked in few} == {None}
    assert len(few) > 50
    assert not [asked.text for asked in few if "gpu:" in asked.text or "job:" in asked.text]
