"""Writes what this node knows of itself for node exporter: jobs and what they use, mounts, certificates."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any

from ..._shared import settings
from ..._shared.prometheus_text import TEXTFILE_DIRECTORY
from . import CONFIG, certificates, jobmap, jobs, mounts
from .daemon import Daemon, once
from .samples import Collector

INTERVAL_S = 15
OK, FAILED, INVALID = 0, 1, 3
# a new collector is a module with a `COLLECTOR`, and a line here
COLLECTORS: dict[str, Collector] = {
    "jobs": jobs.COLLECTOR,
    "certificates": certificates.COLLECTOR,
    "mounts": mounts.COLLECTOR,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deepops-nodemetrics", description=__doc__)
    parser.add_argument("--config", default=CONFIG, help="which collectors, and what they need (default: %(default)s)")
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "once", "job-begin", "job-end"),
        default="run",
        help="run until stopped (default); print the metrics once; as a prolog or epilog, record a job's begin or end",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.action.startswith("job-"):
        return _note(options.action, options.config)
    try:
        config = _load(options.config)
    except settings.SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    if options.action == "once":
        sys.stdout.write(once(COLLECTORS, config["collectors"]))
        return OK
    daemon = Daemon(
        config.get("directory", TEXTFILE_DIRECTORY),
        float(config.get("interval_s", INTERVAL_S)),
        COLLECTORS,
        config["collectors"],
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    daemon.collect_until_stopped()
    sys.stderr.flush()
    # no waiting for threads that hang in the kernel
    os._exit(OK)


def _note(action: str, config: str) -> int:
    """Update the job map; if that fails, the job continues, and slurmd's log has the reason."""
    try:
        if action == "job-begin":
            devices = [str(each) for each in _load(config)["collectors"]["jobs"].get("gpus", ())]
            job = jobmap.from_environment(os.environ, devices, jobmap.gpus_of_driver())
            jobmap.begin(job, jobmap.DIRECTORY, jobmap.DCGM_DIRECTORY)
        else:
            jobmap.end(os.environ.get("SLURM_JOB_ID", ""), jobmap.DIRECTORY, jobmap.DCGM_DIRECTORY)
    except (settings.SettingsError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"error: job map: {error}\n")
        return FAILED
    return OK


def _load(path: str) -> dict[str, Any]:
    config = settings.load(path)
    if not isinstance(config.get("collectors"), dict):
        raise settings.SettingsError(f"{path}: has no `collectors`")
    return config
