"""What `upgrade slurm --check` says of what the nodes have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from deepopsctl.lifecycle.upgrade_plan import NodeFacts, Plan, Wanted, make_plan
from deepopsctl.slurm.state import SlurmJob, SlurmNode, SlurmState
from tests.support.runs import CLUSTER

OLD, NEW = "24.11.5-4+deb13u1", "26.05.5-1"
PACKAGES = ["slurmctld", "slurmd", "slurmdbd", "slurm-client", "libslurm45t64"]
SERVED: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "Debian 13": {
        "trixie-slurm-wlm-26.05": {
            "source": "slurm-wlm", "release": "26.05", "version": NEW, "packages": PACKAGES, "libraries": ["libhwloc15"]
        }
    }
}  # fmt: skip


def node(version: str = OLD, *names: str, platform: str = "Debian 13") -> NodeFacts:
    return NodeFacts(platform, dict.fromkeys(names or ("slurmd", "slurm-client"), version), unfinished=False)


CONTROLLER = replace(
    node(OLD, "slurmctld", "slurmdbd", "slurm-client", "libslurm42t64"),
    settings={"ClusterName": "hpc", "SelectType": "select/cons_tres"},
    database={"isolation": False, "size_mb": 100, "free_mb": 10_000},
)
ALL = {"ctl1": CONTROLLER, "login1": node(OLD, "slurm-client"), **{f"cn{n}": node() for n in (1, 2, 3, 4)}}


WANTED = Wanted("26.05", "2")


def plan(facts: Mapping[str, NodeFacts] = ALL, wanted: Wanted = WANTED, slurm: SlurmState | None = None) -> Plan:
    # a plan knows what packages offer, where it can read them
    return make_plan(CLUSTER, wanted, facts, SERVED, slurm or SlurmState(controller_up=True), lambda _: {"slurmd": []})


def with_controller(**values: Any) -> dict[str, NodeFacts]:
    return {**ALL, "ctl1": replace(CONTROLLER, **values)}


def refusals(**values: Any) -> str:
    return str(plan(with_controller(**values)).refusals)


def test_controllers_come_first_then_login_nodes_then_batches() -> None:
    jobs = (SlurmJob("7", "alice", "RUNNING", "batch", ("cn3",)),)
    made = plan(slurm=SlurmState(controller_up=True, jobs=jobs))

    assert (made.installed, made.version, made.refusals) == ("24.11", "26.05.5", ())
    assert (made.center, made.login, made.batches) == (("ctl1",), ("login1",), (("cn1", "cn2"), ("cn3", "cn4")))
    assert made.jobs == jobs
    # libraries whose names have the release in them come by themselves
    assert made.packages("ctl1") == dict.fromkeys(("slurm-client", "slurmctld", "slurmdbd"), NEW)


def test_a_node_that_has_the_version_is_done_unless_its_installation_was_cut_off() -> None:
    done = node(NEW)
    made = plan({**ALL, "cn1": done, "cn2": replace(done, unfinished=True)})
    assert made.batches == (("cn2", "cn3"), ("cn4",))


def test_a_node_whose_slurmd_was_not_restarted_is_not_done() -> None:
    new = {**ALL, **{f"cn{n}": node(NEW) for n in (1, 2, 3, 4)}}
    running = {"cn1": "26.05.5", "cn2": "24.11.5", "cn3": ""}
    state = SlurmState(
        controller_up=True, nodes={name: SlurmNode(name, "IDLE", version=known) for name, known in running.items()}
    )
    assert plan(new, slurm=state).batches == (("cn2",),)


def test_a_node_that_does_not_answer_is_left_out_but_for_the_controller() -> None:
    made = plan({name: node for name, node in ALL.items() if name != "cn4"})
    assert (made.silent, made.refusals) == (("cn4",), ())
    assert "cn4 does not answer" in made.notes[0]
    assert "ctl1 does not answer" in str(plan({"cn1": node()}).refusals)


def test_a_hop_that_slurm_does_not_know_is_refused_with_the_way() -> None:
    made = plan({name: replace(node, installed={"slurmd": "22.05.8-4+deb12u3"}) for name, node in ALL.items()})
    message, hint = made.refusals[0]
    assert "22.05 -> 23.11 -> 25.05 -> 26.05" in message
    assert "23.11, 25.05 is in no suite of Debian" in hint


def test_a_release_that_is_not_in_the_repository_is_refused_with_both_ways_to_get_it() -> None:
    made = plan(wanted=Wanted("25.11"))
    assert "packages build slurm --release 25.11 --for debian13" in made.refusals[0][1]
    assert "packages add" in made.refusals[0][1]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ClusterName": "hpc; drop"}, "slurmdbd 26.05 rejects it"),
        ({"ClusterName": "hpc", "FrontendName": "x"}, "FrontendName=x: Slurm 25.05"),
        ({"ClusterName": "hpc", "TopologyPlugin": "topology/3d_torus"}, "topology/3d_torus"),
    ],
)
def test_settings_with_which_the_new_release_does_not_start_are_refused(
    settings: Mapping[str, str], reason: str
) -> None:
    assert reason in refusals(settings=settings)


def test_no_command_is_named_that_makes_packages_for_ubuntu() -> None:
    made = plan({**ALL, "cn1": node(platform="Ubuntu 24.04")})

    assert made.refusals[0] == (
        "the cluster's repository has no packages of Slurm 26.05 for Ubuntu 24.04",
        "they can be for Debian 12 and Debian 13 only",
    )


def test_settings_that_have_no_effect_any_more_are_noted() -> None:
    settings = {"ClusterName": "hpc", "GetEnvTimeout": "5", "SchedulerParameters": "bf_continue,no_env_cache"}
    made = plan(with_controller(settings=settings))
    assert made.refusals == ()
    assert [note.partition(" is ")[0] for note in made.notes] == [
        "slurm.conf: GetEnvTimeout=5",
        "slurm.conf: SchedulerParameters=no_env_cache",
    ]


def test_a_database_that_slurmdbd_can_not_work_with_is_refused() -> None:
    assert "innodb_snapshot_isolation" in refusals(database={"isolation": True, "size_mb": 1, "free_mb": 9})
    assert "only 150 MiB are free" in refusals(database={"isolation": False, "size_mb": 100, "free_mb": 150})
    assert "connect" in refusals(database={"problem": "MariaDB: can't connect"})


def test_a_plugin_of_another_release_that_slurmd_requires_is_refused() -> None:
    pyxis = {"path": "/usr/local/lib/slurm/spank_pyxis.so", "required": True, "there": True, "version": "24.11.5"}

    def with_plugin(**changes: object) -> dict[str, NodeFacts]:
        return {**ALL, **{f"cn{n}": replace(node(), plugins=({**pyxis, **changes},)) for n in (1, 2)}}

    ((message, hint),) = plan(with_plugin()).refusals
    assert message.startswith("cn[1-2]: plugstack.conf requires /usr/local/lib/slurm/spank_pyxis.so")
    assert "`optional`" in hint
    for fits in ({"version": "26.05.1"}, {"required": False}, {"version": ""}):
        assert plan(with_plugin(**fits)).refusals == ()


def test_pyxis_of_the_own_packages_is_replaced_with_slurm_or_the_upgrade_is_refused() -> None:
    pyxis = {"path": "/usr/lib/pyxis/spank_pyxis.so", "required": True, "there": True, "version": "24.11.5"}
    old, new = "24.11+pyxis0.24.0-0~deb13+deepopsctl1", "26.05+pyxis0.24.0-0~deb13+deepopsctl1"
    with_it = replace(node(), installed={**node().installed, "slurm-wlm-pyxis": old}, plugins=(pyxis,))
    facts = {**ALL, "cn1": with_it}

    ((message, hint),) = plan(facts).refusals
    assert message.startswith(
        "cn1: plugstack.conf requires /usr/lib/pyxis/spank_pyxis.so, which was built for Slurm 24"
    )
    assert "packages build pyxis --release 26.05 --for debian13" in hint

    suite, values = next(iter(SERVED["Debian 13"].items()))
    served = {"Debian 13": {suite: {**values, "libraries": ["slurm-wlm-pyxis"], "added": {"slurm-wlm-pyxis": new}}}}
    made = make_plan(CLUSTER, WANTED, facts, served, SlurmState(controller_up=True))
    assert made.refusals == ()
    assert made.packages("cn1") == {"slurm-client": NEW, "slurm-wlm-pyxis": new, "slurmd": NEW}
    # a node with the new Slurm gets another build of Pyxis by a deploy: nothing of the upgrade is done again
    rebuilt = replace(with_it, installed={**node(NEW).installed, "slurm-wlm-pyxis": f"{new}.1"}, plugins=())
    assert "cn1" not in make_plan(CLUSTER, WANTED, {**ALL, "cn1": rebuilt}, served, SlurmState(controller_up=True)).todo


def test_an_upgrade_to_another_release_that_is_under_way_is_ended_first() -> None:
    assert "--to 25.11` continues" in refusals(record={"to": "25.11", "from": "24.11"})


def test_one_in_twenty_nodes_may_fail_unless_said_otherwise() -> None:
    assert plan().allowed_failures == 1
    assert plan(wanted=Wanted("26.05", max_failed=0)).allowed_failures == 0


# of a Slurm that has all, and of packages that have not
MODULES = ("mpi_pmix_v5.so", "mpi_pmi2.so", "gpu_nvml.so", "job_submit_lua.so", "pam_slurm_adopt.so", "task_cgroup.so")
WITHOUT_PMIX = {"slurmd": [name for name in MODULES if "pmix" not in name]}


def with_modules(
    offered: Mapping[str, list[str]],
    *without: str,
    served: Mapping[str, Any] = SERVED,
    modules: tuple[str, ...] = MODULES,
) -> Plan:
    """The plan where compute nodes have these plugins, and packages offer others."""
    facts = {name: replace(each, modules=modules if name.startswith("cn") else ()) for name, each in ALL.items()}
    wanted = replace(WANTED, without=without)
    return make_plan(CLUSTER, wanted, facts, served, SlurmState(controller_up=True), lambda _: offered)


@pytest.mark.parametrize("lost", ["mpi_pmix_v5", "gpu_nvml", "job_submit_lua", "pam_slurm_adopt"])
def test_packages_that_lack_what_the_nodes_have_are_refused_unless_it_is_given_up(lost: str) -> None:
    name = lost.removesuffix("_v5")
    offered = {"slurmd": [each for each in MODULES if each != f"{lost}.so"]}

    ((message, hint),) = with_modules(offered).refusals

    assert message.startswith(f"cn[1-4]: the packages of Slurm 26.05 lack {name}: ")
    assert f"--without {name}" in hint
    assert with_modules(offered, name).refusals == ()


def test_packages_without_the_mpi_of_every_srun_are_refused_although_it_is_given_up() -> None:
    def refused(default: str) -> tuple[tuple[str, str], ...]:
        everything = with_controller(settings={**CONTROLLER.settings, "MpiDefault": default})
        facts = {
            name: replace(each, modules=MODULES if name.startswith("cn") else ()) for name, each in everything.items()
        }
        state = SlurmState(controller_up=True)
        return make_plan(
            CLUSTER, replace(WANTED, without=("mpi_pmix",)), facts, SERVED, state, lambda _: WITHOUT_PMIX
        ).refusals

    ((message, hint),) = refused("pmix")
    assert message == "slurm.conf: MpiDefault=pmix, which the new packages lack: no srun would start"
    assert "slurm_config: {MpiDefault: none}" in hint
    assert refused("pmix_v5") != ()
    assert refused("none") == refused("pmi2") == ()


def test_another_version_of_a_plugin_and_what_no_node_has_are_no_loss() -> None:
    assert with_modules({"slurmd": ["mpi_pmix_v6.so", *MODULES[1:-1]]}).refusals == ()
    assert with_modules({"slurmd": ["task_cgroup.so"]}, modules=("task_cgroup.so", "switch_hpe.so")).refusals == ()


def test_what_has_a_package_of_its_own_by_now_is_installed_with_the_others() -> None:
    (values,) = SERVED["Debian 13"].values()
    served = {"Debian 13": {"x": {**values, "packages": [*PACKAGES, "slurm-wlm-pmix"]}}}
    made = with_modules({**WITHOUT_PMIX, "slurm-wlm-pmix": ["mpi_pmix_v5.so"]}, served=served)

    assert made.refusals == ()
    assert made.packages("cn1") == dict.fromkeys(("slurm-client", "slurm-wlm-pmix", "slurmd"), NEW)
    assert "slurm-wlm-pmix" not in made.packages("ctl1")


@pytest.mark.parametrize(
    ("why", "refused"), [(("ctl1",), True), (("cn1", "cn2"), True), (("cn1",), False), ((), False)]
)
def test_packages_that_apt_can_not_install_are_refused_on_controllers_and_on_too_many_nodes(
    why: tuple[str, ...], refused: bool
) -> None:
    made = plan(wanted=replace(WANTED, max_failed=1)).with_obstacles(dict.fromkeys(why, "E: libjwt2 is missing"))

    assert bool(made.refusals) is refused
    assert ("libjwt2" in str(made.refusals + made.notes)) is bool(why)


def test_packages_that_this_machine_can_not_read_are_noted_and_refuse_nothing() -> None:
    made = with_modules({})

    assert made.refusals == ()
    assert "was not compared" in made.notes[-1]
