"""The monitoring suite's verdicts on what it was told; tests/integration asks real servers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from deepopsctl.checks.catalogue.suites import catalogue_of
from deepopsctl.checks.suites import SUITES
from deepopsctl.node_programs._slurm_jobs import session
from deepopsctl.node_programs.suites.validate_monitoring import (
    alerting,
    dashboards,
    jobs,
    logs,
    main as program,
    rules,
    suite,
    targets,
    web,
)


def prometheus(targets: Callable[[], list[dict[str, Any]]]) -> Any:
    return SimpleNamespace(targets=targets)


WHO = {"user": "ubuntu", "account": "default"}
NOWHERE = web.Service("http://127.0.0.1:1", "admin", "opensesame")


class TestAJobInTheMetrics:
    def trial(self, **more: bool) -> Any:
        return jobs.Trial(
            web.Prometheus(NOWHERE), session.Session("monitoring", "abc", "ubuntu"), "hpc", ("gpu01",), 90.0, **more
        )

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ({**WHO, "jobid": "42"}, ""),
            ({"user": "ubuntu"}, "job 42 has account none instead of default"),
            (
                {"user": "root", "account": "x"},
                "job 42 has user root instead of ubuntu and account x instead of default",
            ),
            (None, "job 42 ran there for 12 s and is not in the metrics"),
        ],
    )
    def test_has_its_user_and_account(self, labels: dict[str, str] | None, message: str) -> None:
        check = jobs._one(self.trial(), "gpu01", labels, "42", WHO, 12.3)

        assert (check["status"], check["message"] if message else "") == ("fail" if message else "pass", message)

    def test_is_asked_for_without_its_use_where_jobs_have_no_control_groups(self) -> None:
        unmeasured = self.trial(measured=False)
        assert "deepops_job_cpus" in jobs._job_query(self.trial(), "42")
        assert jobs._job_query(unmeasured, "42") == 'deepops_job_info{jobid="42"}'
        reported = jobs._one(unmeasured, "gpu01", WHO, "42", WHO, 12.3)
        assert reported["status"] == "pass"
        assert "no control groups" in reported["message"]


class TestTargets:
    WANTED = tuple(targets.Wanted("ctl1", "slurm", "192.0.2.1:6817", page) for page in ("jobs", "nodes"))

    def target(self, page: str, health: str) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat()
        labels = {"node": "ctl1", "job": "slurm", "page": page}
        url = f"http://192.0.2.1:6817/metrics/{page}"
        reported = {"labels": labels, "health": health, "scrapeUrl": url, "lastScrape": now}
        return {**reported, "lastScrapeDuration": 0.1, "lastError": "" if health == "up" else "refused"}

    @pytest.mark.parametrize(
        ("rounds", "status"),
        # one that answered too late once is up; one that is down is so twice
        [(["up"], "pass"), (["down", "up"], "pass"), (["down", "down"], "fail")],
    )
    def test_that_are_down_are_so_twice(self, rounds: list[str], status: str) -> None:
        # two queries in each round of scrapes
        health = iter([each for each in rounds for _ in range(2)])
        queried = prometheus(lambda: [self.target("jobs", next(health)), self.target("nodes", "up")])

        checks = targets.evaluate(queried, "hpc", self.WANTED, ["ctl1"])

        assert [check["status"] for check in checks] == [status, "pass", "pass"]

    def test_that_take_too_long_are_reported_as_that(self) -> None:
        late = {**self.target("jobs", "down"), "scrapeTimeout": "10s"}
        late["lastError"] = 'Get "http://192.0.2.1:6817/metrics/jobs": context deadline exceeded'

        reported = targets._one(self.WANTED[0], late, time.time())

        assert reported["message"] == "http://192.0.2.1:6817/metrics/jobs: no answer within 10s: is the node too busy?"

    def test_of_a_page_that_nobody_expects_are_reported_by_it(self) -> None:
        actual = targets.query_targets(prometheus(lambda: [self.target("jobs", "up"), self.target("users", "up")]))

        reported = targets._unexpected("hpc", actual, {wanted.key for wanted in self.WANTED})

        assert reported["message"] == "not in cluster.yml: ctl1/slurm/users"


class TestRunningJobs:
    def test_agree_where_slurm_has_had_so_many_while_we_looked(self) -> None:
        actual = jobs.counted("hpc", 4, [3, 5])

        assert (actual["status"], actual["measured"], actual["expected"]) == ("pass", "4", "3 to 5")
        never = jobs.counted("hpc", 5, [3, 3])
        assert (never["status"], never["message"]) == ("fail", "squeue reported 3, and Prometheus 5")


class TestLogs:
    def test_have_arrived_where_a_line_of_this_validation_has_the_nodes_name(self) -> None:
        text = "validation abc gpu01\nvalidation xyz gpu02\nvalidation abc gpu031\n"

        assert logs.arrived(text, "validation abc", ("gpu01", "gpu02", "gpu03")) == ["gpu01"]

    def test_that_did_not_come_are_reported_with_what_journalctl_says(self) -> None:
        assert logs._one("gpu01", {"gpu01": 0.4}, 30.0, "")["status"] == "pass"
        reported = logs._one("gpu02", {"gpu01": 0.4}, 30.0, "Permission denied")
        assert reported["message"] == "a line that the node logged has not come within 30 s: Permission denied"


class TestTheWholeSuite:
    def inputs(self, **changes: Any) -> Any:
        options: dict[str, Any] = dict.fromkeys(("selected", "compute", "wanted", "queries"), ())
        options |= {"rules": {}, "textfiles": {}, "route": alerting.Route("severity", "none", "nobody"), **changes}
        return suite.Inputs(cluster="hpc", monitor="ctl1", **options)

    def test_skips_the_rest_and_says_why_where_prometheus_does_not_answer(self) -> None:
        services = suite.Services(NOWHERE, NOWHERE)
        actual = suite.verify_monitoring(self.inputs(), services, session.Session("monitoring", "abc", "ubuntu"))

        assert actual[0]["name"] == "prometheus-answers"
        assert actual[0]["status"] == "fail"
        assert {check["name"] for check in actual[1:]} == set(suite.NEEDS_PROMETHEUS)
        assert {check["status"] for check in actual[1:]} == {"skip"}
        assert "opensesame" not in json.dumps(actual)

    def test_trouble_with_one_part_is_reported_and_stops_no_other(self) -> None:
        def wrong() -> list[dict[str, str]]:
            raise KeyError("never")

        actual = suite._safely("rules-healthy", "hpc", wrong)

        assert (actual[0]["status"], actual[0]["message"]) == ("fail", "KeyError('never')")


def test_every_check_is_in_the_reports_catalogue() -> None:
    modules = (alerting, dashboards, jobs, logs, rules, targets, suite)
    values = [value for module in modules for value in vars(module).values()]
    checks = {value for value in values if isinstance(value, str) and re.fullmatch(r"[a-z]+(-[a-z]+)+", value)}

    assert checks - {logs.TAG} | {"monitoring-enabled"} == set(catalogue_of("monitoring")) - {
        "reachable",
        "suite-ran",
    }
    assert "monitoring" in SUITES


class TestWhatADeployAsks:
    def scraped(self, monkeypatch: pytest.MonkeyPatch, problems: list[str] | None) -> dict[str, Any]:
        if problems is not None:
            monkeypatch.setattr(targets, "problems", lambda _prometheus, _wanted: problems)
        target = {"node": "gpu01", "job": "node", "address": "192.0.2.1:9100", "page": ""}
        plan = {"prometheus": NOWHERE.url, "user": "admin", "targets": [target]}
        return program.main({"phase": "scraped", "check_mode": False, "plan": plan, "password": "opensesame"})

    def test_fails_with_the_first_ten_that_are_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        result = self.scraped(monkeypatch, [f"gpu{number:02}/node: refused" for number in range(1, 13)])

        assert result["failed"]
        assert result["msg"].startswith("Prometheus cannot scrape: gpu01/node: refused; ")
        assert result["msg"].endswith("gpu10/node: refused; and 2 more")
        assert "firewall" in result["hint"]
        assert self.scraped(monkeypatch, []) == {"targets": 1}

    def test_fails_where_prometheus_does_not_answer_and_tells_no_password(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = self.scraped(monkeypatch, None)

        assert result["failed"]
        assert "does not answer" in result["msg"]
        assert "opensesame" not in json.dumps(result)
