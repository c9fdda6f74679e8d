"""The job of a notebook: how it is submitted, and what it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .offer import Request

NAME = "notebook"
# what the job gets of JupyterHub's, and nothing else: LD_PRELOAD, PATH ... are the user's own
_VARIABLE = re.compile(r"JUPYTERHUB_[A-Z0-9_]{1,60}")
# a login shell, so that a terminal has the user's own settings, and files the user's own mode; what it prints is for
# when it does not start
_SCRIPT = """\
#!/bin/bash -l
mask=$(umask)
umask 077
mkdir -p "$HOME/.local/state/deepopsctl" && exec >"$HOME/.local/state/deepopsctl/notebook.log" 2>&1
umask "$mask"
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP
exec {python} -I {program}
"""


def submission(request: Request, home: str, environment: Mapping[str, str]) -> list[str]:
    """The call of sbatch; it reads the script."""
    options = {
        "--job-name": NAME,
        "--partition": request.partition,
        "--account": request.account,
        "--time": str(request.minutes),
        "--cpus-per-task": str(request.cpus),
        "--mem": f"{request.memory_gb}G",
        "--gres": gres(request),
        "--chdir": home,
        "--output": "/dev/null",
        "--export": ",".join(sorted(environment)),
    }
    words = [f"{option}={value}" for option, value in options.items() if value]
    return ["sbatch", "--parsable", "--nodes=1", "--ntasks=1", "--no-requeue", *words]


def gres(request: Request) -> str:
    """`gpu:a100:2`; '' without any."""
    if not request.gpus:
        return ""
    return f"gpu:{request.gpus}" if request.gpu == "any" else f"gpu:{request.gpu}:{request.gpus}"


def script(python: str, program: str) -> str:
    """What the job runs."""
    return _SCRIPT.format(python=python, program=program)


def environment(wanted: Mapping[str, str]) -> dict[str, str]:
    """Of these variables those that a notebook has."""
    return {name: str(value) for name, value in wanted.items() if _VARIABLE.fullmatch(name)}
