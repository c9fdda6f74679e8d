"""A plan as a file: what a later deploy compares, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import DeepOpsError, ExitCode, InputError
from deepopsctl.run.events import Change, Totals
from deepopsctl.run.outcome import Failure
from deepopsctl.run.plan import Plan, examine
from deepopsctl.run.plan_file import (
    PlanFile,
    inputs_of,
    read_plan,
    require_same_changes,
    require_same_inputs,
    write_plan,
)
from deepopsctl.run.request import RunRequest
from tests.support.runs import TEXT, cluster_dir, run_of

FILE = Change("cn1", "slurm", "file", "/etc/default/slurmd", "write", diff="-a\n+b")
RESTART = Change("cn1", "slurm", "unit", "slurmd.service", "restart")


def plan_of(*changes: Change | Failure) -> Plan:
    return examine(run_of(*changes, command="plan", hosts={"cn1": Totals(ok=1)}))


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    (tmp_path / "hpc").mkdir()
    return cluster_dir(tmp_path / "hpc")


@pytest.fixture
def content(tmp_path: Path) -> Path:
    (tmp_path / "content" / "roles").mkdir(parents=True)
    return tmp_path / "content"


def stored(path: Path, directory: ClusterDir, content: Path, *changes: Change) -> PlanFile:
    request = RunRequest(directory, "slurm", more=("operate/cluster/jobs",), limit="cn1", user_vars=({"a": "s3cret"},))
    write_plan(path, plan_of(*changes), request, content)
    return read_plan(path)


def test_a_plan_that_still_holds_is_read_as_it_was_made(tmp_path: Path, directory: ClusterDir, content: Path) -> None:
    path = tmp_path / "plan.json"
    made = stored(path, directory, content, RESTART, FILE)

    assert (made.components, made.limit, made.cluster) == (("slurm",), "cn1", "hpc")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in path.read_text()
    require_same_inputs(path, made, directory, inputs_of(content, directory, [{"a": "s3cret"}]))
    require_same_changes(path, made, plan_of(FILE, RESTART))


@pytest.mark.parametrize("changed", ["hpc/cluster.yml", "hpc/hardware.yml", "hpc/inventory/group_vars/all/settings.yml",
                                     "hpc/people.yml", "hpc/known_hosts", "content/roles/x.yml"])  # fmt: skip
def test_other_inputs_make_it_stale(changed: str, tmp_path: Path, directory: ClusterDir, content: Path) -> None:
    made = stored(tmp_path / "plan.json", directory, content, FILE)
    path = tmp_path / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {"cluster.yml": f"{TEXT}billing: {{}}\n", "people.yml": "schema: 1\n"}
    path.write_text(text.get(path.name, "a: 2\n"))

    with pytest.raises(DeepOpsError, match=r"stale: since it was made .*nothing was changed"):
        require_same_inputs(tmp_path / "plan.json", made, directory, inputs_of(content, directory, [{"a": "s3cret"}]))


def test_other_variables_another_cluster_or_release_are_refused(
    tmp_path: Path, directory: ClusterDir, content: Path
) -> None:
    path = tmp_path / "plan.json"
    made = stored(path, directory, content, FILE)
    same = inputs_of(content, directory, [{"a": "s3cret"}])

    for other, inputs, message in (
        (made, inputs_of(content, directory, [{"a": "other"}]), "is stale"),
        (replace(made, cluster="test"), same, "a plan of test, and this is hpc"),
        (replace(made, version="0.0.1"), same, r"made by deepopsctl 0\.0\.1"),
    ):
        with pytest.raises(DeepOpsError, match=message) as refused:
            require_same_inputs(path, other, directory, inputs)
        assert refused.value.exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ((FILE,), "no longer: slurm: restart slurmd.service on cn1"),
        ((FILE, RESTART, replace(RESTART, host="cn2")), "new: slurm: restart slurmd.service on cn2"),
        # the same file, edited since
        ((replace(FILE, diff="-c\n+b"), RESTART), "new: slurm: write /etc/default/slurmd on cn1"),
        ((), "no longer: "),
    ],
)
def test_other_changes_make_it_stale(
    now: tuple[Change, ...], message: str, tmp_path: Path, directory: ClusterDir, content: Path
) -> None:
    made = stored(tmp_path / "plan.json", directory, content, FILE, RESTART)

    with pytest.raises(DeepOpsError, match="the nodes are not as they were") as refused:
        require_same_changes(tmp_path / "plan.json", made, plan_of(*now))
    assert message in refused.value.message


def test_what_could_not_be_deployed_is_not_written_and_not_done_later(
    tmp_path: Path, directory: ClusterDir, content: Path
) -> None:
    path = tmp_path / "plan.json"
    broken = plan_of(FILE, Failure("cn1", "slurm", "Do it", "no", ""))

    with pytest.raises(DeepOpsError, match="is not written"):
        write_plan(path, broken, RunRequest(directory, "slurm"), content)
    assert not path.exists()
    made = stored(path, directory, content, FILE)
    with pytest.raises(DeepOpsError, match="nothing was changed"):
        require_same_changes(path, made, broken)


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"format": "deepopsctl plan 2"}), "[" * 100_000])
def test_another_file_is_not_a_plan(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)

    with pytest.raises(InputError, match="is not a plan"):
        read_plan(tmp_path / "plan.json")
