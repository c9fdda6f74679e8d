"""Reports: the same checks as table, JSON, JUnit and HTML, for few nodes and for many."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from deepopsctl.checks.catalogue.containers import CONTAINERS
from deepopsctl.checks.catalogue.doctor import DOCTOR
from deepopsctl.checks.catalogue.environment import ENVIRONMENT
from deepopsctl.checks.catalogue.gpu import BURNIN, GPU
from deepopsctl.checks.catalogue.hpc import HPC
from deepopsctl.checks.catalogue.monitoring import MONITORING
from deepopsctl.checks.catalogue.network import NETWORK
from deepopsctl.checks.catalogue.smoke import SMOKE
from deepopsctl.checks.catalogue.storage import STORAGE
from deepopsctl.checks.catalogue.suites import PER_NODE, catalogue_of, entry
from deepopsctl.checks.catalogue.training import TRAINING
from deepopsctl.checks.check import Check, Status
from deepopsctl.node_programs.suites.gpu_check.evaluation import evaluate
from deepopsctl.report.grouping import FEW, build_matrix, fold_checks
from deepopsctl.report.html import render_html
from deepopsctl.report.junit import render_junit
from deepopsctl.report.model import Facts, document
from deepopsctl.report.table import summary_line, table
from tests.data import gpu_report_samples as gpus
from tests.data.gpu_check_samples import result as gpu_result
from tests.data.report_samples import facts, failed, healthy_node, large, passed, skipped, small
from tests.support.html_page import page
from tests.support.paths import ROOT

EVIL = "<script>alert('x')</script> & \"q\" \x1b[31m\x00 ü 日"


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 (our own)


class TestFolding:
    @pytest.mark.parametrize(
        ("checks", "rows"),
        [
            # two failures
            (
                [failed("node-state", node, "down", "idle", f"reason: {node} {why}") for node, why in
                 (("gpu01", "fan"), ("gpu02", "fan"), ("gpu03", "disk"))],
                [("gpu[01-02]", "down", "reason: the node fan"), ("gpu03", "down", "reason: gpu03 disk")],
            ),
            # one that differs in the node's name only
            (
                [skipped("clock", node, f"{node} is silent") for node in ("gpu01", "gpu02")],
                [("gpu[01-02]", "", "the node is silent")],
            ),
            (
                [passed("clock", f"gpu0{n}", f"+0.0{n} ± 0.001", "within 1", "s") for n in (3, 1, 2)],
                [("gpu[01-03]", "+0.01 to +0.03 s", "")],
            ),
            (
                [passed("node-answers", node, node, node) for node in ("gpu01", "gpu02")],
                [("gpu[01-02]", "its own name", "")],
            ),
        ],
        ids=["failures", "names", "numbers", "answers"],
    )  # fmt: skip
    def test_nodes_share_a_row_where_only_names_and_numbers_differ(
        self, checks: list[Check], rows: list[tuple[str, str, str]]
    ) -> None:
        assert [(row.where, row.measured, row.message) for row in fold_checks(checks)] == rows


class TestCatalogue:
    ALL = SMOKE | GPU | BURNIN | STORAGE | ENVIRONMENT | MONITORING | CONTAINERS | TRAINING | HPC | NETWORK

    def test_every_entry_says_what_it_shows_and_what_to_do(self) -> None:
        for name, what in (*self.ALL.items(), *DOCTOR.items()):
            assert what.verifies.endswith("."), name
            assert what.advice, name
            assert not what.advice.endswith("."), name
        assert set(self.ALL) >= PER_NODE

    @pytest.mark.parametrize(
        ("page", "checks"),
        [
            ("validate-smoke", SMOKE),
            ("validate-environment", ENVIRONMENT),
            ("validate-storage", STORAGE),
            ("validate-monitoring", MONITORING),
            ("gpucheck", GPU),
            ("../deploy/containers", CONTAINERS),
            ("validate-training", TRAINING),
            ("validate-hpc", HPC),
            ("validate-network", NETWORK),
        ],
        ids=["smoke", "environment", "storage", "monitoring", "gpu", "containers", "training", "hpc", "network"],
    )
    def test_the_reference_page_has_every_check(self, page: str, checks: dict[str, object]) -> None:
        text = (ROOT / f"docs/reference/{page}.md").read_text()

        assert [name for name in checks if f"`{name}`" not in text] == []

    def test_every_check_of_gpucheck_has_its_entry(self) -> None:
        made = {check["name"] for check in evaluate([gpu_result(), gpu_result("gpu02")], (), {"gpu01": 8})}

        assert sorted(made - set(catalogue_of("gpu"))) == []


class TestTable:
    def test_failures_come_last_with_what_to_do(self) -> None:
        lines = [line.plain() for line in table(large(), 100)]

        assert lines.index("To do") > lines.index("Accounting")
        tail = "\n".join(lines[lines.index("To do") :])
        assert tail.index("warn  clock: gpu100") < tail.index("fail  node state: gpu[042-043,341]")
        assert "Slurm's reason: Not responding" in tail
        assert f"do: {entry('node-state').advice.split(',')[0]}" in tail

    @pytest.mark.parametrize(("sample", "lines"), [(large, 80), (gpus.thousand, 100)], ids=["nodes", "GPUs"])
    def test_five_hundred_nodes_and_twelve_hundred_gpus_fit_on_a_screen(
        self, sample: Callable[[], Facts], lines: int
    ) -> None:
        assert len(table(sample(), 100)) < lines

    @pytest.mark.parametrize("sample", [large, gpus.two_h100])
    @pytest.mark.parametrize("width", [60, 80, 160])
    def test_no_line_is_wider_than_the_terminal(self, width: int, sample: Callable[[], Facts]) -> None:
        assert max(len(line.plain()) for line in table(sample(), width)) <= width

    def test_a_good_cluster_has_no_to_do(self) -> None:
        lines = table(facts(healthy_node("gpu01"), ("gpu01",)))

        assert "To do" not in [line.text for line in lines]

    def test_the_verdict_counts(self) -> None:
        assert summary_line(small()) == "ok, with warnings: 37 passed, 1 warning in 6.1 s"
        assert summary_line(large()).startswith("failed: ")
        assert summary_line(facts([skipped("clock", "gpu01", "busy")], ("gpu01",))).startswith("nothing tested: ")

    def test_one_that_was_stopped_says_so_whatever_had_passed(self) -> None:
        stopped = replace(facts(healthy_node("gpu01"), ("gpu01",)), stopped="interrupted")

        assert summary_line(stopped).startswith("interrupted after 6.1 s: ")
        assert "Not finished (interrupted)" in render_html(stopped)
        assert 'errors="1"' in render_junit(stopped)
        assert "interrupted: not everything was checked" in render_junit(stopped)


class TestJson:
    def test_the_object_has_the_documented_keys(self) -> None:
        made = document(ok=False, run="r1", checks=small().checks)

        assert list(made) == ["schema", "command", "ok", "run", "checks"]
        assert made["schema"] == 1
        keys = ["suite", "name", "target", "status", "measured", "expected", "unit", "message"]
        assert all(list(check) == keys for check in json.loads(json.dumps(made))["checks"])


class TestJunit:
    def test_counts_agree_with_the_cases(self) -> None:
        sample = large(400)
        suite = parse(render_junit(sample)).find("testsuite")

        assert suite is not None
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "0")) == len(cases) == len(sample.checks)
        assert int(suite.get("failures", "0")) == sum(case.find("failure") is not None for case in cases)
        assert int(suite.get("skipped", "0")) == sum(case.find("skipped") is not None for case in cases)

    def failure_of(self, check: Check) -> ET.Element:
        actual = parse(render_junit(facts([check], ("gpu01",)))).find(".//failure")
        assert actual is not None
        return actual

    def test_a_failure_says_what_was_measured_and_what_to_do(self) -> None:
        failure = self.failure_of(failed("node-cpus", "gpu01", "120", "128", "fewer CPUs"))

        assert failure.get("message") == "fewer CPUs; measured 120, expected 128"
        assert "to do: if the hardware was changed" in (failure.text or "")

    def test_what_nodes_say_can_not_break_the_file(self) -> None:
        assert "<script>" in self.failure_of(failed("clock", "gpu01", EVIL, "1", EVIL)).get("message", "")

    def test_a_warning_passes_and_is_in_the_output(self) -> None:
        case = parse(render_junit(small())).find(".//testcase[system-out]")

        assert case is not None
        assert case.find("failure") is None
        assert "EnforcePartLimits" in (case.findtext("system-out") or "")


class TestMatrix:
    def test_few_nodes_have_a_row_each_in_the_order_of_the_cluster(self) -> None:
        matrix = build_matrix(small(), "smoke")

        assert [row.label for row in matrix.rows] == ["gpu01", "gpu02"]
        assert matrix.tiles == ()
        assert sum(span for _group, span in matrix.groups) == len(matrix.columns)

    def test_many_nodes_share_rows_the_outliers_first(self) -> None:
        matrix = build_matrix(large(), "smoke")

        assert [(row.label, row.status) for row in matrix.rows][:3] == [
            ("gpu008", Status.FAIL),
            ("gpu[042-043,341]", Status.FAIL),
            ("gpu100", Status.WARN),
        ]
        assert sum(row.count for row in matrix.rows) == len(matrix.tiles) == 500
        assert len(matrix.rows) < 10

    def test_a_cell_of_a_single_node_tells_what_was_measured(self) -> None:
        cell = build_matrix(small(), "smoke").rows[0].cells[0]

        assert cell is not None
        assert cell.tip == "services active: pass\nmunge, slurmd active, expected munge, slurmd active"

    def test_a_check_that_does_not_apply_leaves_its_cell_empty(self) -> None:
        matrix = build_matrix(facts([*healthy_node("gpu01"), passed("services", "ctl1")], ("ctl1", "gpu01")), "smoke")

        assert matrix.rows[0].label == "ctl1"
        assert [cell is not None for cell in matrix.rows[0].cells].count(True) == 1

    def test_the_limit_between_few_and_many_is_exact(self) -> None:
        def rows(count: int) -> int:
            nodes = tuple(f"n{number}" for number in range(count))
            return len(build_matrix(facts([check for n in nodes for check in healthy_node(n)], nodes), "smoke").rows)

        assert rows(FEW) == FEW
        assert rows(FEW + 1) == 1


class TestSkipped:
    REASON = "no NCCL on the nodes: validate gpu --with-libraries brings it to them, and measures all-reduce over nodes"

    def lines(self, *checks: Check) -> list[str]:
        return [line.plain() for line in table(facts(list(checks), ("gpu01",)), 80) if not line.heading]

    def test_checks_that_were_skipped_for_one_reason_share_a_line(self) -> None:
        names = ("cpu-confinement", "memory-confinement", "gpu-confinement")

        assert self.lines(*(skipped(name, "gpu01", "no cgroups") for name in names)) == [
            "  skip  3 checks              gpu01          no cgroups"
        ]

    def test_the_reason_is_whole_for_it_says_what_to_do(self) -> None:
        actual = self.lines(skipped("gpu-confinement", "gpu01", self.REASON))

        assert len(actual) > 1
        assert " ".join(" ".join(actual).split()).endswith(self.REASON)
        assert max(map(len, actual)) <= 80


class TestHtml:
    @pytest.mark.parametrize("sample", [small, large, gpus.two_h100, gpus.mixed, gpus.lab, gpus.thousand])
    def test_the_page_is_whole_and_needs_nothing_else(self, sample: Callable[[], Facts]) -> None:
        text = render_html(sample())
        actual = page(text)

        assert actual.fetched == []
        assert "url(" not in text
        assert "@import" not in text
        assert "script" not in actual.tags

    def test_what_nodes_say_is_escaped(self) -> None:
        checks = [failed("clock", "gpu01", EVIL, EVIL, EVIL), passed("partition", "<b>p</b>", EVIL)]
        text = render_html(facts(checks, ("gpu01",), cluster="<i>hpc</i>"))

        assert "<script>" not in text
        assert "<b>p</b>" not in text
        assert "<i>hpc</i>" not in text
        page(text)

    def test_the_headline_names_the_nodes_that_failed(self) -> None:
        assert "7 checks failed, on gpu[008,042-043,341]." in render_html(large())

    def test_many_that_failed_are_counted_and_nodes_are_called_so_only_where_all_are(self) -> None:
        nodes = tuple(f"machine-number-{number}-{number}" for number in range(1, 9))
        checks = [failed("clock", node, "1", "0", "off") for node in nodes]
        panels = [failed("dashboard-queries", "Cluster overview", "3", "14", "no series for Jobs")]

        assert "8 checks failed, on 8 nodes." in render_html(facts(checks, nodes))
        assert "9 checks failed, on 9 places." in render_html(facts(checks + panels, nodes))

    @pytest.mark.parametrize(("sample", "size"), [(large, 200_000), (gpus.thousand, 150_000)], ids=["nodes", "GPUs"])
    def test_five_hundred_nodes_or_a_thousand_gpus_make_a_page_one_can_mail(
        self, sample: Callable[[], Facts], size: int
    ) -> None:
        assert len(render_html(sample()).encode()) < size

    def test_every_outcome_has_a_mark_that_is_not_only_a_colour(self) -> None:
        marks = set(re.findall(r'class="mark (\w+)"[^>]*>(.)<', render_html(large())))

        assert marks == {("pass", "✓"), ("warn", "!"), ("fail", "✕"), ("skip", "–")}

    def test_a_validation_without_any_check_still_makes_a_page(self) -> None:
        assert "Nothing could be tested." in render_html(facts([], ("gpu01",)))

    def test_code_in_advice_is_set_as_code(self) -> None:
        check = replace(failed("node-state", "gpu01", "down", "idle", "`rm -rf <x>`"), message="")

        assert "<code>scontrol update nodename=NODE state=resume</code>" in render_html(facts([check], ("gpu01",)))


def test_a_report_of_a_suite_that_is_newer_than_the_catalogue_is_complete() -> None:
    sample = facts([Check("gpu", "hbm-bandwidth", "gpu01", Status.FAIL, "900", "3000", "GB/s")], ("gpu01",))

    assert "hbm bandwidth" in render_html(sample)
    assert any("hbm bandwidth" in line.text for line in table(sample))
    assert "gpu.hbm-bandwidth" in render_junit(sample)
