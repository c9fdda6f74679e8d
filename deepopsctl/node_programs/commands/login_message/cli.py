"""`deepops-login-message`: write the state of the cluster where pam_motd shows it at login. Run by a timer."""

from __future__ import annotations

import argparse
import contextlib
import os
from datetime import datetime

from ..._shared import atomic_file
from .state import message

MOTD, PACKAGED = "/etc/motd", "/usr/share/base-files/motd"


def hide_licence(shown: str = MOTD, packaged: str = PACKAGED) -> None:
    """Empty /etc/motd where it is the distribution's own text: it comes before what users look for at each login."""
    with contextlib.suppress(OSError):
        with open(packaged, "rb") as stream:
            licence = stream.read()
        # a site's own text stays
        with open(shown, "r+b") as stream:
            if licence and stream.read(len(licence) + 1) == licence:
                stream.truncate(0)


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deepops-login-message", description=__doc__.partition(": ")[2])
    parser.add_argument("--cluster", required=True, help="the cluster's name")
    parser.add_argument("--output", required=True, help="the file to write")
    options = parser.parse_args(arguments)
    hide_licence()
    text = message(options.cluster, datetime.now())
    os.makedirs(os.path.dirname(options.output), 0o755, exist_ok=True)
    atomic_file.write(options.output, text)
    return 0
