"""slurmctld's MailProg: keeps the mail and returns at once. `deepops-job-mail -s SUBJECT ADDRESS`."""

from __future__ import annotations

import os
import sys

from ..._shared import settings
from . import CONFIG, SPOOL, spool

OK, REFUSED = 0, 1


def main(arguments: list[str] | None = None, config: str = CONFIG, directory: str = SPOOL) -> int:
    """Run it; returns the exit status."""
    try:
        domains = [str(each).lower() for each in settings.load(config).get("domains", [])]
        mail = spool.parse(sys.argv[1:] if arguments is None else arguments, os.environ, domains)
        spool.put(directory, mail, os.environ.get("SLURM_JOB_UID", ""))
    except (spool.RefusedError, settings.SettingsError, OSError) as error:
        sys.stderr.write(f"no mail: {error}\n")
        return REFUSED
    return OK
