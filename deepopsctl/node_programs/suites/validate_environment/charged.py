"""What people can do with Slurm: their accounts in the database, and a job of one of them, run as that person."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from ..._shared import hangup, identities, slurm_client, slurm_output
from ..._shared.checks import FAIL, PASS, Check, one_line
from ..._slurm_jobs import slurm
from ..._slurm_jobs.session import Session
from .checks import SUITE, check, skip
from .identities import summary

ACCOUNTS, JOB = "environment-accounts", "environment-job"
PARTS = ("", "_cpu", "_gpu")
RUN_S = 60.0

Entry = Mapping[str, Any]


def verify_charged_job(request: Mapping[str, Any]) -> list[Check]:
    """The accounts of everybody, then a job of the first person who may submit one."""
    cluster, people = request["cluster"], request["people"]
    today = identities.today()
    return [
        accounts(cluster, people["people"], today),
        job(cluster, people, today, float(request["queue_timeout"]), request["reservation"]),
    ]


def accounts(cluster: str, people: Sequence[Entry], today: str) -> Check:
    """Whether each person has the accounts of the groups, open or closed."""
    where = ("where", "cluster=" + cluster, "wopl", "format=account,user,maxsubmitjobs")
    answer = slurm.ask(slurm_client.sacctmgr("association", *where), 60)
    if not answer.ok:
        return check(ACCOUNTS, cluster, FAIL, "no answer", "accounts", message=one_line(answer.message))
    rows = slurm_output.rows(answer.output, "account|user|limit")
    limits = {(account, user): limit for account, user, limit in rows if user}
    differences = []
    for person in people:
        closed = identities.is_over(person, "expires", today)
        keys = [(group + part, person["name"]) for group in person["groups"] for part in PARTS]
        missing = [account for account, user in keys if (account, user) not in limits]
        opened = [account for account, user in keys if closed and limits.get((account, user), "0") != "0"]
        if missing:
            differences.append(f"{person['name']} has no account {missing[0]}")
        if opened:
            differences.append(f"{person['name']} has expired and may still charge {opened[0]}")
    return summary(ACCOUNTS, cluster, len(people), differences)


def job(cluster: str, people: Mapping[str, Sequence[Entry]], today: str, queue_s: float, reservation: str) -> Check:
    """A person's job, with the default account: it has the same ids on the compute node."""
    is_open = {
        group["name"]: not identities.is_over(group, "end", today)
        and (not group.get("start") or identities.is_over(group, "start", today))
        for group in people["groups"]
    }
    able = [
        person
        for person in people["people"]
        if not identities.is_over(person, "expires", today) and is_open[person["groups"][0]]
    ]
    if not able:
        return skip(JOB, cluster, "no one in people.yml may submit jobs today")
    try:
        entry = pwd.getpwnam(able[0]["name"])
    except KeyError:
        return skip(JOB, cluster, f"there is no user {able[0]['name']} on this node")
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    _become(entry, groups)
    session = Session(SUITE, os.urandom(3).hex(), entry.pw_name, queue_s, RUN_S, reservation=reservation)

    def finish() -> None:
        session.close()

    hangup.watch(finish)
    try:
        outcome = session.srun("job", ["--nodes=1", "--ntasks=1"], ["sh", "-c", "id -u; id -G"])
    finally:
        finish()
    if outcome.busy:
        return skip(JOB, cluster, f"{entry.pw_name}: {outcome.why}")
    if not outcome.ended or outcome.rc:
        return check(JOB, cluster, FAIL, "no job", "a job", message=f"{entry.pw_name}: {one_line(outcome.why)}")
    return _evaluate(cluster, entry.pw_name, entry.pw_uid, groups, outcome.out)


def _evaluate(cluster: str, name: str, uid: int, groups: Sequence[int], output: str) -> Check:
    # a site's TaskProlog may print as well, before the task
    lines = ["", "", *output.splitlines()][-2:]
    there: dict[str, object] = {"uid": lines[0].strip(), "groups": sorted(lines[1].split())}
    here: dict[str, object] = {"uid": str(uid), "groups": sorted(str(gid) for gid in groups)}
    if there == here:
        return check(JOB, cluster, PASS, name, name)
    message = f"{name} has other ids in a job ({there}) than here ({here})"
    return check(JOB, cluster, FAIL, "other ids", "the same", message=message)


def _become(entry: pwd.struct_passwd, groups: Sequence[int]) -> None:
    """Continue as that user, for good: root touches nothing of the user's."""
    os.setgroups(list(groups))
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
    os.chdir("/")
