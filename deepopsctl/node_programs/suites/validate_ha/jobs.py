"""The suite's jobs, submitted as the user who runs the validation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..._shared import command, slurm_client, slurm_output
from ..._shared.waiting import wait_until

# one that waits for a controller gives up after one and a half of SlurmctldTimeout
SUBMIT_LIMIT_S = 15.0
# to the end of the suite, and no longer
MINUTES = 40


def _as_user(argv: Sequence[str], limit_s: float) -> command.Result:
    user = os.environ.get("SUDO_USER", "")
    words = ["runuser", "-u", user, "--", *argv] if user and os.geteuid() == 0 else list(argv)
    return slurm_client.ask(words, limit_s)


def submit(name: str, wrapped: str, *options: str) -> str:
    """The id of a new job; '' where Slurm did not take it in time."""
    base = ["sbatch", "--parsable", "--output=/dev/null", "--ntasks=1", "--mem=16M", f"--time={MINUTES}"]
    result = _as_user([*base, "--job-name=" + name, *options, "--chdir=/", "--wrap=" + wrapped], SUBMIT_LIMIT_S)
    return result.output.strip().partition(";")[0] if result.ok else ""


def states(ids: Sequence[str]) -> dict[str, str] | None:
    """The states of those jobs that slurmctld knows; None where it does not answer."""
    columns = "%A|%T"
    result = _as_user(slurm_client.squeue(columns, "--all", "--states=all", "--jobs=" + ",".join(ids)), SUBMIT_LIMIT_S)
    return dict(slurm_output.rows(result.output, columns)) if result.ok else None


def second_slurmdbd(path: str = "/etc/slurm/slurm.conf") -> bool:
    """Whether another slurmdbd serves while the first one does not."""
    with open(path, encoding="utf-8") as stream:
        return any(line.startswith("AccountingStorageBackupHost=") for line in stream)


def accounting_answers() -> bool:
    """Whether a slurmdbd answers users."""
    return _as_user(["sacctmgr", "--noheader", "show", "cluster"], SUBMIT_LIMIT_S).ok


def wait_until_runs(job: str, limit_s: float) -> bool:
    """Whether a job starts in time."""
    return wait_until(lambda: (states([job]) or {}).get(job) == "RUNNING", limit_s, 1)


def cancel(names: Iterable[str]) -> None:
    """Cancel what is still there, by name: a submission that came too late may have been taken, and left no id."""
    for name in names:
        _as_user(["scancel", "--name=" + name], SUBMIT_LIMIT_S)
