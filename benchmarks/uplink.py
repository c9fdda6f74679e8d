"""A first deploy over a slow uplink, without and with the cache of packages: its seconds, and the bytes that came in.

All that comes into the lab from outside goes over its bridge, where a token bucket limits it; what nodes send each
other does not. The control machine is outside, too, with all that it sends to nodes.

    python -m benchmarks.uplink [--sizes 6] [--mbit 10] [--os debian13] [--json FILE]
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.deploy import Costs, Nodes
from benchmarks.sizes import LAB, output_of, parser, print_table
from deepopsctl.lab.containers import network_name

SETTINGS = "inventory/group_vars/all/settings.yml"


@dataclass(frozen=True)
class Result:
    """One size: seconds and MB without and with the cache."""

    compute_nodes: int
    seconds: tuple[float, float]
    megabytes: tuple[float, float]


def limited(mbit: int) -> str:
    """Limit what comes in; the bridge."""
    (network,) = json.loads(output_of("podman", "network", "inspect", network_name(LAB)))
    bridge: str = network["network_interface"]
    output_of("tc", "qdisc", "replace", "dev", bridge, "root",
              "tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "400ms")  # fmt: skip
    return bridge


def received(bridge: str) -> int:
    """Bytes that have come in by it."""
    (bucket,) = json.loads(output_of("tc", "-s", "-json", "qdisc", "show", "dev", bridge))
    count: int = bucket["bytes"]
    return count


def deploy(size: int, system: str, directory: Path, mbit: int, *, cached: bool) -> tuple[float, float]:
    """Seconds and MB of a first deploy on fresh nodes."""
    nodes = Nodes(size, system, directory, Costs())
    if cached:
        with (nodes.directory / SETTINGS).open("a", encoding="utf-8") as stream:
            stream.write(f"package_cache_host: {nodes.controller}\n")
        spec = nodes.directory / "cluster.yml"
        spec.write_text(
            spec.read_text(encoding="utf-8").replace("components: [", "components: [package_cache, "), encoding="utf-8"
        )
    bridge = limited(mbit)
    before, started = received(bridge), time.perf_counter()
    nodes.command("deploy", *(["package_cache"] if cached else []), "slurm")
    return round(time.perf_counter() - started, 1), round((received(bridge) - before) / 1e6, 1)


def measure(mbit: int, size: int, system: str, directory: Path) -> Result:
    """Both, one after the other."""
    without, with_cache = (deploy(size, system, directory, mbit, cached=cached) for cached in (False, True))
    return Result(size, (without[0], with_cache[0]), (without[1], with_cache[1]))


def line(result: Result) -> str:
    """A row."""
    (without, cached), (much, little) = result.seconds, result.megabytes
    return f"{result.compute_nodes:3}  without {without:6.1f} s {much:7.1f} MB   with {cached:6.1f} s {little:7.1f} MB"


def main() -> None:
    """Measure and print."""
    options_parser = parser(__doc__, "6")
    options_parser.add_argument("--mbit", type=int, default=10, help="of the uplink; default: %(default)s")
    options = options_parser.parse_args()
    of_size = partial(measure, options.mbit)
    print_table(
        options, f"an uplink of {options.mbit} Mbit/s", lambda size, where: of_size(size, options.os, where), line
    )


if __name__ == "__main__":
    main()
