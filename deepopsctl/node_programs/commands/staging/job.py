"""The job that a command runs in: its directory, and the same command on each of its nodes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from ..._shared import slurm_client

# given to the command on each node: it has to do its own part only
HERE = "--this-node"
_FIRST_SPECIAL_STEP = 0xFFFFFFF0

Stage = Callable[[argparse.Namespace, Mapping[str, str]], Optional[int]]
StageOnEach = Callable[[argparse.Namespace, Sequence[str], Mapping[str, str]], int]


class StagingError(Exception):
    """Nothing can be staged; the message has the reason and what to do."""


def main(
    parser: argparse.ArgumentParser,
    stage: Stage,
    arguments: list[str] | None,
    variables: Mapping[str, str] | None,
    stage_on_each: StageOnEach | None = None,
) -> int:
    """Read the options and stage, on each node of the job; returns the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    parser.add_argument(HERE, action="store_true", help="only on this node")

    def stage_on_nodes(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
        if options.this_node or not has_other_nodes(environment):
            return stage(options, environment) or 0
        if stage_on_each:
            return stage_on_each(options, words, environment)
        return on_each_node(sys.argv[0], words, environment)

    return run_here(parser, stage_on_nodes, words, variables)


def run_here(
    parser: argparse.ArgumentParser,
    action: Stage,
    arguments: list[str] | None,
    variables: Mapping[str, str] | None,
) -> int:
    """Read the options and act on them, with a message where that fails; returns the exit status."""
    environment = os.environ if variables is None else variables
    options = parser.parse_args(arguments)
    try:
        return action(options, environment) or 0
    except StagingError as error:
        return _report(parser.prog, str(error))
    except OSError as error:
        return _report(parser.prog, _sentence(error))


def directory(variables: Mapping[str, str]) -> str:
    """The job's own directory on this node."""
    path = variables.get("SLURM_TMPDIR", "")
    if not variables.get("SLURM_JOB_ID"):
        raise StagingError("this is not a job: use it in a batch script or after salloc")
    if not path:
        raise StagingError("SLURM_TMPDIR is not set: your cluster has no directories for jobs; name one with --to")
    return path


def refuse_same_names(names: Sequence[str]) -> None:
    """Refuse what would replace one another in one directory."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise StagingError(f"several are called {', '.join(twice)}: name the directory that they are in")


def has_other_nodes(variables: Mapping[str, str]) -> bool:
    """Whether this is the script of a job with several nodes, which has to call the others; a step of it has not."""
    step = variables.get("SLURM_STEP_ID", "")
    # the script's own step, or that of an interactive shell, has no number, or one of these
    in_step = step.isdigit() and int(step) < _FIRST_SPECIAL_STEP
    return variables.get("SLURM_JOB_NUM_NODES", "1") not in ("", "1") and not in_step


def on_each_node(program: str, arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the command once on each node of the job; the exit status is the highest."""
    return run_tool(*step_of_each_node(program, arguments, variables))


def step_of_each_node(
    program: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The step that runs the command once on each node of the job: its call, and its environment."""
    argv = ["srun", "--nodes=" + variables["SLURM_JOB_NUM_NODES"], "--ntasks=" + variables["SLURM_JOB_NUM_NODES"],
            "--ntasks-per-node=1", "--cpus-per-task=1", "--overlap", "--input=none", "--label", "--mpi=none",
            "--chdir=" + os.getcwd(), program, HERE, *arguments]  # fmt: skip
    # what the job asked for its own tasks does not hold for these
    own = {
        key: value
        for key, value in variables.items()
        if not key.startswith(("SLURM_CPU", "SLURM_NTASKS", "SLURM_TASKS"))
    }
    return argv, own


def run_tool(argv: Sequence[str], variables: Mapping[str, str] | None = None) -> int:
    """Run a tool whose output is the user's; returns its exit status."""
    try:
        return subprocess.run(list(argv), env=None if variables is None else dict(variables), check=False).returncode
    except OSError as error:
        raise StagingError(f"{argv[0]}: {error.strerror}") from error


def may_run(job_id: str) -> bool:
    """Whether a job is not known to have ended."""
    shown = slurm_client.ask(slurm_client.squeue("%T", "--jobs=" + job_id), None)
    return bool(shown.output.strip()) if shown.ok else "Invalid job id" not in shown.errors


def _report(program: str, error: str) -> int:
    """Print why it failed, with the node: the output of all nodes is in one file."""
    sys.stderr.write(f"{program}: {os.uname().nodename}: {error}\n")
    return 1


def _sentence(error: OSError) -> str:
    """An error of a file as a sentence."""
    names: list[str] = [str(error.filename)] if error.filename else []
    return ": ".join([*names, str(error.strerror)])
