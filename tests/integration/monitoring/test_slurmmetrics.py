"""Prometheus' own tool reads every text that `deepops-slurmmetrics` writes."""

from __future__ import annotations

import subprocess

import pytest

from deepopsctl.node_programs.slurm_metrics import nodes
from deepopsctl.node_programs.slurm_metrics.asking import FIELD, RECORD, AskingError
from tests.data.slurm_metrics_samples import DATA, RELEASES, samples, snapshot_of

HOSTILE = 'a"b\\c\nd\r{e="f"} 1 \x00\x1b[31m\u2028# TYPE x counter ' + "ß" * 300


def promtool_output(text: str) -> str:
    """What it has against a text; nothing where it has nothing."""
    checked = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False)
    return (checked.stdout + checked.stderr).decode() + (
        "" if checked.returncode == 0 else f"exit status {checked.returncode}"
    )


@pytest.mark.parametrize("release", RELEASES)
def test_prometheus_reads_what_comes_of_each_release(release: str) -> None:
    assert promtool_output(snapshot_of(release).text) == ""


def test_prometheus_reads_the_metrics_of_a_slurm_that_is_down() -> None:
    down = AskingError("Unable to contact slurm controller (connect failure)")

    assert promtool_output(snapshot_of("24.11", but={"sdiag": down, "sacctmgr": down}).text) == ""


def test_prometheus_reads_the_worst_that_people_write() -> None:
    drained = ["n1", "gpu", "idle+drain", "0/8/0/8", "16000", "0", "N/A", "gpu:2", "gpu:0", HOSTILE, "1", HOSTILE]
    waiting = ["1", "PENDING", HOSTILE, HOSTILE, HOSTILE, "1", "", "cpu=1,mem=1G", "1", "N/A", HOSTILE]
    text = snapshot_of(
        "24.11", but={"sinfo": FIELD.join(drained) + RECORD, "squeue": FIELD.join(waiting) + RECORD}
    ).text

    assert len(drained) == len(nodes.FIELDS)
    assert promtool_output(text) == ""
    assert samples(text)["slurm_nodes"] == 1
    # what was written is in a label, and no line of its own
    assert not any(line.startswith(("d", "# TYPE x")) and not line.startswith("deepops_") for line in text.splitlines())


def test_promtool_rejects_a_text_that_is_not_valid() -> None:
    assert "exit status" in promtool_output('slurm_nodes{node="n1} 1\n')
    # recorded from 26.05: Slurm's own text passes, too
    assert promtool_output((DATA / "26.05" / "metrics-nodes.txt").read_text(encoding="utf-8")) == ""
