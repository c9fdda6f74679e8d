"""Pairs of nodes, as real processes with real sockets; links and ports next to each other."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._slurm_jobs import probe_jobs
from deepopsctl.node_programs.suites.validate_network import evaluation, pair, ports
from deepopsctl.node_programs.suites.validate_network.evaluation import Pair

NODES = ["gpu01", "gpu02", "gpu03"]


def test_three_nodes_measure_with_each_other() -> None:
    argv = [sys.executable, "-c", inspect.getsource(pair)]
    jobs = {
        name: subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "SLURMD_NODENAME": name}
        )
        for name in NODES
    }
    opened = {name: json.loads(job.stdout.readline()[len(pair.MARK) :])["port"] for name, job in jobs.items()}  # type: ignore[union-attr]  # a pipe
    peers = {name: {"node": name, "address": "127.0.0.1", "port": port} for name, port in opened.items()}
    plan = {"token": "secret", "seconds": 0.05, "rounds": evaluation.rounds(NODES, 3), "peers": peers}
    for job in jobs.values():
        job.stdin.write(json.dumps(plan) + "\n")  # type: ignore[union-attr]  # a pipe
        job.stdin.flush()  # type: ignore[union-attr]  # a pipe
    out = "".join(job.communicate(timeout=60)[0] for job in jobs.values())

    measured, errors = evaluation.parse(probe_jobs.parse(out))

    assert errors == {}
    assert {frozenset((each.one, each.other)) for each in measured} == {
        frozenset(("gpu01", "gpu02")), frozenset(("gpu01", "gpu03")), frozenset(("gpu02", "gpu03")),
    }  # fmt: skip
    assert all(0 < each.us < 1e6 and each.bytes_s > 1e6 for each in measured)


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_each_node_has_one_partner_a_round_and_another_one_each_time(count: int) -> None:
    names = [f"n{number}" for number in range(count)]

    made = evaluation.rounds(names, 3)

    assert len(made) == min(3, count - 1 if count % 2 == 0 else count)
    for each in made:
        partners = [name for one in each for name in one]
        assert len(partners) == len(set(partners)) == count - count % 2
    everything = [frozenset(one) for each in made for one in each]
    assert len(everything) == len(set(everything))


def test_a_slow_pair_and_one_without_an_answer_are_named() -> None:
    listed = [Pair("a", "b", 20, 1e9), Pair("a", "c", 20, 1.1e9), Pair("b", "c", 20, 0.4e9)]

    made = {(each["target"], each["status"]) for each in evaluation.pairs(listed, {"a-d": "timed out"}, "a,b,c", 0.7)}

    assert made == {("b-c", "fail"), ("a-d", "fail")}
    (good,) = evaluation.pairs(listed[:2], {}, "a,b,c", 0.7)
    assert (good["status"], good["message"]) == ("pass", "slowest of 2: a-b")


def report(
    mtu: int = 9000, state: str = "ACTIVE", rate: str = "400 Gb/sec (4X NDR)", second: str = "DOWN"
) -> dict[str, Any]:
    port = {"rate": rate, "layer": "InfiniBand"}
    return {
        "link": {"name": "eth0", "mtu": mtu, "mbit_s": 25_000, "duplex": "full"},
        "ports": {"mlx5_0/1": {"state": state, **port}, "mlx5_1/1": {"state": second, **port}},
    }


def test_a_link_and_a_port_unlike_the_others_are_named_and_unused_ports_are_not() -> None:
    reports = {
        "gpu01": report(), "gpu02": report(mtu=1500), "gpu03": report(rate="100 Gb/sec (4X EDR)"),
        "gpu04": report(state="INIT"), "gpu05": report(), "gpu06": report(), "gpu07": {"link": {}, "ports": {}},
    }  # fmt: skip

    of_links = {each["target"]: each["status"] for each in evaluation.links(reports)}
    of_ports = {each["target"]: each["status"] for each in evaluation.ports(reports)}

    assert [name for name, status in of_links.items() if status == "fail"] == ["gpu02", "gpu07"]
    bad = {"gpu03/mlx5_0-1": "fail", "gpu04/mlx5_0-1": "fail", "gpu07/mlx5_0-1": "warn"}
    assert {name: status for name, status in of_ports.items() if status != "pass"} == bad
    assert not any("mlx5_1" in name for name in of_ports)


def test_ports_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    place = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    place.mkdir(parents=True)
    for name, text in {"state": "4: ACTIVE\n", "rate": "400 Gb/sec (4X NDR)\n", "link_layer": "InfiniBand\n"}.items():
        (place / name).write_text(text, encoding="utf-8")
    link = tmp_path / "net" / "eth0"
    link.mkdir(parents=True)
    # a virtual interface says -1, or nothing
    (link / "speed").write_text("-1\n", encoding="utf-8")
    (link / "mtu").write_text("9000\n", encoding="utf-8")

    assert ports.rdma_ports(str(tmp_path / "infiniband")) == {
        "mlx5_0/1": {"state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)", "layer": "InfiniBand"}
    }
    assert ports.link("eth0", str(tmp_path / "net"))["mbit_s"] == 0
    assert ports.interface_of("2: eth0    inet 192.0.2.5/24 brd 192.0.2.255 scope global eth0", "192.0.2.5") == "eth0"
    assert ports.interface_of("2: eth0    inet 192.0.2.5/24", "192.0.2.50") == ""
