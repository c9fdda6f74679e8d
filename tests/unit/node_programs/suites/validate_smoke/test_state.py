"""Is Slurm's picture of nodes and partitions the declared one?"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from deepopsctl.node_programs._slurm_jobs import placement
from deepopsctl.node_programs.suites.validate_smoke import context, state
from tests.data import slurm_samples

WANT = context.Node("gpu01", cpus=64, memory_mb=200_000, gpu_type="h100", gpus=8)


node = partial(slurm_samples.node, CPUTot="64", RealMemory="196000", Gres="gpu:h100:8(S:0-1)")
partition = partial(slurm_samples.partition, Default="YES", MaxTime="2-00:00:00")


FAN = "bad fan [root@2026-11-21T09:00:01]"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        *(("pass", text) for text in ("IDLE", "MIXED", "ALLOCATED", "IDLE+PLANNED", "MIXED+COMPLETING")),
        # kept for later
        *(("warn", text) for text in ("IDLE+RESERVED", "IDLE+MAINT", "IDLE+REBOOT_REQUESTED")),
        *(("fail", text) for text in ("IDLE*", "DOWN", "IDLE+DRAIN", "ALLOCATED+DRAIN", "INVAL")),
        ("fail", "DOWN+NOT_RESPONDING"),
    ],
)
def test_a_node_passes_that_runs_jobs_and_one_that_runs_none_fails_with_slurms_reason(status: str, text: str) -> None:
    options = node(State=text, Reason=f"{FAN} Comment=x")

    check = state.node_state("gpu01", options, reserved=False)

    assert check["status"] == status
    assert (f"Slurm's reason: {FAN}" in check["message"], "Comment" in check["message"]) == (status == "fail", False)
    assert status == "warn" or placement.is_up(options) == (status == "pass")
    assert state.node_state("gpu01", None, reserved=False)["measured"] == "not registered"


@pytest.mark.parametrize(
    ("slurm", "today", "status"), [("64", 64, "pass"), ("64", 62, "fail"), ("32", 64, "fail"), ("64", 0, "pass")]
)
def test_cpus_are_compared_with_the_store_and_with_the_node_of_today(slurm: str, today: int, status: str) -> None:
    assert state.node_cpus(WANT, node(CPUTot=slurm), {"cpus": today})["status"] == status
    # one that was never seen
    assert state.node_cpus(context.Node("gpu01"), node(), {})["status"] == "skip"


@pytest.mark.parametrize(
    ("slurm", "today", "status"),
    [
        ("196000", 200_000, "pass"),
        ("196000", 195_000, "pass"),
        ("196000", 131_072, "fail"),
        ("210000", 220_000, "fail"),
        ("100000", 200_000, "warn"),
        ("196000", 0, "pass"),
    ],
)
def test_slurm_promises_no_more_memory_than_there_is(slurm: str, today: int, status: str) -> None:
    assert state.node_memory(WANT, node(RealMemory=slurm), {"memory_mb": today})["status"] == status
    assert state.node_memory(context.Node("gpu01"), node(), {})["status"] == "skip"
    # where the site has set it, it has to be exactly that
    exact = state.node_memory(WANT._replace(memory_mb=196_000, exact_memory=True), node(RealMemory=slurm), {})
    assert exact["status"] == ("pass" if slurm == "196000" else "fail")


MIXED = context.Node("gpu01", gpus=3, gres="gpu:a40:2,gpu:l40s:1")
# slices are counted as Slurm has them, and cards as device files
CUT = context.Node("gpu01", gpu_type="a100", gpus=2, gres="gpu:a100:1,gpu:a100_1g.5gb:7")


@pytest.mark.parametrize(
    ("want", "gres", "devices", "status"),
    [
        (WANT, "gpu:h100:8(S:0-1)", 8, "pass"),
        (WANT, "gpu:h100:8", None, "pass"),
        (WANT, "gpu:h100:8", 7, "fail"),
        (WANT, "gpu:a100:8", 8, "fail"),
        (WANT, "gpu:h100:4", 8, "fail"),
        (WANT, "(null)", 8, "fail"),
        (MIXED, "gpu:a40:2(S:0),gpu:l40s:1(S:0-1)", 3, "pass"),
        (MIXED, "gpu:l40s:1,gpu:a40:2", 3, "pass"),
        (MIXED, "gpu:a40:2,gpu:l40s:1", 2, "fail"),
        (MIXED, "gpu:a40:3", 3, "fail"),
        (CUT, "gpu:a100:1,gpu:a100_1g.5gb:7", 2, "pass"),
        (CUT, "gpu:a100:1,gpu:a100_1g.5gb:7", 1, "fail"),
        (context.Node("cpu01"), "gpu:2", None, "fail"),
        (context.Node("cpu01"), "(null)", None, "pass"),
    ],
)
def test_gpus_are_compared_by_type_and_count_and_with_device_files(
    want: context.Node, gres: str, devices: int | None, status: str
) -> None:
    assert state.node_gpus(want, node(Gres=gres), {"gpu_devices": devices})["status"] == status


class TestPartition:
    WANT = context.Partition("gpu", ["gpu01"], True, 2880)

    def check(self, has: dict[str, dict[str, str]], nodes: dict[str, Any] | None = None) -> Any:
        return state.partition_checks([self.WANT], has, nodes or {"gpu01": node()})[0]

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"State": "DOWN"}, "state DOWN, not UP"),
            ({"Default": "NO"}, "is not default"),
            ({"MaxTime": "01:00:00"}, "time limit 01:00:00, not 2-00:00:00"),
            ({"MaxTime": "UNLIMITED"}, "time limit UNLIMITED, not 2-00:00:00"),
        ],
    )
    def test_each_difference_is_named(self, changes: dict[str, str], text: str) -> None:
        check = self.check({"gpu": partition(**changes)})

        assert check["status"] == "fail"
        assert check["message"] == text
        assert self.check({"gpu": partition()})["status"] == "pass"
        assert self.check({})["measured"] == "missing"

    def test_missing_and_additional_nodes_are_named(self) -> None:
        check = self.check({"gpu": partition()}, {"gpu02": node(), "gpu01": node(Partitions="night")})

        assert check["message"] == "lacks gpu01; has gpu02 in addition"

    def test_a_partition_that_nobody_declared_is_a_warning(self) -> None:
        checks = state.partition_checks([], {"old": partition(PartitionName="old")}, {})

        assert [(check["target"], check["status"]) for check in checks] == [("old", "warn")]


class TestExpected:
    @staticmethod
    def expand(names: str) -> list[str]:
        return {"gpu[01-02]": ["gpu01", "gpu02"]}.get(names, [names])

    def test_hardware_and_declaration_come_together(self) -> None:
        declared = [{"names": "gpu[01-02]", "gpus": {"type": "h100", "count": 8}}]
        hardware = [{"names": "gpu01", "cpus": 64, "memory_mb": 200_000}]

        assert context.nodes(declared, hardware, self.expand) == {
            "gpu01": WANT,
            "gpu02": context.Node("gpu02", gpu_type="h100", gpus=8),
        }

    def test_what_the_site_sets_wins_whatever_the_case_of_its_key(self) -> None:
        declared = [{"names": "gpu01", "slurm": {"realmemory": "1000", "CPUs": 4}}]
        result = context.nodes(declared, [{"names": "gpu01", "cpus": 64, "memory_mb": 9}], self.expand)["gpu01"]

        assert (result.cpus, result.memory_mb, result.exact_memory) == (4, 1000, True)

    def test_a_partition_expects_only_nodes_that_were_deployed(self) -> None:
        declared = [{"name": "gpu", "nodes": "gpu[01-02]", "default": True, "options": {"MaxTime": "60"}}]

        assert context.partitions(declared, ["gpu01"], self.expand) == [context.Partition("gpu", ["gpu01"], True, 60)]
