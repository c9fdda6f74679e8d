"""Accounting: the database answers, knows the user, and has this validation's jobs as they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

from ..._shared import slurm_client
from ..._shared.checks import FAIL, PASS, Check, one_line
from ..._shared.command import Result
from ..._shared.slurm_output import Record
from ..._shared.waiting import wait_until
from ..._slurm_jobs import slurm
from .context import Context, Job, check, failed, skipped

RETRY_S = 20.0
OF_JOBS = ("accounting-jobs", "accounting-array")
FORMAT = "JobID,JobName,User,Account,State,ExitCode"
OFF = ("", "accounting_storage/none", "(null)")


class Row(NamedTuple):
    """One line of sacct."""

    id: str
    name: str
    user: str
    account: str
    state: str
    exit_code: str


def is_on(config: Record) -> bool:
    """True when the cluster keeps accounting."""
    return config.get("AccountingStorageType", "") not in OFF


def verify_records(context: Context) -> list[Check]:
    """What the database says about the user and about the jobs that just ran."""
    inputs, snapshot, jobs = context.inputs, context.snapshot, context.jobs
    checks = verify_user(context)
    if not is_on(snapshot.config):
        return checks + [skipped(name, inputs.cluster, "the cluster keeps no accounting") for name in OF_JOBS]
    if not jobs:
        return checks + [skipped(name, inputs.cluster, "no job ran to its end") for name in OF_JOBS]
    # no patience with a database that does not answer at all
    answer = fetch(jobs, patience=RETRY_S if snapshot.answers["clusters"].ok else 0)
    known = [account for account in checks[0]["measured"].split(", ") if checks[0]["status"] == PASS]
    return checks + evaluate(inputs.cluster, jobs, answer, inputs.user, known)


def verify_user(context: Context) -> list[Check]:
    """Whether the user has an account."""
    inputs, config = context.inputs, context.snapshot.config
    if not is_on(config):
        return [skipped("accounting-association", inputs.cluster, "the cluster keeps no accounting")]
    where = ["user=" + inputs.user, "cluster=" + config.get("ClusterName", inputs.cluster)]
    argv = slurm_client.sacctmgr("associations", "where", *where, "format=account")
    return [association(inputs.cluster, inputs.user, slurm.ask(argv))]


def answers(cluster: str, config: Record, answer: Result) -> Check:
    """slurmdbd answers and knows this cluster."""
    # without a configuration (slurmctld is silent) slurmdbd is asked all the same
    if (config and not is_on(config)) or "not running a supported accounting_storage" in answer.message:
        return skipped("accounting-answers", cluster, "the cluster keeps no accounting (AccountingStorageType)")
    name = config.get("ClusterName", cluster)
    if not answer.ok:
        return failed(
            "accounting-answers",
            cluster,
            "slurmdbd does not answer: " + one_line(answer.message),
            "no answer",
            name,
        )
    known = [line.split("|")[0] for line in answer.output.splitlines()]
    if name not in known:
        return failed(
            "accounting-answers",
            cluster,
            "slurmdbd does not know this cluster",
            ", ".join(known) or "none",
            name,
        )
    return check("accounting-answers", cluster, PASS, name, name)


def association(cluster: str, user: str, answer: Result) -> Check:
    """The user may use at least one account."""
    if not answer.ok:
        return failed(
            "accounting-association",
            cluster,
            "sacctmgr: " + one_line(answer.message),
            "no answer",
            "an account for " + user,
        )
    accounts = sorted({line.split("|")[0] for line in answer.output.splitlines() if line.split("|")[0]})
    if not accounts:
        text = f"{user} belongs to no account: sacctmgr add user {user} account=NAME"
        return failed("accounting-association", cluster, text, "none", "an account for " + user)
    return check("accounting-association", cluster, PASS, ", ".join(accounts), "an account for " + user)


def parse(out: str) -> list[Row]:
    """Lines of `sacct --parsable2 --noheader --allocations`."""
    rows = [line.split("|") for line in out.splitlines()]
    return [Row(*row) for row in rows if len(row) == len(Row._fields)]


def matching(job: Job, rows: Sequence[Row]) -> list[Row]:
    """The rows of one job, every task of an array."""
    return [row for row in rows if row.id == job.id or row.id.startswith(job.id + "_")]


def complete(job: Job, rows: Sequence[Row]) -> bool:
    """True when the database has all rows of the job, and they are final."""
    own = matching(job, rows)
    settled = [row for row in own if row.state.split(" ")[0] not in ("PENDING", "RUNNING", "COMPLETING")]
    return len(settled) >= max(job.tasks, 1)


def fetch(jobs: Sequence[Job], run: Callable[..., Result] = slurm.ask, patience: float = RETRY_S) -> Result:
    """sacct's answer, asked again until it has all jobs: the controller sends them to the database with a delay."""
    which = "--jobs=" + ",".join(job.id for job in jobs)
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=" + FORMAT, which]

    def has_all(answer: Result) -> bool:
        rows = parse(answer.output)
        return answer.ok and all(complete(job, rows) for job in jobs)

    return wait_until(lambda: run(argv, 10), patience, 0.5, has_all)


def evaluate(cluster: str, jobs: Sequence[Job], answer: Result, user: str, accounts: Sequence[str]) -> list[Check]:
    """One check for the jobs, one for the array's tasks."""
    if not answer.ok:
        names = ("accounting-jobs", "accounting-array")
        return [failed(name, cluster, "sacct: " + one_line(answer.message), "no answer", "records") for name in names]
    rows = parse(answer.output)
    plain = [job for job in jobs if not job.tasks]
    wrong = [text for job in plain for text in problems(job, rows, user, accounts)]
    expected = f"{_count(len(plain), 'job')} of {user}"
    recorded = sum(1 for job in plain if matching(job, rows))
    checks = [_check("accounting-jobs", cluster, wrong, _count(recorded, "job"), expected)]
    arrays = [job for job in jobs if job.tasks]
    for job in arrays:
        measured, expected = _count(len(matching(job, rows)), "task"), _count(job.tasks, "task")
        checks.append(_check("accounting-array", cluster, problems(job, rows, user, accounts), measured, expected))
    if not arrays:
        checks.append(skipped("accounting-array", cluster, "no job array ran to its end"))
    return checks


def problems(job: Job, rows: Sequence[Row], user: str, accounts: Sequence[str]) -> list[str]:
    """What the database has wrong about one job, in words."""
    own = matching(job, rows)
    if len(own) < max(job.tasks, 1):
        return [f"{job.what} (job {job.id}): {len(own)} of {max(job.tasks, 1)} records"]
    problems = []
    for row in own:
        tests: Mapping[str, bool] = {
            f"user {row.user} instead of {user}": row.user != user,
            f"account {row.account} instead of one of {', '.join(accounts)}": bool(accounts)
            and row.account not in accounts,
            f"state {row.state} instead of {' or '.join(job.states)}": row.state.split(" ")[0] not in job.states,
            f"exit code {row.exit_code}": job.states == ("COMPLETED",) and row.exit_code != "0:0",
        }
        problems += [f"{job.what} (job {row.id}): {text}" for text, is_wrong in tests.items() if is_wrong]
    return problems


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _check(name: str, cluster: str, wrong: Sequence[str], measured: str, expected: str) -> Check:
    return check(name, cluster, FAIL if wrong else PASS, measured, expected, message="; ".join(wrong[:5]))
