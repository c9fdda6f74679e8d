"""Prometheus' own tool reads every text that `deepops-slurmmetrics` writes."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs.services.slurm_metrics import nodes
from deepopsctl.node_programs.services.slurm_metrics.asking import FIELD, RECORD, AskingError
from tests.data.slurm_metrics_samples import RELEASES, samples, snapshot_of
from tests.integration.monitoring import promtool

HOSTILE = 'a"b\\c\nd\r{e="f"} 1 \x00\x1b[31m\u2028# TYPE x counter ' + "ß" * 300


def errors(text: str) -> str:
    return promtool.errors("check", "metrics", text=text)


@pytest.mark.parametrize("release", RELEASES)
def test_prometheus_reads_what_comes_of_each_release(release: str) -> None:
    assert errors(snapshot_of(release).text) == ""


def test_prometheus_reads_the_metrics_of_a_slurm_that_is_down() -> None:
    down = AskingError("Unable to contact slurm controller (connect failure)")

    assert errors(snapshot_of("24.11", but={"sdiag": down, "sacctmgr": down}).text) == ""


def test_prometheus_reads_the_worst_that_people_write() -> None:
    drained = ["n1", "gpu", "idle+drain", "0/8/0/8", "16000", "0", "N/A", "gpu:2", "gpu:0", HOSTILE, "1", HOSTILE]
    waiting = ["1", "PENDING", HOSTILE, HOSTILE, HOSTILE, "1", "", "cpu=1,mem=1G", "1", "N/A", HOSTILE]
    text = snapshot_of(
        "24.11", but={"sinfo": FIELD.join(drained) + RECORD, "squeue": FIELD.join(waiting) + RECORD}
    ).text

    assert len(drained) == len(nodes.FIELDS)
    assert errors(text) == ""
    assert samples(text)["slurm_nodes"] == 1
    # what was written is in a label, and no line of its own
    assert not any(line.startswith(("d", "# TYPE x")) and not line.startswith("deepops_") for line in text.splitlines())
