"""What becomes of a node for which a reboot was requested; and which nodes are never rebooted."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cli.interactive import Console
from deepopsctl.cli.passwords import Passwords
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.nodes import reboot
from deepopsctl.nodes.admit import NotAdmittedError
from deepopsctl.nodes.reboot import Phase, RebootOptions, phase_of, refuse_services
from deepopsctl.nodes.workflow import Flow, Report
from deepopsctl.run.command_line import RunRequest
from deepopsctl.run.outcome import RunOutcome, RunSummary, TaskResult
from deepopsctl.run.workspace import RunDir
from deepopsctl.slurm.state import SlurmNode
from tests.unit.lifecycle.small_cluster import CLUSTER

REASON = "deepopsctl: node reboot"


@pytest.mark.parametrize(
    ("state", "reason", "phase"),
    [
        ("MIXED+DRAIN+REBOOT_REQUESTED", REASON, Phase.WAITING),
        ("DOWN+DRAIN+REBOOT_ISSUED", f"{REASON} : reboot issued", Phase.REBOOTING),
        ("DOWN", f"{REASON} : reboot complete", Phase.BACK),
        ("DOWN*", f"{REASON} : reboot timed out", Phase.LATE),
        ("IDLE", "", Phase.IN_SERVICE),
        ("IDLE+DRAIN", "bad DIMM", Phase.TAKEN_OUT),
        ("IDLE+DRAIN", f"{REASON}, validation failed, see run 1", Phase.TAKEN_OUT),
        ("DOWN", "burnt", Phase.TAKEN_OUT),
    ],
)
def test_the_state_in_slurm_says_how_far_a_reboot_is(state: str, reason: str, phase: Phase) -> None:
    assert phase_of(SlurmNode("gpu01", state, reason=reason)) is phase


def test_a_node_that_all_others_depend_on_is_not_rebooted() -> None:
    text = "schema: 1\ncluster: {name: hpc, user: ubuntu}\nnodes:\n"
    text += '  - {names: ctl1, addresses: "10.0.0.1", roles: [controller]}\n'
    text += '  - {names: gpu1, addresses: "10.0.0.2", roles: [compute]}\n'
    cluster = parse_spec(f"{text}partitions: [{{name: gpu, nodes: gpu1}}]\n", "cluster.yml")

    refuse_services(cluster.compute)
    with pytest.raises(InputError, match="ctl1 is controller"):
        refuse_services(cluster.nodes)


def test_a_node_that_passed_is_not_reported_with_one_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "schema: 1\ncluster: {name: hpc, user: ubuntu}\n"
    text += "nodes: [{names: ctl1, roles: [controller]}, {names: 'gpu[1-2]', roles: [compute]}]\n"
    cluster = parse_spec(f"{text}partitions: [{{name: gpu, nodes: all}}]\n", "cluster.yml")
    (tmp_path / "cluster.yml").write_text(text)
    directory = ClusterDir.open(tmp_path)
    report = Report("node reboot", ("gpu1", "gpu2"))
    flow = Flow(
        directory, RunRequest(directory, ""), Console(directory, Passwords("", None, None), 0, yes=True), report
    )

    def refuse(*_: object) -> None:
        raise NotAdmittedError(["gpu1"], "gpu1 failed the validation", "", ExitCode.FAILED)

    monkeypatch.setattr(reboot, "try_out", refuse)
    work = reboot._Reboot(flow, cluster, cluster.compute, RebootOptions(("gpu[1-2]",)))

    work._admit(["gpu1", "gpu2"])
    work._conclude()

    assert report.closing == "gpu2 rebooted"
    assert report.stopped
    assert report.stopped.message == "gpu1: gpu1 failed the validation"


def test_a_node_that_slurm_can_not_reboot_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cluster.yml").write_text("schema: 1\n")
    directory = ClusterDir.open(tmp_path)
    console = Console(directory, Passwords("", None, None), 0, yes=True)
    flow = Flow(directory, RunRequest(directory, ""), console, Report("upgrade os", ()))
    answer = {"reboot": [{"name": "gpu1", "action": "host", "message": "deepopsctl: node upgrade os"}]}
    results = (TaskResult("ctl1", "", answer),)
    outcome = RunOutcome(RunDir(tmp_path), "", RunSummary({}, (), (), (), results), 1.0, 0)
    monkeypatch.setattr(Flow, "set_node_state", lambda *_, **__: outcome)

    lost = reboot.reboot_drained(flow, CLUSTER, ["gpu1"], "upgrade os")

    assert lost == {"gpu1": "it does not answer slurmctld (deepopsctl: node upgrade os)"}
