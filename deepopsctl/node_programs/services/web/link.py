"""`web`: prints a link that opens the cluster's web pages for you, once. `ssh HOST web` needs no password there."""

from __future__ import annotations

import argparse
import json
import socket
import sys

from . import LINKS

PATIENCE_S = 10


def main(arguments: list[str] | None = None, path: str = LINKS) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="web", description="Print a link that opens the web pages for you, once.")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    options = parser.parse_args(arguments)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(path)
            with connection.makefile("r", encoding="utf-8") as stream:
                answer = json.loads(stream.readline(4096))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: the web pages do not answer ({error}): tell your administrators\n")
        return 1
    if "refused" in answer:
        sys.stderr.write(f"error: {answer['refused']}\n")
        return 1
    text = (
        json.dumps(answer) if options.json else f"{answer['url']}\nIt opens once, within {answer['minutes']} minutes."
    )
    sys.stdout.write(text + "\n")
    return 0
