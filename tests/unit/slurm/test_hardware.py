"""hardware.yml: what a node reported is kept, folded, and survives the node being down."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.gpus import discovery
from deepopsctl.gpus.discovery import DetectedGpu
from deepopsctl.slurm.hardware import (
    NodeHardware,
    dump_hardware,
    estimate_hardware,
    load_hardware,
    parse_slurmd_report,
    store_hardware,
)
from tests.support.problems import problems_of

SMALL = NodeHardware(cpus=4, boards=1, sockets=1, cores_per_socket=4, threads_per_core=1, memory_mb=8000)
LARGE = NodeHardware(cpus=64, boards=1, sockets=2, cores_per_socket=16, threads_per_core=2, memory_mb=512000)

REPORT = """\
NodeName=gpu01 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=512000
UpTime=1-02:03:04
"""


def stored(**changes: object) -> str:
    """A hardware.yml with one node, as JSON; without what is None."""
    node = {"names": "n1", **SMALL.as_facts(), **changes}
    return json.dumps({"nodes": [{key: value for key, value in node.items() if value is not None}]})


# of a node whose slurmd, installed later, reported CPUs=2 CoresPerSocket=2 RealMemory=24105
LSCPU = """\
Architecture:                            x86_64
CPU op-mode(s):                          32-bit, 64-bit
CPU(s):                                  2
On-line CPU(s) list:                     0,1
Thread(s) per core:                      1
Core(s) per socket:                      2
Socket(s):                               1
NUMA node0 CPU(s):                       0,1
"""
MEMINFO = "MemTotal:       24684096 kB\nMemFree:         2033040 kB\n"


class TestForesight:
    def test_what_slurmd_will_report_is_known_before_it_is_there(self) -> None:
        report = "CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105"
        assert estimate_hardware(LSCPU, MEMINFO, "v2") == parse_slurmd_report(report, "v2")

    def test_what_is_missing_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"reports 'Socket\(s\)'"):
            estimate_hardware(LSCPU.replace("Socket(s)", "Cluster(s)"), MEMINFO, "v2")


class TestReport:
    def test_sockets_are_those_of_the_whole_node(self) -> None:
        assert parse_slurmd_report(REPORT.replace("Boards=1", "Boards=4"), "v2").sockets == 8

    def test_a_report_without_boards_has_one(self) -> None:
        assert parse_slurmd_report(REPORT.replace("Boards=1 ", ""), "v2") == LARGE

    def test_a_report_that_lacks_something_says_what(self) -> None:
        with pytest.raises(ValueError, match="did not report RealMemory"):
            parse_slurmd_report(REPORT.replace("RealMemory", "Memory"), "v2")

    def test_a_report_of_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="memory_mb is 0"):
            parse_slurmd_report(REPORT.replace("512000", "0"), "v2")


class TestStore:
    def test_nodes_with_equal_hardware_are_folded_into_one_line(self) -> None:
        text = dump_hardware({"n10": SMALL, "n9": SMALL, "n8": SMALL, "gpu1": LARGE})

        assert re.findall(r'names: "(.+?)"', text) == ["gpu1", "n[8-10]"]

    @pytest.mark.parametrize("cgroup", ['v2}\n  - {names: "ctl1", cpus: 1', "v2 ", "", "v2\n"])
    def test_a_nodes_answer_is_no_entry_of_another_node(self, cgroup: str) -> None:
        with pytest.raises(ValueError, match="cgroup is one of v1, v2, none"):
            replace(SMALL, cgroup=cgroup)

    def test_numbers_that_no_node_has_are_refused(self) -> None:
        with pytest.raises(ValueError, match="which no node has"):
            replace(SMALL, memory_mb=9_999_999_999)

    def test_a_product_name_of_a_node_is_printable(self, tmp_path: Path) -> None:
        name = discovery._names("0, NVIDIA\x7f\x9b H100, 00000000:01:00.0\n")[0][0]
        store_hardware(tmp_path / "hardware.yml", {"n1": replace(SMALL, gpus=(DetectedGpu(name),))})

        assert load_hardware(tmp_path / "hardware.yml")["n1"].gpus[0].model == name == "NVIDIA?? H100"

    def test_a_file_that_is_not_there_is_an_empty_store(self, tmp_path: Path) -> None:
        assert load_hardware(tmp_path / "hardware.yml") == {}

    def test_an_unchanged_store_is_not_written_again(self, tmp_path: Path) -> None:
        path = tmp_path / "hardware.yml"

        assert store_hardware(path, {"n1": SMALL})
        before = path.stat().st_ino

        assert not store_hardware(path, {"n1": SMALL})
        assert path.stat().st_ino == before


class TestDamage:
    @pytest.mark.parametrize(
        ("text", "where", "message"),
        [
            ("nodes:\n  - {names: [\n", "hardware.yml:3", "not valid YAML"),
            # as a merge of two branches may leave it
            ("nodes: []\nnodes: []\n", "hardware.yml:2", "the key nodes is given twice"),
            ("- a list\n", "hardware.yml", "it needs a list `nodes:`"),
            ("nodes: gpu01\n", "hardware.yml", "it needs a list `nodes:`"),
            (stored(cpus=None, boards=None), "hardware.yml", "nodes[0]: cpus, boards are missing"),
            (stored(names=None), "hardware.yml", "nodes[0]: names is missing"),
            ("nodes:\n  - gpu01\n", "hardware.yml", "nodes[0]: is not a node entry"),
            (stored(names="n[1-"), "hardware.yml", "nodes[0]: n[1-: a bracket is not closed"),
            (stored(memory_mb="much"), "hardware.yml", "nodes[0]: memory_mb is 'much', which is not a number above 0"),
            (stored(cpus=0), "hardware.yml", "nodes[0]: cpus is 0, which is not a number above 0"),
            (stored(cgroup="v3"), "hardware.yml", "nodes[0]: cgroup is one of v1, v2, none, not 'v3'"),
        ],
    )
    def test_a_damaged_file_is_refused_with_place_and_way_out(
        self, tmp_path: Path, text: str, where: str, message: str
    ) -> None:
        path = tmp_path / "hardware.yml"
        path.write_text(text, encoding="utf-8")

        (problem,) = problems_of(load_hardware, path)

        assert problem.where == where
        assert message in problem.message
        assert "restore it from git" in problem.hint
