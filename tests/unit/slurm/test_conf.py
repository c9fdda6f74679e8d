"""slurm.conf and gres.conf as data: what is written for which nodes, and what a site may change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from deepopsctl.slurm.conf import (
    NodeSet,
    cgroup_plugin,
    format_value,
    gres_lines,
    gres_of,
    merge_settings,
    node_lines,
    owned_keys_in,
    parse_node_sets,
    parse_version,
    partition_lines,
    plugstack_refusal,
    readable,
    setting,
    unknown_nodes,
    with_word,
)
from deepopsctl.slurm.hardware import NodeHardware

SMALL = NodeHardware(cpus=4, boards=1, sockets=1, cores_per_socket=4, threads_per_core=1, memory_mb=8000)
LARGE = NodeHardware(cpus=64, boards=1, sockets=2, cores_per_socket=16, threads_per_core=2, memory_mb=512000)
BOARDS = NodeHardware(cpus=32, boards=2, sockets=4, cores_per_socket=4, threads_per_core=2, memory_mb=1000)


def nodes(names: str, **more: object) -> tuple[NodeSet, ...]:
    return parse_node_sets([{"names": names, **more}])


def fields(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split())


def only_node_line(
    names: str,
    hardware: Mapping[str, NodeHardware],
    addresses: Mapping[str, str] | None = None,
    **more: object,
) -> dict[str, str]:
    (line,) = node_lines(nodes(names, **more), hardware, addresses or {}, 0)
    return fields(line)


def only_partition_line(hardware: Mapping[str, NodeHardware], **entry: object) -> dict[str, str]:
    (line,) = partition_lines([{"name": "p", **entry}], hardware, 0)
    return fields(line)


class TestWeights:
    def weights(self, *node_sets: tuple[NodeSet, ...]) -> dict[str, str]:
        every = [node_set for group in node_sets for node_set in group]
        hardware = {name: SMALL for node_set in every for name in node_set.names}
        shown = [fields(line) for line in node_lines(every, hardware, {}, 0)]
        return {line["NodeName"]: line["Weight"] for line in shown if "Weight" in line}

    def test_nodes_that_are_identical_have_none(self) -> None:
        assert self.weights(nodes("c1"), nodes("c2", features=["ib"])) == {}

    def test_a_job_without_gpus_goes_to_a_node_without_first_and_to_the_most_gpus_last(self) -> None:
        eight = nodes("h1", gpus={"type": "h100", "count": 8})
        four = nodes("a1", gpus={"type": "a100", "count": 4})

        assert self.weights(eight, four, nodes("c1")) == {"h1": "200", "a1": "100", "c1": "1"}

    def test_types_with_as_many_gpus_weigh_in_the_order_of_cluster_yml(self) -> None:
        a100, h100 = (nodes(f"{gpu_type}1", gpus={"type": gpu_type, "count": 4}) for gpu_type in ("a100", "h100"))

        assert self.weights(h100, a100) == {"h1001": "100", "a1001": "200"}

    def test_a_sites_own_weight_wins(self) -> None:
        gpus = nodes("g1", gpus={"count": 1}, slurm={"weight": "7"})
        (line,) = node_lines((*gpus, *nodes("c1")), {"g1": SMALL}, {}, 0)

        assert "weight=7" in line
        assert "Weight=" not in line


class TestNodeLines:
    def test_a_node_with_other_hardware_gets_a_line_of_its_own(self) -> None:
        lines = node_lines(nodes("n[1-3]"), {"n1": SMALL, "n2": LARGE, "n3": SMALL}, {}, 0)

        assert [(fields(line)["NodeName"], fields(line)["CPUs"]) for line in lines] == [("n[1,3]", "4"), ("n2", "64")]

    def test_node_sets_stay_apart_even_with_equal_hardware(self) -> None:
        lines = node_lines(nodes("n1", features=["ib"]) + nodes("n2"), {"n1": SMALL, "n2": SMALL}, {}, 0)

        assert [fields(line).get("Features") for line in lines] == ["ib", None]

    def test_the_whole_hardware_is_written_with_sockets_by_board_and_no_gres(self) -> None:
        assert only_node_line("n1", {"n1": BOARDS}) == {
            "NodeName": "n1",
            "CPUs": "32",
            "Boards": "2",
            "SocketsPerBoard": "2",
            "CoresPerSocket": "4",
            "ThreadsPerCore": "2",
            "RealMemory": "1000",
            "State": "UNKNOWN",
        }

    def test_a_share_of_the_memory_stays_with_the_operating_system(self) -> None:
        (line,) = node_lines(nodes("n1"), {"n1": SMALL}, {}, 2)

        assert fields(line)["RealMemory"] == "7840"

    def test_addresses_follow_the_order_in_which_slurm_expands_the_names(self) -> None:
        addresses = {"n1": "192.0.2.9", "n2": "192.0.2.5", "n3": "192.0.2.6"}

        line = only_node_line("n3,n1,n2", dict.fromkeys(addresses, SMALL), addresses)

        assert line["NodeName"] == "n[1-3]"
        assert line["NodeAddr"] == "192.0.2.9,192.0.2.[5-6]"

    def test_without_an_address_for_every_node_of_a_line_names_must_resolve(self) -> None:
        assert "NodeAddr" not in only_node_line("n[1-2]", dict.fromkeys(("n1", "n2"), SMALL), {"n1": "192.0.2.1"})

    def test_slurm_keys_of_cluster_yml_win_whatever_their_case(self) -> None:
        line = only_node_line("n1", {"n1": SMALL}, slurm={"realmemory": "7000", "Weight": 10})

        assert line["realmemory"] == "7000"
        assert line["Weight"] == "10"
        assert "RealMemory" not in line

    def test_a_node_nobody_has_reached_is_left_out_and_named(self) -> None:
        sets = nodes("n[1-3]")

        assert [fields(line)["NodeName"] for line in node_lines(sets, {"n2": SMALL}, {}, 0)] == ["n2"]
        assert unknown_nodes(sets, {"n2": SMALL}) == ["n1", "n3"]

    def test_a_node_set_of_the_wrong_form_is_refused_by_its_names(self) -> None:
        with pytest.raises(TypeError, match=r"n\[1-2\]"):
            parse_node_sets([{"names": "n[1-2]", "gpus": 8}])


class TestGres:
    @pytest.mark.parametrize(
        ("gpus", "gres", "line"),
        [
            ({"type": "h100", "count": 8}, "gpu:h100:8", "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-7]"),
            ({"type": "", "count": 2}, "gpu:2", "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]"),
            ({"type": "a100", "count": 1}, "gpu:a100:1", "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0"),
        ],
        ids=["typed", "untyped", "single"],
    )
    def test_gpus_are_declared_in_both_files(self, gpus: object, gres: str, line: str) -> None:
        sets = nodes("n1", gpus=gpus)

        assert gres_of(sets[0]) == gres
        assert only_node_line("n1", {"n1": SMALL}, gpus=gpus)["Gres"] == gres
        assert gres_lines(sets, {"n1": SMALL}) == [line]

    def test_nodes_of_one_set_share_a_line_even_where_their_hardware_differs(self) -> None:
        sets = nodes("n[1-3]", gpus={"type": "h100", "count": 2})

        assert gres_lines(sets, {"n1": SMALL, "n2": LARGE, "n3": SMALL}) == [
            "NodeName=n[1-3] Name=gpu Type=h100 File=/dev/nvidia[0-1]"
        ]

    def test_a_node_nobody_has_reached_has_no_devices_yet(self) -> None:
        sets = nodes("n[1-2]", gpus={"type": "h100", "count": 2})

        assert gres_lines(sets, {"n2": SMALL}) == ["NodeName=n2 Name=gpu Type=h100 File=/dev/nvidia[0-1]"]
        assert gres_lines(sets, {}) == []


class TestPartitions:
    def test_memory_per_cpu_is_the_poorest_nodes_share(self) -> None:
        assert only_partition_line({"n1": SMALL, "n2": LARGE}, nodes="n[1-2]")["DefMemPerCPU"] == "2000"

    @pytest.mark.parametrize(
        ("keys", "reserve_percent", "share"),
        [
            ({}, 50, "1000"),
            ({"RealMemory": "2000"}, 50, "500"),
            ({"cpus": "8"}, 0, "1000"),
            ({"REALMEMORY": "900", "CPUs": "3"}, 0, "300"),
            ({"MemSpecLimit": "4000"}, 0, "1000"),
        ],
    )
    def test_memory_per_cpu_is_what_cluster_yml_and_the_operating_system_leave_to_jobs(
        self, keys: dict[str, str], reserve_percent: int, share: str
    ) -> None:
        declared = nodes("n1", slurm=keys)

        (line,) = partition_lines([{"name": "p", "nodes": "n1"}], {"n1": SMALL}, reserve_percent, declared)

        assert fields(line)["DefMemPerCPU"] == share

    def test_the_plain_partition_is_up_and_has_no_time_limit(self) -> None:
        assert only_partition_line({"n1": SMALL}, nodes="n1") == {
            "PartitionName": "p",
            "Nodes": "n1",
            "MaxTime": "INFINITE",
            "DefMemPerCPU": "2000",
            "State": "UP",
        }

    def test_default_and_time_limit_are_taken_over(self) -> None:
        line = only_partition_line({"n1": SMALL}, nodes="n1", default=True, max_time="2-00:00:00")

        assert (line["Default"], line["MaxTime"]) == ("YES", "2-00:00:00")

    def test_options_win_whatever_their_case(self) -> None:
        line = only_partition_line({"n1": SMALL}, nodes="n1", options={"state": "DRAIN", "OverSubscribe": "NO"})

        assert line["state"] == "DRAIN"
        assert line["OverSubscribe"] == "NO"
        assert "State" not in line

    @pytest.mark.parametrize("key", ["DefMemPerGPU", "defmempernode"])
    def test_another_default_of_memory_takes_the_place_of_memory_per_cpu(self, key: str) -> None:
        line = only_partition_line({"n1": SMALL}, nodes="n1", options={key: "4096"})

        assert line[key] == "4096"
        assert "DefMemPerCPU" not in line

    def test_a_partition_without_a_single_known_node_is_left_out(self) -> None:
        assert partition_lines([{"name": "p", "nodes": "n[1-2]"}], {"n3": SMALL}, 0) == []

    def test_options_of_the_wrong_form_are_refused_by_the_partitions_name(self) -> None:
        with pytest.raises(TypeError, match="slurm_partitions: p"):
            partition_lines([{"name": "p", "nodes": "n1", "options": ["State=UP"]}], {"n1": SMALL}, 0)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "value"),
        [
            ({"MaxJobCount": 1, "statesaveLocation": "/srv/state"}, "/srv/state"),
            ({"statesavelocation": "/old", "STATESAVELOCATION": "/new"}, "/new"),
            ({}, "/var/lib"),
            ({"StateSaveLocation": None}, "/var/lib"),
            ({"StateSaveLocation": ""}, "/var/lib"),
        ],
    )
    def test_a_key_has_the_sites_last_value_in_any_case_or_its_default(
        self, settings: dict[str, object], value: str
    ) -> None:
        assert setting(settings, "StateSaveLocation", "/var/lib") == value

    def test_every_owned_key_is_refused_by_name_in_any_case(self) -> None:
        messages = owned_keys_in({"PARTITIONNAME": "x", "nodename": "y", "ClusterName": "z", "SlurmctldTimeout": 5})

        assert messages == [
            "ClusterName is set by deepopsctl: set `cluster: {name: ...}` in cluster.yml",
            "PARTITIONNAME is set by deepopsctl: list the partitions in cluster.yml",
            "nodename is set by deepopsctl: list the nodes in cluster.yml",
        ]

    @pytest.mark.parametrize(
        ("extra", "merged"),
        [
            ({"slurmctldtimeout": 300}, {"MaxJobCount": 0, "slurmctldtimeout": 300}),
            ({"SlurmctldTimeout": None}, {"MaxJobCount": 0}),
            ({"GresTypes": ""}, {"SlurmctldTimeout": 120, "MaxJobCount": 0}),
            # of two spellings the later one
            ({"a": 1, "A": 2}, {"SlurmctldTimeout": 120, "MaxJobCount": 0, "A": 2}),
        ],
    )
    def test_the_sites_settings_win_in_any_case_and_what_is_empty_is_not_written(
        self, extra: dict[str, object], merged: dict[str, object]
    ) -> None:
        assert merge_settings({"SlurmctldTimeout": 120, "MaxJobCount": 0}, extra) == merged

    @pytest.mark.parametrize(
        ("site", "written"),
        [
            ({}, "enable_configless"),
            ({"SlurmctldParameters": "idle_on_node_suspend"}, "enable_configless,idle_on_node_suspend"),
            ({"slurmctldparameters": ["a", "b"]}, "enable_configless,a,b"),
            ({"SlurmctldParameters": "a,Enable_Configless"}, "a,Enable_Configless"),
            ({"SlurmctldParameters": None}, "enable_configless"),
        ],
        ids=["untouched", "text", "list", "named by the site", "removed"],
    )
    def test_a_site_cannot_take_the_configuration_from_its_nodes(self, site: dict[str, object], written: str) -> None:
        merged = with_word(
            merge_settings({"SlurmctldParameters": "enable_configless"}, site),
            "SlurmctldParameters",
            "enable_configless",
        )

        assert {key.lower(): value for key, value in merged.items()} == {"slurmctldparameters": written}

    @pytest.mark.parametrize(
        ("value", "text"), [(True, "YES"), (False, "NO"), (["a", "b"], "a,b"), (30, "30"), ("x", "x")]
    )
    def test_yaml_values_are_written_as_slurm_reads_them(self, value: object, text: str) -> None:
        assert format_value(value) == text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("24.11.5-4+deb13u1", (24, 11)),
        ("slurm-wlm 22.05.8", (22, 5)),
        ("slurm 26.05.0-0rc1", (26, 5)),
        ("", (0, 0)),
        ("x.y.z", (0, 0)),
        ("24", (0, 0)),
    ],
)
def test_reads_slurms_release_from_what_packages_and_daemons_say(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("confinement", "version", "plugin"),
    [
        ("v1", (24, 11), "cgroup/v1"),
        ("v2", (22, 5), "cgroup/v2"),
        ("auto", (26, 5), ""),
        ("none", (26, 5), "disabled"),
        ("none", (24, 5), "disabled"),
        ("none", (23, 11), ""),
        ("none", (0, 0), ""),
    ],
)
def test_slurmd_looks_for_no_control_groups_where_none_confine(
    confinement: str, version: tuple[int, int], plugin: str
) -> None:
    assert cgroup_plugin(confinement, version) == plugin


def test_a_line_that_configless_nodes_can_not_follow_is_refused() -> None:
    right = ["required /usr/local/lib/slurm/spank_pyxis.so", "optional lua.so /etc/slurm/lua.d/*"]
    assert plugstack_refusal(right) == ""
    for wrong in (
        "include /etc/slurm/plugstack.conf.d/*",
        "/opt/x.so",
        "required",
        "required /x.so\nrequired /y.so",
        "",
    ):
        assert repr(wrong) in plugstack_refusal(["required /opt/x.so", wrong])


OLD, NEW = (22, 5), (24, 11)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (
            "NodeName=n[1-2] NodeAddr=n[1-2].a.example CPUs=2",
            "NodeName=n[1-2] NodeAddr=n1.a.example,n2.a.example CPUs=2",
        ),
        ("NodeName=r[1-2]-a,n[1-3] Name=gpu", "NodeName=r1-a,r2-a,n1,n2,n3 Name=gpu"),
        ("PartitionName=p Nodes=r[01-02]x[1-2] State=UP", "PartitionName=p Nodes=r01x1,r01x2,r02x1,r02x2 State=UP"),
        ("BlockName=b Nodes=r[1-2]-a", "BlockName=b Nodes=r1-a,r2-a"),
        ("NodeName=n1 NodeAddr=fd00:[1-2]::5", "NodeName=n1 NodeAddr=fd00:1::5,fd00:2::5"),
        ("NodeName=n[1-2],m[1,3] File=/dev/nvidia[0-1]", "NodeName=n[1-2],m[1,3] File=/dev/nvidia[0-1]"),
        ("NodeName=n1 Name=gpu File=/dev/nvidia[0-1]x", "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]x"),
    ],
)
def test_names_with_text_after_a_range_are_written_out_for_an_old_slurm(line: str, written: str) -> None:
    assert readable(f"# x\n{line}\n", OLD) == readable(f"# x\n{line}\n", (0, 0)) == f"# x\n{written}\n"
    assert readable(line, NEW) == line
