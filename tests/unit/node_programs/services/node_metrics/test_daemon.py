"""The daemon: each collector by itself, its text file, and what it says of itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.monitoring.collectors import COLLECTORS, settings_of
from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.node_programs._shared.prometheus_text import GAUGE
from deepopsctl.node_programs.services.node_metrics.cli import COLLECTORS as NODE_COLLECTORS, _parser, main
from deepopsctl.node_programs.services.node_metrics.daemon import Daemon, once
from deepopsctl.node_programs.services.node_metrics.samples import Collector, Metric, Sample, render
from tests.support.cluster import wait_until
from tests.support.paths import ROOT

METRICS = {"deepops_a": Metric(GAUGE, "An a."), "deepops_b": Metric(GAUGE, 'A "b"\\.')}


def kind_of(collect: Callable[[], Iterable[Sample]]) -> Collector:
    return Collector(METRICS, lambda _settings: collect)


@contextmanager
def running(directory: Path, **collectors: Callable[[], Iterable[Sample]]) -> Iterator[None]:
    """A daemon with an interval of a few milliseconds."""
    kinds = {name: kind_of(collect) for name, collect in collectors.items()}
    daemon = Daemon(str(directory), 0.02, kinds, {name: {} for name in kinds})
    thread = threading.Thread(target=daemon.collect_until_stopped)
    thread.start()
    try:
        yield
    finally:
        daemon.stop()
        thread.join()


def text_of(directory: Path, name: str) -> str:
    path = directory / f"nodemetrics-{name}.prom"
    return path.read_text() if path.exists() else ""


def wait_for(directory: Path, name: str, *, up: bool) -> None:
    """Wait until the daemon says that of a collector, and its file is there or gone."""
    line = f'up{{collector="{name}"}} {int(up)}\n'
    wait_until("the file has it", lambda: line in text_of(directory, "self") and bool(text_of(directory, name)) == up)


class TestTheText:
    def test_has_the_samples_of_a_metric_together(self) -> None:
        first, second = Sample("deepops_b", 1795341296123456), Sample("deepops_b", 3, {"x": "2"})

        assert render(METRICS, [first, Sample("deepops_a", 2.5, {"x": "1"}), second]) == (
            "# HELP deepops_a An a.\n# TYPE deepops_a gauge\n"
            'deepops_a{x="1"} 2.5\n'
            '# HELP deepops_b A "b"\\\\.\n# TYPE deepops_b gauge\n'
            'deepops_b 1795341296123456\ndeepops_b{x="2"} 3\n'
        )

    @pytest.mark.parametrize(
        ("value", "expected"),
        [('a"b', r"a\"b"), ("a\nb\x1b", "a b "), ("a\\b", r"a\\b"), ("\udcff{}", "?{}"), ("ü", "ü")],
    )
    def test_escapes_what_a_label_can_have(self, value: str, expected: str) -> None:
        assert f'{{x="{expected}"}} 1' in render(METRICS, [Sample("deepops_a", 1, {"x": value})])


class TestTheDaemon:
    def test_goes_on_with_the_others_where_one_fails(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        def fail() -> Iterable[Sample]:
            raise OSError("no such thing")

        with running(tmp_path, bad=fail, good=lambda: [Sample("deepops_a", 1)]):
            wait_for(tmp_path, "good", up=True)
            assert 'up{collector="bad"} 0\n' in text_of(tmp_path, "self")
            assert text_of(tmp_path, "bad") == ""
        # once, not with each look
        assert capsys.readouterr().err.count("bad: OSError: no such thing") == 1
        assert list(tmp_path.iterdir()) == []

    def test_shows_nothing_old_of_one_that_begins_to_fail(self, tmp_path: Path) -> None:
        fails = threading.Event()

        def collect() -> Iterable[Sample]:
            if fails.is_set():
                raise OSError("gone")
            return [Sample("deepops_a", 1)]

        with running(tmp_path, one=collect):
            wait_for(tmp_path, "one", up=True)
            fails.set()
            wait_for(tmp_path, "one", up=False)
            fails.clear()
            wait_for(tmp_path, "one", up=True)

    def test_does_not_wait_for_one_that_hangs(self, tmp_path: Path) -> None:
        ends, queries = threading.Event(), iter([False])

        def hang() -> Iterable[Sample]:
            if next(queries, True):
                ends.wait(60)
            return [Sample("deepops_a", 1)]

        with running(tmp_path, stuck=hang, good=lambda: [Sample("deepops_b", 1)]):
            wait_for(tmp_path, "good", up=True)
            wait_for(tmp_path, "stuck", up=False)
            ends.set()


class TestTheProgram:
    def test_ends_when_it_is_reported_to_and_leaves_nothing(self, tmp_path: Path) -> None:
        config = tmp_path / "nodemetrics.json"
        directory = tmp_path / "textfiles"
        directory.mkdir()
        jobs = {"cgroup": str(tmp_path), "map": str(tmp_path / "jobs"), "dcgm": str(tmp_path / "gpus")}
        config.write_text(json.dumps({"directory": str(directory), "interval_s": 0.05, "collectors": {"jobs": jobs}}))
        code = "from deepopsctl.node_programs.services.node_metrics.cli import main; main()"
        program = [sys.executable, "-c", code, "--config", str(config)]
        running = subprocess.Popen(program, cwd=ROOT)
        wait_until("it writes", (directory / "nodemetrics-self.prom").exists)
        running.terminate()

        assert running.wait(30) == 0
        assert list(directory.iterdir()) == []

    @pytest.mark.parametrize("text", ["", '{"collectors": 1}'])
    def test_reports_which_file_it_can_not_use(
        self, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "nodemetrics.json"
        path.write_text(text)

        assert main(["--config", str(path)]) == 3
        assert str(path) in capsys.readouterr().err


def test_every_collector_gets_its_settings() -> None:
    assert set(COLLECTORS) == set(NODE_COLLECTORS)


def test_a_compute_node_maps_its_jobs_to_its_gpus() -> None:
    node = MonitoredNode("n1", "c", frozenset({"slurm_compute"}), "192.0.2.1", gpus=("0", "1.7"))

    jobs = {"map": "/run/deepops/jobs", "dcgm": "/run/deepops/gpus", "gpus": ["0", "1.7"]}
    assert settings_of(node) == {"jobs": jobs}
    assert settings_of(replace(node, groups=frozenset({"slurm_login"}))) == {}


def test_looks_once_where_a_person_asks() -> None:
    assert once({"x": kind_of(lambda: [Sample("deepops_a", 1)])}, {"x": {}}).endswith("deepops_a 1\n")
    # by the command that an alert names
    rules = (ROOT / "roles/prometheus/files/rules/alerts-monitoring.yml").read_text()
    named = re.findall("`deepops-nodemetrics ([^`]+)`", rules)
    assert [_parser().parse_args(words.split()).action for words in named] == ["once"]
