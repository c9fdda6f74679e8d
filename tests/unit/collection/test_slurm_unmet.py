"""What nodes lack is refused where it is new in a slurm.conf, and reported where it was in force already."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import node_modules as nodeside

effects = nodeside.load("slurm.effects")
slurm_config = nodeside.plugin("modules", "slurm_config")
MANAGED = "# Written by deepopsctl\n"
OLD = f"{MANAGED}ClusterName=hpc\nProlog=/s/old\nNodeName=gpu01 CPUs=8\n"
GRES = "NodeName=gpu[01-02] Name=gpu File=/dev/nvidia0\n"
MESSAGE = "gpu01: something is missing"


def sorted_out(before: str, after: str, key: str, **more: object) -> tuple[list[str], list[str]]:
    """What is refused where this slurm.conf becomes that one, and what was in force already."""
    names = dict.fromkeys(slurm_config.ALWAYS, "")
    current = {f"/s/{name}": text for name, text in {**names, "slurm.conf": before, "gres.conf": GRES}.items()}
    files = {**current, "/s/slurm.conf": after, "/s/gres.conf": str(more.pop("gres", GRES))}
    params = {
        "directory": "/s",
        "unmet": [{"names": ["gpu01"], "needed_by": key, "problem": MESSAGE, "new": False, **more}],
    }
    fresh, known = slurm_config.unmet(params, files, current, effects.changes(before, after) if before else [])
    return [entry["problem"] for entry in fresh], [entry["problem"] for entry in known]


@pytest.mark.parametrize(
    ("before", "after", "key", "more"),
    [
        pytest.param("", OLD, "Prolog", {}, id="the first configuration"),
        pytest.param(OLD, OLD.replace("/s/old", "/s/new"), "prolog", {}, id="another program"),
        pytest.param(OLD, OLD, "Prolog", {"new": True}, id="one that deepopsctl's own calls from now on"),
        pytest.param(OLD, OLD.replace("CPUs=8", "CPUs=8 RealMemory=9"), "RealMemory", {}, id="more of a node"),
        pytest.param(OLD.replace("NodeName=gpu01 CPUs=8", "# none"), OLD, "RealMemory", {}, id="a new node"),
        pytest.param(OLD, OLD, "gpus", {"gres": "NodeName=gpu[01-02] Name=gpu File=/dev/nvidia1\n"}, id="devices"),
    ],
)
def test_what_is_new_is_refused(before: str, after: str, key: str, more: dict[str, object]) -> None:
    assert sorted_out(before, after, key, **more) == ([MESSAGE], [])


@pytest.mark.parametrize(
    ("after", "key", "more"),
    [
        pytest.param(OLD, "Prolog", {}, id="nothing changes"),
        pytest.param(f"{OLD}Epilog=/s/epilog\n", "Prolog", {}, id="something else changes"),
        pytest.param(f"{OLD}NodeName=gpu03 CPUs=4\n", "RealMemory", {}, id="another node comes"),
        pytest.param(
            OLD, "gpus", {"gres": f"{GRES}NodeName=gpu03 Name=gpu File=/dev/x\n"},
            id="another node's devices",
        ),
    ],
)  # fmt: skip
def test_what_was_in_force_already_is_reported_and_stops_nothing(after: str, key: str, more: dict[str, object]) -> None:
    assert sorted_out(OLD, after, key, **more) == ([], [MESSAGE])


def test_a_deploy_ends_before_a_file_is_written(tmp_path: Path) -> None:
    unmet = [{"names": ["gpu01"], "needed_by": "Prolog", "problem": MESSAGE}]
    files = {**dict.fromkeys(slurm_config.ALWAYS, ""), "slurm.conf": OLD}
    params = {"component": "slurm", "step": "c", "directory": str(tmp_path), "files": files, "unmet": unmet}

    with pytest.raises(nodeside.FailedError, match="something is missing; nothing was changed") as refused:
        nodeside.Call(params).run(slurm_config)

    assert "slurm_config in settings.yml" in refused.value.data["hint"]
    assert list(tmp_path.iterdir()) == []
