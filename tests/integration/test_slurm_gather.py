"""slurm_gather as Ansible runs it: hardware.yml is stored, absent nodes change nothing, unexpected ones are reported.

The reports that nodes register in a real run are variables of the hosts here; each story has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.gpus.discovery import DetectedGpu
from deepopsctl.slurm.hardware import NodeHardware, load_hardware, store_hardware
from tests.support.local_ansible import Played, TaskResult, play
from tests.support.node_modules import plugin

NODE = "CPUs={} Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000"
STORED = NodeHardware(cpus=16, boards=1, sockets=2, cores_per_socket=8, threads_per_core=1, memory_mb=64000)


def report(cpus: int = 16, **packages: str) -> dict[str, object]:
    """What a compute node registers."""
    return {"probes": {"slurmd": f"NodeName=x {NODE.format(cpus)}\nUpTime=0\n"}, "packages": packages}


def with_mpi() -> dict[str, Any]:
    """The same of a node whose packages bring Slurm's PMIx plugin."""
    return {"probes": {"slurmd": f"NodeName=x {NODE.format(16)}\n", "pmix": ""}, "packages": {}}


def with_gpus(*products: str) -> dict[str, object]:
    """The same of a node whose driver lists these GPUs, all near to its second socket."""
    rows = [f"GPU{index}\t X \t8-15\n" for index in range(len(products))]
    minor = "/proc/driver/nvidia/gpus/0000:{0:02x}:00.0/information:Device Minor: \t {0}\n"
    probes = {
        "gpu_names": "".join(f"{index}, {name}, 00000000:{index:02X}:00.0\n" for index, name in enumerate(products)),
        "gpu_minors": "".join(minor.format(index) for index in range(len(products))),
        "gpu_topology": "\tGPU0\tCPU Affinity\n" + "".join(rows),
        "cpu_sockets": "".join(f"{cpu},{cpu // 8},{cpu // 8}\n" for cpu in range(16)),
    }
    return {"probes": {"slurmd": f"NodeName=x {NODE.format(16)}\n", **probes}, "packages": {}}


def facts(cgroup: str, *, writable: bool = True) -> dict[str, object]:
    """What the gate saw on a node that answered."""
    fault = "" if writable else "/sys/fs/cgroup is read-only"
    return {
        "deepops_cgroup": cgroup,
        "deepops_cgroup_writable": writable,
        "deepops_cgroup_fault": fault,
        "deepops_pmix": True,
    }


# Hosts of the inventory: what the gate saw ({} where the node did not answer) and what each story has registered.
HOSTS: dict[str, dict[str, Any]] = {
    "ctl1": {
        "seen": facts("v2"),
        "mpi": {"probes": {"pmix": ""}},
        "first": {"packages": {"slurmctld": "24.11.5-4", "munge": "0.5.16"}},
    },
    "ctl2": {"seen": facts("v2")},
    "gpu01": {"seen": facts("v2"), "first": report(slurmd="24.11.5-4"), "later": report(cpus=99)},
    "gpu02": {"seen": facts("v2"), "first": report()},
    "gpu03": {"seen": {}, "later": report(cpus=32)},
    "old1": {"seen": facts("v1"), "first": report()},
    "ro1": {"seen": facts("v2", writable=False), "first": report()},
    "odd1": {"seen": facts("v2"), "first": {"probes": {"slurmd": "slurmd: error: no hardware found"}}},
    "mute1": {"seen": facts("v2"), "first": {"probes": {}, "failed_probes": {"slurmd": "ended with 1: no memory"}}},
    "h100": {"seen": facts("v2"), "first": with_gpus(*["NVIDIA H100 80GB HBM3"] * 2)},
    "h200": {"seen": facts("v2"), "first": with_gpus(*["NVIDIA H200"] * 2)},
    "mpi1": {"seen": facts("v2"), "mpi": with_mpi()},
    "mpi2": {"seen": facts("v2"), "mpi": with_mpi()},
    # nothing had to be done there, so it is what the gate saw
    "mpi3": {"seen": facts("v2"), "drift_check_result": {"clean": True}, "first": report()},
    "mpi4": {"seen": facts("v2"), "mpi": {**with_mpi(), "probes": report()["probes"], "failed_probes": {"pmix": "x"}}},
    "evil1": {"seen": facts('v2}\n  - {names: "gpu01", cpus: 1'), "first": report()},
    "failed1": {"seen": facts("v2"), "first": {"failed": True, "msg": "no space left"}},
}


@dataclass(frozen=True)
class Story:
    """A call of slurm_gather on a cluster directory of its own, or on one that an earlier story left."""

    name: str
    compute: tuple[str, ...]
    directory: str
    register: str = "first"
    confinement: str = "auto"
    controllers: tuple[str, ...] = ("ctl1",)
    check: bool = False
    gpus: str = ""

    def task(self, clusters: Path) -> Mapping[str, object]:
        gpus = {"gpus": {"type": self.gpus, "count": 2}} if self.gpus else {}
        return {
            "name": self.name,
            "deepopsctl.cluster.slurm_gather": {
                "cluster_dir": str(clusters / self.directory),
                "node_sets": [{"names": ",".join(self.compute), **gpus}],
                "compute": list(self.compute),
                "controllers": list(self.controllers),
                "confinement": self.confinement,
                "packages": self.register,
            },
            "check_mode": self.check,
            "ignore_errors": True,
            "run_once": True,
        }


STORIES = (
    Story("check mode", ("gpu01", "gpu02"), "checked", check=True),
    Story("first", ("gpu01", "gpu02", "gpu03"), "grown"),
    Story("again", ("gpu01", "gpu02", "gpu03"), "grown"),
    Story("later", ("gpu01", "gpu02", "gpu03"), "grown", register="later"),
    Story("node removed", ("gpu01",), "removed"),
    Story("two hierarchies", ("gpu01", "old1"), "mixed"),
    Story("v1 only", ("old1",), "old"),
    Story("new node without cgroups", ("gpu01", "ro1"), "unconfined"),
    Story("cgroups lost", ("gpu01", "ro1"), "lost"),
    Story("never confined", ("gpu01", "ro1"), "never", confinement="cgroup"),
    Story("no confinement asked for", ("gpu01", "ro1"), "asked", confinement="none"),
    Story("absent node", ("gpu01", "gpu03"), "absent"),
    Story("changed cgroups", ("gpu01",), "changed"),
    Story("odd node", ("odd1", "gpu01"), "odd"),
    Story("hostile node", ("evil1", "gpu01"), "hostile"),
    Story("mute node", ("mute1", "gpu01"), "mute"),
    Story("drivers", ("h100", "h200"), "drivers", gpus="h100"),
    Story("failed node", ("failed1", "gpu01"), "failed"),
    Story("damaged", ("gpu01",), "damaged"),
    Story("two controllers", ("gpu01",), "spare", controllers=("ctl1", "ctl2")),
    Story("mpi everywhere", ("mpi1", "mpi2"), "mpi", register="mpi"),
    Story("mpi of packages that were there", ("mpi1", "mpi3"), "mpi", register="mpi"),
    Story("mpi missing on one", ("mpi1", "mpi4"), "mpi", register="mpi"),
    Story("mpi where no program knows of one", ("mpi1", "failed1"), "mpi", register="mpi"),
    Story("controller not reached", ("gpu01",), "limited", controllers=("ctl2",)),
)

# What hardware.yml holds before a story.
BEFORE: dict[str, dict[str, NodeHardware]] = {
    "removed": {"gpu01": STORED, "gone1": STORED},
    "absent": {"gpu01": STORED, "gpu03": NodeHardware(8, 1, 1, 8, 1, 1000, "none")},
    "drivers": {"h100": STORED},
    "lost": {"gpu01": STORED, "ro1": STORED},
    "never": {"gpu01": STORED, "ro1": replace(STORED, cgroup="none")},
    "changed": {"gpu01": NodeHardware(8, 1, 1, 8, 1, 1000, "v1")},
}


@dataclass(frozen=True)
class Stories:
    """What each story came to."""

    clusters: Path
    played: Played

    def __getitem__(self, story: str) -> TaskResult:
        return self.played.result(story)

    def facts(self, story: str) -> Mapping[str, Any]:
        """The facts that templates are rendered from."""
        facts: Mapping[str, Any] = self[story].data["ansible_facts"]
        return facts

    def warnings(self, story: str) -> Sequence[str]:
        warnings: Sequence[str] = self[story].data["deepops_warnings"]
        return warnings

    def hardware(self, directory: str) -> dict[str, NodeHardware]:
        return load_hardware(self.clusters / directory / "hardware.yml")


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Stories:
    clusters = tmp_path_factory.mktemp("clusters")
    for story in STORIES:
        (clusters / story.directory).mkdir(exist_ok=True)
    for directory, hardware in BEFORE.items():
        store_hardware(clusters / directory / "hardware.yml", hardware)
    (clusters / "damaged" / "hardware.yml").write_text("nodes: [{names: ", encoding="utf-8")
    seen = {name: f"{{{{ seen.{name} }}}}" for name in facts("v2")}
    gate = {
        "name": "What the gate saw",
        "ansible.builtin.set_fact": {**seen, "cacheable": True},
        "when": "seen | length > 0",
    }
    tasks = [gate, *(story.task(clusters) for story in STORIES)]
    plays = [{"name": "Stories", "hosts": "all", "gather_facts": False, "tasks": tasks}]
    played = play(tmp_path_factory.mktemp("ansible"), plays, HOSTS)
    assert played.status == 0, played.output
    return Stories(clusters, played)


class TestStore:
    def test_a_nodes_answer_speaks_for_that_node_alone(self, stories: Stories) -> None:
        assert stories.hardware("hostile") == {"gpu01": STORED}
        assert "ctl1" not in (stories.clusters / "hostile" / "hardware.yml").read_text(encoding="utf-8")

    def test_the_first_run_stores_what_answered(self, stories: Stories) -> None:
        stored = stories.facts("first")["slurm_hardware"]

        assert stories["first"].changed
        assert stories.facts("again")["slurm_hardware"] == stored
        assert set(stored) == {"gpu01", "gpu02"}
        assert stored["gpu01"] == {**asdict(STORED), "gpus": []}

    def test_the_line_of_a_node_that_is_down_stays_and_a_new_one_gets_its_own(self, stories: Stories) -> None:
        hardware = stories.hardware("grown")

        assert stories["later"].changed
        assert hardware["gpu02"] == STORED
        assert hardware["gpu03"].cpus == 32

    def test_gpus_are_stored_where_the_driver_finds_what_cluster_yml_declares(self, stories: Stories) -> None:
        hardware = stories.hardware("drivers")

        assert hardware["h100"] == replace(STORED, gpus=(DetectedGpu("NVIDIA H100 80GB HBM3", "8-15"),) * 2)
        assert hardware["h200"] == STORED

    def test_a_node_that_left_cluster_yml_leaves_the_store(self, stories: Stories) -> None:
        assert stories["node removed"].changed
        assert stories.hardware("removed") == {"gpu01": STORED}

    def test_check_mode_reports_that_it_would_store_and_does_not(self, stories: Stories) -> None:
        assert stories["check mode"].changed
        assert set(stories.facts("check mode")["slurm_hardware"]) == {"gpu01", "gpu02"}
        assert list((stories.clusters / "checked").iterdir()) == []

    def test_a_damaged_store_stops_the_run_with_a_hint_how_to_restore_it(self, stories: Stories) -> None:
        assert stories["damaged"].status == "failed"
        assert "hardware.yml:1: is not valid YAML: restore it from git" in stories["damaged"].data["msg"]
        assert (stories.clusters / "damaged" / "hardware.yml").read_text() == "nodes: [{names: "


class TestWarnings:
    def test_a_healthy_cluster_has_none(self, stories: Stories) -> None:
        assert stories.warnings("node removed") == []

    @pytest.mark.parametrize(
        ("story", "directory", "beginning"),
        [
            ("odd node", "odd", "odd1: slurmd -C did not report CPUs"),
            (
                "mute node",
                "mute",
                "mute1: `slurmd -C` ended with 1: no memory, so it is not in slurm.conf; try it there",
            ),
            ("failed node", "failed", "failed1: failed before `slurmd -C`, so not in slurm.conf yet"),
            (
                "new node without cgroups",
                "unconfined",
                "ro1: /sys/fs/cgroup is read-only: jobs could not be confined, so it is left out",
            ),
        ],
    )
    def test_a_node_that_can_not_be_used_is_named_and_stops_no_other(
        self, stories: Stories, story: str, directory: str, beginning: str
    ) -> None:
        (warning,) = stories.warnings(story)
        assert warning.startswith(beginning)
        assert set(stories.hardware(directory)) == {"gpu01"}

    @pytest.mark.parametrize(
        ("story", "beginning"),
        [("first", "gpu03: never reached, so not in slurm.conf yet"), ("two controllers", "ctl2: ")],
    )
    def test_a_node_never_reached_and_a_controller_that_does_not_serve_are_named(
        self, stories: Stories, story: str, beginning: str
    ) -> None:
        (warning,) = stories.warnings(story)
        assert warning.startswith(beginning)


class TestConfinement:
    @pytest.mark.parametrize(
        ("story", "confinement"),
        [
            ("node removed", "v2"),
            ("v1 only", "v1"),
            ("two hierarchies", "auto"),
            ("new node without cgroups", "v2"),
            ("cgroups lost", "v2"),
            ("no confinement asked for", "none"),
        ],
    )
    def test_it_follows_from_what_the_nodes_have(self, stories: Stories, story: str, confinement: str) -> None:
        assert stories.facts(story)["slurm_cgroup_version"] == confinement

    def test_one_that_serves_stays_as_it_was_and_a_site_that_asks_for_none_has_all_its_nodes(
        self, stories: Stories
    ) -> None:
        assert stories.hardware("lost")["ro1"] == STORED
        assert stories.hardware("asked")["ro1"].cgroup == "none"
        assert stories.warnings("no confinement asked for") == []

    def test_a_cluster_that_ran_without_is_not_confined_under_its_jobs(self, stories: Stories) -> None:
        assert stories["never confined"].status == "failed"
        assert "ro1: /sys/fs/cgroup is read-only: Slurm can't confine jobs" in stories["never confined"].data["msg"]

    def test_a_node_whose_hierarchy_changed_is_stored_again(self, stories: Stories) -> None:
        assert stories["changed cgroups"].changed
        assert stories.hardware("changed") == {"gpu01": NodeHardware(8, 1, 1, 8, 1, 1000, "v2")}
        assert stories.facts("changed cgroups")["slurm_cgroup_version"] == "v2"


@pytest.mark.parametrize(
    ("story", "pmix"),
    [
        ("mpi everywhere", True),
        ("mpi of packages that were there", True),
        ("mpi missing on one", False),
        ("mpi where no program knows of one", True),
        # the gate came before the packages: what it saw of nodes with work counts for nothing
        ("first", False),
    ],
)
def test_mpi_programs_are_started_by_pmix_where_every_known_node_has_it(
    stories: Stories, story: str, *, pmix: bool
) -> None:
    assert stories.facts(story)["slurm_pmix"] == pmix


@pytest.mark.parametrize("story", ["first", "controller not reached"])
def test_the_version_is_the_controllers_or_a_compute_nodes_where_none_answered(stories: Stories, story: str) -> None:
    assert stories.facts(story)["slurm_version"] == "24.11.5-4"


def test_each_host_is_looked_up_once() -> None:
    """Ansible merges all variables of a host for that: with 10,000 nodes a second look is twenty seconds."""
    seen: list[str] = []

    class HostVars(dict[str, dict[str, object]]):
        def __getitem__(self, name: str) -> dict[str, object]:
            seen.append(name)
            return super().__getitem__(name)

    every: dict[str, object] = {"node_common_result": {"packages": {}}, "ansible_facts": {}, "other": 1}
    wanted = ("node_common_result", "ansible_facts", "absent")
    answers = plugin("action", "slurm_gather")._Answers(HostVars(n1=every), wanted, {})

    assert answers["n1"] == {"node_common_result": {"packages": {}}, "ansible_facts": {}}
    assert "n1" in answers
    assert seen == ["n1"]
