"""What `upgrade nvidia --check` makes of a check run of the component."""

from __future__ import annotations

from deepopsctl.cli.views.upgrade import nvidia_plan_lines
from deepopsctl.lifecycle.upgrade_nvidia import NvidiaOptions, NvidiaPlan, plan_of
from deepopsctl.run.events import Change, Totals
from deepopsctl.run.outcome import Failure
from deepopsctl.slurm.state import SlurmJob, SlurmNode, SlurmState
from tests.support.runs import run_of

NAMES = ["gpu1", "gpu2", "gpu3", "gpu4"]
DETAIL = "550.163 -> branch 580"


def exchange(host: str) -> Change:
    return Change(host, "nvidia", "package", "libcuda1", "exchange", DETAIL)


def plan(*changes: Change, failures: tuple[Failure, ...] = (), **states: tuple[str, str]) -> NvidiaPlan:
    nodes = {name: SlurmNode(name, *states.get(name, ("IDLE", ""))) for name in NAMES}
    slurm = SlurmState(True, True, nodes=nodes, jobs=(SlurmJob("7", "alice", "RUNNING", "gpu", ("gpu1",)),))
    hosts = {name: Totals(unreachable=int(name == "gpu4")) for name in NAMES}
    return plan_of(run_of(*changes, *failures, hosts=hosts), NAMES, "580", slurm)


def test_nodes_with_another_branch_are_taken_and_those_that_have_it_left_in_service() -> None:
    made = plan(exchange("gpu1"), exchange("gpu2"), Change("gpu3", "nvidia", "file", "/etc/x", "write"))

    assert (made.todo, made.busy, made.silent) == (("gpu1", "gpu2"), ("gpu1",), ("gpu4",))
    assert list(nvidia_plan_lines(made)) == [
        "gpu[1-2]:",
        f"  libcuda1 {DETAIL}",
        "after their jobs: gpu1; job 7 (alice) is there",
        "left out: gpu4: does not answer",
    ]


def test_a_node_that_was_begun_is_taken_up_though_its_packages_are_exchanged() -> None:
    own, foreign = "deepopsctl: node upgrade nvidia", "bad DIMM"

    made = plan(exchange("gpu3"), gpu2=("IDLE+DRAIN", own), gpu3=("IDLE+DRAIN", foreign))

    assert (made.compute.begun, made.compute.free) == (("gpu2",), ())
    assert made.compute.left_alone == {"gpu3": "drained: bad DIMM"}


def test_a_branch_that_a_node_refuses_is_named_with_its_hint() -> None:
    failure = Failure("gpu1", "nvidia", "Refuse", "Debian 13 has no driver branch 999", "set another")
    silent = Failure("gpu4", "nvidia", "Query", "no route", "", unreachable=True)

    made = plan(failures=(failure, silent))

    assert made.refusals == {"gpu1": ("Debian 13 has no driver branch 999", "set another")}
    assert list(nvidia_plan_lines(made))[:2] == ["refused: gpu1: Debian 13 has no driver branch 999", "  set another"]


def test_the_command_that_goes_on_has_the_branch_and_the_nodes_quoted_for_a_shell() -> None:
    assert NvidiaOptions("580").again == "upgrade nvidia --to 580"
    assert NvidiaOptions("580", "gpu[1-2]").again == "upgrade nvidia --to 580 --limit 'gpu[1-2]'"
