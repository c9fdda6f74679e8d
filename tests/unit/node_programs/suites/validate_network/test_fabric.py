"""A fabric that ibsim simulated, as ibnetdiscover printed it: two leaves, two spines, four nodes, a slow cable."""

from __future__ import annotations

from deepopsctl.node_programs.suites.validate_network import fabric
from tests.support.paths import ROOT

TEXT = (ROOT / "tests/data/ibnetdiscover.txt").read_text(encoding="utf-8")
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
LEAVES = {"leaf1": ["gpu01", "gpu02"], "leaf2": ["gpu03", "gpu04"]}


def without(text: str, *names: tuple[str, int]) -> str:
    """The output without a cable of these switches."""
    kept, here = [], ""
    for line in text.splitlines():
        here = line.split('"')[3] if line.startswith("Switch") else here if line else ""
        if not any(here == name and line.startswith(f"[{port}]") for name, port in names):
            kept.append(line)
    return "\n".join(kept)


def failures(text: str, declared: dict[str, list[str]] | None = None) -> dict[tuple[str, str], tuple[str, str]]:
    checks = fabric.evaluate(fabric.cables(text), "hpc", NODES, declared or {})
    return {
        (each["name"], each["target"]): (each["measured"], each["expected"])
        for each in checks
        if each["status"] == "fail"
    }


def test_each_cable_is_there_once_and_nodes_are_on_their_leaves() -> None:
    listed = fabric.cables(TEXT)

    assert len(listed) == 8
    assert fabric.leaves(listed) == LEAVES


def test_the_slow_cable_is_named() -> None:
    assert failures(TEXT, LEAVES) == {("network-fabric", "leaf2[2] to gpu04[1]"): ("1xSDR", "4xSDR")}
    assert failures(TEXT.replace("1xSDR", "4xSDR"), LEAVES) == {}


def test_a_dead_cable_between_switches_and_a_node_without_a_port_are_named() -> None:
    good = TEXT.replace("1xSDR", "4xSDR")

    assert failures(without(good, ("leaf2", 7), ("spine1", 2))) == {("network-fabric", "leaf2"): ("1", "2")}
    assert failures(without(good, ("leaf1", 2))) == {("network-fabric", "gpu02"): ("0", "1")}


def test_a_node_on_another_switch_than_declared_is_named() -> None:
    swapped = {"leaf1": ["gpu01", "gpu03"], "leaf2": ["gpu02", "gpu04"]}

    made = failures(TEXT.replace("1xSDR", "4xSDR"), swapped)

    assert made[("network-leaves", "gpu03")] == ("leaf2", "leaf1")
    assert made[("network-leaves", "gpu02")] == ("leaf1", "leaf2")
    assert ("network-leaves", "gpu01") not in made


def test_adapters_of_a_driver_have_the_name_of_their_node() -> None:
    assert [fabric.node_of(name) for name in ("gpu01 mlx5_0", "gpu01.example.com HCA-1", "gpu01")] == ["gpu01"] * 3
