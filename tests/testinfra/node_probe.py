"""Runs on a node, in one call: its units, files and devices, and the output of commands, as one line of JSON.

Not imported there: its text is what `python3 -c` gets, so it needs nothing but Python 3.8.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

UNIT = "LoadState,ActiveState,UnitFileState,ConditionResult,ConditionTimestampMonotonic"


def unit(name: str) -> dict[str, str]:
    """systemd's properties of a unit."""
    shown = command({"argv": ["systemctl", "show", "--property", UNIT, "--", name]})
    return dict(line.split("=", 1) for line in shown["out"].splitlines() if "=" in line)


def file(name: str) -> dict[str, str] | None:
    """Owner, group, mode and content's hash of a file; None where there is none."""
    path = Path(name)
    try:
        content, mode = path.read_bytes(), path.stat().st_mode & 0o7777
    except OSError:
        return None
    digest = hashlib.sha256(content).hexdigest()
    return {"sha256": digest, "owner": owner(path), "group": group(path), "mode": f"{mode:04o}"}


def owner(path: Path) -> str:
    """The owner's name, or his number where he has none."""
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)


def group(path: Path) -> str:
    """The group's name, or its number where it has none."""
    try:
        return path.group()
    except KeyError:
        return str(path.stat().st_gid)


def command(asked: dict[str, Any]) -> dict[str, Any]:
    """Exit status and output of a command; 127 where it is missing, 124 where it does not end."""
    stdin = asked.get("stdin", "")
    try:
        done = subprocess.run(asked["argv"], input=stdin, capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return {"rc": 124, "out": "", "err": "no answer within 30 s"}
    except OSError as error:
        return {"rc": 127, "out": "", "err": str(error)}
    return {"rc": done.returncode, "out": done.stdout, "err": done.stderr}


def main(arguments: list[str]) -> None:
    """Answer a request: lists of units, files and patterns of devices, commands by name."""
    asked = json.loads(arguments[0])
    answer = {
        "units": {name: unit(name) for name in asked.get("units", [])},
        "files": {name: file(name) for name in asked.get("files", [])},
        "devices": {pattern: [str(path) for path in Path("/").glob(pattern)] for pattern in asked.get("devices", [])},
        "commands": {name: command(one) for name, one in asked.get("commands", {}).items()},
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
