"""`job_directories` of cluster.yml: what is refused with its line, and the Slurm settings that follow."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.model.cluster import JobDirectories
from deepopsctl.slurm import conf
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.slurm.job_hooks import (
    container_conf,
    disk_sizes,
    from_inventory,
    refused_in,
    refused_with_job_map,
    site_programs,
    with_job_directories,
    with_job_map,
)
from deepopsctl.text.problems import RefusedError
from tests.support.cluster_yml import faults

SPEC = """\
schema: 1
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: "gpu[01-02]", addresses: "192.0.2.[11-12]", roles: [compute]}
"""
STORAGE = """\
storage:
  - {name: home, type: nfs, source: "192.0.2.9:/home", path: /home}
  - {name: scratch, type: local, source: /dev/nvme0n1, path: /scratch, nodes: "gpu[01-02]"}
"""
NEW, OLD = (24, 11), (22, 5)


def read_section(section: str, more: str = "") -> JobDirectories | None:
    return parse_spec(f"{SPEC}{more}job_directories: {section}\n", "cluster.yml").job_directories


def refusal(section: str, more: str = "") -> str:
    return "; ".join(faults(f"{SPEC}{more}job_directories: {section}\n"))


class TestForm:
    def test_a_cluster_without_the_section_has_none(self) -> None:
        cluster = parse_spec(SPEC, "cluster.yml")

        assert cluster.job_directories is None
        assert from_inventory({}) is None
        assert "slurm_job_directories" not in str(build_inventory(cluster))

    def test_an_empty_section_means_all_defaults(self) -> None:
        assert read_section("{}") == JobDirectories(base="/var/spool", method="namespace", var_tmp=False, shm=True)

    def test_all_of_it_may_be_said(self) -> None:
        directories = read_section("{base: /scratch/, var_tmp: true, shm: false}", STORAGE)

        assert directories == JobDirectories("/scratch", "namespace", var_tmp=True, shm=False)
        assert directories.directory == "/scratch/slurm-jobs"
        assert directories.private == ("/tmp", "/var/tmp")

    @pytest.mark.parametrize(
        "section",
        ["{}", "{base: /scratch, var_tmp: true, shm: false}", "{method: prolog}", "{space: 800G, share: 10G}",
         '{space: {gpu01: 800G, gpu02: 2T}}'],
    )  # fmt: skip
    def test_what_is_written_and_what_the_inventory_carries_is_read_back(self, section: str) -> None:
        cluster = parse_spec(f"{SPEC}job_directories: {section}\n", "cluster.yml")
        inventory: Any = build_inventory(cluster)

        assert parse_spec(render_spec(cluster), "again").job_directories == cluster.job_directories
        assert from_inventory(inventory["all"]["vars"]["slurm_job_directories"]) == cluster.job_directories

    @pytest.mark.parametrize(
        ("base", "message"),
        [
            ("scratch", "scratch is not an absolute path of plain letters"),
            ("/a/../b", "/a/../b is not an absolute path of plain letters"),
            ("/a b", "/a b is not an absolute path of plain letters"),
            ("/", "/ is not an absolute path of plain letters"),
            ("/tmp/jobs", "/tmp/jobs is in /tmp"),
            ("/dev/shm", "/dev/shm is in /dev"),
            ("/home/jobs", "/home/jobs is in /home, which several nodes mount (nfs)"),
        ],
    )
    def test_directories_that_are_no_nodes_own_are_refused(self, base: str, message: str) -> None:
        assert f"cluster.yml:8 job_directories.base: {message}" in refusal(f'{{base: "{base}"}}', STORAGE)

    def test_a_directory_next_to_a_mount_is_no_part_of_it(self) -> None:
        directories = read_section("{base: /homes}", STORAGE)

        assert directories
        assert directories.base == "/homes"

    def test_all_faults_are_reported_at_once(self) -> None:
        message = refusal("{base: scratch, method: prologue, colour: red}")
        assert "job_directories.colour: unknown key" in message

        message = refusal("{base: scratch, method: prologue}")
        assert "job_directories.base: scratch" in message
        assert "job_directories.method: prologue is none of namespace and prolog" in message

    def test_what_only_a_namespace_makes_private_is_refused_with_a_prolog(self) -> None:
        assert "job_directories.shm: says what method: namespace makes private" in refusal(
            "{method: prolog, shm: true}"
        )


class TestSettings:
    def test_the_plugin_gets_its_file_and_its_keys(self) -> None:
        wanted = JobDirectories(base="/scratch", var_tmp=True)

        assert container_conf(wanted, NEW).splitlines()[1:] == [
            "AutoBasePath=true",
            "BasePath=/scratch/slurm-jobs",
            "Dirs=/tmp,/var/tmp,/dev/shm",
            "Shared=true",
        ]
        assert with_job_directories({"PrologFlags": "Alloc", "MaxJobCount": 1}, wanted) == {
            "MaxJobCount": 1,
            "JobContainerType": "job_container/tmpfs",
            "Epilog": "/etc/slurm/deepops/epilog",
            "TaskProlog": "/etc/slurm/deepops/task_prolog",
            "PrologFlags": "Alloc,Contain",
        }

    def test_an_old_slurm_gets_only_the_keys_that_it_knows(self) -> None:
        assert "Dirs" not in container_conf(JobDirectories(), OLD)
        assert "Shared" not in container_conf(JobDirectories(), OLD)

    @pytest.mark.parametrize("wanted", [JobDirectories(var_tmp=True), JobDirectories(shm=False)])
    def test_what_an_old_slurm_cannot_is_refused(self, wanted: JobDirectories) -> None:
        with pytest.raises(RefusedError, match=r"Slurm 22.05 makes /tmp and /dev/shm private to a job"):
            container_conf(wanted, OLD)

    def test_without_the_plugin_the_prolog_is_ours_too(self) -> None:
        wanted = JobDirectories(method="prolog")

        merged = with_job_directories({"prolog": "/site/prolog"}, wanted)

        assert container_conf(wanted, NEW) == ""
        assert merged["Prolog"] == "/etc/slurm/deepops/prolog"
        assert "prolog" not in merged
        assert "JobContainerType" not in merged

    @pytest.mark.parametrize(
        ("flags", "expected"), [("X11", "X11"), ("Alloc, contain", "Alloc,contain"), ("", "Contain")]
    )
    def test_the_flags_of_a_site_stay(self, flags: str, expected: str) -> None:
        assert with_job_directories({"prologflags": flags}, JobDirectories())["PrologFlags"] == expected

    def test_without_job_directories_nothing_is_owned(self) -> None:
        settings = {"Prolog": "relative", "JobContainerType": "job_container/tmpfs", "PrologFlags": "NoHold"}

        assert with_job_directories(settings, None) == settings
        assert refused_in(settings, None) == []

    def test_what_a_site_cannot_say_next_to_them_is_refused_by_name(self) -> None:
        settings = {"JobContainerType": "x", "prologflags": "NoHold", "Epilog": "epilog.sh", "Prolog": "prolog.sh"}

        messages = refused_in(settings, JobDirectories())

        assert [sentence.partition(" ")[0].rstrip(":") for sentence in messages] == [
            "Epilog",
            "JobContainerType",
            "prologflags",
        ]
        # the prolog stays the site's own matter where ours has nothing to do there
        assert any("Prolog:" in sentence for sentence in refused_in(settings, JobDirectories(method="prolog")))

    def test_a_sites_own_programs_are_called_by_ours(self) -> None:
        assert site_programs({"epilog": "/site/epilog.d/*", "TaskProlog": None, "MaxJobCount": 1}) == {
            "epilog": "/site/epilog.d/*"
        }
        assert refused_in({"Epilog": "/site/epilog.d/*"}, JobDirectories()) == []

    def test_a_pattern_is_ours_to_run_as_slurmd_drains_the_node_where_it_matches_nothing(self) -> None:
        settings = {"Prolog": "/site/prolog", "epilog": "/site/epilog.d/*", "TaskProlog": "/site/task-?"}

        assert with_job_map(settings, monitored=False) == {
            "Prolog": "/site/prolog",
            "Epilog": "/etc/slurm/deepops/epilog",
            "TaskProlog": "/etc/slurm/deepops/task_prolog",
        }
        assert refused_with_job_map(settings, monitored=False) == []
        assert refused_with_job_map({"Prolog": ["/s/one", "/s/d/*"]}, monitored=False) == [
            "Prolog: with a pattern it must be an absolute path or pattern, and ['/s/one', '/s/d/*'] is none"
        ]


class TestSpace:
    def test_nodes_have_a_count_of_their_disk_and_slurm_knows_the_gres(self) -> None:
        inventory: Any = build_inventory(
            parse_spec(f"{SPEC}job_directories: {{space: {{gpu01: 800G, gpu02: 2T}}}}\n", "cluster.yml")
        )
        node_sets = conf.parse_node_sets(inventory["all"]["vars"]["slurm_nodes"])
        hardware = {name: NodeHardware(8, 1, 1, 8, 1, 16000) for name in ("gpu01", "gpu02")}

        assert conf.gres_names(node_sets) == ["tmpdisk"]
        assert [line.split(" Gres=")[1].split()[0] for line in conf.node_lines(node_sets, hardware, {}, 5)] == [
            "tmpdisk:800G", "tmpdisk:2T",
        ]  # fmt: skip
        assert conf.gres_lines(node_sets, hardware) == [
            "NodeName=gpu01 Name=tmpdisk Count=800G Flags=CountOnly",
            "NodeName=gpu02 Name=tmpdisk Count=2T Flags=CountOnly",
        ]

    def test_node_sets_are_spelt_as_the_nodes_are(self) -> None:
        spec = SPEC.replace("gpu", "GPU")
        section = '{space: {"GPU[01-02]": 800G}}'

        parsed = parse_spec(f"{spec}job_directories: {section}\n", "cluster.yml").job_directories

        assert parsed
        assert disk_sizes(parsed, []) == {"GPU01": "800G", "GPU02": "800G"}
        assert faults(f"{spec}job_directories: {section.replace('GPU', 'gpu')}\n")[0].endswith("is not a compute node")

    @pytest.mark.parametrize(
        ("section", "message"),
        [
            ("{space: plenty}", "'plenty' is not a valid size"),
            ("{space: {gpu01: 800G}}", "gpu02 has no size"),
            ('{space: {"gpu[01-02]": 800G, gpu02: 1T}}', "gpu02 has two sizes"),
            ('{space: {"gpu[01-03]": 800G}}', "gpu03 is not a compute node"),
            ("{share: 10G}", "is a part of `space`"),
            ("{space: 800G, share: 10}", "'10' is not a valid size"),
            ("{space: {gpu01: 2T, gpu02: 800G}, share: 1T}", "1T is more than the 800G of `space`"),
        ],
    )
    def test_refuses_with_the_line(self, section: str, message: str) -> None:
        assert refusal(section).endswith(message)
