"""The network as a kernel shows it, from a directory that looks like /sys."""

from __future__ import annotations

from pathlib import Path

from deepopsctl.node_programs.suites.gpu_check.network import network
from tests.support.files import write_files


def port(root: Path, device: str, rate: str, state: str = "4: ACTIVE", layer: str = "InfiniBand") -> None:
    files = {"rate": f"{rate}\n", "state": f"{state}\n", "link_layer": f"{layer}\n"}
    write_files(root / "sys/class/infiniband" / device / "ports" / "1", files)


def card(root: Path, name: str, speed: str, state: str = "up", hardware: bool = True) -> None:
    directory = write_files(root / "sys/class/net" / name, {"speed": f"{speed}\n", "operstate": f"{state}\n"})
    if hardware:
        (directory / "device").symlink_to(root)


def test_ports_that_are_up_are_reported_with_what_they_carry(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "400 Gb/sec (4X NDR)")
    port(tmp_path, "mlx5_1", "100 Gb/sec (4X EDR)", layer="Ethernet")
    port(tmp_path, "mlx5_2", "400 Gb/sec (4X NDR)", state="1: DOWN")
    port(tmp_path, "efa_0", "100 Gb/sec (4X EDR)", layer="Unspecified")

    ports = [{"name": "mlx5_0:1", "gb_s": 50.0}, {"name": "mlx5_1:1", "gb_s": 12.5}]
    assert network(tmp_path) == {"rdma": ports, "ethernet": []}


def test_ethernet_is_hardware_with_a_cable(tmp_path: Path) -> None:
    card(tmp_path, "eno1", "25000")
    card(tmp_path, "eno2", "-1")
    card(tmp_path, "eno3", "25000", state="down")
    card(tmp_path, "docker0", "10000", hardware=False)

    assert network(tmp_path) == {"rdma": [], "ethernet": [{"name": "eno1", "gb_s": 3.125}]}
