"""The mails that wait: one JSON file each, in a directory that only Slurm's user can enter."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared import atomic_file, slurm_output

# more are not kept: a user can submit jobs faster than mail is sent
MOST = 10_000
# of one user, so that there is room for those of others
MOST_OF_ONE = 1_000
# writing a mail takes less
UNFINISHED_S = 60.0
_ADDRESS = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._%+-]{0,63}(@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*)?")
_JOB = re.compile(r"Job_id=([0-9]{1,10}(?:_[0-9]{1,10})?)")
# what slurmctld calls the event; after these a job has a report
ENDS = frozenset({"END", "Ended", "FAIL", "Failed", "REQUEUE", "Requeued", "INVALID_DEPEND"})


class RefusedError(Exception):
    """This mail is not sent; the message has the reason."""


class Mail(NamedTuple):
    """One mail: `event` is Slurm's word, `job` the job's number ('' for none), `since` in seconds."""

    address: str
    subject: str
    job: str
    event: str
    since: float
    # below the subject, where there is no report
    text: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job has a report."""
        return self.event in ENDS


def parse(arguments: Sequence[str], environment: Mapping[str, str], domains: Sequence[str]) -> Mail:
    """What slurmctld calls: `-s SUBJECT ADDRESS`. A user chooses the address and the job's name in the subject."""
    if len(arguments) != 3 or arguments[0] != "-s":
        raise RefusedError("usage: deepops-job-mail -s SUBJECT ADDRESS")
    address, subject = arguments[2], slurm_output.clean(arguments[1])
    check(address, domains)
    in_subject = _JOB.search(subject)
    job = environment.get("SLURM_ARRAY_JOB_ID", "") or environment.get("SLURM_JOB_ID", "")
    # an array's mail names the array in the subject, a task's mail the task
    number = in_subject[1] if in_subject else job
    event = environment.get("SLURM_JOB_MAIL_TYPE", "") or _event(subject)
    return Mail(address, subject, number if re.fullmatch("[0-9_]{1,21}", number) else "", event, time.time())


def check(address: str, domains: Sequence[str]) -> None:
    """Whether it is one plain address, of a domain that mail goes to. Raises RefusedError."""
    match = _ADDRESS.fullmatch(address)
    if not match:
        raise RefusedError(f"not an address: {slurm_output.clean(address, 80)}")
    domain = (match[1] or "")[1:].lower()
    if domains and domain and not any(domain == each or domain.endswith("." + each) for each in domains):
        raise RefusedError(f"{domain} is not a domain that mail goes to")


def _event(subject: str) -> str:
    """The word after the name: `Slurm Job_id=28 Name=wrap Ended, Run time 00:00:20`; of the last, as names lie."""
    words = [word.rstrip(",") for word in subject.split()]
    return next((word for word in reversed(words) if word in ENDS), "")


def put(directory: str, mail: Mail, user: str = "") -> None:
    """Keep a mail about a job of a user, by number. RefusedError where too many wait."""
    there, end = os.listdir(directory), f"-{user if user.isdigit() else ''}.json"
    if len(there) >= MOST:
        raise RefusedError(f"{MOST:,} mails wait: is the mail server up?")
    if sum(name.endswith(end) for name in there) >= MOST_OF_ONE:
        raise RefusedError(f"{MOST_OF_ONE:,} mails about jobs of this user wait")
    name = f"{mail.since:.6f}-{os.getpid()}{end}"
    atomic_file.write(os.path.join(directory, name), json.dumps(mail._asdict()), 0o600)


def user_of(path: str) -> str:
    """The number of the user whose job a mail is about; '' where it is not known."""
    return os.path.basename(path)[: -len(".json")].rpartition("-")[2]


def waiting(directory: str) -> list[str]:
    """Files with mails, the oldest first."""
    return sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".json"))


def unfinished(directory: str) -> int:
    """How many mails are being written. What a call has left that was cut off goes: systemd would start us for ever."""
    young = 0
    for name in os.listdir(directory):
        if not name.endswith(".json"):
            path = os.path.join(directory, name)
            with contextlib.suppress(FileNotFoundError):
                if time.time() - os.lstat(path).st_mtime > UNFINISHED_S:
                    os.unlink(path)
                else:
                    young += 1
    return young


def read(path: str) -> Mail | None:
    """A mail that waits; None, and the file is gone, if it is damaged."""
    try:
        with open(path, encoding="utf-8") as stream:
            fields: dict[str, Any] = json.load(stream)
        return Mail(**fields)
    except (OSError, ValueError, TypeError):
        drop(path)
        return None


def drop(path: str) -> None:
    """It was sent, or never will be."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
