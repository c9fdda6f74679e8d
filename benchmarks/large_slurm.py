"""What slurmctld needs for the slurm.conf of 1,000 and of 10,000 nodes that the role slurm_conf renders.

The role runs in Ansible on this machine with the answers of so many nodes; a real slurmctld, from the packages of
Debian 13 in a container, loads its files. The nodes have addresses of the loopback network, at
which nothing listens. Printed are seconds of each step, the largest memory of slurmctld, and the bytes of slurm.conf.

    python -m benchmarks.large_slurm [--sizes 1000,10000] [--json FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.crowd import addresses
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.lab.image import Recipe, ensure_image, own_mirror
from tests.roles.cases import DEBIAN13, DGX, Case, defaults
from tests.support.local_ansible import play
from tests.support.paths import ROOT

FILES = ("slurm.conf", "gres.conf", "cgroup.conf")
PER_GROUP = 250
# slurmctld stops by itself without a plugin that its packages leave to others; accounting is slurmdbd's
LEFT_OUT = ("AccountingStorage", "JobSubmitPlugins", "JobCompType", "PlugStackConfig", "Prolog", "Epilog", "MailProg",
            "HealthCheck", "TaskProlog", "RebootProgram", "CliFilterPlugins")  # fmt: skip
PACKAGES = ("slurmctld", "slurm-client", "munge")
PROGRAM = """
import json, subprocess, sys, time
def timed(*argv):
    begin = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
    return round(time.monotonic() - begin, 2)
def until_up():
    begin = time.monotonic()
    while True:
        if b" is UP" in subprocess.run(["scontrol", "ping"], capture_output=True).stdout:
            return round(time.monotonic() - begin, 2)
        if daemon.poll() is not None:
            sys.exit("slurmctld ended:\\n" + open("/tmp/log").read()[-3000:])
        time.sleep(0.1)
daemon = subprocess.Popen(["slurmctld", "-D"], stdout=open("/tmp/log", "w"), stderr=subprocess.STDOUT)
steps = {"start": until_up()}
steps["sinfo"] = timed("sinfo", "--all")
steps["show nodes"] = timed("scontrol", "show", "nodes")
steps["reconfigure"] = timed("scontrol", "reconfigure") + until_up()
steps["submit"] = timed("sbatch", "--output=/dev/null", "--wrap=true")
shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%N"], capture_output=True, text=True).stdout
pid = subprocess.run(["pidof", "slurmctld"], capture_output=True, text=True).stdout.split()[0]
peak = next(int(line.split()[1]) for line in open("/proc/" + pid + "/status") if line.startswith("VmHWM"))
print(json.dumps({"steps": steps, "nodes": len(set(shown.split())), "memory_mib": peak // 1024}))
subprocess.run(["pkill", "slurmctld"])
"""


@dataclass(frozen=True)
class Cost:
    """Of one size: seconds of each step, MiB of slurmctld at its largest, bytes of slurm.conf."""

    nodes: int
    rendered_s: float
    conf_bytes: int
    steps: dict[str, float]
    memory_mib: int


def main() -> None:
    """Render, load, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    image = with_slurm(ensure_image(Recipe.for_os("debian13", own_mirror()), print), PACKAGES)
    costs = []
    for size in options.sizes.split(","):
        costs.append(_measured(int(size), image))
        print(f"{costs[-1].nodes} nodes: rendered {costs[-1].rendered_s} s, {costs[-1].conf_bytes} bytes, "
              f"{costs[-1].steps}, {costs[-1].memory_mib} MiB", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2), encoding="utf-8")


def _measured(size: int, image: str) -> Cost:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        begin = time.monotonic()
        texts = rendered(_spec(size), directory)
        rendered_s = round(time.monotonic() - begin, 1)
        for file in FILES:
            (directory / file).write_text(texts[file], encoding="utf-8")
        (directory / "slurm.conf").write_text(without(texts["slurm.conf"], LEFT_OUT), encoding="utf-8")
        answer = json.loads(in_container(image, directory, PROGRAM).splitlines()[-1])
    if answer["nodes"] != size + 1:
        raise SystemExit(f"slurmctld knows {answer['nodes']} nodes, not {size + 1}")
    return Cost(size, rendered_s, len(texts["slurm.conf"]), answer["steps"], answer["memory_mib"])


def rendered(spec: str, directory: Path) -> dict[str, str]:
    """The files of the role, as in tests/roles; answers are variables of the hosts, not facts: one loop less."""
    case = Case(spec=spec, version=DEBIAN13, reports={})
    (directory / "clusters").mkdir()
    (directory / "ansible").mkdir()
    (directory / "ansible" / "roles").symlink_to(ROOT / "roles")
    reported = {"packages": {"slurmd": DEBIAN13}, "probes": {"slurmd": DGX, "pmix": ""}}
    answer = {"deepops_cgroup": "v2", "deepops_cgroup_writable": True, "node_common_result": reported}
    nodes = parse_spec(case.spec, "").nodes
    hosts = {node.name: {**defaults(), **answer} if index == 0 else answer for index, node in enumerate(nodes)}
    _, rendering = case.plays("large", directory / "clusters")
    rendering["hosts"] = [nodes[0].name]
    done = play(directory / "ansible", [rendering], hosts, seconds=3600)
    shown: list[Any] = [result.data["msg"] for result in done.results if result.task == "Show large"]
    if done.status or not shown:
        raise SystemExit(done.output[-4000:])
    return dict(shown[0])


def _spec(size: int) -> str:
    """A controller, and groups of GPU nodes as racks have them, each of its own range of addresses."""
    listed = list(addresses(size))
    groups = []
    for first in range(0, size, PER_GROUP):
        last = min(first + PER_GROUP, size)
        net = listed[first].rsplit(".", 1)[0]
        groups.append(
            f'  - {{names: "gpu[{first + 1:05}-{last:05}]", addresses: "{net}.[1-{last - first}]", roles: [compute], '
            "gpus: {type: h100, count: 8}}"
        )
    return "\n".join((
        "schema: 1", "cluster: {name: large, user: admin}", "nodes:",
        "  - {names: ctl1, addresses: 127.0.0.1, roles: [controller, compute]}", *groups, "",
    ))  # fmt: skip


def without(conf: str, keys: tuple[str, ...]) -> str:
    """slurm.conf without what needs the other daemons and files of a cluster."""
    return "".join(f"{line}\n" for line in conf.splitlines() if not line.startswith(keys))


def in_container(image: str, directory: Path, program: str, *options: str, arguments: Sequence[str] = ()) -> str:
    """What a program prints that finds munge, and the files of `directory` in /etc/slurm."""
    prepare = (
        "set -e; cp /conf/*.conf /etc/slurm/;"
        "mkdir -p /run/munge /var/lib/slurm/slurmctld /var/log/slurm /run/slurmctld;"
        "chown munge /run/munge; chown -R slurm /var/lib/slurm /var/log/slurm /run/slurmctld;"
        'su -s /bin/sh munge -c /usr/sbin/munged; exec python3 -c "$PROGRAM" "$@"'
    )
    argv = ["podman", "--runtime", "runc", "run", "--rm", "--hostname=ctl1", "--entrypoint=",
            "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", "--env", f"PROGRAM={program}", *options,
            "--volume", f"{directory}:/conf:ro", image, "bash", "-c", prepare, "bash", *arguments]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def with_slurm(image: str, packages: Sequence[str]) -> str:
    """The image with these packages; the same one each time."""
    key = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    name = f"deepopsctl-large:{image.rsplit('-', 1)[1]}-{key}"
    if subprocess.run(["podman", "image", "exists", name]).returncode:
        build = f"FROM {image}\nRUN apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}\n"
        subprocess.run(
            ["podman", "--runtime", "runc", "build", "--network=host", "-t", name, "-"],
            input=build,
            text=True,
            check=True,
        )
    return name


if __name__ == "__main__":
    main()
