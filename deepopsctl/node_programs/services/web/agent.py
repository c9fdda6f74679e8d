"""`deepops-web-agent`: what JupyterHub asks of this node, for one user; systemd starts one as root for each question.

One JSON object comes in on a line, one goes out. It becomes the user first, for good, in a session of its own, and then
starts Slurm's commands: Slurm decides what the user may see and do. System accounts are refused.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..._shared import command, settings, slurm_client, slurm_output
from ...commands.job_report import history, prometheus
from . import CONFIG, MONITORING, course, notebook_job, offer, own_jobs, pam, software
from .offer import Limits, RefusedError

Answer = dict[str, Any]
LIMIT_S = 30
# 64 KiB: what a notebook gets of JupyterHub is a few
MOST = 1 << 16
LEAST_UID = 1000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")
_JOB = re.compile(r"[0-9]{1,10}(?:[_+][0-9]{1,10})?")
_STATES = "%i|%u|%T|%N|%r"
_NO_NEW_PRIVILEGES = 38
_NOBODY = 65534


def main() -> int:
    """Answer what comes in; returns the exit status."""
    line = sys.stdin.buffer.readline(MOST)
    try:
        result = answer(json.loads(line), settings.load(CONFIG))
    except RefusedError as error:
        result = {"refused": str(error)}
    except (ValueError, KeyError, TypeError, settings.SettingsError) as error:
        result = {"refused": f"not a question: {type(error).__name__}"}
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def answer(question: dict[str, Any], config: dict[str, Any]) -> Answer:
    """One answer. Raises RefusedError."""
    what = question["ask"]
    if what == "states":
        return states(question["jobs"])
    if what == "course":
        return job_course(question, MONITORING)
    account = account_of(str(question["user"]), int(config.get("least_uid", LEAST_UID)))
    if what == "login":
        password, address = question.get("password"), str(question.get("address", ""))
        return {"open": pam.opens(account.pw_name, None if password is None else str(password), address)}
    action = _OF_USERS[what]
    if what == "submit" and not pam.opens(account.pw_name, None, ""):
        raise RefusedError("your account is closed: ask your administrators")
    # before: as the user, no one is asked for the user's groups any more
    groups = become(account)
    return action(account, groups, question, config)


def account_of(name: str, least_uid: int) -> pwd.struct_passwd:
    """A user's account: not root's, nor a service's."""
    try:
        account = pwd.getpwnam(name) if _NAME.fullmatch(name) else None
    except KeyError:
        account = None
    if account is None or account.pw_uid < least_uid or account.pw_uid == _NOBODY or account.pw_name != name:
        raise RefusedError("there is no such user")
    if account.pw_shell.endswith(("/nologin", "/false")):
        raise RefusedError("this account has no login")
    return account


def become(account: pwd.struct_passwd) -> list[str]:
    """Be this user from now on, without a way back; the names of the groups."""
    import grp

    names = []
    numbers = os.getgrouplist(account.pw_name, account.pw_gid)
    for number in numbers:
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    os.setgroups(numbers)
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    if ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or os.getuid() != account.pw_uid:
        raise RefusedError("this program could not become the user")
    os.environ.clear()
    os.environ.update(
        PATH=command.PATH, HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name,
        SHELL=account.pw_shell, LC_ALL="C.UTF-8",
    )  # fmt: skip
    os.chdir("/")
    return names


def _ask(argv: Sequence[str]) -> str:
    """What Slurm says. Without the accounting there are no accounts; without slurmctld, no one knows partitions."""
    result = slurm_client.ask(argv, LIMIT_S)
    if not result.ok and argv[0] != slurm_client.CLUSTERS[0]:
        raise RefusedError(slurm_output.clean(result.failure, 300))
    return result.output if result.ok else ""


def _offer(account: pwd.struct_passwd, groups: list[str], _question: dict[str, Any], _config: dict[str, Any]) -> Answer:
    return offer.find(account.pw_name, groups, _ask).document()


def _submit(account: pwd.struct_passwd, groups: list[str], question: dict[str, Any], config: dict[str, Any]) -> Answer:
    """Start a notebook, within what the site and Slurm allow the user at this moment."""
    wanted, variables = question["wanted"], notebook_job.environment(question["environment"])
    request = offer.choose(offer.find(account.pw_name, groups, _ask), wanted, Limits(**config["limits"]))
    argv = notebook_job.submission(request, account.pw_dir, variables)
    script = notebook_job.script(config["python"], config["notebook"])
    environment = {**command.slurm_environment(), **variables}
    result = command.run(argv, LIMIT_S, script, environment)
    job = result.output.strip().partition(";")[0]
    if not result.ok or not _JOB.fullmatch(job):
        raise RefusedError(slurm_output.clean(result.failure, 300))
    return {"job": job, "request": asdict(request)}


def states(jobs: Sequence[str]) -> Answer:
    """Of these jobs those that Slurm knows: {id: {user, state, node, reason}}. RefusedError without an answer."""
    known = [str(job) for job in jobs if _JOB.fullmatch(str(job))][:1000]
    if not known:
        return {"jobs": {}}
    result = slurm_client.ask(slurm_client.squeue(_STATES, "--states=all", "--jobs=" + ",".join(known)), LIMIT_S)
    if not result.ok and "Invalid job id" not in result.message:
        raise RefusedError(slurm_output.clean(result.failure, 300))
    rows = slurm_output.rows(result.output, _STATES)
    keys = ("user", "state", "node", "reason")
    return {"jobs": {row[0]: dict(zip(keys, row[1:])) for row in rows}}


def job_course(question: dict[str, Any], path: str) -> Answer:
    """What monitoring has of a job over time; JupyterHub asks after Slurm has shown the user the job as theirs.

    No user gets at the password: nothing is started here, and all that is taken are three numbers.
    """
    number, start, end = (int(question[key]) for key in ("number", "start", "end"))
    if not 0 < number < 1 << 32 or not 0 < start < end < 1 << 33:
        raise RefusedError("that is not a job that has run")
    config = settings.load(path)
    ask = prometheus.asking(*(str(config[key]) for key in ("url", "user", "password")))
    try:
        return course.read(number, start, end, ask)
    except prometheus.PrometheusError as error:
        # the address is for administrators
        sys.stderr.write(f"{error}\n")
        raise RefusedError("Monitoring gives no answer now") from error


def _cancel(
    _account: pwd.struct_passwd, _groups: list[str], question: dict[str, Any], _config: dict[str, Any]
) -> Answer:
    result = slurm_client.ask(["scancel", _job(question)], LIMIT_S)
    if not result.ok:
        raise RefusedError(slurm_output.clean(result.failure, 300))
    return {}


def _jobs(account: pwd.struct_passwd, _groups: list[str], question: dict[str, Any], _config: dict[str, Any]) -> Answer:
    """One's own, or those of an account that the user is in or coordinates, as far as Slurm shows them."""
    days, wanted = int(question.get("days", 7)), str(question.get("account", ""))
    accounts = history.accounts_of(account.pw_name, _ask)
    if wanted and wanted not in accounts:
        raise RefusedError("that is not an account of yours")
    return {"accounts": accounts, **own_jobs.listed(slurm_client.ask, days, wanted)}


def _usage(
    _account: pwd.struct_passwd, _groups: list[str], question: dict[str, Any], _config: dict[str, Any]
) -> Answer:
    return own_jobs.usage(slurm_client.ask, int(question.get("days", 30)), users=question.get("users") is True)


def _one_job(
    account: pwd.struct_passwd, _groups: list[str], question: dict[str, Any], _config: dict[str, Any]
) -> Answer:
    return own_jobs.explained(_job(question), account.pw_name, slurm_client.ask)


def _cluster(
    account: pwd.struct_passwd, groups: list[str], _question: dict[str, Any], _config: dict[str, Any]
) -> Answer:
    now = own_jobs.cluster(slurm_client.ask)
    waits = [] if now["trouble"] else own_jobs.waits(offer.find(account.pw_name, groups, _ask), slurm_client.ask)
    return {**now, "waits": waits}


def _space(
    _account: pwd.struct_passwd, _groups: list[str], _question: dict[str, Any], _config: dict[str, Any]
) -> Answer:
    return software.space(slurm_client.ask)


def _software(
    _account: pwd.struct_passwd, _groups: list[str], question: dict[str, Any], config: dict[str, Any]
) -> Answer:
    return {
        **software.wheels(slurm_client.ask, str(question.get("wanted", ""))),
        "examples": software.examples(str(config["examples"])),
    }


def _job(question: dict[str, Any]) -> str:
    job = str(question["job"])
    if not _JOB.fullmatch(job):
        raise RefusedError("that is not the number of a job")
    return job


_OF_USERS: dict[str, Callable[[pwd.struct_passwd, list[str], dict[str, Any], dict[str, Any]], Answer]] = {
    "offer": _offer, "submit": _submit, "cancel": _cancel, "jobs": _jobs, "usage": _usage, "job": _one_job,
    "cluster": _cluster, "space": _space, "software": _software,
}  # fmt: skip
