"""`gpus:` of cluster.yml: several kinds, MIG, files, cores, links; what is refused; how it is written back."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.gpus.notation import expand_files, fold_files, from_inventory
from deepopsctl.model.cluster import Cluster, GpuGroup, Gpus
from deepopsctl.slurm.conf import gpu_types, gres_lines, gres_of, parse_node_sets
from deepopsctl.slurm.hardware import NodeHardware
from tests.support.cluster_yml import faults

SEVERAL = "[{type: a40, count: 2}, {type: l40s, count: 2}]"
MIXED_LAYOUT = '{type: a100, count: 2, mig: [~, {"3g.20gb": [1], "1g.5gb": [11, 12]}]}'
NVML = '{type: a100, count: 1, mig: {"1g.5gb+me": 1, "1g.5gb": 6}}, autodetect: nvml'

WRITTEN = {
    "plain": "{type: h100, count: 8}",
    "untyped": "{count: 2}",
    "several": SEVERAL,
    "mig": '{type: a100, count: 4, mig: {"2g.10gb": [3, 4, 5]}}',
    "mig-by-gpu": MIXED_LAYOUT,
    "files": '{type: a100, count: 3, files: "/dev/nvidia[0,2-3]"}',
    "files-by-name": "{type: a100, count: 2, files: [/dev/gpu/a, /dev/gpu/b]}",
    "cores": '{type: a100, count: 2, cores: "0-15,32-47"}',
    "cores-by-gpu": '{type: a100, count: 2, cores: ["0-15", "16-31"]}',
    "links": '{type: a100, count: 2, links: ["-1,4", "4,-1"]}',
    "detected": "{type: b200, count: 8}, autodetect: nvml",
    "detected-mig": NVML,
}


def spec(gpus: str) -> str:
    return (
        f"schema: 1\nnodes:\n  - {{names: c, roles: [controller]}}\n  - {{names: n1, roles: [compute], gpus: {gpus}}}\n"
    )


def cluster(gpus: str) -> Cluster:
    return parse_spec(spec(gpus), "cluster.yml")


def declared(gpus: str) -> Gpus:
    gpus_read = cluster(gpus).compute[0].gpus
    assert gpus_read is not None
    return gpus_read


def conf(gpus: str) -> tuple[str, list[str], list[str]]:
    """Gres=, the lines of gres.conf, the types, as the roles get them through the inventory."""
    inventory = build_inventory(cluster(gpus))
    sets = parse_node_sets(inventory["all"]["vars"]["slurm_nodes"])  # type: ignore[index]  # plain data, nested
    hardware = {
        "n1": NodeHardware(cpus=64, boards=1, sockets=2, cores_per_socket=16, threads_per_core=2, memory_mb=512000)
    }
    return gres_of(sets[0]), gres_lines(sets, hardware), gpu_types(sets)


def faults_of(gpus: str) -> list[str]:
    return [fault.removeprefix("cluster.yml:4 nodes[1].") for fault in faults(spec(gpus))]


class TestRead:
    def test_one_plain_kind_that_slurm_does_not_detect_is_a_type_and_a_count(self) -> None:
        assert declared("{type: h100, count: 8}") == Gpus("h100", 8)
        assert declared("[{type: h100, count: 8}]") == Gpus("h100", 8)
        assert declared('{type: h100, count: 2, files: "/dev/nvidia[0-1]"}') == Gpus("h100", 2)
        assert declared("{type: h100, count: 8}, autodetect: off") == Gpus("h100", 8)

    def test_several_kinds_are_numbered_in_their_order(self) -> None:
        read = declared(SEVERAL)

        assert (read.type, read.count) == ("", 4)
        assert read.groups == (
            GpuGroup("a40", 2, ("/dev/nvidia0", "/dev/nvidia1")),
            GpuGroup("l40s", 2, ("/dev/nvidia2", "/dev/nvidia3")),
        )

    @pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
    def test_what_is_written_and_what_the_inventory_carries_is_read_again(self, written: str) -> None:
        first = cluster(written)
        (entry,) = build_inventory(first)["all"]["vars"]["slurm_nodes"]  # type: ignore[index]  # plain data, nested

        assert parse_spec(render_spec(first), "again").nodes == first.nodes
        assert from_inventory(entry["gpus"]) == first.compute[0].gpus


class TestRefused:
    @pytest.mark.parametrize(
        ("gpus", "result"),
        [
            ("[]", ["gpus: is empty"]),
            ("~, autodetect: nvml", ["autodetect: is given without gpus"]),
            ("{type: h100, count: 8}, autodetect: maybe", ["autodetect: 'maybe' is not a way to detect GPUs"]),
            ("[a40]", ["gpus[0]: must be keys with values"]),
            ("[{type: a40, count: 0}, {typ: l40s}]",
             ["gpus[1].count: is missing", "gpus[1].typ: unknown key"]),
            ("[{type: a40, count: 0}, {type: l40s, count: x}]",
             ["gpus[0]: '0' is not a number of GPUs", "gpus[1]: 'x' is not a number of GPUs"]),
            ("[{count: 2}, {type: l40s, count: 2}]", ["gpus[0]: has no type"]),
            ("[{type: a40, count: 200}, {type: l40s, count: 200}]", ["gpus[1]: more than 256 GPUs in one node"]),
            ('{type: a100, count: 4, files: "/dev/nvidia[0-2]"}', ["gpus.files: 3 device files for 4 GPUs"]),
            ('{type: a100, count: 2, files: "nvidia[0-1]"}', ["gpus.files: 'nvidia[0-1]' is not a device file"]),
            ('{type: a100, count: 2, files: "/dev/nvidia[1-0]"}', ["gpus.files: '/dev/nvidia[1-0]' has no good range"]),
            ("{type: a100, count: 2, files: [/dev/gpu, /dev/gpu]}", ["gpus.files: /dev/gpu is given twice"]),
            ('[{type: a40, count: 2}, {type: l40s, count: 2, files: "/dev/nvidia[1-2]"}]',
             ["gpus[1].files: /dev/nvidia1 is given twice"]),
            ("{type: a100, count: 2, cores: all}", ["gpus.cores: 'all' are not cores"]),
            ('{type: a100, count: 2, cores: "0-3,9-7"}', ["gpus.cores: '0-3,9-7' runs backwards"]),
            ('{type: a100, count: 2, cores: ["0-3"]}', ["gpus.cores: 1 entries for 2 GPUs"]),
            ('{type: a100, count: 2, links: ["-1,4"]}', ["gpus.links: 1 rows of links for 2 GPUs"]),
            ('{type: a100, count: 2, links: ["-1,4", "-1,4"]}', ["gpus.links: '-1,4' does not fit 2 GPUs"]),
            ('{type: a100, count: 2, links: ["-1,4,4", "4,-1,4"]}', ["gpus.links: '-1,4,4' does not fit 2 GPUs"]),
        ],
    )  # fmt: skip
    def test_gpus_that_cannot_be_are_refused(self, gpus: str, result: list[str]) -> None:
        assert faults_of(gpus) == result

    @pytest.mark.parametrize(
        ("gpus", "result"),
        [
            ('{type: a100, count: 4, mig: {"1g.5gp": 7}}', "a100 has no MIG profile '1g.5gp'"),
            ('{type: a100, count: 4, mig: {"3g.20gb": 3}}', "3 x 3g.20gb do not fit on one a100"),
            ('{type: a100, count: 4, mig: {"3g.20gb": 2, "1g.5gb": 1}}',
             "2 x 3g.20gb, 1 x 1g.5gb do not fit on one a100"),
            ('{type: a100, count: 4, mig: {"3g.20gb": 1, "3g.40gb": 1}}',
             "no variant of a100 has all of 3g.20gb, 3g.40gb"),
            ('{type: a100_80gb, count: 4, mig: {"1g.5gb": 7}}', "a100_80gb has no MIG profile '1g.5gb'"),
            ('{type: a100, count: 4, mig: {"1g.5gb": 8}}', "1g.5gb: 8 slices"),
            ('{type: a100, count: 4, mig: {"1g.5gb": all}}', "1g.5gb: 'all' is not a number of slices"),
            ('{type: a100, count: 4, mig: {"1g.5gb": []}}', "1g.5gb: '[]' is not a number of slices"),
            ('{type: a100, count: 4, mig: {"1g.5gb": [7, 15]}}', "1g.5gb: 15 is not a slice's number"),
            ('{type: a100, count: 4, mig: {"1g.5gb": [7, 7]}}', "a slice's number is given twice"),
            ('{type: a100, count: 4, mig: {"1g.5gb": 7}}', "the driver chooses the slices' device files"),
            ('{type: z1, count: 4, mig: {"1g.5gb": 7}}', "the driver chooses the slices' device files"),
            ('{type: a100, count: 4, mig: [{"1g.5gb": 7}]}', "1 layouts for 4 GPUs"),
            ("{type: a100, count: 4, mig: [~, ~, ~, {}]}", "no GPU has a slice"),
            ("{type: a100, count: 4, mig: all}", "must be profiles with their numbers"),
            ('{type: rtx4090, count: 1, mig: {"1g.5gb": 1}}', "rtx4090 has no MIG"),
            ('{count: 1, mig: {"1g.5gb": 1}}', "slices need a type"),
            ('{type: z1, count: 1, mig: {"large": 1}}, autodetect: nvml', "z1 has no MIG profile 'large'"),
        ],
    )  # fmt: skip
    def test_slices_that_cannot_be_are_refused(self, gpus: str, result: str) -> None:
        assert faults_of(gpus) == [f"gpus.mig: {result}"]

    def test_slices_need_numbered_files_and_have_no_links(self) -> None:
        assert faults_of('{type: a100, count: 1, mig: {"1g.5gb": [7]}, files: /dev/gpu, links: ["-1"]}') == [
            "gpus.files: slices need /dev/nvidiaN",
            "gpus.links: slices have no links",
        ]

    @pytest.mark.parametrize(
        ("gpus", "result"),
        [
            ('{type: a100, count: 1, cores: "0-3"}', "gpus.cores: AutoDetect finds cores itself"),
            ("{type: rtx4090, count: 1}", "gpus: AutoDetect calls this GPU nvidia_geforce_rtx_4090, not rtx4090"),
            ("[{type: l40, count: 1}, {type: l40s, count: 1}]", "gpus[1]: AutoDetect can't distinguish l40s from l40"),
            (MIXED_LAYOUT, "gpus: AutoDetect can't distinguish whole GPUs from slices"),
        ],
    )
    def test_what_slurm_would_find_by_itself_or_never_is_refused(self, gpus: str, result: str) -> None:
        assert faults_of(f"{gpus}, autodetect: nvml") == [result]


class TestSlurm:
    def test_kinds_of_one_type_are_one_gres_with_a_line_for_each_set_of_cores(self) -> None:
        gres, lines, types = conf('[{type: h100, count: 4, cores: "0-7"}, {type: h100, count: 4, cores: "8-15"}]')

        assert (gres, types) == ("gpu:h100:8", ["h100"])
        assert lines == [
            "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-7",
            "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=8-15",
        ]

    def test_kinds_of_several_types_each_have_their_own(self) -> None:
        gres, lines, types = conf(SEVERAL)

        assert (gres, types) == ("gpu:a40:2,gpu:l40s:2", ["a40", "l40s"])
        assert lines == [
            "NodeName=n1 Name=gpu Type=a40 File=/dev/nvidia[0-1]",
            "NodeName=n1 Name=gpu Type=l40s File=/dev/nvidia[2-3]",
        ]

    def test_a_slice_has_its_own_type_and_all_its_files(self) -> None:
        gres, lines, types = conf(MIXED_LAYOUT)

        assert gres == "gpu:a100:1,gpu:a100_3g.20gb:1,gpu:a100_1g.5gb:2"
        assert types == ["a100", "a100_1g.5gb", "a100_3g.20gb"]
        assert lines[0] == "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0"
        caps = "/dev/nvidia-caps/nvidia-cap147,/dev/nvidia-caps/nvidia-cap148"
        assert lines[1] == f"NodeName=n1 Name=gpu Type=a100_3g.20gb MultipleFiles=/dev/nvidia1,{caps}"
        assert len(lines) == 4

    def test_detected_slices_are_called_by_their_profile(self) -> None:
        # AutoDetect's own name ends in it (`nvidia_a100-sxm4-40gb_1g.5gb`), with or without media engines
        assert conf(NVML)[0] == "gpu:1g.5gb:7"


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "files"),
        [
            ("/dev/nvidia0", ("/dev/nvidia0",)),
            ("/dev/nvidia[0,2-3]", ("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3")),
            ("/dev/gpu", ("/dev/gpu",)),
        ],
    )
    def test_files_fold_back_to_what_they_were(self, text: str, files: tuple[str, ...]) -> None:
        assert expand_files(text) == files
        assert fold_files(files) == text

    def test_the_order_of_files_is_kept(self) -> None:
        assert fold_files(["/dev/nvidia1", "/dev/nvidia0", "/dev/nvidia2"]) == "/dev/nvidia[1,0,2]"
