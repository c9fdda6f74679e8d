"""A site's own checks: the executables of checks.d in the cluster directory, for `validate local`."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path

from deepopsctl.errors import InputError
from deepopsctl.text.problems import Problems

DIRECTORY = "checks.d"
# the variable of the playbook
LOCAL_CHECKS = "deepops_local_checks"
# ReFrame's suites, with what they read
REFRAME = "reframe"
# where those of each directory run
PLACES = ("jobs", "nodes")
_NAME = re.compile(r"([a-z][a-z0-9-]{0,39})(?:\.[a-z0-9]{1,5})?")
# they travel in the command line of a job
_LARGEST, _LARGEST_OF_ALL = 64 * 1024, 512 * 1024


def read_checks(directory: Path) -> dict[str, dict[str, str]]:
    """The executables by place and name, in base64; an InputError names every file that is none."""
    problems = Problems()
    place = directory / DIRECTORY
    others = [path for path in sorted(place.glob("*")) if path.name not in (*PLACES, REFRAME) and not _is_text(path)]
    for path in others:
        _refuse(problems, path, directory, "is not in jobs/ or nodes/", "jobs: in a job on each compute node")
    checks = {name: _of(place / name, directory, problems) for name in PLACES}
    twice = checks["jobs"].keys() & checks["nodes"].keys()
    for name in sorted(twice):
        problems.add(f"{DIRECTORY}/nodes/{name}", "jobs/ has a check of the same name", "rename one")
    checks[REFRAME] = _reframe(place / REFRAME, directory, problems)
    problems.raise_if_any()
    if not any(checks.values()):
        raise InputError.single(
            DIRECTORY,
            "has no checks",
            "put executables into checks.d/jobs or checks.d/nodes, ReFrame's suites into reframe",
        )
    return checks


def _of(place: Path, directory: Path, problems: Problems) -> dict[str, str]:
    checks: dict[str, str] = {}
    for path in sorted(place.glob("*")):
        if _is_text(path):
            continue
        match = _NAME.fullmatch(path.name)
        if match is None or match[1] in checks:
            _refuse(
                problems, path, directory, "is not a valid name of a check", "small letters, digits and -: fan-speed.sh"
            )
        elif not path.is_file() or not os.access(path, os.X_OK):
            _refuse(problems, path, directory, "is not an executable file", "chmod +x, or remove it")
        elif path.stat().st_size > _LARGEST:
            _refuse(problems, path, directory, "is larger than 64 KiB", "let it call a program that is on the nodes")
        else:
            checks[match[1]] = base64.b64encode(path.read_bytes()).decode()
    if sum(map(len, checks.values())) > _LARGEST_OF_ALL:
        _refuse(problems, place, directory, "has more than 512 KiB", "let them call programs that are on the nodes")
    return checks


def _reframe(place: Path, directory: Path, problems: Problems) -> dict[str, str]:
    """All files by their path in reframe/."""
    paths = [path for path in sorted(place.rglob("*")) if path.is_file() and not _is_passed_over(path, place)]
    if sum(path.stat().st_size for path in paths) > _LARGEST_OF_ALL:
        _refuse(problems, place, directory, "has more than 512 KiB", "let suites read large files on the cluster")
        return {}
    return {path.relative_to(place).as_posix(): base64.b64encode(path.read_bytes()).decode() for path in paths}


def _is_passed_over(path: Path, place: Path) -> bool:
    """What editors and Python leave."""
    return _is_text(path) or any(
        part.startswith(".") or part == "__pycache__" for part in path.relative_to(place).parts
    )


def _is_text(path: Path) -> bool:
    """A page about the checks, and what editors leave."""
    return path.name.startswith(".") or path.suffix == ".md" or path.name.endswith("~")


def _refuse(problems: Problems, path: Path, directory: Path, message: str, hint: str) -> None:
    problems.add(path.relative_to(directory).as_posix(), message, hint)
