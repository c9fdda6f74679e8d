"""What the control machine needs for 100, 1,000 and 5,000 nodes on which nothing is to do.

One process speaks SSH for all nodes, each at an address of the loopback network, and answers what real nodes have
answered; the command, its ssh processes and their connections are real. Printed are seconds, and of the command with
all its ssh processes the CPU seconds and the memory: of the largest process, and of the connections that stay open.
A command that calls a node silent ends the benchmark. The nodes' side takes part of the same processors: on a real
cluster it takes none of them.

    python -m benchmarks.played_nodes [--sizes 100,1000,5000] [--commands status,doctor] [--json FILE]
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
from deepopsctl.doctor.examine import names_of
from deepopsctl.node_programs._shared.program import RESULT_MARK
from deepopsctl.run import questions
from deepopsctl.run.question_program import MARK
from deepopsctl.run.request import RunRequest, control_dir
from deepopsctl.run.runner import _Run
from deepopsctl.run.workspace import Workspace
from deepopsctl.slurm.hardware import store_hardware
from tests.data.doctor_samples import HARDWARE, REPORT

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
# what the doctor asks each node besides the names of all; and what it needs to be there for a node of a played cluster
EXAMINED: Mapping[str, object] = {
    "ports": REPORT["ports"], "database": [], "outside": [], "needs": {}, "requires": {},
    "settings": REPORT["settings"],
}  # fmt: skip
WELL = {
    **{name: value for name, value in REPORT.items() if name not in ("asked", "sudo")},
    "container": False, "names": {**REPORT["names"], "otherwise": {}},
    "time": {"daemons": ["chronyd"], "synchronised": True},
}  # fmt: skip
# "again" is with the connections that the command before left open, all others begin without
STATUS, DEPLOY, PLAN, DOCTOR = "status", f"deploy {COMPONENT}", f"plan {COMPONENT}", "doctor"
AGAIN = " again"
COMMANDS = ("init", "inventory", STATUS, STATUS + AGAIN, DEPLOY, DEPLOY + AGAIN, PLAN, DOCTOR)
SILENT = 4


@dataclass(frozen=True)
class Cost:
    """Of one command: elapsed and CPU seconds, MiB of its largest process, and of the connections that it leaves."""

    command: str
    nodes: int
    seconds: float
    cpu_s: float
    memory_mib: int
    open_mib: int = 0


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


def examined(name: str, address: str) -> str:
    """What the doctor's program prints on a node."""
    now = time.time()
    own = {"hostname": name, "machine_id": name, "clock": {"begin": now, "end": now}}
    networks = [{"interface": "eth0", "address": address, "network": "127.0.0.0/8", "mtu": 1500}]
    facts = {"doctor": {**WELL, **own, "addresses": networks}}
    return f"{questions.BEGUN}\n{RESULT_MARK}{json.dumps({'deepops': facts})}\n"


def serve(places: Mapping[str, str], key: str, ready: Event, enough: Event) -> None:
    """All nodes, by their address, until it is enough."""
    names = list(places.values())[1:]

    async def handle(process: asyncssh.SSHServerProcess[str]) -> None:
        first = await process.stdin.readline()
        if questions.BEGUN in (process.command or ""):
            # the first line is the program
            await process.stdin.readline()
            address = process.get_extra_info("sockname")[0]
            process.stdout.write(examined(places[address], address))
        else:
            process.stdout.write(answered(names, json.loads(first)))
        process.exit(0)

    async def listen() -> None:
        host_key = asyncssh.read_private_key(key)
        for address in places:
            await asyncssh.listen(
                address, PORT, server_factory=Played, server_host_keys=[host_key], process_factory=handle,
                encryption_algs=["aes128-gcm@openssh.com"], backlog=50, line_editor=False,
            )  # fmt: skip
        ready.set()
        while not enough.is_set():
            await asyncio.sleep(0.2)

    asyncio.run(listen())


def described(size: int, directory: Path) -> Path:
    """A cluster.yml with so many nodes, the first a controller."""
    places = dict(zip(_names(size), addresses(size), strict=True))
    nodes = [{"names": name, "addresses": place, "roles": ["compute"]} for name, place in places.items()]
    nodes[0]["roles"] = ["controller"]
    spec = {"schema": 1, "cluster": {"name": "played", "user": "root", "port": PORT}, "nodes": nodes}
    spec["components"] = [COMPONENT]
    source = directory.with_suffix(".yml")
    source.write_text(yaml.safe_dump(spec, sort_keys=False))
    return source


def _names(size: int) -> list[str]:
    return ["ctl1", *(f"cn{number:05}" for number in range(1, size))]


def with_keys(directory: ClusterDir) -> None:
    """Keys of the cluster and of its nodes, which are pinned."""
    directory.ssh_key.parent.mkdir(exist_ok=True)
    for key in (directory.ssh_key, directory.path / "host_key"):
        output_of("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    public = " ".join((directory.path / "host_key.pub").read_text().split()[:2])
    places = (node.address for node in directory.cluster().nodes)
    directory.known_hosts.write_text("".join(f"[{place}]:{PORT} {public}\n" for place in places))


def remember(directory: ClusterDir) -> None:
    """What Ansible would have asked in a run before: it plays no part in what is measured."""
    cluster = directory.cluster()
    request = RunRequest(directory, COMPONENT)
    workspace = Workspace(directory.runs).new_run("bench", 3)
    played = _Run(request, workspace, lambda _event: None, workspace.path / "lock")
    played._variables(content_dir())
    memory = questions.Memory(played._digests())
    doctor = {"name": questions.DOCTOR, "input": {"names": names_of(cluster), **EXAMINED}}
    for node in cluster.nodes:
        steps = {"component": COMPONENT, "steps": STEPS}
        is_controller = "controller" in node.roles
        arguments = {"components": [steps], "digests": {}, "slurm": is_controller, "slurm_wait": 0, "slurm_timeout": 30}
        for module, asked in (("drift_check", steps), ("node_info", arguments), ("node_program", doctor)):
            done = {"task_action": f"deepopsctl.cluster.{module}", "host": node.name}
            result = {"invocation": {"module_args": asked}}
            memory.note({"event": "runner_on_ok", "event_data": {**done, "res": result}})
    memory.save(directory.runs / "questions.json")


def measured(command: str, size: int, *words: str) -> Cost:
    """The cost of one command of deepopsctl."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        # bytecode is kept, as where deepopsctl is installed
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        process = subprocess.Popen([DEEPOPSCTL, *words, "--json"], stdout=output, stderr=errors, env=env)
        peak_kib = 0
        while process.poll() is None:
            # not the ru_maxrss of its end: that has this process in it, of which it was forked
            peak_kib = max(peak_kib, _peak_kib(process.pid))
            time.sleep(0.02)
        seconds = time.perf_counter() - started
        output.seek(0)
        errors.seek(0)
        shown = output.read()
        # the doctor has findings of this machine
        if process.returncode == SILENT or (process.returncode and command != DOCTOR):
            sys.exit(f"{command} ended with {process.returncode}:\n{shown[-3000:]}\n{errors.read()[-3000:]}")
        if command == DOCTOR and shown.count('"reachable"') != size:
            sys.exit(f"the doctor reached {shown.count('reachable')} of {size} nodes:\n{shown[:3000]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(command, size, round(seconds, 2), round(cpu_s, 2), peak_kib // 1024)


def _peak_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def kept(sockets: Path) -> tuple[list[int], int]:
    """The processes that keep connections open, and the MiB of memory that is theirs alone or their share of it."""
    pids, share = [], 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "cmdline").read_bytes().startswith(f"ssh: {sockets}/".encode()):
                pids.append(int(place.name))
                lines = (place / "smaps_rollup").read_text().splitlines()
                share += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return pids, share // 1024


def close(sockets: Path) -> None:
    """End every kept connection."""
    pids, _ = kept(sockets)
    for pid in pids:
        os.kill(pid, 15)
    while kept(sockets)[0]:
        time.sleep(0.1)


def measure(size: int, parent: Path, wanted: list[str]) -> list[Cost]:
    """The commands with so many nodes."""
    path = parent / str(size)
    costs = [measured("init", size, "init", str(path), "--from", str(described(size, path)))]
    directory = ClusterDir.open(path)
    costs.append(measured("inventory", size, "-C", str(path), "inventory"))
    with_keys(directory)
    # as after a deploy: a plan asks nodes that are not in it whether they are the same
    store_hardware(directory.hardware, dict.fromkeys(_names(size)[1:], HARDWARE))
    remember(directory)
    sockets = control_dir(directory.path, os.environ)
    places = dict(zip(addresses(size), _names(size), strict=True))
    context = multiprocessing.get_context("fork")
    ready, enough = context.Event(), context.Event()
    server = context.Process(target=serve, args=(places, str(path / "host_key"), ready, enough))
    server.start()
    try:
        ready.wait(120)
        for command in wanted:
            if not command.endswith(AGAIN):
                close(sockets)
            cost = measured(command, size, "-C", str(path), *command.removesuffix(AGAIN).split())
            costs.append(Cost(**{**asdict(cost), "open_mib": kept(sockets)[1]}))
    finally:
        enough.set()
        server.join()
        close(sockets)
    return costs


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--sizes", default="100,1000,5000")
    options.add_argument("--commands", default=",".join(COMMANDS[2:]))
    options.add_argument("--json", type=Path, metavar="FILE")
    chosen = options.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="deepopsctl-bench-"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print(f"{os.cpu_count()} CPUs shared by the control machine and all played nodes, load {os.getloadavg()[0]:.0f}")
    print("| command | nodes | seconds | CPU seconds | MiB | MiB of open connections |\n|---|---|---|---|---|---|")
    costs: list[Cost] = []
    try:
        for size in map(int, chosen.sizes.split(",")):
            for cost in measure(size, parent, chosen.commands.split(",")):
                costs.append(cost)
                print("| " + " | ".join(map(str, asdict(cost).values())) + " |", flush=True)
    finally:
        shutil.rmtree(parent)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n")


if __name__ == "__main__":
    main()
