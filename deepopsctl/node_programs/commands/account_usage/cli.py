"""`deepops-account-usage`: write what each user of Slurm and their accounts have used this year. Run by a timer.

Days that are over are read once: an hour's run asks for the jobs since yesterday, however many there were this year.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..._shared import atomic_file, command, settings, slurm_client
from . import CONFIG, DIRECTORY, accounting, documents
from .accounting import Use, Used
from .documents import Site

OK, FAILED, INVALID = 0, 1, 3
LIMIT_S = 900
DAY_S = 86_400
STATE = ".days"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,255}")


class UnansweredError(Exception):
    """Slurm's accounting does not answer; the message has the reason."""


def main(arguments: list[str] | None = None, config: str = CONFIG, directory: str = DIRECTORY) -> int:
    """Run it; returns the exit status."""
    del arguments
    try:
        wanted = settings.load(config)
        count = write_all(wanted, directory, int(time.time()))
    except (settings.SettingsError, KeyError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    except (UnansweredError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    sys.stderr.write(f"the use of {count} users was written\n")
    return OK


def write_all(wanted: dict[str, Any], directory: str, now: int) -> int:
    """The files of all users who are known here; returns how many."""
    cluster, of_gpus = str(wanted["cluster"]), [str(each) for each in wanted["gpu_partitions"]]
    os.makedirs(directory, 0o755, exist_ok=True)
    start = int(time.mktime((time.localtime(now).tm_year, 1, 1, 0, 0, 0, 0, 0, -1)))
    shares = ask(slurm_client.sacctmgr("association", "cluster=" + cluster, "format=" + accounting.SHARES)).splitlines()
    used = _used_since(start, now, cluster, of_gpus, os.path.join(directory, STATE))
    site = Site(
        cluster,
        start,
        now,
        float(wanted["capacity"]),
        documents.is_private(ask(slurm_client.sacctmgr("config"))),
        accounting.read_shares(shares),
        documents.coordinators(ask(slurm_client.sacctmgr("account", "withcoord", "format=account,coordinators"))),
    )
    written = set()
    for user, accounts in documents.members(shares).items():
        ids = _ids(user)
        if ids is not None:
            text = json.dumps(documents.document(user, accounts, site, used)) + "\n"
            path = os.path.join(directory, user + ".json")
            atomic_file.put_in_place(atomic_file.prepare(path, text, ids, 0o400), path)
            written.add(user + ".json")
    for name in os.listdir(directory):
        if name.endswith(".json") and name not in written:
            atomic_file.discard(os.path.join(directory, name))
    return len(written)


def _ids(user: str) -> tuple[int, int] | None:
    """None for a name that no user has here, or no name of a file."""
    try:
        entry = pwd.getpwnam(user) if _NAME.fullmatch(user) else None
    except KeyError:
        return None
    return (entry.pw_uid, entry.pw_gid) if entry else None


def _used_since(start: int, now: int, cluster: str, of_gpus: Sequence[str], state: str) -> Used:
    """What was used since the year began; days that are over come from the last runs."""
    until, known = _load(state, start)
    yesterday = now - DAY_S
    if until < yesterday:
        known = _sum(known, _period(until, yesterday, cluster, of_gpus))
        until = yesterday
        _save(state, start, until, known)
    return _sum(known, _period(until, now, cluster, of_gpus))


def _period(start: int, end: int, cluster: str, of_gpus: Sequence[str]) -> Used:
    """Jobs cut to a period; one counts as a job in that in which it started."""
    if start >= end:
        return {}
    moments = [f"--{key}time={time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(value))}"
               for key, value in (("start", start), ("end", end))]  # fmt: skip
    fields = f"--format={accounting.JOBS},Start"
    options = ("--allusers", "--allocations", "--truncate", "--clusters=" + cluster, fields, *moments)
    lines = ask(["sacct", "--noheader", "--parsable2", *options])
    rows = [line.rpartition("|") for line in lines.splitlines() if line.count("|") == 5]
    began = [line for line, _, moment in rows if moment.isdecimal() and int(moment) > start]
    earlier = [line for line, _, moment in rows if not (moment.isdecimal() and int(moment) > start)]
    continued = accounting.read_jobs(earlier, of_gpus)
    uncounted = {
        account: {user: replace(use, jobs=0) for user, use in users.items()} for account, users in continued.items()
    }
    return _sum(accounting.read_jobs(began, of_gpus), uncounted)


def _sum(one: Used, other: Used) -> Used:
    result = {account: dict(users) for account, users in one.items()}
    for account, users in other.items():
        mine = result.setdefault(account, {})
        for user, use in users.items():
            mine[user] = mine.get(user, Use()) + use
    return result


def _load(path: str, start: int) -> tuple[int, Used]:
    try:
        with open(path, encoding="utf-8") as stream:
            state = json.load(stream)
        if state["start"] == start:
            used = {
                str(account): {str(user): Use(int(use[0]), float(use[1]), float(use[2])) for user, use in users.items()}
                for account, users in state["used"].items()
            }
            return int(state["until"]), used
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        # the first run, or a damaged file: all of the year is read again
        return start, {}
    return start, {}


def _save(path: str, start: int, until: int, used: Used) -> None:
    compact = {
        account: {user: [use.jobs, use.rgu_hours, use.core_hours] for user, use in users.items()}
        for account, users in used.items()
    }
    text = json.dumps({"start": start, "until": until, "used": compact})
    # others' use: root's alone
    atomic_file.put_in_place(atomic_file.prepare(path, text, None, 0o600), path)


def ask(argv: Sequence[str]) -> str:
    """What one of Slurm's commands prints, its fields parted by bars."""
    result = slurm_client.ask(argv, LIMIT_S, env=command.slurm_environment(SLURM_TIME_FORMAT="%s"))
    if not result.ok:
        raise UnansweredError(result.failure)
    return result.output
