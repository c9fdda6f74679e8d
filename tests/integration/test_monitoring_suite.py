"""The monitoring suite's questions to a real Prometheus and Alertmanager, about exporters in nodes' place."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.validate_monitoring import alerting, dashboards, rules, suite, targets, web
from tests.integration.monitoring import servers
from tests.support.cluster import wait_until
from tests.support.ports import free_port

AWAY_S = 90.0
ROUTE = alerting.Route("severity", "none", "nobody")
RULES = """
groups:
  - name: good
    rules:
      - {record: "node:time:seconds", expr: node_time_seconds}
      - {alert: Always, expr: "vector(1)", labels: {severity: warning}}
"""
# two series on each side of a division that has to pair them
BROKEN = """
groups:
  - name: broken
    rules:
      - {record: never, expr: "node_time_seconds / on (job) node_time_seconds"}
"""


@dataclass(frozen=True)
class Monitored:
    """The servers, and where the exporters answer."""

    prometheus: Any
    alertmanager: Any
    exporters: dict[str, str]
    texts: Path
    called: servers.Page
    server: servers.Server

    def wanted(self, *nodes: str) -> list[Any]:
        return [targets.Wanted(node, "node", self.exporters[node]) for node in nodes]


def service(server: servers.Server | servers.Page) -> Any:
    return web.Service(server.url, servers.USER, servers.PASSWORD)


def routed(hook: str, *routes: dict[str, Any]) -> dict[str, Any]:
    """Alertmanager's configuration: everything to a webhook at once, but for these routes."""
    return {
        "route": {"receiver": "people", "group_wait": "0s", "group_interval": "1s", "routes": list(routes)},
        "receivers": [{"name": "people", "webhook_configs": [{"url": hook}]}, {"name": "nobody"}],
    }


TO_NOBODY = {"receiver": "nobody", "matchers": ['severity="none"']}


def away(_path: str) -> tuple[int, str]:
    """A node exporter on a node whose clock is 90 s ahead."""
    return 200, f"node_time_seconds {time.time() + AWAY_S}\n"


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """n1 is a real node exporter, n2 has a clock of its own, n3 is not started; n4 is in no cluster.yml."""
    directories = {name: tmp_path_factory.mktemp(name) for name in ("prometheus", "alertmanager", "texts")}
    rules = directories["prometheus"] / "rules"
    rules.mkdir()
    (rules / "good.yml").write_text(RULES)
    (rules / "broken.yml").write_text(BROKEN)
    (directories["texts"] / "jobs.prom").write_text("jobs_seen 1\n")
    with ExitStack() as started:
        called = started.enter_context(servers.Page(lambda _path: (200, "")))
        n1 = started.enter_context(servers.node_exporter(directories["texts"], "time", "textfile"))
        n2 = started.enter_context(servers.Page(away))
        n4 = started.enter_context(servers.Page(away))
        exporters = {
            "n1": n1.address,
            "n2": n2.address,
            "n3": f"127.0.0.1:{free_port()}",
            "n4": n4.address,
        }
        alertmanager = started.enter_context(
            servers.alertmanager(directories["alertmanager"], routed(called.url, TO_NOBODY))
        )
        login = {"username": servers.USER, "password": servers.PASSWORD}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{rules}/*.yml"],
            "scrape_configs": [
                {
                    "job_name": "node",
                    "static_configs": [
                        {"targets": [address], "labels": {"node": node}} for node, address in exporters.items()
                    ],
                }
            ],
            "alerting": {
                "alertmanagers": [{"basic_auth": login, "static_configs": [{"targets": [alertmanager.address]}]}]
            },
        }
        prometheus = started.enter_context(servers.prometheus(directories["prometheus"], config))
        yield Monitored(
            web.Prometheus(service(prometheus)),
            service(alertmanager),
            exporters,
            directories["texts"],
            called,
            prometheus,
        )


def by_name(checks: list[dict[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    return {(check["name"], check["target"]): check for check in checks}


class TestTargets:
    def evaluated(self, monitored: Monitored, *nodes: str) -> dict[tuple[str, str], dict[str, str]]:
        return by_name(targets.evaluate(monitored.prometheus, "hpc", monitored.wanted(*nodes), nodes))

    def test_a_node_whose_exporter_does_not_answer_is_named_with_its_address(self, monitored: Monitored) -> None:
        checks = self.evaluated(monitored, "n1", "n3")

        assert checks["target-up", "n1/node"]["status"] == "pass"
        assert checks["target-up", "n3/node"]["measured"] == "down"
        assert monitored.exporters["n3"] in checks["target-up", "n3/node"]["message"]

    @pytest.mark.parametrize(
        ("node", "address", "measured"),
        [("n9", "192.0.2.9:9100", "not listed"), ("n1", "192.0.2.1:9100", "elsewhere")],
    )
    def test_a_node_that_is_missing_from_prometheus_targets_or_scraped_elsewhere_is_named(
        self, monitored: Monitored, monkeypatch: pytest.MonkeyPatch, node: str, address: str, measured: str
    ) -> None:
        monkeypatch.setattr(targets, "_FIRST_S", 1.0)
        wanted = [targets.Wanted(node, "node", address)]
        check = by_name(targets.evaluate(monitored.prometheus, "hpc", wanted, (node,)))["target-up", f"{node}/node"]

        assert check["measured"] == measured
        assert address in check["message"]

    def test_one_that_nobody_expects_is_reported(self, monitored: Monitored) -> None:
        checks = self.evaluated(monitored, "n1", "n2", "n3")

        assert checks["targets-unexpected", "hpc"]["status"] == "warn"
        assert checks["targets-unexpected", "hpc"]["message"] == "not in cluster.yml: n4/node"
        assert self.evaluated(monitored, *monitored.exporters)["targets-unexpected", "hpc"]["status"] == "pass"

    def test_one_that_was_not_scraped_for_long_is_stale(self) -> None:
        target = targets.Wanted("n1", "node", "127.0.0.1:9100")
        seen = {"health": "up", "lastScrape": "2026-11-22T09:00:00.5Z", "scrapeInterval": "15s",
                "lastScrapeDuration": 0.1, "scrapeUrl": "http://127.0.0.1:9100/metrics"}  # fmt: skip
        then = web.unix("2026-11-22T09:00:00.5Z") or 0.0

        assert targets._one(target, seen, then + 40)["status"] == "pass"
        assert targets._one(target, seen, then + 50)["measured"] == "stale"
        assert targets._one(target, {**seen, "lastScrapeDuration": 9.0}, then)["status"] == "warn"

    def test_a_clock_that_is_away_is_named_and_one_that_is_not_passes(self, monitored: Monitored) -> None:
        self.evaluated(monitored, "n1", "n2")
        checks = by_name(targets.clocks(monitored.prometheus, ("n1", "n2"), "ctl1"))

        assert checks["clock-monitoring", "n1"]["status"] == "pass", checks
        assert checks["clock-monitoring", "n2"]["status"] == "fail", checks
        assert "ahead of ctl1's" in checks["clock-monitoring", "n2"]["message"]

    def test_a_prometheus_whose_disk_is_full_is_named_while_it_calls_all_targets_up(
        self, monitored: Monitored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(targets, "_FIRST_S", 1.0)
        monkeypatch.setattr(targets, "_NEWEST_S", 3.0)

        def stored() -> dict[str, str]:
            check: dict[str, str] = targets.stores(monitored.prometheus, "ctl1")
            return check

        wait_until("something was stored", lambda: stored()["status"] == "pass")
        with monitored.server.disk_full():
            wait_until("nothing is stored", lambda: stored()["status"] == "fail", details=monitored.server.log)
            assert "is the disk of its data full?" in stored()["message"]
            assert self.evaluated(monitored, "n1")["target-up", "n1/node"]["status"] == "pass"
        wait_until("it continues by itself", lambda: stored()["status"] == "pass", details=monitored.server.log)


class TestTextfiles:
    def evaluated(self, monitored: Monitored, **ages: float) -> dict[str, str]:
        wanted = {"n1": {f"{name}.prom": age for name, age in ages.items()}}
        checks: list[dict[str, str]] = targets.textfiles(monitored.prometheus, wanted, ("n1", "n2"))
        assert [check["target"] for check in checks] == ["n1"]
        return checks[0]

    def test_fresh_ones_pass_and_old_ones_and_missing_ones_are_named(self, monitored: Monitored) -> None:
        wait_until("it is scraped", lambda: self.evaluated(monitored, jobs=1e6)["status"] == "pass")

        assert self.evaluated(monitored, jobs=1e6, gone=60)["message"] == "gone.prom is not there"
        old = monitored.texts / "jobs.prom"
        os.utime(old, (0, time.time() - 300))
        wait_until("it is old", lambda: self.evaluated(monitored, jobs=60)["status"] == "fail")
        assert "should be no older than 60 s" in self.evaluated(monitored, jobs=60)["message"]
        os.utime(old)

    def test_one_that_can_not_be_read_is_reported(self, monitored: Monitored) -> None:
        bad = monitored.texts / "bad.prom"
        bad.write_text("this is not a metric\n")
        wait_until("it is reported", lambda: "can't read" in self.evaluated(monitored, jobs=1e6)["message"])
        bad.unlink()
        wait_until("it is gone", lambda: self.evaluated(monitored, jobs=1e6)["status"] == "pass")


class TestRules:
    def test_files_pass_by_their_rules_and_one_that_fails_is_reported_with_the_error(
        self, monitored: Monitored
    ) -> None:
        wanted = {"good.yml": 2, "broken.yml": 1}
        checks: dict[tuple[str, str], dict[str, str]] = {}

        def looked() -> bool:
            checks.update(by_name(rules.evaluate(monitored.prometheus, "hpc", wanted)))
            return checks["rules-healthy", "broken.yml"]["status"] == "fail"

        wait_until("n2 and n1 are both scraped", looked)
        assert checks["rules-healthy", "good.yml"]["status"] == "pass", checks
        assert checks["rules-healthy", "broken.yml"]["message"].startswith("never: found duplicate series")

    def test_a_file_that_is_not_loaded_and_one_with_fewer_rules_fail(self, monitored: Monitored) -> None:
        wanted = {"good.yml": 3, "gone.yml": 1, "broken.yml": 1}
        checks = by_name(rules.evaluate(monitored.prometheus, "hpc", wanted))

        assert checks["rules-healthy", "good.yml"]["message"] == "Prometheus has loaded 2 rules of this file"
        assert checks["rules-healthy", "gone.yml"]["measured"] == "0"

    def test_what_the_site_adds_is_evaluated_together(self, monitored: Monitored) -> None:
        checks = by_name(rules.evaluate(monitored.prometheus, "hpc", {"broken.yml": 1}))

        assert checks["rules-healthy", "hpc"]["status"] == "pass"


class TestAlerts:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What Prometheus does not know at the first query, it will not know later."""
        monkeypatch.setattr(alerting, "_KNOWN_S", 0.0)
        monkeypatch.setattr(alerting, "_SENT_S", 1.0)

    def tried(self, monitored: Monitored, alertmanager: Any = None) -> dict[str, dict[str, str]]:
        where = alertmanager or monitored.alertmanager
        checks = alerting.evaluate(monitored.prometheus, where, ROUTE, "ctl1", "hpc", os.urandom(3).hex())
        return {check["name"]: check for check in checks}

    def test_one_arrives_and_ends_and_nobody_is_called(self, monitored: Monitored) -> None:
        wait_until("what fires is sent", lambda: self.tried(monitored)["alerts-forwarded"]["status"] == "pass")
        checks = self.tried(monitored)

        assert {check["status"] for check in checks.values()} == {"pass"}, checks
        # what fires has been sent, so a trial that went the same way would have been as well
        wait_until(
            "people are notified of what fires", lambda: any("Always" in text for text in monitored.called.posted)
        )
        assert not any(alerting.NAME in text for text in monitored.called.posted)

    def test_nothing_is_sent_where_no_route_matches(self, monitored: Monitored, tmp_path: Path) -> None:
        with servers.alertmanager(tmp_path, routed(monitored.called.url)) as other:
            checks = self.tried(monitored, service(other))
            there = service(other).get("/api/v2/alerts/groups")

        assert checks["alert-arrives"]["measured"] == "no route"
        assert there == []

    def test_where_no_receiver_has_an_address_no_route_is_needed(self, monitored: Monitored, tmp_path: Path) -> None:
        unrouted = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}
        with servers.alertmanager(tmp_path, unrouted) as other:
            checks = self.tried(monitored, service(other))

        assert checks["alert-arrives"]["status"] == "pass", checks

    def test_a_route_to_somebody_else_is_reported_and_the_trial_ended(
        self, monitored: Monitored, tmp_path: Path
    ) -> None:
        other_than_it = [*TO_NOBODY["matchers"], 'alertname="Another"']
        away = {**TO_NOBODY, "matchers": other_than_it}
        with servers.alertmanager(tmp_path, routed("http://127.0.0.1:1/", away)) as other:
            checks = self.tried(monitored, service(other))
            left = service(other).get("/api/v2/alerts")

        assert checks["alert-arrives"]["message"].startswith("the trial went to people instead of nobody")
        assert left == []

    def test_one_that_prometheus_does_not_know_is_reported(self, monitored: Monitored, tmp_path: Path) -> None:
        with servers.alertmanager(tmp_path, routed(monitored.called.url, TO_NOBODY)) as other:
            checks = self.tried(monitored, service(other))

        assert checks["alertmanager-known"]["status"] == "fail"
        assert checks["alerts-forwarded"]["message"] == "not known to Alertmanager: Always"
        assert checks["alert-arrives"]["status"] == "pass"


class TestDashboards:
    def test_a_query_without_series_and_one_that_is_wrong_are_named(self, monitored: Monitored) -> None:
        queries = [
            dashboards.Query("Nodes", "Time", 'node_time_seconds{node="n1"}'),
            dashboards.Query("Nodes", "Nothing", "no_such_metric"),
            dashboards.Query("Jobs", "Wrong", "sum("),
            dashboards.Query("Empty", "Nothing", "no_such_metric"),
            dashboards.Query("Cluster", "Time", "rate(node_time_seconds[30s])"),
        ]
        wait_until("there is a rate", lambda: monitored.prometheus.query(queries[-1].text))
        checks = {check["target"]: check for check in dashboards.evaluate(monitored.prometheus, queries, 0.0)}

        status = {"Cluster": "pass", "Empty": "fail", "Nodes": "warn", "Jobs": "fail"}
        assert {target: check["status"] for target, check in checks.items()} == status
        assert (checks["Nodes"]["message"], checks["Nodes"]["measured"]) == ("no series for Nothing", "1")
        assert "Wrong (" in checks["Jobs"]["message"]
        assert "parse error" in checks["Jobs"]["message"]

    def test_grafana_is_checked_by_its_database_and_its_password(self) -> None:
        """Grafana's health page as its documentation describes it; there is no Grafana where this runs."""
        pages = {"/api/health": (200, '{"database": "ok", "version": "13.0.2"}'), "/api/search": (200, "[]")}
        with servers.Page(lambda path: pages[path.partition("?")[0]]) as page:
            good = dashboards.grafana(service(page), "ctl1")
            pages["/api/search"] = (401, "{}")
            locked = dashboards.grafana(service(page), "ctl1")
            pages["/api/health"] = (200, '{"database": "failing"}')
            ill = dashboards.grafana(service(page), "ctl1")

        assert [check["status"] for check in (*good, *locked, *ill)] == ["pass", "fail", "fail"]
        assert "refuses the password" in locked[0]["message"]
        assert ill[0]["message"] == "its database is failing"


class TestServicesWithPassword:
    def test_services_that_want_the_password_pass_and_others_fail(self, monitored: Monitored) -> None:
        shut = suite._closed("alertmanager", monitored.alertmanager, "/api/v2/alerts")
        with servers.Page(lambda _path: (200, "[]")) as page:
            open_to_all = suite._closed("grafana", service(page), "/api/search")

        assert shut[0]["status"] == "pass"
        assert (open_to_all[0]["status"], open_to_all[0]["measured"]) == ("fail", "HTTP 200")

    def test_a_wrong_password_is_reported_without_showing_it(self, monitored: Monitored) -> None:
        wrong = monitored.prometheus.service._replace(password="sesame")

        with pytest.raises(web.NoAnswer) as error:
            wrong.get("/api/v1/rules")
        assert "refuses the password (HTTP 401)" in str(error.value)
        assert "sesame" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.250000000Z", 60.25),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("0001-01-01T00:00:00Z", None),
        ("yesterday", None),
    ],
)
def test_moments_are_read_as_prometheus_writes_them(text: str, seconds: float | None) -> None:
    assert web.unix(text) == seconds


def test_spans_are_read_as_prometheus_writes_them() -> None:
    assert [web.span(text) for text in ("15s", "1m30s", "500ms", "")] == [15.0, 90.0, 0.5, 0.0]
