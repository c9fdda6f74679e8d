"""Wheels for users: fetched by the control machine's pip for the nodes' Python, their hashes kept in wheels.sha256."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.files import sha256_of, write_atomic
from deepopsctl.node_programs.user_commands.avail_wheels import WHEEL, normal, order

# in the cluster directory; `sha256sum --check` reads it, too
LIST = "wheels.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._+!-]+\.whl)")
_PYTHON = re.compile(r"3\.[0-9]{1,2}")
# what a node prints of itself: Python, processor, C library
QUESTION = (
    "import os, platform, sys; "
    "print('%d.%d' % sys.version_info[:2], platform.machine(), os.confstr('CS_GNU_LIBC_VERSION'))"
)
_ANSWER = re.compile(r"(3\.\d{1,2}) (x86_64|aarch64) glibc 2\.(\d{1,3})")
# pip's older names of C libraries
_OLDER = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_HINT = (
    "pip's own settings say where wheels come from; a package without a wheel has to be built: `pip wheel` on a node"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What wheels have to fit: Python 3.13 on x86_64 with the C library 2.41."""

    python: str
    machine: str
    glibc: int

    @classmethod
    def read(cls, answer: str) -> Target:
        """From what a node answered to QUESTION."""
        match = _ANSWER.search(answer)
        if match is None:
            raise DeepOpsError(f"the node's Python is none that wheels are for: {answer.strip()[:100]}")
        return cls(match[1], match[2], int(match[3]))

    def options(self) -> list[str]:
        """Those of `pip download`."""
        tag = self.python.replace(".", "")
        platforms = [f"manylinux_2_{minor}" for minor in range(self.glibc, 4, -1)]
        platforms += [name for minor, name in _OLDER.items() if minor <= self.glibc]
        return [
            "--python-version", self.python, "--implementation", "cp",
            *(word for abi in (f"cp{tag}", "abi3", "none") for word in ("--abi", abi)),
            *(word for name in (*platforms, "linux") for word in ("--platform", f"{name}_{self.machine}")),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file of the wheelhouse."""

    file: str
    sha256: str

    @property
    def name(self) -> str:
        """The package."""
        return normal(self.file.partition("-")[0])

    @property
    def version(self) -> str:
        """Its version."""
        return self.file.split("-")[1]


def check_python(version: str) -> str:
    """A version as pip takes it."""
    if not _PYTHON.fullmatch(version):
        raise InputError.single("--python", f"{version} is no version of Python", "for example 3.13")
    return version


def fetch(
    requirements: Sequence[str], files: Iterable[Path], target: Target, directory: Path, *, deps: bool
) -> list[Path]:
    """What pip chooses for the requirements, as wheels in the directory; raises where it has none."""
    asked = [word for path in files for word in ("--requirement", str(path))] + ["--", *requirements]
    argv = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
        "--only-binary=:all:", *([] if deps else ["--no-deps"]), *target.options(), "--dest", str(directory), *asked,
    ]  # fmt: skip
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.startswith("ERROR:")] or ["pip failed"]
        raise DeepOpsError(f"pip could not fetch them: {lines[-1].removeprefix('ERROR: ')}", _HINT)
    return sorted(path for path in directory.iterdir() if WHEEL.fullmatch(path.name))


def described(paths: Iterable[Path]) -> list[Wheel]:
    """The wheels with their hashes."""
    return [Wheel(path.name, sha256_of(path)) for path in paths]


def read(directory: Path) -> list[Wheel]:
    """The wheels of wheels.sha256, the newest of each package first; none where there is no such file."""
    path = directory / LIST
    if not path.exists():
        return []
    wheels = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or not WHEEL.fullmatch(match[2]):
            raise InputError.single(
                f"{LIST}:{number}", "no hash and name of a wheel", "`sha256sum *.whl` prints such lines"
            )
        wheels.append(Wheel(match[2], match[1]))
    newest_first = sorted(wheels, key=lambda wheel: order(wheel.version), reverse=True)
    return sorted(newest_first, key=lambda wheel: wheel.name)


def add(directory: Path, wheels: Iterable[Wheel]) -> list[Wheel]:
    """Write them down, and return those that were not there; one of another content is refused."""
    known = {wheel.file: wheel.sha256 for wheel in read(directory)}
    new = [wheel for wheel in wheels if wheel.file not in known]
    changed = [wheel.file for wheel in wheels if known.get(wheel.file, wheel.sha256) != wheel.sha256]
    if changed:
        raise InputError.single(
            LIST, f"{', '.join(changed)} has another content than the one of that name before",
            "jobs may use the old one: remove its line if the new one is right",
        )  # fmt: skip
    if new:
        write_atomic(directory / LIST, "".join(_lines({**known, **{wheel.file: wheel.sha256 for wheel in new}})))
    return new


def _lines(hashes: Mapping[str, str]) -> Iterator[str]:
    return (f"{sha256}  {name}\n" for name, sha256 in sorted(hashes.items()))
