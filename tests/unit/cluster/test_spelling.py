"""Words of cluster.yml that are nearly known ones get a warning with the nearest; two spellings of a key are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.spelling import misspelt_values, near_type
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Cluster

CLUSTER = """\
schema: 1
cluster: {{name: hpc}}
nodes:
  - {{names: ctl1, roles: [controller]}}
  - {{names: "gpu[01-16]", roles: [compute], gpus: {{type: {type}, count: 8}}, slurm: {{{node}: "10"}}}}
partitions: [{{name: gpu, nodes: "gpu[01-16]", options: {{{partition}: "5"}}}}]
"""


def cluster(gpu_type: str = "h100", node: str = "Weight", partition: str = "PriorityTier") -> Cluster:
    return parse_spec(CLUSTER.format(type=gpu_type, node=node, partition=partition), "cluster.yml")


def test_each_typing_error_is_named_once_with_the_nearest_word() -> None:
    warnings = [f"{each.message}; {each.hint}" for each in misspelt_values(cluster("H1OO", "Wieght", "PriorityTeir"))]

    assert warnings == [
        "slurm: Wieght of gpu[01-16] is not a key of a node in slurm.conf; did you mean Weight?",
        "options: PriorityTeir of gpu is not a key of a partition in slurm.conf; did you mean PriorityTier?",
        "gpus: H1OO of gpu[01-16] is not a type of GPU that deepopsctl knows; did you mean h100?",
    ]


def test_what_is_right_in_any_case_is_not_warned_of() -> None:
    assert list(misspelt_values(cluster("H100", "weight", "prioritytier"))) == []


@pytest.mark.parametrize("kind", ["", "mi250", "v100l", "a100-80", "a100_3g", "h100nvl", "gpu", "tesla_t4", "mine"])
def test_names_of_a_sites_own_are_left_alone(kind: str) -> None:
    assert near_type(kind) == ""


@pytest.mark.parametrize(
    ("kind", "meant"), [("h10", "h100"), ("h1000", "h100"), ("l4os", "l40s"), ("a1OO", "a100"), ("rtx409", "rtx4090")]
)
def test_a_digit_too_many_or_few_and_a_letter_like_one_are_typing_errors(kind: str, meant: str) -> None:
    assert near_type(kind) == meant


def test_init_and_inventory_warn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["init", "hpc", "--controller", "c1", "--compute", "n1", "--gpus", "H1OO:8"]) == ExitCode.OK
    assert "warning: cluster.yml: gpus: H1OO of n1" in capsys.readouterr().err
    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.OK
    assert "did you mean h100?" in capsys.readouterr().err
