"""Writes what Slurm knows of nodes, jobs and itself for node exporter."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from .daemon import Daemon
from .places import CONFIG
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


def main(arguments: Optional[List[str]] = None) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        config = _load(options.config)
        # slurmctld's own metrics endpoint, if Prometheus reads it
        endpoint = (str(config["address"]), int(config["port"])) if config["native"] else None
        slurm, path, interval_s = SlurmReader(endpoint), Path(config["path"]), float(config["interval_s"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write("error: {}: {}\n".format(options.config, error))
        return INVALID
    if options.action == "once":
        snapshot = slurm.read_snapshot(time.time())
        sys.stdout.write(snapshot.text)
        sys.stderr.write("".join("error: {}\n".format(problem) for problem in snapshot.problems))
        return OK if snapshot.up else FAILED
    Daemon(slurm, path, interval_s).run()
    return OK


def _load(path: str) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as stream:
        config = json.load(stream)
    if not isinstance(config, dict):
        raise ValueError("is no object")  # noqa: TRY004 - a fault of the file, not of a type
    return config
