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
from tests.support.files import write_program
from tests.support.paths import ROOT

NODES = ["gpu01", "gpu02", "gpu03"]
TABLES = {
    "ib_write_bw": """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      2000             0.14               0.14   \t\t     0.000261""",
    "ib_read_bw": """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      2000             0.20               0.17   \t\t     0.000333""",
    "ib_write_lat": """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 2       1000          32.52          32198.07      133.17   \t       1556.25     \t2489.03""",
}


def measure(peers_of: dict[str, list[str]], rounds: int, path: str = "") -> dict[str, list[dict[str, Any]]]:
    """What jobs on these nodes print, each with its RDMA ports; `path` comes first in $PATH."""
    argv = [sys.executable, "-c", inspect.getsource(pair)]
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    jobs = {
        name: subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**environment, "SLURMD_NODENAME": name}
        )
        for name in peers_of
    }
    opened = {name: json.loads(job.stdout.readline()[len(pair.MARK) :])["port"] for name, job in jobs.items()}  # type: ignore[union-attr]  # a pipe
    peers = {
        name: {"node": name, "address": "127.0.0.1", "port": port, "rdma": peers_of[name]}
        for name, port in opened.items()
    }
    plan = {"token": "secret", "seconds": 0.05, "rounds": evaluation.rounds([*peers_of], rounds), "peers": peers}
    for job in jobs.values():
        job.stdin.write(json.dumps(plan) + "\n")  # type: ignore[union-attr]  # a pipe
        job.stdin.flush()  # type: ignore[union-attr]  # a pipe
    return probe_jobs.parse("".join(job.communicate(timeout=60)[0] for job in jobs.values()))


def test_three_nodes_measure_with_each_other() -> None:
    measured, errors = evaluation.parse(measure({name: [] for name in NODES}, 3))

    assert errors == {}
    assert {frozenset((each.one, each.other)) for each in measured} == {
        frozenset(("gpu01", "gpu02")), frozenset(("gpu01", "gpu03")), frozenset(("gpu02", "gpu03")),
    }  # fmt: skip
    assert all(0 < each.us < 1e6 and each.bytes_s > 1e6 for each in measured)


def perftest(directory: Path, script: str = "") -> str:
    """Programs that print what perftest 25.01 of Debian 13 has printed on an emulated machine with rxe."""
    for name, table in TABLES.items():
        write_program(directory / name, f"{script}\ncat <<'END'\n{table}\nEND")
    return str(directory)


def test_ports_that_both_nodes_have_are_measured_after_the_pair(tmp_path: Path) -> None:
    ports_of = {"gpu01": ["mlx5_0/1", "mlx5_1/1"], "gpu02": ["mlx5_0/1"], "gpu03": []}

    answers = measure(ports_of, 3, perftest(tmp_path))

    # the slower direction, and the typical time
    made = evaluation.parse_ports(answers)
    assert len(evaluation.parse(answers)[0]) == 3
    assert made == ([Pair("gpu01/mlx5_0-1", "gpu02/mlx5_0-1", 133.17, 0.14e9 / 8)], {}) or made == (
        [Pair("gpu02/mlx5_0-1", "gpu01/mlx5_0-1", 133.17, 0.14e9 / 8)],
        {},
    )


def test_an_error_of_perftest_is_said_and_the_next_pair_is_measured(tmp_path: Path) -> None:
    path = perftest(tmp_path, 'case $* in *mlx5_0*) echo "IB device mlx5_0 not found" >&2; exit 1;; esac')

    answers = measure({"gpu01": ["mlx5_0/1"], "gpu02": ["mlx5_0/1", "mlx5_1/1"], "gpu03": ["mlx5_1/1"]}, 3, path)

    made, errors = evaluation.parse_ports(answers)
    assert errors == {"gpu01/mlx5_0-1-gpu02/mlx5_0-1": "ib_write_bw: IB device mlx5_0 not found"}
    assert [{each.one, each.other} for each in made] == [{"gpu02/mlx5_1-1", "gpu03/mlx5_1-1"}]
    (check,) = evaluation.pairs([], errors, "gpu[01-03]", 0.7, "network-rdma")
    assert (check["name"], check["status"]) == ("network-rdma", "fail")


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


def test_switches_are_read_from_lldpd() -> None:
    text = (ROOT / "tests/data/lldpctl.json").read_text(encoding="utf-8")

    # without a name of the port there is its description
    assert [*ports.switches_of(json.loads(text))] == [{"interface": "eth0", "switch": "tor1", "port": "eth0"}]
    named = text.replace('"mac"', '"ifname"').replace("02:42:0a:59:00:0a", "Ethernet1/7")
    assert next(ports.switches_of(json.loads(named)))["port"] == "Ethernet1/7"
    assert [*ports.switches_of({"lldp": [{}]})] == []


def test_a_node_on_another_switch_is_named_and_one_without_lldpd_is_not_compared() -> None:
    def hears(switch: str) -> dict[str, Any]:
        return {**report(), "switches": [{"interface": "eth0", "switch": switch, "port": "Ethernet1/7"}]}

    reports = {
        "gpu01": hears("tor1"), "gpu02": hears("tor2"), "gpu03": hears("tor2"), "gpu04": {"silent": "it has no lldpd"},
    }  # fmt: skip
    declared = {"tor1": ["gpu01", "gpu02"], "tor2": ["gpu03", "gpu04", "gpu99"]}

    made = {
        each["target"]: (each["status"], each["measured"]) for each in evaluation.switches(reports, "hpc", declared)
    }

    assert made == {"gpu02": ("fail", "tor2"), "tor2": ("fail", "gpu02"), "gpu04": ("skip", "")}
    reports["gpu02"] = hears("tor1")
    assert [each["status"] for each in evaluation.switches(reports, "hpc", declared)] == ["skip", "pass"]
    assert [*evaluation.switches(reports, "hpc", {})] == []
    (link,) = evaluation.links({"gpu01": hears("tor1")})
    assert link["message"] == "eth0: as the others; Ethernet1/7 of tor1"
