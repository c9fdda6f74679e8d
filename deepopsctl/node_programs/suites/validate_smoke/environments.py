"""Environments of Python packages: a job on each node loads each, compares it with its lock and imports it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..._shared import slurm_output
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._slurm_jobs import placement, probe_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.session import Outcome
from .context import Context, check, failed, skipped
from .mpi import MODULES

CHECK = "environments"
# torch alone takes some hundred MiB to import
MEMORY_MB = 1500
MARK = "DEEPOPS-ENVIRONMENT "
# an answer is a line of a job's, and root of its node may write any
LONGEST = 2000
# in the environment's own Python; a package that it can't import is a line of its own
_PROGRAM = """\
import importlib, importlib.metadata as metadata, json, os, re, sys
module, problems = sys.argv[1], []
place = os.environ.get("VIRTUAL_ENV", "")
plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
try:
    with open(place + "/requirements.lock") as stream:
        lines = stream.read().splitlines()
    locked = dict(line.split(" ")[0].split("==") for line in lines if not line.startswith("#"))
    listed = next(line for line in lines if line.startswith("# packages: "))[12:]
    own = [path for path in sys.path if path.startswith(place)]
    here = {plain(each.metadata["Name"]): each.version for each in metadata.distributions(path=own)}
    if not place.endswith("/" + module):
        problems.append("another environment is loaded: " + place)
    problems += [f"{name} {version} is missing" for name, version in locked.items() if here.get(name) != version]
    tops = {}
    for top, names in metadata.packages_distributions().items():
        for name in names:
            tops.setdefault(plain(name), []).append(top)
    for name in re.findall(r"(?:^|, )([a-z0-9-]+)", listed):
        for top in sorted(tops.get(name, []))[:3]:
            if top[:1] != "_" and top.isidentifier():
                try:
                    importlib.import_module(top)
                except BaseException as error:
                    problems.append(f"import {top}: {type(error).__name__}: {error}")
except Exception as error:
    problems.append(f"{type(error).__name__}: {error}")
answer = [os.environ.get("SLURMD_NODENAME"), module, "; ".join(problems)[:600]]
print("DEEPOPS-ENVIRONMENT " + json.dumps(answer), flush=True)
"""
_STEP = """\
for module in "$@"; do
    ( module load "$module" && exec python -c "$0" "$module" )
done
"""


def verify_environments(context: Context) -> list[Check]:
    """A check of every node that answered, where the site has environments."""
    names, modules = context.names, context.inputs.environments
    if not os.path.exists(MODULES):
        return [skipped(CHECK, name, "there are no modules yet: `deepopsctl deploy environment`") for name in names]
    nodes, partitions = context.snapshot.nodes, context.snapshot.partitions
    free = [name for name in names if _has_room(nodes[name], partitions)]
    checks = [
        skipped(CHECK, name, f"busy: no room for a job with {MEMORY_MB} MiB") for name in names if name not in free
    ]
    places = placement.place(free, nodes, partitions)
    if not places:
        return checks
    with ThreadPoolExecutor(probe_jobs.WORKERS) as pool:
        outcomes = pool.map(lambda each: _load(context, each), places)
        for place, outcome in zip(places, outcomes):
            checks += [evaluate(name, modules, outcome) for name in place.nodes]
    return checks


def _has_room(node: slurm_output.Record, partitions: Mapping[str, slurm_output.Record]) -> bool:
    memory = slurm_output.number(node, "RealMemory") - slurm_output.number(node, "AllocMem")
    return memory >= MEMORY_MB and not placement.obstacle(node, partitions)


def _load(context: Context, place: Placement) -> Outcome:
    options = [*place.options(), f"--mem={MEMORY_MB}M"]
    return context.session.srun("environments", options, ["bash", "-lc", _STEP, _PROGRAM, *context.inputs.environments])


def evaluate(node: str, modules: Sequence[str], outcome: Outcome) -> Check:
    """The check of a node, from what the job printed there."""
    answers = _answers(outcome.out, node)
    expected = ", ".join(modules)
    if not answers and not outcome.ended:
        return check(CHECK, node, SKIP if outcome.busy else FAIL, "no answer", expected, message=one_line(outcome.why))
    problems = [f"{module}: {answers[module]}" for module in modules if answers.get(module)]
    problems += [f"{module} can't be loaded" for module in modules if module not in answers]
    loaded = ", ".join(module for module in modules if answers.get(module) == "")
    if problems:
        errors = f" ({outcome.err})" if outcome.err.strip() and not answers else ""
        return failed(CHECK, node, one_line("; ".join(problems) + errors), loaded or "none", expected)
    return check(CHECK, node, PASS, loaded, expected)


def _answers(output: str, node: str) -> dict[str, str]:
    """The problem of each module that was loaded on the node, '' for none."""
    result = {}
    for line in output.splitlines():
        values: Any = None
        if line.startswith(MARK) and len(line) < LONGEST:
            try:
                values = json.loads(line[len(MARK) :])
            except ValueError:
                continue
        if isinstance(values, list) and len(values) == 3 and values[0] == node:
            result[str(values[1])] = str(values[2])
    return result
