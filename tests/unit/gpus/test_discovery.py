"""What a driver found: nvidia-smi's tables as machines print them, hardware.yml, and the lines of gres.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.errors import InputError
from deepopsctl.gpus.discovery import DetectedGpu, complete, fits, parse_detected
from deepopsctl.gpus.notation import default_files
from deepopsctl.model.cluster import GpuGroup, Gpus
from deepopsctl.slurm.conf import NodeSet, gres_lines, node_lines
from deepopsctl.slurm.hardware import NodeHardware, dump_hardware, load_hardware, store_hardware

H100 = "NVIDIA H100 80GB HBM3"
# eight GPUs behind NVSwitches, with network cards; two sockets with 56 cores of two threads
H100_TABLE = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tPXB\tSYS\t0-55,112-167\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNODE\tSYS\t0-55,112-167\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNODE\tSYS\t0-55,112-167\t0\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNODE\tSYS\t0-55,112-167\t0\t\tN/A
GPU4\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tSYS\tPXB\t56-111,168-223\t1\t\tN/A
GPU5\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tSYS\tNODE\t56-111,168-223\t1\t\tN/A
GPU6\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tSYS\tNODE\t56-111,168-223\t1\t\tN/A
GPU7\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tSYS\tNODE\t56-111,168-223\t1\t\tN/A
NIC0\tPXB\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tSYS\tSYS\tSYS\tPXB\tNODE\tNODE\tNODE\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
# two pairs with NVLink bridges, each GPU near to a NUMA node of its own; two sockets with two of those each
PAIRS_TABLE = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tSYS\tSYS\t0-23\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tSYS\t24-47\t1\t\tN/A
GPU2\tSYS\tSYS\t X \tNV12\t48-71\t2\t\tN/A
GPU3\tSYS\tSYS\tNV12\t X \t72-95\t3\t\tN/A
"""
ADDRESSES = ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")


def cpus(*columns: tuple[int, int, range]) -> str:
    """`lscpu --parse=CPU,SOCKET,NODE`."""
    head = "# The following is the parsable format, which can be fed to other\n# CPU,Socket,Node\n"
    return head + "".join(f"{cpu},{socket},{node}\n" for socket, node, numbers in columns for cpu in numbers)


def answers(names: list[str], table: str, lscpu: str, minors: list[int] | None = None) -> dict[str, str]:
    """What a node answers to the probes."""
    listed = zip(names, ADDRESSES, minors or range(len(names)), strict=False)
    rows = [(f"{name}, 00000000:{bus.upper()}:00.0", bus, minor) for name, bus, minor in listed]
    return {
        "gpu_names": "".join(f"{index}, {row[0]}\n" for index, row in enumerate(rows)),
        "gpu_minors": "".join(
            f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information:Device Minor: \t {minor}\n" for _, bus, minor in rows
        ),
        "gpu_topology": table,
        "cpu_sockets": lscpu,
    }


HGX_CPUS = cpus((0, 0, range(56)), (1, 1, range(56, 112)), (0, 0, range(112, 168)), (1, 1, range(168, 224)))
FOUR_CPUS = cpus((0, 0, range(24)), (0, 1, range(24, 48)), (1, 2, range(48, 72)), (1, 3, range(72, 96)))
HGX = answers([H100] * 8, H100_TABLE, HGX_CPUS)
PAIRS = answers(["NVIDIA A40"] * 4, PAIRS_TABLE, FOUR_CPUS)


class TestParsing:
    def test_gpus_behind_switches_have_the_cores_of_their_socket_and_no_links(self) -> None:
        assert parse_detected(HGX, 2, 56) == (DetectedGpu(H100, "0-55"),) * 4 + (DetectedGpu(H100, "56-111"),) * 4

    def test_bridged_pairs_have_links_and_cores_go_to_the_end_of_a_socket(self) -> None:
        detected = parse_detected(PAIRS, 2, 48)
        assert [gpu.cores for gpu in detected] == ["0-47", "0-47", "48-95", "48-95"]
        assert [gpu.links for gpu in detected] == ["-1,12,0,0", "12,-1,0,0", "0,0,-1,12", "0,0,12,-1"]

    def test_a_slurm_that_takes_numa_nodes_for_sockets_gets_their_cores(self) -> None:
        assert [gpu.cores for gpu in parse_detected(PAIRS, 4, 24)] == ["0-23", "24-47", "48-71", "72-95"]

    def test_files_are_numbered_by_the_kernel_module_and_not_by_nvidia_smi(self) -> None:
        probes = answers(
            ["NVIDIA A40", "NVIDIA A40", "NVIDIA L40S", "NVIDIA L40S"], PAIRS_TABLE, FOUR_CPUS, [2, 3, 0, 1]
        )
        detected = parse_detected(probes, 2, 48)
        assert [gpu.model for gpu in detected] == ["NVIDIA L40S", "NVIDIA L40S", "NVIDIA A40", "NVIDIA A40"]
        assert [gpu.cores for gpu in detected] == ["48-95", "48-95", "0-47", "0-47"]
        assert detected[0].links == "-1,12,0,0"

    @pytest.mark.parametrize(("sockets", "cores"), [(1, 112), (3, 56), (8, 1)])
    def test_sockets_that_lscpu_does_not_know_have_no_cores(self, sockets: int, cores: int) -> None:
        assert {gpu.cores for gpu in parse_detected(HGX, sockets, cores)} == {""}

    def test_a_gpu_that_is_near_to_all_cores_has_none_of_its_own(self) -> None:
        table = H100_TABLE.replace("0-55,112-167", "0-223")
        assert [gpu.cores for gpu in parse_detected({**HGX, "gpu_topology": table}, 2, 56)][:4] == [""] * 4

    @pytest.mark.parametrize("lost", ["gpu_names", "gpu_minors"])
    def test_without_a_driver_nothing_is_found(self, lost: str) -> None:
        assert parse_detected({**HGX, lost: ""}, 2, 56) == ()
        assert parse_detected({}, 2, 56) == ()

    def test_files_with_gaps_are_left_to_a_person(self) -> None:
        assert parse_detected(answers([H100] * 2, H100_TABLE, HGX_CPUS, [0, 2]), 2, 56) == ()

    def test_without_its_tables_there_are_still_names(self) -> None:
        assert parse_detected({key: HGX[key] for key in ("gpu_names", "gpu_minors")}, 2, 56) == (DetectedGpu(H100),) * 8


class TestStore:
    NODE = NodeHardware(224, 1, 2, 56, 2, 2000000, "v2", parse_detected(HGX, 2, 56))

    def test_hardware_yml_reads_back_as_it_was_written(self, tmp_path: Path) -> None:
        path = tmp_path / "hardware.yml"
        other = NodeHardware(96, 1, 2, 48, 1, 500000, "v2", parse_detected(PAIRS, 2, 48))
        nodes = {"gpu01": self.NODE, "gpu02": self.NODE, "gpu03": other, "cn01": NodeHardware(4, 1, 1, 4, 1, 8000)}
        assert store_hardware(path, nodes)
        assert load_hardware(path) == nodes
        assert '[{"model": "NVIDIA H100 80GB HBM3", "count": 4, "cores": "0-55"}, ' in path.read_text()
        assert path.read_text().count("names:") == 3

    def test_templates_get_it_as_plain_data(self) -> None:
        assert NodeHardware.from_facts(self.NODE.as_facts()) == self.NODE

    @pytest.mark.parametrize(
        "gpus", ["8", "[{count: 8}]", "[{model: x, count: 0}]", "[{model: x, count: 1, speed: 3}]"]
    )
    def test_what_a_person_got_wrong_is_named(self, tmp_path: Path, gpus: str) -> None:
        path = tmp_path / "hardware.yml"
        line = dump_hardware({"gpu01": NodeHardware(4, 1, 1, 4, 1, 8000)})
        path.write_text(line.replace("cgroup: v2", f"cgroup: v2, gpus: {gpus}"))
        with pytest.raises(InputError, match="gpus is a list of"):
            load_hardware(path)


def lines(gpus: Gpus, *nodes: NodeHardware, **options: str) -> list[str]:
    """gres.conf for gpu01, gpu02 ..."""
    names = tuple(f"gpu{number:02d}" for number in range(1, len(nodes) + 1))
    return gres_lines([NodeSet(names, gpus, (), options)], dict(zip(names, nodes, strict=True)))


class TestGresConf:
    HGX_NODE = TestStore.NODE
    PLAIN = NodeHardware(224, 1, 2, 56, 2, 2000000)

    def test_cores_are_those_that_were_found(self) -> None:
        assert lines(Gpus("h100", 8), self.HGX_NODE, self.HGX_NODE) == [
            "NodeName=gpu[01-02] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-55",
            "NodeName=gpu[01-02] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=56-111",
        ]

    def test_a_node_that_was_not_asked_yet_has_lines_of_its_own_and_stays_one_node_for_slurm_conf(self) -> None:
        conf_lines = lines(Gpus("h100", 8), self.HGX_NODE, self.PLAIN)
        assert conf_lines[-1] == "NodeName=gpu02 Name=gpu Type=h100 File=/dev/nvidia[0-7]"
        node_set = NodeSet(("gpu01", "gpu02"), Gpus("h100", 8), (), {})
        (line,) = node_lines([node_set], {"gpu01": self.HGX_NODE, "gpu02": self.PLAIN}, {}, 0)
        assert line.startswith("NodeName=gpu[01-02] ")

    def test_links_that_differ_take_a_line_for_each_gpu(self) -> None:
        node = NodeHardware(96, 1, 2, 48, 1, 500000, "v2", parse_detected(PAIRS, 2, 48))
        assert lines(Gpus("a40", 4), node) == [
            "NodeName=gpu01 Name=gpu Type=a40 File=/dev/nvidia0 Cores=0-47 Links=-1,12,0,0",
            "NodeName=gpu01 Name=gpu Type=a40 File=/dev/nvidia1 Cores=0-47 Links=12,-1,0,0",
            "NodeName=gpu01 Name=gpu Type=a40 File=/dev/nvidia2 Cores=48-95 Links=0,0,-1,12",
            "NodeName=gpu01 Name=gpu Type=a40 File=/dev/nvidia3 Cores=48-95 Links=0,0,12,-1",
        ]

    def test_links_follow_the_order_that_cluster_yml_gives_the_files(self) -> None:
        detected = parse_detected(PAIRS, 2, 48)
        files = ("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia1", "/dev/nvidia3")
        (group,) = complete(Gpus("a40", 4, (GpuGroup("a40", 4, files),)), detected, {}).groups
        assert group.links == ("-1,0,12,0", "0,-1,0,12", "12,0,-1,0", "0,12,0,-1")
        assert group.cores == ("0-47", "48-95", "0-47", "48-95")

    def test_what_cluster_yml_says_stands(self) -> None:
        declared = Gpus("h100", 8, (GpuGroup("h100", 8, default_files(0, 8), cores=("0-111",) * 8),))
        assert lines(declared, self.HGX_NODE) == ["NodeName=gpu01 Name=gpu Type=h100 File=/dev/nvidia[0-7] Cores=0-111"]

    @pytest.mark.parametrize("key", ["Sockets", "corespersocket", "CPUs"])
    def test_a_site_with_its_own_idea_of_the_cores_gets_none(self, key: str) -> None:
        assert "Cores" not in lines(Gpus("h100", 8), self.HGX_NODE, **{key: "4"})[0]

    def test_slurm_finds_them_itself_with_autodetect(self) -> None:
        assert lines(Gpus("h100", 8, (), "nvml"), self.HGX_NODE) == ["NodeName=gpu01 AutoDetect=nvml"]

    @pytest.mark.parametrize("gpus", [Gpus("h100", 7), Gpus("h200", 8), Gpus("h100", 9)])
    def test_gpus_that_are_not_what_cluster_yml_says_change_nothing(self, gpus: Gpus) -> None:
        assert not fits(gpus, self.HGX_NODE.gpus)
        assert "Cores" not in lines(gpus, self.HGX_NODE)[0]
