"""What `node_program` starts.

`publish` as root on the registry's node, `jobs` on a submit host as the connecting user, `after` on every compute node
as root.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..._shared import slurm_output
from ..._shared.checks import FAIL, PASS
from ..._slurm_jobs import placement, probe_jobs, suite as suite_of_jobs
from ..._slurm_jobs.session import Session
from ..._slurm_jobs.snapshot import SlurmSnapshot, read_snapshot
from . import checks, evaluation, probe
from .checks import check, skip

Request = dict[str, Any]
Result = dict[str, Any]

NAMES = {
    "podman": checks.PODMAN,
    "charliecloud": checks.CHARLIECLOUD,
    "apptainer": checks.APPTAINER,
    "pyxis": checks.PYXIS,
    "oci": checks.OCI,
}
# of each node: Podman takes some 30 MiB for each container that it starts
LEAST_MB, MOST_MB = 500, 4000
EPILOG_S = 60
IMAGE = "deepopsctl/validate:1"
_PROBE = inspect.getsource(probe)


def main(request: Request) -> Result:
    """One phase of the suite."""
    return suite_of_jobs.run_trials(request, {"publish": publish, "jobs": jobs, "after": after}[request["phase"]])


def publish(request: Request) -> Result:
    """Add the image of the jobs to the registry, as root on its node: {checks, image}."""
    with tempfile.TemporaryDirectory() as directory:
        tree, archive = os.path.join(directory, "tree"), os.path.join(directory, "tree.tar")
        try:
            probe.make_tree(tree)
            probe.command_output(["tar", "-C", tree, "-cf", archive, "."])
            added = probe.command_output(["registry-add", "tarball:" + archive, IMAGE])
        except (RuntimeError, OSError) as error:
            return {"checks": [check(checks.REGISTRY, request["node"], FAIL, message=str(error))], "image": ""}
    return {"checks": [], "image": added.split()[-1]}


def jobs(request: Request) -> Result:
    """The checks of all nodes with room, and the numbers of the jobs: {checks, jobs}."""
    engines, tested = list(request["engines"]), list(request["tested"])
    snapshot = read_snapshot()
    obstacles = {name: _obstacle(snapshot, name) for name in tested}
    free = [name for name in tested if not obstacles[name]]
    session = suite_of_jobs.session(request, checks.SUITE, float(request["run_timeout"]), minutes=10)
    results = [skip(NAMES[engine], name, obstacles[name]) for name in tested if obstacles[name] for engine in engines]
    numbers: list[str] = []
    try:
        for group, gpus in _groups(snapshot, free):
            each = -(-int(request["starts"]) // max(len(free), 1))
            for name, data, trouble in _ask(session, snapshot, group, gpus, [str(each), request["image"], *engines]):
                if data is None:
                    results += [
                        check(NAMES[engine], name, trouble.status, message=trouble.message) for engine in engines
                    ]
                else:
                    numbers.append(data["job"])
                    results += evaluation.evaluate(name, engines, data, gpus)
    finally:
        session.close()
    return {"checks": results, "jobs": sorted(set(numbers))}


def _obstacle(snapshot: SlurmSnapshot, name: str) -> str:
    """Why the node's job could not start now; '' where it can."""
    if not snapshot.answered:
        return snapshot.silence
    if name not in snapshot.nodes:
        return "Slurm has no such node"
    reason = placement.obstacle(snapshot.nodes[name], snapshot.partitions)
    return reason or ("" if _memory(snapshot, [name]) >= LEAST_MB else "busy: too little free memory")


def _memory(snapshot: SlurmSnapshot, names: Sequence[str]) -> int:
    """What a job can have of each of the nodes (MiB)."""
    nodes = (snapshot.nodes[name] for name in names)
    free = (slurm_output.number(node, "RealMemory") - slurm_output.number(node, "AllocMem") for node in nodes)
    return min([MOST_MB, *free])


def _groups(snapshot: SlurmSnapshot, free: Sequence[str]) -> Iterator[tuple[list[str], int]]:
    """Nodes whose jobs ask for a GPU, and the others."""
    with_gpu = [name for name in free if placement.free_gpus(snapshot.nodes[name]) > 0]
    for names, gpus in ((with_gpu, 1), ([name for name in free if name not in with_gpu], 0)):
        if names:
            yield names, gpus


def _ask(
    session: Session, snapshot: SlurmSnapshot, names: Sequence[str], gpus: int, arguments: Sequence[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Each node's answer, or what is in its way; the nodes of a job start at once."""
    places = placement.place(names, snapshot.nodes, snapshot.partitions)
    extra = [f"--mem={_memory(snapshot, names)}M", *(["--gpus-per-node=1"] if gpus else [])]
    argv = ["/usr/bin/python3", "-c", _PROBE, *arguments]
    answers = probe_jobs.ask(session, f"gpus{gpus}-", places, argv, extra=extra)
    for name in names:
        lines = answers.lines.get(name)
        yield name, lines[-1] if lines else None, answers.troubles.get(name)


def after(request: Request) -> Result:
    """Whether nothing of the jobs is left on this node: directories and processes; the epilog has a minute."""
    numbers, node, directory = request["jobs"], request["node"], request["directory"]
    if not numbers:
        return {"checks": [skip(checks.REMOVED, node, "no job has run")]}
    until = time.monotonic() + EPILOG_S
    left = _left(numbers, node, directory)
    while left and time.monotonic() < until:
        time.sleep(1)
        left = _left(numbers, node, directory)
    text = f"still there {EPILOG_S} s after the job: {', '.join(left[:5])}" if left else ""
    return {"checks": [check(checks.REMOVED, node, FAIL if left else PASS, len(left), 0, message=text)]}


def _left(numbers: Sequence[str], node: str, directory: str) -> list[str]:
    places = (os.path.join(directory, *parts, number) for number in numbers for parts in ((), (node,)))
    return [*filter(os.path.lexists, places), *(f"process {each}" for each in _processes(numbers))]


def _processes(numbers: Sequence[str]) -> Iterator[str]:
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cgroup") as stream:
                text = stream.read()
        except OSError:
            # it has ended
            continue
        if any(f"/job_{number}/" in text or f"/job_{number}\n" in text for number in numbers):
            yield process
