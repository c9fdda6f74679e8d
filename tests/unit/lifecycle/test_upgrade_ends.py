"""How upgrades of packages and of the driver end where some nodes did not answer."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import MappingProxyType

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import ExitCode
from deepopsctl.lifecycle import upgrade_nvidia, upgrade_os
from deepopsctl.lifecycle.os_plan import OsFacts, OsPlan
from deepopsctl.lifecycle.rolling import Selection
from deepopsctl.lifecycle.upgrade_nvidia import NvidiaOptions, NvidiaPlan
from deepopsctl.lifecycle.upgrade_os import OsOptions
from deepopsctl.nodes.workflow import SILENT, Flow, Report, StoppedError
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmState
from tests.support.runs import cluster_dir, console, run_of

TEXT = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, roles: [controller]}
  - {names: "gpu[1-2]", roles: [compute], gpus: {type: a100, count: 2}}
partitions: [{name: gpu, nodes: all}]
"""
NOBODY = Selection((), (), MappingProxyType({}))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDir:
    opened = cluster_dir(tmp_path, TEXT)
    opened.refresh_inventory(opened.cluster())
    opened.settings.parent.mkdir(parents=True, exist_ok=True)
    opened.settings.write_text("---\nnvidia_driver_branch: '550'\n")
    monkeypatch.setattr(Flow, "survey", lambda *_, **__: SlurmState())
    return opened


@pytest.mark.parametrize(
    ("silent", "code"),
    [({}, ExitCode.OK), ({"gpu2": SILENT}, ExitCode.UNREACHABLE), ({"gpu2": "E: no list"}, ExitCode.FAILED)],
)
def test_packages_of_nodes_without_an_answer_are_not_taken_for_current(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch, silent: dict[str, str], code: ExitCode
) -> None:
    plan = OsPlan({"gpu1": OsFacts()}, NOBODY, (), silent, SlurmState())
    monkeypatch.setattr(upgrade_os, "_query", lambda *_: plan)

    report = upgrade_os.upgrade_os(directory, OsOptions(), RunRequest(directory, ""), console(directory))

    assert (report.exit_code, bool(report.closing)) == (code, not silent)


def test_an_upgrade_waits_for_another_run_and_reports_what_is_done_before_it_stops(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.runs.mkdir()
    with (directory.runs / ".lock").open("w") as other:

        def query(*_: object) -> OsPlan:
            fcntl.flock(other, fcntl.LOCK_EX)
            return OsPlan({}, NOBODY, ("gpu1", "ctl1"), {}, SlurmState())

        def work(_: object, names: list[str], **__: object) -> RunOutcome:
            if "ctl1" in names:
                raise StoppedError("a newer cluster.yml was applied", "git pull")
            return run_of()

        monkeypatch.setattr(upgrade_os, "_query", query)
        monkeypatch.setattr(Flow, "idle", lambda *_: fcntl.flock(other, fcntl.LOCK_UN))
        monkeypatch.setattr(upgrade_os._Upgrade, "_run", work)

        report = upgrade_os.upgrade_os(directory, OsOptions(), RunRequest(directory, ""), console(directory))

    assert report.closing == "gpu1 upgraded"
    assert report.stopped
    assert report.stopped.message == "ctl1 failed: ctl1: a newer cluster.yml was applied"


def nvidia(directory: ClusterDir, monkeypatch: pytest.MonkeyPatch, silent: tuple[str, ...]) -> Report:
    plan = NvidiaPlan("580", {}, {}, NOBODY, silent, SlurmState())
    monkeypatch.setattr(upgrade_nvidia, "_query", lambda *_: plan)
    return upgrade_nvidia.upgrade_nvidia(directory, NvidiaOptions("580"), RunRequest(directory, ""), console(directory))


def test_a_silent_node_is_not_said_to_have_the_branch(directory: ClusterDir, monkeypatch: pytest.MonkeyPatch) -> None:
    report = nvidia(directory, monkeypatch, ("gpu2",))

    assert (report.exit_code, report.closing) == (ExitCode.UNREACHABLE, "")
    assert "580" not in directory.settings.read_text()


@pytest.mark.parametrize("has_settings", [True, False])
def test_settings_follow_nodes_that_have_the_branch_and_are_made_where_a_site_has_none(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch, has_settings: bool
) -> None:
    if not has_settings:
        directory.settings.unlink()

    assert nvidia(directory, monkeypatch, ()).exit_code is ExitCode.OK
    assert "580" in directory.settings.read_text()


def test_a_branch_that_another_file_sets_is_not_taken_for_changed(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = directory.settings.read_text()
    directory.settings.with_name("site.yml").write_text("nvidia_driver_branch: '550'\n")

    report = nvidia(directory, monkeypatch, ())

    assert report.stopped
    assert report.stopped.message.startswith("a file that comes after settings.yml")
    assert directory.settings.read_text() == before
