"""Leaves a summary of each job in Slurm's accounting after its end, for job-report."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from ..._shared import settings
from . import CONFIG, STATE
from .asking import UnansweredError, run_command
from .keeping import Keeper
from .prometheus import PrometheusError, querying

INTERVAL_S = 30
OK, FAILED, INVALID = 0, 1, 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deepops-job-summaries", description=__doc__)
    parser.add_argument("--config", default=CONFIG, help="where Prometheus is (default: %(default)s)")
    parser.add_argument("--state", default=STATE, help="up to when it is done (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="one round")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        config = settings.load(options.config)
        query = querying(*(str(config[key]) for key in ("url", "user", "password")))
    except settings.SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    except KeyError as error:
        sys.stderr.write(f"error: {options.config} has no {error}\n")
        return INVALID
    keeper = Keeper(options.state, run_command, query)
    if options.once:
        return FAILED if _round(keeper, "") else OK
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    reported = ""
    while not stop.is_set():
        reported = _round(keeper, reported)
        stop.wait(INTERVAL_S)
    return OK


def _round(keeper: Keeper, reported: str) -> str:
    """One round; an error is logged when it changes."""
    try:
        written = keeper.round()
    except (OSError, UnansweredError, PrometheusError) as error:
        if str(error) != reported:
            sys.stderr.write(f"{error}\n")
        return str(error)
    if written or reported:
        sys.stderr.write(f"{written} summaries written\n")
    return ""
