"""Drains nodes while an alert with the label `drain` fires, and gives them back when it has ended."""

from __future__ import annotations

import argparse
import signal
import sys

from ..._shared.settings import SettingsError
from .rounds import Rounds, render
from .settings import CONFIG, load

OK, FAILED, INVALID = 0, 1, 3


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deepops-alertdrain", description=__doc__.replace("`", ""))
    parser.add_argument("--config", default=CONFIG, help="default: %(default)s")
    parser.add_argument("--once", action="store_true", help="run once and print the metrics")
    options = parser.parse_args(arguments)
    try:
        rounds = Rounds(load(options.config))
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    if options.once:
        worked = rounds.round()
        sys.stdout.write(render(rounds.values(up=worked)))
        return OK if worked else FAILED
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: rounds.stop.set())
    rounds.drain_until_stopped()
    return OK
