"""Sends the mails that wait, each with the job's report; ends when none is left. systemd starts it for the next one."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import defaultdict, deque
from email import policy
from email.message import EmailMessage
from email.utils import formataddr
from typing import Callable

from ..._shared import atomic_file, command, settings
from ...commands.job_report import asking
from ...commands.job_report.asking import Run, UnansweredError
from ...commands.job_report.measures import measure
from ...commands.job_report.text import render
from . import CONFIG, SENT, SPOOL, spool
from .relay import Relay, UndeliverableError
from .spool import Mail

OK, INVALID = 0, 3
SENDMAIL = "/usr/sbin/sendmail"
PAUSE_S = 5.0
SEND_LIMIT_S = 60
# slurmdbd gets a job's end after slurmctld knows it
REPORT_WAIT_S = 90.0
# a mail server that is down is tried for a day
KEPT_S = 86_400.0
HOUR_S = 3_600.0
# a subject stays in one line; mail servers take 998 characters
_LINE = 900
# a question may wait for a minute: after so many in a row a round asks no more
_MOST_UNANSWERED = 3
_ONE_HOUR = "{} mails {} in an hour: the rest is dropped"


class Delivery:
    """One run: what waits is sent, or tried again later."""

    def __init__(
        self, directory: str, config: dict[str, object], run: Run, send: Callable[[str, bytes], str], record: str
    ) -> None:
        self._directory, self._record = directory, record
        address = str(config["sender"]) or "slurm@" + socket.getfqdn()
        self._sender = formataddr((f"Slurm on {config['cluster']}", address))
        self._hourly = int(str(config["hourly"]))
        self._run = run
        self._send = send
        self._sent: dict[str, deque[float]] = defaultdict(deque, _sent_before(record))
        self._reported = ""
        self._unanswered = 0

    def round(self, now: float) -> int:
        """Send what can be sent; returns how many mails wait after it."""
        left, self._unanswered = spool.unfinished(self._directory), 0
        for path in spool.waiting(self._directory):
            mail = spool.read(path)
            if mail is not None and self._keep(mail, spool.user_of(path), now):
                left += 1
            else:
                spool.drop(path)
        self._save(now)
        return left

    def _save(self, now: float) -> None:
        """Remember across runs what was sent: a run ends with the last mail that waits."""
        recent = {address: times for address, times in self._sent.items() if times and now - times[-1] <= HOUR_S}
        try:
            atomic_file.write(self._record, json.dumps({key: list(times) for key, times in recent.items()}), 0o600)
        except OSError as error:
            self._log(f"{self._record}: {error.strerror}")

    def _keep(self, mail: Mail, user: str, now: float) -> bool:
        """Whether a mail waits on. No user gets more than some in an hour, or causes more."""
        counted = {mail.address.lower(): "to " + mail.address}
        if user:
            counted["user " + user] = "about jobs of user " + user
        for key, whose in counted.items():
            recent = self._sent[key]
            while recent and now - recent[0] > HOUR_S:
                recent.popleft()
            if len(recent) >= self._hourly:
                self._log(_ONE_HOUR.format(self._hourly, whose))
                return False
        # after the limit: a question for each mail of a user with thousands of jobs would delay those of all others
        report = self._report(mail)
        if mail.ended and not report and now - mail.since < REPORT_WAIT_S:
            return True
        try:
            problem = self._send(mail.address, message(mail, report, self._sender))
        except UndeliverableError as error:
            self._log(f"{mail.address}: {error}: dropped")
            return False
        if not problem:
            for key in counted:
                self._sent[key].append(now)
            return False
        self._log(f"{mail.address}: {problem}")
        return now - mail.since < KEPT_S

    def _report(self, mail: Mail) -> str:
        """The job's report; '' without one, or while it still runs by the accounting."""
        if not (mail.ended and mail.job) or self._unanswered >= _MOST_UNANSWERED:
            return ""
        try:
            jobs = asking.jobs(mail.job, self._run)
            self._unanswered = 0
        except UnansweredError as error:
            self._unanswered += 1
            self._log(str(error))
            return ""
        # of an array with many tasks the first few say enough
        ended = [job for job in jobs if not job.runs and job.began][:10]
        return "\n".join(render(measure(job)) for job in ended)

    def _log(self, text: str) -> None:
        if text != self._reported:
            sys.stderr.write(text + "\n")
        self._reported = text


def _sent_before(path: str) -> dict[str, deque[float]]:
    try:
        with open(path, encoding="utf-8") as stream:
            return {str(address): deque(map(float, times)) for address, times in json.load(stream).items()}
    except (OSError, ValueError):
        # the first run after a boot
        return {}


def message(mail: Mail, report: str, sender: str) -> bytes:
    """The mail as the mail server takes it; headers can't be broken by a job's name."""
    mime = EmailMessage(policy=policy.default.clone(max_line_length=_LINE))
    mime["From"] = sender
    mime["To"] = mail.address
    mime["Subject"] = mail.subject
    # no answer by a holiday notice
    mime["Auto-Submitted"] = "auto-generated"
    body = report or mail.text
    mime.set_content(f"{mail.subject}\n\n{body}" if body else mail.subject + "\n")
    return mime.as_bytes()


def by_sendmail(address: str, mime: bytes) -> str:
    """Hand a mail to the node's mail server; '' or why it was not taken."""
    if not os.access(SENDMAIL, os.X_OK):
        return f"no {SENDMAIL} on this node"
    result = command.run([SENDMAIL, "-i", "--", address], SEND_LIMIT_S, mime.decode("utf-8", "surrogateescape"))
    return "" if result.ok else result.failure


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    del arguments
    try:
        config = settings.load(CONFIG)
        send = Relay(config["relay"], str(config["sender"])).send if config.get("relay") else by_sendmail
        delivery = Delivery(SPOOL, config, asking.run_command, send, SENT)
    except (settings.SettingsError, KeyError, ValueError, OSError) as error:
        sys.stderr.write(f"error: {CONFIG}: {error}\n")
        return INVALID
    while delivery.round(time.time()):
        time.sleep(PAUSE_S)
    return OK
