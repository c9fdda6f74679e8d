"""What all checks of the smoke suite work with: what the cluster should be, and what Slurm and the nodes report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Callable, NamedTuple

from ..._shared import checks, slurm_output
from ..._shared.checks import Check
from ..._slurm_jobs.probe_jobs import Answers
from ..._slurm_jobs.session import Session
from ..._slurm_jobs.snapshot import SlurmSnapshot

SUITE = "smoke"
# the checks of this suite
check = partial(checks.check, SUITE)
failed = partial(checks.failed, SUITE)
skipped = partial(checks.skipped, SUITE)

Expand = Callable[[str], list[str]]
Reports = Mapping[str, Mapping[str, Any]]


class Node(NamedTuple):
    """One compute node; 0 where a value is not known. `exact` memory was set by the site, else it is a ceiling.

    `gpus` are cards; `gres` is what Slurm makes of them where that is not `gpus` times `gpu_type`.
    """

    name: str
    cpus: int = 0
    memory_mb: int = 0
    exact_memory: bool = False
    gpu_type: str = ""
    gpus: int = 0
    gres: str = ""


class Partition(NamedTuple):
    """One partition of cluster.yml; `minutes` None for no limit."""

    name: str
    nodes: list[str]
    default: bool
    minutes: int | None


def nodes(
    slurm_nodes: Iterable[Mapping[str, Any]], hardware: Iterable[Mapping[str, Any]], expand: Expand
) -> dict[str, Node]:
    """Every compute node of cluster.yml, in its order, with what hardware.yml knows about it."""
    result: dict[str, Node] = {}
    stored = {name: entry for entry in hardware for name in expand(str(entry["names"]))}
    for entry in slurm_nodes:
        gpus = entry.get("gpus") or {}
        options = {str(key).lower(): value for key, value in (entry.get("slurm") or {}).items()}
        for name in expand(str(entry["names"])):
            known = stored.get(name, {})
            result[name] = Node(
                name=name,
                cpus=int(options.get("cpus") or known.get("cpus") or 0),
                memory_mb=int(options.get("realmemory") or known.get("memory_mb") or 0),
                exact_memory="realmemory" in options,
                gpu_type=str(gpus.get("type") or ""),
                gpus=int(gpus.get("count") or 0),
                gres=str(gpus.get("gres") or ""),
            )
    return result


def partitions(slurm_partitions: Iterable[Mapping[str, Any]], known: Iterable[str], expand: Expand) -> list[Partition]:
    """The partitions of cluster.yml; a node that was never deployed is not in slurm.conf, so not expected here."""
    deployed = set(known)
    result = []
    for entry in slurm_partitions:
        options = {str(key).lower(): value for key, value in (entry.get("options") or {}).items()}
        limit = str(options.get("maxtime") or entry.get("max_time") or "")
        members = [name for name in expand(str(entry["nodes"])) if name in deployed]
        result.append(Partition(str(entry["name"]), members, bool(entry.get("default")), slurm_output.minutes(limit)))
    return result


class Inputs(NamedTuple):
    """`tested` are the compute nodes to test, `reports` the nodes' own, by name; silent ones have none.

    `directories` are the private directories of jobs, where cluster.yml has `job_directories`; `mpi` are the
    modules of MPIs that users have, `environments` are those of Python packages, `guide_script` is the first job of
    the site's user guide.
    """

    cluster: str
    submit: str
    user: str
    tested: Sequence[str]
    reports: Reports
    wanted: dict[str, Node]
    partitions: list[Partition]
    directories: Mapping[str, Any] = {}
    mpi: Sequence[str] = ()
    environments: Sequence[str] = ()
    guide_script: str = ""

    def report(self, name: str) -> Mapping[str, Any]:
        """A node's own report; empty where it made none."""
        return self.reports.get(name, {})


class Job(NamedTuple):
    """A job that ran, and what the accounting database should say about it; `tasks` > 0 for an array."""

    id: str
    what: str
    states: Sequence[str] = ("COMPLETED",)
    tasks: int = 0


class Context(NamedTuple):
    """One run of the suite: the nodes' `answers` in a job, and the jobs that have ended so far, for accounting."""

    inputs: Inputs
    snapshot: SlurmSnapshot
    session: Session
    answers: Answers
    jobs: list[Job]

    @property
    def names(self) -> list[str]:
        """The tested nodes that answered in a job."""
        return [name for name in self.inputs.tested if name in self.answers.lines]


class Trial(NamedTuple):
    """A part of the suite that runs jobs on the nodes that answered.

    `checks` are the names of its checks, which are skipped where no node answers. One that is not `wanted` has none.
    """

    verify: Callable[[Context], list[Check]]
    checks: Sequence[str]
    wanted: Callable[[Inputs], bool] = lambda _: True
