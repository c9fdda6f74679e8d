"""Whether `module` works in the shells of users on a node, and in jobs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from ..._shared import command
from ..._shared.checks import FAIL, PASS, Check
from ..._slurm_jobs.session import Session
from .checks import check

LISTED, SHELLS, JOBS = "environment-modules", "environment-module-shells", "environment-module-jobs"
START = "/etc/profile.d/deepopsctl-modules.sh"
LIMIT_S = 60
# one that StdEnv loads would conflict
_LOAD = "module --force purge; module load {}"
# nothing that the user who connected has set; `bash -ic` is a shell in tmux or in an editor
BARE = ("env", "-i", "HOME=/nonexistent", "PATH=/usr/bin:/bin")
_BASH: Mapping[str, Sequence[str]] = {
    "a login shell": ("bash", "-lc"),
    "another interactive shell": ("bash", "-ic"),
    "a script": ("env", "BASH_ENV=" + START, "bash", "-c"),
}
_ZSH: Mapping[str, Sequence[str]] = {"zsh": ("zsh", "-c")}
# What a job exits with; the job prints nothing, as no directory need be on all nodes.
_STAGES = {11: "`module load` in the script", 12: "the loaded command", 13: "`module load` in a step (srun bash -c)"}


def shells() -> dict[str, Sequence[str]]:
    """The shells of this node that `module` has to work in, each as `nobody`, in an environment of its own."""
    commands = {**_BASH, **(_ZSH if shutil.which("zsh") else {})}
    return {name: ("runuser", "-u", "nobody", "--", *BARE, *argv) for name, argv in commands.items()}


def versions(directory: str) -> list[str]:
    """Each `NAME/VERSION` that has a file below a directory of module files."""
    names: list[str] = []
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        files = os.listdir(os.path.join(directory, name)) if os.path.isdir(os.path.join(directory, name)) else ()
        names += [f"{name}/{file}" for file in sorted(files) if not file.startswith(".")]
    return [version[: -len(".lua")] if version.endswith(".lua") else version for version in names]


def listed(login: Sequence[str]) -> list[str]:
    """What `module avail` lists in a login shell: each `NAME/VERSION`, and each name."""
    lines = command.run([*login, "module -t avail 2>&1"], LIMIT_S).output.splitlines()
    versions = [line.split("(")[0] for line in lines]
    return [*versions, *sorted({version.split("/")[0] for version in versions})]


def verify_modules(
    node: str, software: Sequence[str], started: Mapping[str, Sequence[str]], declared: Sequence[str] = ()
) -> list[Check]:
    """One check for the modules that are there, one for all shells; `started` runs a text each.

    Of `software` there has to be any version; each `NAME/VERSION` of `declared` has to load.
    """
    login = next(iter(started.values()))
    there = listed(login)
    missing = [name for name in [*software, *declared] if name not in there]
    loads = ((name, command.run([*login, _LOAD.format(name)], LIMIT_S)) for name in declared if name in there)
    wrong = [f"{name}: {result.failure}" for name, result in loads if not result.ok]
    message = "; ".join([*(["not listed: " + ", ".join(missing)] if missing else []), *wrong])
    trial = loading(software)
    failures = [
        f"{name}: {result.failure}"
        for name, result in ((name, command.run([*argv, trial], LIMIT_S)) for name, argv in started.items())
        if not result.ok
    ]
    shown, wanted = len(started) - len(failures), len(software) + len(declared)
    return [
        check(LISTED, node, FAIL if message else PASS, wanted - len(missing) - len(wrong), wanted, "modules", message),
        check(SHELLS, node, FAIL if failures else PASS, shown, len(started), "shells", "; ".join(failures)),
    ]


def loading(software: Sequence[str]) -> str:
    """A command that loads a module and needs it."""
    return "module load python && python --version" if "python" in software else "module -t avail"


def verify_in_job(cluster: str, session: Session, software: Sequence[str]) -> list[Check]:
    """One check: a batch job that gets nothing from who submits it, and its step."""
    load, _and, use = loading(software).partition(" && ")
    step = f'srun --ntasks=1 bash -c "{loading(software)}"'
    # as in the guides of sites whose users say NONE: without it the step would have no PATH
    step = "unset SLURM_EXPORT_ENV; " + step
    lines = ["#!/bin/bash", load + " || exit 11", (use or "true") + " || exit 12", step + " || exit 13"]
    options = ["--export=NONE", "--output=/dev/null", "--ntasks=1", "--chdir=/"]
    running = session.start_batch("modules", options, "\n".join(lines) + "\n")
    outcome = session.finish("modules", running)
    if outcome.busy:
        return [check(JOBS, cluster, "skip", "not started", "loaded", message=outcome.why)]
    if outcome.ended and outcome.rc == 0:
        return [check(JOBS, cluster, PASS, "loaded", "loaded")]
    return [check(JOBS, cluster, FAIL, _STAGES.get(outcome.rc, "failed"), "loaded", message=outcome.why)]
