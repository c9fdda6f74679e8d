"""What `node_program` starts on a submit host, as the connecting user.

The examples that users copy are trained with: on each idle node by itself, in a single process, and in each way on all
nodes with the same hardware together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..._shared.checks import Check
from ..._shared.hostlist import fold
from ..._slurm_jobs import pmix, suite as suite_of_jobs, whole_nodes
from ..._slurm_jobs.session import Outcome, Session
from ..._slurm_jobs.snapshot import read_snapshot
from ..._slurm_jobs.whole_nodes import Group
from . import checks, evaluation
from .checks import failed, skip
from .evaluation import Result

Request = dict[str, Any]
OwnResult = dict[str, Any]

# samples a step of each process; the model's size on CPUs and on GPUs
BATCH, WIDTH, WIDTH_OF_GPUS = 64, 256, 2048
# on a node without GPUs
PROCESSES = 2
_SOFTWARE = """\
import importlib.metadata as metadata, json, os
versions = {}
for name in ("torch", "accelerate", "deepspeed", "mpi4py"):
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print("DEEPOPS-SOFTWARE " + json.dumps({"node": os.environ.get("SLURMD_NODENAME"), "versions": versions}))
"""
# the first argument is the module of the environment, '' for the nodes' own Python
_START = """\
if [ -n "$0" ]; then module load "$0" || exit 1; fi
cd /
python=$(command -v python || command -v python3)
"""
_SOFTWARE_STEP = _START + 'exec "$python" -c "$1"'
_LAUNCH = _START + 'exec bash "$1/launch.sh" "${@:2}"'
_TASKS = _START + 'export OMP_NUM_THREADS=$(nproc); exec "$python" "$1/$2" "${@:3}"'
# two trainings of a single process, one after the other
_REFERENCES = (
    _START
    + """\
export OMP_NUM_THREADS=$(nproc)
for batch in $3 $4; do "$python" "$1/$2" --batch "$batch" "${@:5}"; done
"""
)


def main(request: Request) -> OwnResult:
    """The whole suite."""
    return suite_of_jobs.run_trials(request, _train)


def _train(request: Request) -> OwnResult:
    snapshot = read_snapshot()
    directory = os.path.join(request["examples"], "training")
    if not os.path.isdir(directory):
        text = f"{directory} is not there: `deepopsctl deploy environment` installs the examples"
        return {"checks": [skip(checks.SOFTWARE, request["cluster"], text)]}
    if not snapshot.answered:
        return {"checks": [failed(checks.SOFTWARE, request["cluster"], snapshot.silence)]}
    without_mpi = pmix.missing(snapshot.config)
    return whole_nodes.measure(
        request, checks.SUITE, snapshot, partial(skip, checks.NODE),
        lambda session, group: Trainer(session, group, request, without_mpi).train(),
    )  # fmt: skip


class Trainer:
    """Jobs of one group of nodes."""

    def __init__(self, session: Session, group: Group, request: Request, without_mpi: str) -> None:
        self._session, self._group, self._without_mpi = session, group, without_mpi
        self._directory = os.path.join(request["examples"], "training")
        self._module, self._share = str(request["module"]), float(request["share"])
        self._tolerance = float(request["tolerance"])
        self._source = f"environment {self._module}" if self._module else "the nodes' own Python"
        self._nodes = group.nodes
        self._processes = group.gpus or min(PROCESSES, group.cpus)
        self.target = fold(self._nodes)
        width = WIDTH_OF_GPUS if group.gpus else WIDTH
        self._options = [f"--width={width}", f"--steps={int(request['steps'])}"]
        # with one node all processes are on it
        self._small, self._large = (BATCH * self._processes * count for count in (1, len(self._nodes)))

    def train(self) -> tuple[list[Check], list[dict[str, Any]]]:
        """All checks, and the rates."""
        made, packages = self._software()
        if "torch" not in packages:
            return made, []
        batches = [str(self._small), str(self._large)]
        program = ["train_ddp.py", *batches, *self._options]
        outcome = self._run("single", _REFERENCES, program, self._nodes[:1])
        references = [result.loss for result in evaluation.results(outcome.out)]
        if len(references) != len(batches):
            return [*made, evaluation.of_job(checks.NODE, self._nodes[0], outcome)], []
        alone, checked = self._alone(references[0])
        made += checked
        together: Result | None = None
        for method, package in checks.METHODS.items():
            if package and package not in packages:
                made.append(evaluation.without_method(method, self.target, self._source))
                continue
            if method == "mpi" and self._without_mpi:
                made.append(skip(checks.of_method(method), self.target, self._without_mpi))
                continue
            checked_method, result = self._together(method, references[1])
            made.append(checked_method)
            together = result if method == "ddp" else together
        return made, list(evaluation.rates(alone, together, self.target, self._share))

    def _run(
        self, what: str, step: str, arguments: Sequence[str], nodes: Sequence[str], tasks: int = 1, *extra: str
    ) -> Outcome:
        shell = ["bash", "-lc", step, self._module]
        where = [] if step == _SOFTWARE_STEP else [self._directory]
        # users' settings of their own shells change nothing here
        environment = f"--export=ALL,PROCESSES={self._processes}" + ("".join("," + each for each in extra))
        options = [*self._group.options(nodes, tasks), environment]
        if step == _TASKS:
            options.append("--mpi=pmix")
        return self._session.srun(f"{self._nodes[0]}-{what}", options, [*shell, *where, *arguments])

    def _software(self) -> tuple[list[Check], set[str]]:
        """The checks of all nodes, and the packages that all of them have."""
        outcome = self._run("software", _SOFTWARE_STEP, [_SOFTWARE], self._nodes)
        parsed = evaluation.software(outcome.out)
        made = [
            evaluation.of_software(name, parsed[name], self._source)
            if name in parsed
            else evaluation.of_job(checks.SOFTWARE, name, outcome)
            for name in self._nodes
        ]
        return made, set.intersection(*(set(parsed.get(name, {})) for name in self._nodes))

    def _alone(self, reference: float) -> tuple[list[Result], list[Check]]:
        """Each node by itself, all at the same time."""
        program = ["train_ddp.py", f"--batch={self._small}", *self._options]
        outcome = self._run("alone", _LAUNCH, program, self._nodes, 1, "ALONE=yes")
        parsed = {result.node: result for result in evaluation.results(outcome.out)}
        made = [
            evaluation.of_loss(
                checks.NODE, name, parsed[name].loss, reference, self._tolerance, evaluation.about(parsed[name])
            )
            if name in parsed
            else evaluation.of_job(checks.NODE, name, outcome)
            for name in self._nodes
        ]
        return [parsed[name] for name in self._nodes if name in parsed], made

    def _together(self, method: str, reference: float) -> tuple[Check, Result | None]:
        """One way to train, on all nodes."""
        name, program = checks.of_method(method), f"train_{method}.py"
        arguments = [program, f"--batch={self._large}", *self._options]
        if method == "mpi":
            outcome = self._run(method, _TASKS, arguments, self._nodes, self._processes)
        else:
            outcome = self._run(method, _LAUNCH, arguments, self._nodes)
        result = next(iter(evaluation.results(outcome.out)), None)
        if result is None:
            return evaluation.of_job(name, self.target, outcome), None
        about = evaluation.about(result)
        processes = self._processes * len(self._nodes)
        if result.processes != processes:
            text = f"{about}: the job was started with {processes}"
            return failed(name, self.target, text, result.processes, processes, "processes"), None
        return evaluation.of_loss(name, self.target, result.loss, reference, self._tolerance, about), result
