"""Run a tool with a time limit, in an environment where Slurm's tools print what we parse."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Dict, NamedTuple, Optional, Sequence

# a user's own SQUEUE_FORMAT, SBATCH_PARTITION ... would change what the tools print and ask for
REMOVED_PREFIXES = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_")
KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER")
# what srun, sbatch and salloc read a reservation from
RESERVATION = ("SLURM_RESERVATION", "SBATCH_RESERVATION", "SALLOC_RESERVATION")
_reservation: Dict[str, str] = {}


class Answer(NamedTuple):
    """What a tool answered; rc 124 when it took too long, 127 when it is missing."""

    rc: int
    out: str
    err: str
    elapsed: float

    @property
    def error_text(self) -> str:
        """The error text, or the output where there is none."""
        return self.err.strip() or self.out.strip()


def use_reservation(name: str) -> None:
    """Let all jobs from now on run in a reservation; '' for none."""
    _reservation.clear()
    if name:
        _reservation.update(dict.fromkeys(RESERVATION, name))


def in_reservation() -> bool:
    """Whether jobs run in a reservation."""
    return bool(_reservation)


def clean_environment(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """The process environment without settings that steer Slurm's tools."""
    environment = {
        key: value for key, value in os.environ.items() if key in KEPT_VARIABLES or not key.startswith(REMOVED_PREFIXES)
    }
    environment.update(
        {"LC_ALL": "C.UTF-8", "PATH": environment.get("PATH", "") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    )
    environment.update(_reservation)
    environment.update(extra or {})
    return environment


def run(argv: Sequence[str], timeout: float = 15, stdin: str = "") -> Answer:
    """Run one command; never raises for what the command does."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="replace",
            timeout=timeout,
            env=clean_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        text = "no answer within {:.0f} s: {}".format(timeout, " ".join(argv[:4]))
        return Answer(124, "", text, time.monotonic() - started)
    except OSError as error:
        return Answer(127, "", "{}: {}".format(argv[0], error.strerror), time.monotonic() - started)
    return Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - started)
