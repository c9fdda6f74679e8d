"""How long a deploy takes, against the time of a bare parallel-ssh script that makes the same changes.

For each size, on fresh lab nodes: `plan`, the first `deploy slurm`, and the questions that a deployed cluster is asked
every day; then, on fresh nodes once more, the floor, which installs the same packages, writes the very files that the
deploy wrote (copied from its nodes) and starts the same daemons, with nothing in between but ssh. All in one run, so
that the host is the same.

    python -m benchmarks.deploy [--sizes 2,8] [--os debian13] [--json FILE]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks.questions import cost, one_python_each
from benchmarks.sizes import DEEPOPSCTL, LAB, output_of, parser, print_table

# What a node's records say that the deploy brought there: packages, and files as tar members. /etc/hosts is written to
# by the lab, and how the control machine gets in is another cluster directory's.
DEPLOYED = """
import glob, json, os
own = {"/etc/hosts", "/etc/ssh/sshd_config.d/30-deepopsctl-access.conf"}
items = [json.load(open(path))["items"] for path in glob.glob("/var/lib/deepopsctl/records/*.json")]
packages = sorted({name for each in items for name in each["packages"]})
files = sorted({path for each in items for path in each["files"] if path not in own and os.path.exists(path)})
print(json.dumps({"packages": packages, "files": [path[1:] for path in files]}))
"""
HELD = "slurmd slurmctld slurmdbd mariadb munge chrony"
# one apt transaction, units held back while it runs (without that, Debian's slurmd waits 90 s), then the files
INSTALL = """
set -e; export DEBIAN_FRONTEND=noninteractive
systemctl mask --runtime --quiet {held}
apt-get -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold install {packages} >/dev/null 2>&1
systemctl unmask --runtime --quiet {held}
tar -xpf /tmp/files.tar -C / ; cat /tmp/hosts.block >> /etc/hosts
systemctl daemon-reload; systemctl enable --quiet munge chrony {units}; systemctl restart munge chrony
systemctl reload ssh
"""
CONTROLLER = """
set -e; install -d -m 0700 -o slurm -g slurm /var/lib/slurm/slurmctld
systemctl restart mariadb
. /tmp/password
mariadb -e "CREATE DATABASE slurm_acct_db; CREATE USER 'slurm'@'localhost' IDENTIFIED BY '$PASSWORD';
GRANT ALL PRIVILEGES ON slurm_acct_db.* TO 'slurm'@'localhost';"
systemctl restart slurmdbd; until ss -ltn | grep -q :6819; do sleep 0.1; done
systemctl restart slurmctld; until scontrol ping | grep -q UP; do sleep 0.1; done
until sacctmgr -nP show cluster format=cluster | grep -qx {lab}; do sleep 0.1; done
sacctmgr -i -Q add account default >/dev/null; sacctmgr -i -Q add user ubuntu account=default >/dev/null
"""
COMPUTE = "install -d /var/lib/slurm/slurmd; systemctl restart slurmd"
IDLE = "until [ $(sinfo -h -N -t idle | wc -l) = {count} ]; do sleep 0.1; done"


Answer = TypeVar("Answer")


class Costs:
    """What was done, with its seconds and the CPU seconds of the processes that it started here (not on nodes)."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[float, float]] = {}

    def add(self, name: str, action: Callable[[], Answer]) -> Answer:
        """Do it, keep what it cost; the answer of the action."""
        answer: list[Answer] = []
        seconds, used = cost(lambda: answer.append(action()))
        self.rows[name] = (round(seconds, 2), round(used, 2))
        print(f"    {name:46} {seconds:7.1f} s   CPU {used:6.1f} s", flush=True)
        return answer[0]


@dataclass(frozen=True)
class Result:
    """One size: by what was done, its seconds and the CPU seconds of the control machine."""

    compute_nodes: int
    costs: dict[str, tuple[float, float]]


class Nodes:
    """A fresh lab with a cluster directory, reachable by key."""

    def __init__(self, size: int, system: str, directory: Path, costs: Costs) -> None:
        output_of(DEEPOPSCTL, "lab", "down", "--name", LAB)
        up = (DEEPOPSCTL, "lab", "up", "--name", LAB, "--compute", str(size), "--os", system, "--json")
        lab = json.loads(costs.add("lab up", lambda: output_of(*up)))
        self.addresses = {node["name"]: node["address"] for node in lab["nodes"]}
        self.controller = next(node["name"] for node in lab["nodes"] if "controller" in node["roles"])
        self.directory = directory / f"cluster-{time.monotonic_ns()}"
        output_of(DEEPOPSCTL, "init", str(self.directory), "--from", lab["node_list"])
        costs.add("ssh setup", lambda: self.command("ssh", "setup", "--password-file", lab["password_file"]))

    def command(self, *words: str) -> str:
        """Run deepopsctl for this cluster; its output. What a report finds is noted: a size has more rows."""
        return output_of(DEEPOPSCTL, "-C", str(self.directory), *words, findings=words[0] in REPORTS)

    def ssh(self, name: str, script: str) -> None:
        """Run a script as root on one node: one connection."""
        key = f"-i{self.directory}/ssh/id_ed25519"
        known = f"-oUserKnownHostsFile={self.directory}/known_hosts"
        target = f"ubuntu@{self.addresses[name]}"
        # sshd does not listen for the moment of a reload
        again = ("-oBatchMode=yes", "-oConnectionAttempts=5")
        output_of("ssh", key, known, *again, target, "sudo sh -s", text=script)

    def everywhere(self, names: list[str], script: Callable[[str], str]) -> None:
        """Run on many nodes at once."""
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda name: self.ssh(name, script(name)), names))

    def role(self, name: str) -> str:
        """Which of the two sets of units a node gets."""
        return "controller" if name == self.controller else "compute"


def save_written_files(nodes: Nodes, directory: Path) -> dict[str, str]:
    """Save what the deploy wrote on each node; the packages that each has by it."""
    packages: dict[str, str] = {}
    for name in nodes.addresses:
        container = f"{LAB}-{name}"
        deployed = json.loads(output_of("podman", "exec", container, "python3", "-c", DEPLOYED))
        packages[name] = " ".join(deployed["packages"])
        files = " ".join(deployed["files"])
        script = f"cd /; tar -cpf /tmp/files.tar {files}; grep -A9999 '# BEGIN deepopsctl' /etc/hosts"
        (directory / f"{name}.hosts").write_text(output_of("podman", "exec", container, "sh", "-c", script))
        output_of("podman", "cp", f"{container}:/tmp/files.tar", str(directory / f"{name}.tar"))
    conf = output_of("podman", "exec", f"{LAB}-{nodes.controller}", "cat", "/etc/slurm/slurmdbd.conf")
    password = next(line.partition("=")[2] for line in conf.splitlines() if line.startswith("StoragePass="))
    (directory / "password").write_text(f"PASSWORD='{password}'\n")
    return packages


def copy_files(nodes: Nodes, directory: Path) -> None:
    """Put the files where the floor's script finds them (not timed: a site would have them on a share)."""
    for name in nodes.addresses:
        output_of("podman", "cp", str(directory / f"{name}.tar"), f"{LAB}-{name}:/tmp/files.tar")
        output_of("podman", "cp", str(directory / f"{name}.hosts"), f"{LAB}-{name}:/tmp/hosts.block")
    output_of("podman", "cp", str(directory / "password"), f"{LAB}-{nodes.controller}:/tmp/password")


def parallel_ssh_time(nodes: Nodes, packages: Mapping[str, str]) -> None:
    """The same state by nothing but parallel ssh."""
    units = {"controller": "mariadb slurmdbd slurmctld", "compute": "slurmd"}

    def install(name: str) -> str:
        return INSTALL.format(held=HELD, packages=packages[name], units=units[nodes.role(name)])

    compute = [name for name in nodes.addresses if name != nodes.controller]
    nodes.everywhere(list(nodes.addresses), install)
    nodes.ssh(nodes.controller, CONTROLLER.format(lab=LAB))
    nodes.everywhere(compute, lambda _name: COMPUTE)
    nodes.ssh(nodes.controller, IDLE.format(count=len(compute)))


REPORTS = ("doctor", "status", "validate")
# after the first deploy, in this order; "again": the first such command brought the program to the nodes
QUESTIONS = {
    "deploy, nothing to do (first)": ("deploy", "slurm"),
    "deploy, nothing to do": ("deploy", "slurm"),
    "status": ("status",),
    "plan of unchanged nodes": ("plan", "slurm"),
    "doctor": ("doctor",),
    "deploy --full": ("deploy", "slurm", "--full"),
    "validate smoke": ("validate", "smoke"),
}


def measure(size: int, system: str, directory: Path) -> Result:
    """One size: questions before a deploy, deploy, questions after it, and the two floors."""
    costs = Costs()
    nodes = Nodes(size, system, directory, costs)
    costs.add("doctor of bare nodes", lambda: nodes.command("doctor"))
    costs.add("plan of bare nodes", lambda: nodes.command("plan", "slurm"))
    costs.add("first deploy", lambda: nodes.command("deploy", "slurm"))
    for name, words in QUESTIONS.items():
        costs.add(name, partial(nodes.command, *words))
    costs.add("floor: one Python on each node, parallel ssh", lambda: one_python_each(nodes.directory))
    packages = save_written_files(nodes, directory)
    again = Nodes(size, system, directory, Costs())
    if again.addresses != nodes.addresses:
        sys.exit("the nodes got other addresses the second time: other labs came or went; run the benchmark alone")
    copy_files(again, directory)
    costs.add("floor: the same deploy by parallel ssh", lambda: parallel_ssh_time(again, packages))
    return Result(size, costs.rows)


def line(result: Result) -> str:
    """What the costs of a size come to."""
    first, bare = result.costs["first deploy"][0], result.costs["floor: the same deploy by parallel ssh"][0]
    return f"{result.compute_nodes} compute nodes: first deploy {first / bare:.2f} times its floor"


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, "2,8").parse_args()
    print_table(options, "", lambda size, directory: measure(size, options.os, directory), line)


if __name__ == "__main__":
    main()
