"""What a second `upgrade slurm` continues with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.errors import ExitCode
from deepopsctl.lifecycle import upgrade_slurm
from deepopsctl.lifecycle.upgrade_plan import NodeFacts, Wanted, make_plan
from deepopsctl.lifecycle.upgrade_slurm import BACK, CONTROLLER, DRAIN, NODES
from deepopsctl.nodes.workflow import NODE_STATE, Flow, Report
from deepopsctl.run.outcome import Failure, RunOutcome, TaskResult
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmNode, SlurmState
from tests.support.runs import cluster_dir, console, run_of
from tests.unit.lifecycle.test_upgrade_plan import ALL, NEW, SERVED, node

Calls = list[tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]]
# all have the new version but cn1
UPGRADED = {name: node(NEW) for name in ALL} | {"ctl1": replace(ALL["ctl1"], installed={"slurmctld": NEW})}
CN1_LEFT = {**UPGRADED, "cn1": node()}


class Upgrade:
    """`upgrade slurm` on nodes that answer what a test has them answer."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.calls, self.patch = cluster_dir(path), Calls(), monkeypatch
        self.directory.settings.parent.mkdir(parents=True, exist_ok=True)
        self.directory.settings.write_text("---\n")
        self.results: tuple[TaskResult, ...] = ()

        def run(_flow: Flow, _cluster: object, playbooks: tuple[str, ...], names: Any, **extra: object) -> RunOutcome:
            self.calls.append((playbooks, tuple(names), extra))
            return run_of(*self.results)

        self.slurm = SlurmState()
        monkeypatch.setattr(Flow, "survey", lambda *_, **__: SlurmState())
        monkeypatch.setattr(Flow, "slurm_now", lambda _: self.slurm)
        monkeypatch.setattr(Flow, "run_playbooks", run)
        monkeypatch.setattr(upgrade_slurm._Upgrade, "_validate", lambda *_: None)

    def assign(self, old: str, new: str) -> None:
        """Give the nodes with the roles `old` the roles `new`."""
        spec = self.directory.spec
        spec.write_text(spec.read_text().replace(old, new))

    def __call__(
        self,
        facts: Mapping[str, NodeFacts],
        record: Mapping[str, object],
        served: Mapping[str, Any] = SERVED,
        *,
        is_up: bool = True,
        **nodes: SlurmNode,
    ) -> Report:
        slurm, self.slurm = SlurmState(controller_up=is_up, nodes=nodes), SlurmState(controller_up=True, nodes=nodes)
        wanted = Wanted("26.05")
        cluster = self.directory.cluster()
        plan = make_plan(cluster, wanted, facts, served, slurm)
        self.patch.setattr(upgrade_slurm, "_query", lambda *_: (plan, record, slurm))
        request = RunRequest(self.directory, "")
        return upgrade_slurm.upgrade_slurm(self.directory, wanted, request, console(self.directory))


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    return Upgrade(tmp_path, monkeypatch)


def going_back(release: str) -> dict[str, object]:
    return {"phase": "back", "from": "24.11", "to": release, "why": "it died", "hosts": ["ctl1"]}


def test_the_way_back_needs_nothing_of_the_new_release(upgrade: Upgrade) -> None:
    report = upgrade(ALL, going_back("26.05"), served={})

    assert upgrade.calls[0][:2] == ((BACK,), ("ctl1",))
    assert report.stopped
    assert "it died" in report.stopped.message


def test_the_way_back_from_another_release_is_named(upgrade: Upgrade) -> None:
    facts = {**ALL, "ctl1": NodeFacts("Debian 13", {"slurmctld": NEW}, unfinished=False, record=going_back("25.11"))}

    report = upgrade(facts, going_back("25.11"))

    assert upgrade.calls == []
    assert report.stopped
    assert "`deepopsctl upgrade slurm --to 25.11`" in report.stopped.hint


def test_a_node_that_an_ended_upgrade_had_drained_is_resumed_when_it_is_upgraded(upgrade: Upgrade) -> None:
    drained = SlurmNode("cn1", "IDLE+DRAIN", "deepopsctl: node upgrade", "root")
    foreign = SlurmNode("cn2", "IDLE+DRAIN", "bad DIMM", "alice")

    report = upgrade(CN1_LEFT, {}, cn1=drained, cn2=foreign)

    resumed = [extra["deepops_nodes"] for playbooks, _, extra in upgrade.calls if playbooks == (NODE_STATE,)]
    assert (report.stopped, resumed) == (None, [["cn1"]])


def test_a_controller_that_computes_takes_no_job_from_before_slurmctld_stops_until_its_slurmd_is_new(
    upgrade: Upgrade,
) -> None:
    upgrade.assign("[controller]", "[controller, compute]")

    assert upgrade({**UPGRADED, "ctl1": ALL["ctl1"]}, {}).stopped is None

    steps = [playbooks[0] for playbooks, _, _ in upgrade.calls if playbooks[0] in (DRAIN, CONTROLLER, NODES)]
    assert steps == [DRAIN, CONTROLLER, NODES]


def test_a_controller_that_computes_gets_a_new_slurmd_where_slurmctld_was_off_when_it_went_on(
    upgrade: Upgrade,
) -> None:
    upgrade.assign("[controller]", "[controller, compute]")

    upgrade(UPGRADED, {"phase": "controller", "from": "24.11", "to": "26.05"}, is_up=False)

    steps = [(playbooks[0], names) for playbooks, names, _ in upgrade.calls if playbooks[0] in (DRAIN, NODES)]
    assert steps == [(NODES, ("ctl1", "ctl1"))]


def test_a_slurmdbd_that_stays_new_when_slurmctld_goes_back_is_named_and_its_host_takes_no_job(
    upgrade: Upgrade,
) -> None:
    upgrade.assign("[login]", "[dbd, compute]")

    report = upgrade(ALL, going_back("26.05"), login1=SlurmNode("login1", "IDLE+DRAIN", "deepopsctl: node upgrade"))

    assert report.stopped
    assert "24.11 runs again as before, with slurmdbd 26.05: it died" in report.stopped.message
    # its slurmd is old, and the programs that it would start a job with are new
    assert [playbooks for playbooks, _, _ in upgrade.calls if playbooks == (NODE_STATE,)] == []


def test_a_slurmdbd_that_stayed_new_when_slurmctld_went_back_is_not_upgraded_again(upgrade: Upgrade) -> None:
    upgrade.assign("[login]", "[login, dbd]")
    slurmdbd = replace(node(NEW, "slurmdbd"), database=ALL["ctl1"].database)

    assert upgrade({**ALL, "login1": slurmdbd}, {}).stopped is None

    assert [set(names) for playbooks, names, _ in upgrade.calls if playbooks == (CONTROLLER,)] == [{"ctl1"}]


def test_a_node_that_failed_and_is_silent_now_stays_drained(upgrade: Upgrade) -> None:
    failed = SlurmNode("cn1", "IDLE*+DRAIN", "deepopsctl: node upgrade", "root")
    facts = {name: node for name, node in UPGRADED.items() if name != "cn1"}

    upgrade(facts, {"phase": "nodes", "from": "24.11", "to": "26.05"}, cn1=failed)

    assert [playbooks for playbooks, _, _ in upgrade.calls if playbooks == (NODE_STATE,)] == []


def test_an_upgrade_does_not_end_while_nobody_can_say_which_nodes_it_has_drained(upgrade: Upgrade) -> None:
    upgrade.patch.setattr(Flow, "slurm_now", lambda _: SlurmState(error="timed out"))

    report = upgrade(CN1_LEFT, {})

    assert report.stopped
    assert report.stopped.message == "slurmctld does not answer: timed out; nodes may be drained"


def test_only_nodes_that_take_jobs_again_are_validated(upgrade: Upgrade) -> None:
    upgrade.results = (TaskResult("ctl1", "", {"registered": {"left": {}, "resumed": []}}),)
    validated: list[tuple[str, ...]] = []
    upgrade.patch.setattr(upgrade_slurm._Upgrade, "_validate", lambda _, names: validated.append(names))

    # a user has drained it meanwhile
    assert upgrade(CN1_LEFT, {}).stopped is None

    assert validated == []


def test_a_node_where_a_job_is_still_starting_is_left_out(upgrade: Upgrade) -> None:
    upgrade.results = (TaskResult("ctl1", "", {"starting": {"cn1": "job 7 is starting"}}),)

    report = upgrade(CN1_LEFT, {})

    assert report.stopped
    assert report.warnings[0].startswith("cn1 is left out, with its old Slurm: job 7 is starting; ")


def test_a_node_that_does_not_register_is_no_success(upgrade: Upgrade) -> None:
    left = {"cn1": "its slurmd is 24.11.5"}
    upgrade.results = (TaskResult("ctl1", "", {"registered": {"left": left, "resumed": []}}),)

    report = upgrade(CN1_LEFT, {})

    assert report.exit_code is ExitCode.FAILED
    assert report.stopped
    assert report.stopped.message == "cn1 is left out, the others have Slurm 26.05.5"
    assert "its slurmd is 24.11.5" in report.warnings[0]


def test_only_what_is_deployed_is_deployed_at_the_end(upgrade: Upgrade) -> None:
    spec = upgrade.directory.spec
    spec.write_text(spec.read_text() + "components: [slurm, monitoring]\n")

    assert upgrade(UPGRADED, {"phase": "deploy", "from": "24.11", "to": "26.05"}).exit_code is ExitCode.OK

    assert [playbooks for playbooks, _, _ in upgrade.calls if "slurm" in playbooks] == [("slurm",)]


@pytest.mark.parametrize("record", [{}, {"phase": "prepare", "from": "24.11", "to": "26.05"}])
def test_a_refused_upgrade_leaves_no_preference_of_apt_behind(upgrade: Upgrade, record: dict[str, object]) -> None:
    def run(_flow: Flow, _cluster: object, playbooks: tuple[str, ...], names: Any, **extra: object) -> RunOutcome:
        upgrade.calls.append((playbooks, tuple(names), extra))
        failed = (Failure("ctl1", "", "Fetch the packages", "E: unmet dependencies", ""),)
        return run_of(*failed, code=2) if playbooks == (upgrade_slurm.PREPARE,) else run_of()

    upgrade.patch.setattr(Flow, "run_playbooks", run)

    assert upgrade(ALL, record).exit_code is not ExitCode.OK

    last = [playbooks for playbooks, _, _ in upgrade.calls][-3:]
    assert last == [(upgrade_slurm.RECORD,), (upgrade_slurm.WITHDRAW,), ("slurm",)]
    assert set(upgrade.calls[-2][1]) == set(ALL)
