"""`deepops-slurm-controller`: whether this controller is in control, whether its state is mounted, and its guard."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from ..._shared import settings
from ..._shared.mount_table import mounted_type
from . import guard, heartbeat

CONFIG = "/etc/slurm/deepops/controllers.json"
OK, NO, INVALID = 0, 1, 3


def in_control(config: Mapping[str, Any]) -> str:
    """The controller that has shown within SlurmctldTimeout that it is in control; '' for none."""
    with heartbeat.as_slurm():
        beat = heartbeat.read(config["directory"])
    hosts: list[str] = config["hosts"]
    if beat is None or beat.number >= len(hosts) or time.time() - beat.stamp > heartbeat.timeout_s():
        return ""
    return hosts[beat.number]


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deepops-slurm-controller", description=__doc__.partition(": ")[2])
    parser.add_argument("--config", default=CONFIG, help="the controllers (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("active", help="print the controller in control; 0 where that is this one, else 1")
    commands.add_parser("mounted", help="0 where the file system with Slurm's state is mounted, else 1")
    commands.add_parser("guard", help="kill this controller's slurmctld where another may be in control")
    options = parser.parse_args(arguments)
    try:
        config = settings.load(options.config)
    except settings.SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    if options.command == "active":
        host = in_control(config)
        sys.stdout.write(host + "\n" if host else "")
        return OK if host == config["host"] else NO
    if options.command == "mounted":
        if mounted_type(config["mount"]):
            return OK
        sys.stderr.write(f"error: nothing is mounted on {config['mount']}: slurmctld would find no jobs\n")
        return NO
    guard.guard(config["directory"], config["hosts"].index(config["host"]), _log)
    return OK


def _log(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
