"""What Slurm's settings need of nodes, and what cluster.yml declares beyond the hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.model.cluster import GpuGroup, Gpus, JobDirectories, Role
from deepopsctl.slurm.conf import NodeSet
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.slurm.needs import Site, beyond_hardware, needs_of, unmet_on

COMPUTE, CONTROLLER, LOGIN = frozenset({Role.COMPUTE}), frozenset({Role.CONTROLLER}), frozenset({Role.LOGIN})
# 8 cores, 16 threads
HAS = NodeHardware(16, 1, 2, 4, 2, 23622)
FILES = ("/dev/nvidia0", "/dev/nvidia1")
GPUS = Gpus("a100", 2, (GpuGroup("a100", 2, FILES),))


def node_set(gpus: Gpus | None = None, **options: str) -> NodeSet:
    return NodeSet(("gpu01", "gpu02"), gpus, (), options)


def beyond(node_set: NodeSet, **settings: object) -> list[str]:
    return [each.sentence for each in beyond_hardware([node_set], {"gpu01": HAS}, settings)]


def test_each_program_is_asked_of_those_that_run_it() -> None:
    site = Site({"prolog": "/s/prolog -v", "MailProg": "/s/mail", "TaskProlog": "/s/task", "SrunProlog": "/s/srun"})

    def keys(roles: frozenset[Role]) -> set[object]:
        programs = needs_of(site, roles).get("programs", [])
        assert isinstance(programs, list)
        return {(entry["key"], entry["path"], entry["user"]) for entry in programs}

    assert keys(COMPUTE) == {
        ("Prolog", "/s/prolog", False),
        ("TaskProlog", "/s/task", True),
        ("SrunProlog", "/s/srun", True),
    }
    assert keys(CONTROLLER) == {("MailProg", "/s/mail", False)}
    assert keys(LOGIN) == {("SrunProlog", "/s/srun", True)}


def test_of_a_pattern_deepopsctls_own_program_has_the_name() -> None:
    needs = needs_of(Site({"Prolog": "/s/prolog", "epilog": "/s/epilog.d/*"}), COMPUTE)

    assert needs["programs"] == [
        {"key": "Prolog", "path": "/s/prolog", "user": False},
        {"key": "Epilog", "path": "/s/epilog.d/*", "user": False, "called_by": "/etc/slurm/deepops/epilog"},
    ]


def test_deepopsctls_own_programs_and_words_that_are_no_paths_are_not_asked_for() -> None:
    assert needs_of(Site({"Prolog": "/etc/slurm/deepops/prolog", "MailProg": None, "Epilog": ""}), COMPUTE) == {}


def test_plugins_are_asked_for_as_files_in_the_sites_directory() -> None:
    settings = {
        "TaskPlugin": "task/cgroup,task/site",
        "JobSubmitPlugins": ["lua"],
        "PluginDir": "/s/lib",
        "MpiDefault": "none",
    }

    needs = needs_of(Site(settings), COMPUTE)

    assert needs["plugins"] == [
        {"key": "TaskPlugin", "name": "task/cgroup", "file": "task_cgroup.so"},
        {"key": "TaskPlugin", "name": "task/site", "file": "task_site.so"},
    ]
    assert needs["plugin_directories"] == "/s/lib"
    assert needs_of(Site(settings), CONTROLLER)["plugins"] == [
        {"key": "JobSubmitPlugins", "name": "lua", "file": "job_submit_lua.so"}
    ]


def test_directories_of_logs_spools_and_jobs_are_asked_for() -> None:
    site = Site({"SlurmdLogFile": "/log/site/%n.log", "SlurmdSpoolDir": "/s/spool"}, JobDirectories(base="/local"))

    assert needs_of(site, COMPUTE)["directories"] == [
        {"key": "SlurmdLogFile", "path": "/log/site"},
        {"key": "SlurmdSpoolDir", "path": "/s/spool", "made": True, "executes": True},
        {"key": "job_directories", "path": "/local/slurm-jobs", "made": True, "on_disk": True},
    ]
    assert needs_of(site, CONTROLLER) == {}


def test_devices_are_those_that_gres_conf_names() -> None:
    assert needs_of(Site({}), COMPUTE, node_set(GPUS))["devices"] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert needs_of(Site({}), COMPUTE, node_set(Gpus("", 2, autodetect="nvml"))) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"RealMemory": "999999"}, "RealMemory=999999 is more than the 23622 MiB that the node has"),
        ({"MemSpecLimit": "30000"}, "MemSpecLimit=30000 leaves nothing of the 23622"),
        ({"CoreSpecCount": "8"}, "CoreSpecCount=8 leaves nothing of the 8"),
        ({"CpuSpecList": "0,16"}, "CpuSpecList names CPU 16, and the node has 0-15"),
    ],
)
def test_more_than_the_hardware_has_is_named(options: dict[str, str], words: str) -> None:
    (sentence,) = beyond(NodeSet(("gpu01", "gpu02"), None, (), options))

    assert sentence.startswith("gpu01: ")
    assert words in sentence


def test_what_the_hardware_has_is_fine_and_config_overrides_trusts_the_site() -> None:
    assert beyond(node_set(RealMemory="23622", CoreSpecCount="1", CpuSpecList="0-1")) == []
    assert beyond(node_set(RealMemory="999999"), SlurmdParameters="config_overrides") == []


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(HAS, cpus=8), "hardware.yml has 16 CPUs, the node 8"),
        (replace(HAS, sockets=1), "has 2 sockets x 4 cores x 2 threads, the node 1 sockets x 4 cores x 2 threads"),
        (replace(HAS, memory_mb=20000), "hardware.yml has 23622 MiB of memory, the node 20000"),
    ],
)
def test_a_hardware_yml_beyond_what_the_node_reports_is_named(now: NodeHardware, words: str) -> None:
    (one,) = beyond_hardware([node_set()], {"gpu01": HAS}, {}, {"gpu01": now})

    assert words in one.sentence
    assert beyond_hardware([node_set()], {"gpu01": HAS}, {}, {"gpu01": replace(HAS, memory_mb=23500)}) == []


def test_cores_of_gpus_beyond_the_nodes_are_named_as_possible_threads() -> None:
    gpus = Gpus("", 2, (GpuGroup("", 2, FILES, cores=("0-3", "8-11")),))

    (sentence,) = beyond(node_set(gpus))

    assert sentence.startswith(
        "gpu01: cores 8-11 of the GPUs: the node has cores 0-7; where these are numbers of threads"
    )


def test_the_same_fault_of_several_nodes_is_said_once() -> None:
    answer = [{"key": "Prolog", "message": "Prolog=/s/p is not there", "new": True}]

    (one,) = unmet_on({"gpu01": answer, "gpu02": answer, "gpu03": []})

    assert one.sentence == "gpu[01-02]: Prolog=/s/p is not there"
    assert one.new
