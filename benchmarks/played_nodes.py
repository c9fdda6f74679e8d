"""What the control machine needs to ask 100, 1,000 and 5,000 nodes: `status` and a `deploy` with nothing to do.

One process speaks SSH for all nodes, each at an address of the loopback network, and answers what real nodes have
answered; the command, its ssh processes and their connections are real. Printed are seconds, and of the command with
all its ssh processes the CPU seconds and the memory of the largest process. The nodes' side takes part of the same
processors: on a real cluster it takes none of them.

    python -m benchmarks.played_nodes [--sizes 100,1000,5000] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh
import yaml

from benchmarks.crowd import addresses
from benchmarks.sizes import DEEPOPSCTL, output_of
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.content import content_dir
from deepopsctl.run import questions
from deepopsctl.run.question_program import MARK
from deepopsctl.run.request import RunRequest
from deepopsctl.run.runner import _Run
from deepopsctl.run.workspace import Workspace

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

PORT = 18022
COMPONENT = "slurm"
STEPS = ["common", "login_access", "slurmd", "converged"]
RECORD = {
    "wanted": True, "left": False, "deployed": True, "missing": [], "stale": [], "digests": ["a" * 64],
    "differences": [], "left_out": [],
}  # fmt: skip
VERSIONS = {"os": "Debian 13", "kernel": "6.12.48+deb13-amd64", "slurm": "24.11.5", "driver": ""}
FULL: Mapping[str, object] = {
    "components": {COMPONENT: RECORD}, "versions": VERSIONS, "backup": {}, "backup_of_monitoring": {}, "full": [],
    "upgrade": {}, "restore": False,
}  # fmt: skip
CLEAN: Mapping[str, object] = {
    "clean": True, "settled": [], "recorded": STEPS, "reasons": [], "unregistered": [], "unmet": [], "slurm_ids": [],
    "restore_begun": False, "foreign": {},
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Of one command: elapsed and CPU seconds, and MiB of its largest process."""

    command: str
    nodes: int
    seconds: float
    cpu_s: float
    memory_mib: int


class Played(asyncssh.SSHServer):
    """A node: any key of the cluster is good."""

    def begin_auth(self, _username: str) -> bool:
        """No one comes in without a key."""
        return True

    def public_key_auth_supported(self) -> bool:
        """As OpenSSH."""
        return True

    def validate_public_key(self, _username: str, _key: asyncssh.SSHKey) -> bool:
        """It is only reached on this host, for the seconds of a measurement."""
        return True


def answered(names: list[str], asked: list[dict[str, Any]]) -> str:
    """The program's line of answers; `names` are the nodes that Slurm knows."""
    answers: list[object] = []
    for each in asked:
        arguments = each["arguments"]
        if each["question"] == questions.GATE:
            answers.append(CLEAN)
            continue
        parts: dict[str, object] = {"node": FULL} if arguments["components"] else {}
        if arguments["slurm"]:
            node = {
                "state": "IDLE",
                "cpus": 64,
                "memory_mb": 512_000,
                "gpus": 4,
                "gres": "gpu:h200:4",
                "version": "24.11.5",
            }
            parts["slurm"] = {
                "installed": True, "controller_up": True, "nodes": [{"name": name, **node} for name in names],
                "jobs": [], "versions": {"slurm": "24.11.5", "slurmctld": "24.11.5"},
            }  # fmt: skip
        answers.append({"deepops": parts})
    return f"{MARK}{json.dumps(answers)}\n"


def serve(size: int, names: list[str], key: str, ready: Event, enough: Event) -> None:
    """All nodes, until it is enough."""

    async def handle(process: asyncssh.SSHServerProcess[str]) -> None:
        process.stdout.write(answered(names, json.loads(await process.stdin.readline())))
        process.exit(0)

    async def listen() -> None:
        host_key = asyncssh.read_private_key(key)
        for address in addresses(size):
            await asyncssh.listen(
                address, PORT, server_factory=Played, server_host_keys=[host_key], process_factory=handle,
                encryption_algs=["aes128-gcm@openssh.com"], backlog=50,
            )  # fmt: skip
        ready.set()
        while not enough.is_set():
            await asyncio.sleep(0.2)

    asyncio.run(listen())


def cluster(size: int, directory: Path) -> list[str]:
    """A cluster directory with so many nodes, the first a controller; the names of the others."""
    names = [f"cn{number:05}" for number in range(1, size)]
    places = dict(zip(["ctl1", *names], addresses(size), strict=True))
    nodes = [{"names": name, "addresses": place, "roles": ["compute"]} for name, place in places.items()]
    nodes[0]["roles"] = ["controller"]
    spec = {"schema": 1, "cluster": {"name": "played", "user": "root", "port": PORT}, "nodes": nodes}
    spec["components"] = [COMPONENT]
    source = directory.with_suffix(".yml")
    source.write_text(yaml.safe_dump(spec, sort_keys=False))
    output_of(DEEPOPSCTL, "init", str(directory), "--from", str(source))
    made = ClusterDir.open(directory)
    made.ssh_key.parent.mkdir(exist_ok=True)
    for key in (made.ssh_key, directory / "host_key"):
        if not key.exists():
            output_of("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    public = " ".join((directory / "host_key.pub").read_text().split()[:2])
    (directory / "known_hosts").write_text("".join(f"[{place}]:{PORT} {public}\n" for place in places.values()))
    return names


def remember(directory: ClusterDir) -> None:
    """What Ansible would have asked in a run before: it plays no part in what is measured."""
    request = RunRequest(directory, COMPONENT)
    workspace = Workspace(directory.runs).new_run("bench", 3)
    played = _Run(request, workspace, lambda _event: None, workspace.path / "lock")
    played._variables(content_dir())
    memory = questions.Memory(played._digests())
    for node in directory.cluster().nodes:
        steps = {"component": COMPONENT, "steps": STEPS}
        is_controller = "controller" in node.roles
        arguments = {"components": [steps], "digests": {}, "slurm": is_controller, "slurm_wait": 0, "slurm_timeout": 30}
        for module, asked in (("drift_check", steps), ("node_info", arguments)):
            done = {"task_action": f"deepopsctl.cluster.{module}", "host": node.name}
            result = {"invocation": {"module_args": asked}}
            memory.note({"event": "runner_on_ok", "event_data": {**done, "res": result}})
    memory.save(directory.runs / "questions.json")


def measured(command: str, size: int, directory: Path) -> Cost:
    """A command, with new connections to all nodes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        words = [DEEPOPSCTL, "-C", str(directory), *command.split(), "--json"]
        done = subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, check=False)
        seconds = time.perf_counter() - started
        output.seek(0)
        if done.returncode:
            sys.exit(f"{command} ended with {done.returncode}:\n{output.read()[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(command, size, round(seconds, 1), round(cpu_s, 1), after.ru_maxrss // 1024)


def measure(size: int, parent: Path) -> list[Cost]:
    """Both commands with so many nodes, each after all connections were closed."""
    directory = parent / str(size)
    names = cluster(size, directory)
    remember(ClusterDir.open(directory))
    context = multiprocessing.get_context("fork")
    ready, enough = context.Event(), context.Event()
    server = context.Process(target=serve, args=(size, names, str(directory / "host_key"), ready, enough))
    server.start()
    try:
        ready.wait(120)
        return [measured(command, size, directory) for command in ("status", f"deploy {COMPONENT}")]
    finally:
        enough.set()
        server.join()


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--sizes", default="100,1000,5000")
    options.add_argument("--json", type=Path, metavar="FILE")
    chosen = options.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="deepopsctl-bench-"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print(f"{os.cpu_count()} CPUs shared by the control machine and all played nodes")
    print("command        nodes   seconds   CPU seconds   MiB")
    costs: list[Cost] = []
    try:
        for size in map(int, chosen.sizes.split(",")):
            for cost in measure(size, parent):
                costs.append(cost)
                print(
                    f"{cost.command:<13}{cost.nodes:>7}{cost.seconds:>10}{cost.cpu_s:>14}{cost.memory_mib:>6}",
                    flush=True,
                )
    finally:
        shutil.rmtree(parent)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n")


if __name__ == "__main__":
    main()
