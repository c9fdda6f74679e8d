"""The suite's jobs, submitted as the user who runs the validation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from ..._shared import command

# one that waits for a controller gives up after one and a half of SlurmctldTimeout
SUBMIT_LIMIT_S = 15.0
# to the end of the suite, and no longer
MINUTES = 40


def _as_user(argv: Sequence[str], limit_s: float) -> command.Result:
    user = os.environ.get("SUDO_USER", "")
    words = ["runuser", "-u", user, "--", *argv] if user and os.geteuid() == 0 else list(argv)
    return command.run(words, limit_s, env=command.slurm_environment())


def submit(name: str, wrapped: str, *options: str) -> str:
    """The id of a new job; '' where Slurm did not take it in time."""
    base = ["sbatch", "--parsable", "--output=/dev/null", "--ntasks=1", "--mem=16M", f"--time={MINUTES}"]
    result = _as_user([*base, "--job-name=" + name, *options, "--chdir=/", "--wrap=" + wrapped], SUBMIT_LIMIT_S)
    return result.output.strip().partition(";")[0] if result.ok else ""


def states(ids: Sequence[str]) -> dict[str, str] | None:
    """The states of those jobs that slurmctld knows; None where it does not answer."""
    argv = ["squeue", "--noheader", "--all", "--states=all", "--jobs=" + ",".join(ids), "--format=%A %T"]
    result = _as_user(argv, SUBMIT_LIMIT_S)
    if not result.ok:
        return None
    return dict(line.split()[:2] for line in result.output.splitlines() if len(line.split()) > 1)


def second_slurmdbd(path: str = "/etc/slurm/slurm.conf") -> bool:
    """Whether another slurmdbd serves while the first one does not."""
    with open(path, encoding="utf-8") as stream:
        return any(line.startswith("AccountingStorageBackupHost=") for line in stream)


def accounting_answers() -> bool:
    """Whether a slurmdbd answers users."""
    return _as_user(["sacctmgr", "--noheader", "show", "cluster"], SUBMIT_LIMIT_S).ok


def wait_until_runs(job: str, limit_s: float) -> bool:
    """Whether a job starts in time."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if (states([job]) or {}).get(job) == "RUNNING":
            return True
        time.sleep(1)
    return False


def cancel(names: Iterable[str]) -> None:
    """Cancel what is still there, by name: a submission that came too late may have been taken, and left no id."""
    for name in names:
        _as_user(["scancel", "--name=" + name], SUBMIT_LIMIT_S)
