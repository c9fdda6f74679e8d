"""Reports of GPUs. The results are constructed (gpureport_samples): no GPU was at hand."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from deepopsctl.checks.check import Check, Status
from deepopsctl.cli.main import cli
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.report.gpu import section
from deepopsctl.report.gpu.plots import Curve, Dot, bandwidth_plot, heat_map, size_text, strip
from deepopsctl.report.gpu.section import Block, build_section
from deepopsctl.report.gpu.summary import gpu_lines, read_models
from deepopsctl.report.grouping import FEW_CARDS, build_matrix, fold_checks, fold_names
from deepopsctl.report.html import render_html
from deepopsctl.report.model import Facts, document, figure, spread, whole
from deepopsctl.report.table import table
from deepopsctl.run.history import past_run
from deepopsctl.run.workspace import RunDir
from deepopsctl.validation.gpu import save_results
from deepopsctl.validation.result import CHECKS_FILE
from deepopsctl.validation.stored import past_facts
from tests.data import gpu_report_samples as samples
from tests.data.gpu_check_samples import gpu, result
from tests.data.gpu_report_samples import thousand, two_h100
from tests.data.report_samples import small
from tests.support.html_page import page

EVIL = "<script>alert('x')</script> & \"q\""


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 (made a moment ago)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parsed(svg).iter("{http://www.w3.org/2000/svg}text")]


def block(facts: Facts, number: int = 0) -> Block:
    return build_section(facts).blocks[number]


def warned(target: str, serial: str, text: str, name: str = "gpu-ecc") -> Check:
    node, _, index = target.partition("/")
    message = f"{node} GPU {index} (NVIDIA H100 80GB HBM3, serial {serial}): {text}"
    return Check("gpu", name, target, Status.WARN, "off", "on", message=message)


class TestFolding:
    @pytest.mark.parametrize(
        ("targets", "text"),
        [
            (["gpu01/3"], "gpu01/3"),
            ([f"gpu0{node}/{index}" for node in (1, 2) for index in range(8)], "gpu[01-02]/[0-7]"),
            (["gpu01/0", "gpu01/1", "gpu01/2", "gpu01/4"], "gpu01/[0-2,4]"),
            (["gpu01/0", "gpu02/0", "gpu03/5"], "gpu[01-02]/0,gpu03/5"),
            (["gpu01/0", "gpu02"], "gpu01/0,gpu02"),
            # entries of storage, whatever their names end in
            (["gpu01/data2", "gpu02/data2", "gpu03/home", "gpu01/home"], "gpu[01-02]/data2,gpu[01,03]/home"),
        ],
    )
    def test_gpus_fold_by_node_and_index(self, targets: list[str], text: str) -> None:
        assert fold_names(targets) == text

    def test_a_few_outlying_gpus_are_named_with_their_serial_numbers_and_many_are_not(self) -> None:
        few = fold_checks([warned("gpu01/3", "11", "ECC is off"), warned("gpu02/5", "22", "ECC is off")])
        many = fold_checks([warned(f"gpu01/{i}", str(i), "ECC is off") for i in range(FEW_CARDS + 1)])

        assert [row.message for row in few] == ["ECC is off (gpu01/3 serial 11; gpu02/5 serial 22)"]
        assert [row.message for row in many] == ["ECC is off"]

    def test_gpus_that_pass_in_different_words_are_one_row(self) -> None:
        texts = ["up 1% since 2026-11-03", "down 2% since 2026-11-03", "as the others"]
        checks = [
            Check("gpu", "gpu-fp32", f"gpu01/{index}", Status.PASS, str(60 + index), "at least 50", "TFLOP/s", text)
            for index, text in enumerate(texts)
        ]

        assert [(row.where, row.measured, row.message) for row in fold_checks(checks)] == [
            ("gpu01/[0-2]", "60 to 62 TFLOP/s", "")
        ]


class TestMatrix:
    def test_a_cell_has_the_worst_of_a_nodes_gpus_and_names_them(self) -> None:
        matrix = build_matrix(two_h100(), "gpu")
        column = [entry.title for entry in matrix.columns].index("memory copy")
        good, bad = (row.cells[column] for row in matrix.rows)

        assert [row.label for row in matrix.rows] == ["gpu01", "gpu02"]
        assert good is not None
        assert bad is not None
        assert (good.status, bad.status) == (Status.PASS, Status.FAIL)
        assert "gpu02/5: gpu02 GPU 5 (NVIDIA H100" in bad.tip


class TestTerminal:
    def test_a_model_is_one_line_and_each_outlying_gpu_another(self) -> None:
        lines = list(gpu_lines(two_h100()))

        assert [status for status, _ in lines] == [Status.FAIL, Status.FAIL]
        assert lines[0][1].startswith("16 x NVIDIA H100 80GB HBM3 on gpu[01-02]: memory 2.80–2.83 TB/s, host link ")
        assert lines[1][1].startswith("gpu02/5 (serial 1650000020005): ECC, memory copy 1468 GB/s")

    def test_models_are_told_apart(self) -> None:
        actual = [text for _, text in gpu_lines(samples.mixed())]

        assert [text.split(" on ")[0] for text in actual if " x " in text] == ["6 x NVIDIA A40", "2 x NVIDIA L40S"]

    def test_a_lab_is_skipped_with_the_reason(self) -> None:
        assert list(gpu_lines(samples.lab())) == [
            (Status.SKIP, "node[1-2]: simulated GPUs of a lab: nothing to measure")
        ]

    def test_a_hundred_outlying_gpus_do_not_fill_the_screen(self) -> None:
        slow = samples.facts([samples.node(n, [samples.card(n, i, slow=0.5) for i in range(8)]) for n in range(1, 14)])
        lines = list(gpu_lines(slow))

        assert len(lines) == 14
        assert lines[-1] == (Status.FAIL, "and 92 more: see the report")

    def test_suites_stand_one_after_the_other(self) -> None:
        smoke, gpu = small(), two_h100()
        lines = table(replace(gpu, suites=("smoke", "gpu"), checks=(*smoke.checks, *gpu.checks)))
        groups = [line.text for line in lines if line.heading]

        assert groups.index("Accounting") < groups.index("GPU driver") < groups.index("GPUs together")


class TestTableOfAModel:
    def test_few_gpus_have_a_line_each_and_the_outlying_number_is_marked(self) -> None:
        actual = block(two_h100())
        failed = [line for line in actual.lines if line.status is Status.FAIL]

        assert len(actual.lines) == 16
        assert [(line.label, line.serial, line.complaints) for line in failed] == [
            ("gpu02/5", "1650000020005", "ECC, memory copy, memory triad")
        ]
        assert [cell.text for cell in failed[0].cells if cell.status] == ["1468"]

    def test_many_gpus_share_a_line_the_outliers_do_not(self) -> None:
        actual = block(thousand())

        assert [(line.label, line.status) for line in actual.lines] == [
            ("gpu17/3", Status.FAIL),
            ("gpu61/2", Status.FAIL),
            ("gpu40/0", Status.WARN),
            ("gpu41/7", Status.WARN),
            ("all others", Status.PASS),
        ]
        assert sum(line.count for line in actual.lines) == len(actual.model.gpus) == 149 * 8
        assert actual.lines[-1].cells[0].text == "2797–2831"

    def test_the_limit_between_few_and_many_is_exact(self) -> None:
        def lines(count: int) -> int:
            cards = [samples.card(1, index) for index in range(count)]
            return len(block(samples.facts([samples.node(1, cards)], count)).lines)

        assert lines(section.FEW) == section.FEW
        assert lines(section.FEW + 1) == 1

    def test_many_gpus_with_the_same_complaint_share_a_line_too(self) -> None:
        cards = [samples.card(1, index, persistence=False) for index in range(30)]
        actual = block(samples.facts([samples.node(1, cards)], 30))

        assert [(line.count, line.complaints) for line in actual.lines] == [(30, "persistence mode")]

    def test_a_column_without_any_number_is_left_out_and_the_reason_is_given(self) -> None:
        actual = block(samples.facts([result("gpu01"), result("gpu02")]))

        assert "gpu-bf16-gemm" not in [column.check for column in actual.columns]
        assert actual.model.not_measured == ("Not measured: bf16 matrix product (no cuBLAS: use --cublas PATH)",)

    def test_a_gpu_that_does_not_open_stands_with_its_neighbours(self) -> None:
        cards = [gpu(0), gpu(1), {"index": 2, "error": "the GPU has fallen off the bus"}]
        actual = block(samples.facts([result("gpu01", cards)], 3))

        assert [(line.label, line.complaints) for line in actual.lines][2] == ("gpu01/2", "GPU opens")
        assert {cell.text for cell in actual.lines[2].cells} == {"–"}

    def test_other_drivers_are_named_with_their_nodes(self) -> None:
        other = {"driver": "550.1", "nvml": "12.550.1", "cuda": "12.4"}
        model = read_models(samples.facts([result("gpu01"), result("gpu02", versions=other)]))[0]

        assert model.versions == ("driver 580.95.05, CUDA 13.0 on gpu01", "driver 550.1, CUDA 12.4 on gpu02")


class TestCharts:
    POINTS = ((65536.0, 9.0), (float(2**28), 55.0))

    def test_every_line_is_drawn_and_named_also_for_those_who_do_not_see_it(self) -> None:
        svg = bandwidth_plot('to "GPU" 3 & back', [Curve("to", self.POINTS), Curve("from", self.POINTS)])
        shown = parsed(bandwidth_plot("host link", [Curve("to GPU", self.POINTS)]))

        assert {"to 55.0", "from 55.0", "64 KiB", "256 MiB", "GB/s", "60"} <= set(texts(svg))
        assert len(list(parsed(svg).iter("{http://www.w3.org/2000/svg}polyline"))) == 2
        assert (shown.get("role"), shown[0].text, shown[1].text) == ("img", "host link", "to GPU: up to 55.0 GB/s")

    def test_names_of_lines_that_end_together_do_not_cover_each_other(self) -> None:
        svg = parsed(bandwidth_plot("x", [Curve(name, self.POINTS) for name in "abcdefgh"]))
        places = sorted(
            float(element.get("y", "0"))
            for element in svg.iter("{http://www.w3.org/2000/svg}text")
            if re.fullmatch(r"[a-h] 55\.0", element.text or "")
        )

        assert len(places) == 8
        assert min(second - first for first, second in pairwise(places)) >= 10

    @pytest.mark.parametrize(
        "drawn",
        [
            bandwidth_plot(EVIL, [Curve(EVIL, POINTS)]),
            strip(EVIL, [Dot(EVIL, 1.0, "fail"), Dot(EVIL, 2.0)], "GB/s"),
            heat_map(EVIL, {(0, 1): 1.0}),
        ],
        ids=["plot", "strip", "heat"],
    )
    def test_what_came_from_a_node_can_not_break_the_page(self, drawn: str) -> None:
        parsed(drawn)

        assert "<script>" not in drawn

    def test_one_size_and_no_rate_still_make_a_plot(self) -> None:
        assert parsed(bandwidth_plot("x", [Curve("a", ((1.0, 0.0),))])) is not None
        assert parsed(heat_map("x", {(0, 1): 0.0, (1, 0): 0.0})) is not None
        assert parsed(strip("x", [Dot("a", 0.0)], "GB/s")) is not None

    def test_nothing_measured_is_nothing_drawn(self) -> None:
        assert (bandwidth_plot("x", [Curve("a", ())]), strip("x", [], ""), heat_map("x", {})) == ("", "", "")

    def test_an_outlying_gpu_is_named_on_the_strip_and_the_others_are_bars(self) -> None:
        dots = [*(Dot(f"gpu01/{index}", 3000.0 + index) for index in range(7)), Dot("gpu01/7", 1500.0, "fail")]
        svg = strip("memory copy", dots, "GB/s", bound=2680)

        assert "gpu01/7 1500" in texts(svg)
        assert "3000–3006" in texts(svg)
        assert parsed(svg)[1].text == "7 GPUs: 3000–3006 GB/s; outliers: gpu01/7 1500"

    def test_all_reduce_across_nodes_is_a_line_next_to_those_of_the_nodes(self) -> None:
        plot = re.sub("<figure>.*</figcaption>|</figure>", "", block(two_h100()).plots[1])

        assert {"gpu01 410", "gpu02 172", "across gpu[01-02] 94.9"} <= set(texts(plot))

    def test_slow_pairs_are_outlined_on_the_map_of_their_node_only(self) -> None:
        first, second = block(two_h100()).heats

        assert (first.count("cell slow"), second.count("cell slow")) == (0, 14)

    def test_without_a_fabric_no_pair_is_called_slow(self) -> None:
        wired = samples.node(1, [samples.card(1, index, samples.A40) for index in range(4)], {3: 0.4})

        assert "slow" not in "".join(block(samples.facts([wired], 4)).heats)

    def test_many_nodes_share_one_map_and_the_outliers_have_their_own(self) -> None:
        nodes = [samples.node(n, [samples.card(n, i) for i in range(8)], {2: 0.4} if n == 9 else {}) for n in range(12)]
        heats = block(samples.facts(nodes)).heats

        assert [re.findall("<figcaption>(.*?):", heat)[0] for heat in heats] == ["gpu09", "gpu[00-08,10-11], median"]

    def test_what_all_gpus_of_a_mixed_node_do_together_is_shown_once(self) -> None:
        counts = [len(actual.heats) for actual in build_section(samples.mixed()).blocks]

        assert counts == [2, 0]

    @pytest.mark.parametrize(("size", "text"), [(512, "512 B"), (4096, "4 KiB"), (2**30, "1 GiB")])
    def test_sizes_are_written_for_people(self, size: int, text: str) -> None:
        assert size_text(size) == text

    def test_numbers_have_three_digits_or_all_before_the_point(self) -> None:
        assert [figure(value) for value in (3028.4, 585.04, 55.34, 0.306)] == ["3028", "585", "55.3", "0.31"]
        assert (spread([55.31, 55.34]), spread([3, 2]), whole([54.0, 63.0])) == ("55.3", "2.00–3.00", "54–63")


class TestPage:
    @pytest.mark.parametrize("text", ["5 checks failed, on gpu02/5.", "down 48% since 2026-11-03"])
    def test_it_names_the_gpu_that_failed_and_the_day_of_a_decline(self, text: str) -> None:
        assert text in render_html(two_h100())

    def test_what_a_node_says_is_escaped(self) -> None:
        cards = [{**samples.card(1, index), "serial": EVIL, "name": EVIL} for index in range(3)]
        bad = samples.node(1, cards, versions={"driver": EVIL, "nvml": EVIL, "cuda": EVIL})
        lost = result("gpu02", [], group={}, versions={}, problem=EVIL)
        text = render_html(samples.facts([bad, lost], 0))

        page(text)
        assert "<script>" not in text

    def test_a_smoke_validation_has_no_part_about_gpus(self) -> None:
        facts = replace(two_h100(), gpus=(), checks=())

        assert '<section class="gpus">' not in render_html(facts)


class TestLater:
    @pytest.fixture
    def run(self, tmp_path: Path) -> RunDir:
        facts = two_h100()
        run_dir = RunDir(tmp_path / "runs" / facts.run)
        run_dir.path.mkdir(parents=True)
        run_dir.write(run_dir.request, {"command": "validate", "playbooks": ["validate/gpu"], "started": "2026-11-21"})
        run_dir.write(run_dir.summary, {"ok": False, "verdict": "failed", "elapsed_s": 94.2, "hosts": {}})
        checks = document(ok=False, run=facts.run, checks=facts.checks, gpus=facts.gpus)
        run_dir.write(run_dir.path / CHECKS_FILE, checks)
        save_results(ClusterDir(tmp_path), run_dir, facts.gpus, facts.checks)
        return run_dir

    def test_runs_show_says_what_the_validation_reported(self, run: RunDir, tmp_path: Path) -> None:
        (tmp_path / "cluster.yml").touch()

        shown = CliRunner().invoke(cli, ["-C", str(tmp_path), "runs", "show"]).output

        assert "fail  gpu02/5 (serial 1650000020005): ECC, memory copy 1468 GB/s" in shown
        assert "down 48% since 2026-11-03" in " ".join(shown.split())
        assert f"failed: {two_h100().totals.sentence()} in 94.2 s" in shown

    @pytest.mark.parametrize(
        "text", ["{", "[]", '{"checks": [7]}', '{"checks": [{"name": "x"}]}', '{"checks": {}}', None]
    )
    def test_a_damaged_file_and_none_are_no_report_and_no_crash(self, run: RunDir, text: str | None) -> None:
        file = run.path / CHECKS_FILE
        file.unlink() if text is None else file.write_text(text)

        assert past_facts(past_run(run)) is None
