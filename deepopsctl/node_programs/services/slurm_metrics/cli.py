"""Writes what Slurm knows of nodes, jobs and itself for node exporter."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ..._shared import settings
from . import CONFIG, control
from .daemon import Daemon
from .snapshot import SlurmReader

OK, FAILED, INVALID = 0, 1, 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deepops-slurmmetrics", description=__doc__)
    parser.add_argument("--config", default=CONFIG, help="where to write, and how often (default: %(default)s)")
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "once"),
        default="run",
        help="run until stopped (default); print the metrics once",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        config = settings.load(options.config)
        # slurmctld's own metrics endpoint, if Prometheus reads it
        endpoint = (str(config["address"]), int(config["port"])) if config["native"] else None
        slurm = SlurmReader(endpoint, controllers=control.load())
        path, interval_s = Path(config["path"]), float(config["interval_s"])
    except settings.SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    except (ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"error: {options.config}: {error!r}\n")
        return INVALID
    if options.action == "once":
        snapshot = slurm.read_snapshot(time.time())
        sys.stdout.write(snapshot.text)
        sys.stderr.write("".join(f"error: {problem}\n" for problem in snapshot.problems))
        return OK if snapshot.up else FAILED
    Daemon(slurm, path, interval_s).export_until_stopped()
    return OK
