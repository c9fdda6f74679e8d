"""What `upgrade os --check` makes of what the nodes answered, and which nodes it may touch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from deepopsctl.cli.views.upgrade import os_plan_lines
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.errors import ExitCode
from deepopsctl.lifecycle.os_plan import OsFacts, OsPlan, kernel_warnings, make_plan, parse_facts, pending_sentences
from deepopsctl.lifecycle.rolling import is_begun, select
from deepopsctl.nodes.workflow import SILENT
from deepopsctl.slurm.state import SlurmJob, SlurmNode, SlurmState
from tests.support.runs import CLUSTER

TOOL = {"packages": {"libxml2": ["2.1", "2.2"]}}
KERNEL = {"packages": {"linux-image-6.12.9-amd64": ["", "6.12.9"]}, "new_kernel": "6.12.9-amd64"}
ALL: Mapping[str, Mapping[str, Any]] = {node.name: TOOL for node in CLUSTER.nodes}


def slurm(*jobs: SlurmJob, reserved: frozenset[str] = frozenset(), **states: tuple[str, str, str]) -> SlurmState:
    nodes = {f"cn{n}": SlurmNode(f"cn{n}", "IDLE") for n in (1, 2, 3, 4)}
    nodes |= {name: SlurmNode(name, state, reason, user) for name, (state, reason, user) in states.items()}
    return SlurmState(installed=True, controller_up=True, nodes=nodes, jobs=jobs, reserved=reserved)


def plan(
    answers: Mapping[str, Mapping[str, Any]] = ALL,
    state: SlurmState | None = None,
    failures: Mapping[str, str] | None = None,
) -> OsPlan:
    facts = {name: parse_facts(answer) for name, answer in answers.items()}
    return make_plan(CLUSTER.nodes, facts, failures or {}, state or slurm())


def test_compute_nodes_come_first_and_those_that_all_depend_on_last() -> None:
    made = plan(state=slurm(SlurmJob("7", "alice", "RUNNING", "batch", ("cn3",))))

    assert (made.idle, made.busy, made.others) == (("cn1", "cn2", "cn4"), ("cn3",), ("login1", "ctl1"))


def test_a_node_with_nothing_to_do_is_left_in_service() -> None:
    made = plan(
        {"cn1": TOOL, "cn2": {"held": {"htop": ["1", "2"]}}, "cn3": {"reboot": "kernel 2 is installed, 1 runs"}}
    )

    assert made.todo == ("cn1", "cn3")


def test_a_node_that_serves_others_is_never_drained_or_rebooted_though_it_computes() -> None:
    text = "schema: 1\ncluster: {name: hpc, user: ubuntu}\n"
    text += "nodes: [{names: one, roles: [controller, compute]}]\npartitions: [{name: batch, nodes: one}]\n"
    nodes = parse_spec(text, "cluster.yml").nodes

    made = make_plan(nodes, {"one": parse_facts(KERNEL)}, {}, SlurmState())

    assert (made.compute.free, made.others) == ((), ("one",))


@pytest.mark.parametrize(
    ("state", "reason", "user", "expected"),
    [
        ("IDLE", "", "", "free"),
        ("MIXED", "", "", "free"),
        ("IDLE+DRAIN", "deepopsctl: node upgrade os", "root", "begun"),
        ("IDLE+DRAIN", "deepopsctl: node upgrade os failed, see run 1", "root", "begun"),
        ("IDLE+DRAIN", "deepopsctl: node upgrade os, validation failed, see run 1", "root", "begun"),
        ("DOWN+DRAIN+REBOOT_ISSUED", "deepopsctl: node reboot: upgrade os : reboot issued", "root", "begun"),
        ("DOWN", "deepopsctl: node reboot: upgrade os : reboot complete", "root", "begun"),
        # of others, and of other commands
        ("IDLE+DRAIN", "bad DIMM", "alice", "left"),
        ("IDLE+DRAIN", "deepopsctl: node upgrade", "root", "left"),
        ("IDLE+DRAIN", "deepopsctl: node upgrade nvidia", "root", "left"),
        ("IDLE+DRAIN", "deepopsctl: fan", "root", "left"),
        ("MIXED+DRAIN+REBOOT_REQUESTED", "deepopsctl: node reboot", "root", "left"),
        ("DOWN*", "Not responding", "slurm", "left"),
        ("IDLE*", "", "", "left"),
        # resumed by a user: it has jobs again
        ("IDLE", "deepopsctl: node upgrade os", "root", "free"),
    ],
)
def test_only_its_own_drains_are_taken_up_and_those_of_others_left_alone(
    state: str, reason: str, user: str, expected: str
) -> None:
    chosen = select(["cn1"], slurm(cn1=(state, reason, user)), "upgrade os")

    where = "begun" if chosen.begun else "free" if chosen.free else "left"
    assert where == expected
    assert is_begun(SlurmNode("cn1", state, reason, user), "upgrade os") is (expected == "begun")


def test_a_node_whose_validation_was_cut_off_is_taken_up() -> None:
    chosen = select(["cn1", "cn2", "cn9"], slurm(reserved=frozenset({"cn2"})), "upgrade os")

    assert (chosen.begun, chosen.free) == (("cn2",), ("cn1",))
    assert chosen.left_alone == {"cn9": "Slurm does not know it"}


def test_nodes_with_the_same_packages_are_shown_together() -> None:
    held = {**KERNEL, "held": {"htop": ["1", "2"]}, "left": {"slurmd": ["24", "26"]}, "kept_back": ["vim"]}
    answers: dict[str, Mapping[str, Any]] = {"cn1": held, "cn2": held, "cn3": TOOL, "cn4": {}}
    jobs = SlurmJob("7", "al\x1bice", "RUNNING", "batch", ("cn3",))

    lines = list(os_plan_lines(plan(answers, slurm(jobs, cn3=("MIXED", "", ""), cn4=("DOWN*", "", "")))))

    assert lines == [
        "cn[1-2]:",
        "  linux-image-6.12.9-amd64 (new) -> 6.12.9",
        "  held, stays: htop 1 -> 2",
        "  has its own command, stays: slurmd 24 -> 26",
        "  apt would have to remove packages, stays: vim",
        "  reboot: kernel 6.12.9-amd64 is new",
        "cn3:",
        "  libxml2 2.1 -> 2.2",
        "idle, at once: cn[1-2]",
        "after their jobs: cn3; job 7 (al\x1bice) is there",
    ]


def test_a_long_list_of_packages_is_cut() -> None:
    many = {"packages": {f"lib{n}": ["1", "2"] for n in range(40)}}

    assert "  and 10 more packages" in os_plan_lines(plan({"cn1": many}))


def test_nodes_that_did_not_answer_are_named_and_decide_the_exit_code() -> None:
    assert plan(failures={"cn4": SILENT}).exit_code is ExitCode.UNREACHABLE
    assert plan(failures={"cn4": "E: no space left", "cn3": SILENT}).exit_code is ExitCode.FAILED
    assert plan().exit_code is ExitCode.OK
    assert "left out: cn4: does not answer" in os_plan_lines(plan(failures={"cn4": SILENT}))


def test_an_answer_that_is_no_answer_is_nothing_to_do() -> None:
    outlier = parse_facts({"packages": ["x"], "held": {"a": "1", "b": [1]}, "kept_back": "vim", "reboot": None})

    assert outlier == OsFacts()


def test_what_a_node_still_needs_is_a_sentence() -> None:
    facts = parse_facts(
        {"reboot": "kernel 2", "pending": ["munge"], "kept_back": ["vim"], "conffiles": ["/etc/a.dpkg-dist"]}
    )

    assert list(pending_sentences(facts, reboots=False)) == [
        "a reboot is needed, and not done here: kernel 2",
        "munge restarts in its new version at the next `deepopsctl deploy`",
        "vim stays: apt would have to remove other packages for it",
        "edited files stay, their new versions are /etc/a.dpkg-dist",
    ]
    assert len(list(pending_sentences(facts, reboots=True))) == 2


def test_a_boot_loader_that_chose_another_kernel_is_named() -> None:
    before = {name: OsFacts(installed_kernel="6.12.9") for name in ("cn1", "cn2", "cn3")}
    after = {"cn1": OsFacts(kernel="6.12.9"), "cn2": OsFacts(kernel="6.1.1"), "cn3": OsFacts(kernel="6.1.1")}

    assert list(kernel_warnings(before, after)) == [
        "cn[2-3] rebooted into kernel 6.1.1, and 6.12.9 is installed: its boot loader chose another"
    ]
    assert list(kernel_warnings({"cn1": OsFacts()}, {"cn1": OsFacts(kernel="6.1.1")})) == []
