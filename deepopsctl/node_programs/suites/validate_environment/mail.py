"""Whether mails about jobs leave the controller."""

from __future__ import annotations

import contextlib
import os
import time

from ..._shared.checks import FAIL, PASS, Check
from .checks import check, skip

MAIL = "environment-mail"
SENDMAIL = "/usr/sbin/sendmail"
# deepopsctl's own, and that of dma
SPOOLS = ("/var/spool/deepops-job-mail", "/var/spool/dma")
# the accounting may be 90 s late, dma tries every five minutes
MOST_S = 1_200


def verify_mail(node: str) -> list[Check]:
    """One check on a node that sends mail about jobs, none elsewhere."""
    if not os.path.isdir(SPOOLS[0]):
        return []
    if not os.access(SENDMAIL, os.X_OK):
        return [skip(MAIL, node, "no mail server here: set job_mail_relay")]
    now = time.time()
    ages = [now - age for spool in SPOOLS for age in _times(spool)]
    late = [age for age in ages if age > MOST_S]
    message = f"{len(late)} mails wait, the oldest for {max(late) / 60:.0f} minutes" if late else ""
    return [check(MAIL, node, FAIL if late else PASS, len(late), 0, "late mails", message)]


def _times(spool: str) -> list[float]:
    """When each waiting mail came."""
    times = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(spool):
            # dma has two files for each mail, M with its text, and others of its own
            if entry.name.startswith("Q") or entry.name.endswith(".json"):
                # one that is sent meanwhile is not late
                with contextlib.suppress(FileNotFoundError):
                    times.append(entry.stat(follow_symlinks=False).st_mtime)
    return times
