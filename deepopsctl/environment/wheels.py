"""Wheels for users: fetched by the control machine's pip for the nodes' Python, their hashes kept in wheels.sha256."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.files import read_text, sha256_of, write_atomic
from deepopsctl.gpus.wheels import NO_PROGRAM, PIP_DOWNLOAD
from deepopsctl.node_programs.commands.user_commands.avail_wheels import WHEEL, normal, order
from deepopsctl.text.problems import Problems
from deepopsctl.text.source import read_source, significant_lines

# in the cluster directory; `sha256sum --check` reads it, too
LIST = "wheels.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._+!-]+\.whl)")
PYTHON = re.compile(r"3\.[0-9]{1,2}")
# what a node prints of itself: Python, processor, C library
QUESTION = (
    "import os, platform, sys; "
    "print('%d.%d' % sys.version_info[:2], platform.machine(), os.confstr('CS_GNU_LIBC_VERSION'))"
)
_ANSWER = re.compile(r"(3\.\d{1,2}) (x86_64|aarch64) glibc 2\.(\d{1,3})")
# pip's older names of C libraries
_OLDER = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_HINT = (
    "deepopsctl's Python needs pip, whose settings say where wheels come from; a package without a wheel has to be "
    "built: `pip wheel` on a node"
)
_FORM = "write a package with its versions: `numpy<3`, `torch[opt]==2.9.1; python_version < '3.14'`"


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
    if not PYTHON.fullmatch(version):
        raise InputError.single("--python", f"{version} is not a version of Python", "for example 3.13")
    return version


def checked(requirements: Sequence[str], files: Iterable[Path], where: str = "wheels add") -> list[str]:
    """The requirements of arguments and files, as pip gets them: names and versions, and nothing that it would follow.

    An InputError names each line that is something else: an option, an address, a path.
    """
    problems, lines = Problems(), [(where, text) for text in requirements]
    for path in files:
        text = read_source(path, str(path), problems) or ""
        lines += [(f"{path}:{number}", line) for number, line in significant_lines(text)]
    result = [_checked(text.strip(), place, problems) for place, text in lines]
    problems.raise_if_any()
    return list(dict.fromkeys(result))


def _checked(text: str, where: str, problems: Problems) -> str:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    if text.startswith("-"):
        problems.add(where, f"{text}: no option of pip is followed", "leave it out: " + _FORM)
        return ""
    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        problems.add(where, f"{text} does not name a package", _FORM)
        return ""
    if parsed.url is not None:
        hint = "name its version, if an index has a wheel of it; else build it: `pip wheel` on a node"
        problems.add(where, f"{text}: nothing is fetched from an address, as its source would be built here", hint)
    elif any(each.operator == "===" for each in parsed.specifier):
        problems.add(where, f"{text}: === compares with any text", "write == and a version")
    # a name such as x.tar.gz would be a file to pip; a normal one never is
    parsed.name = canonicalize_name(parsed.name)
    return str(parsed)


def fetch(requirements: Sequence[str], target: Target, directory: Path, *, deps: bool) -> list[Path]:
    """What pip chooses for checked requirements, as wheels in the directory; raises where it has none.

    Nothing that is fetched is run: see PIP_DOWNLOAD.
    """
    directory.mkdir(parents=True, exist_ok=True)
    wanted = directory / "wanted.txt"
    wanted.write_text("".join(f"{line}\n" for line in requirements), encoding="utf-8")
    argv = [
        *PIP_DOWNLOAD, *([] if deps else ["--no-deps"]), *target.options(), "--dest", str(directory),
        "--requirement", str(wanted),
    ]  # fmt: skip
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise failure(done.stderr)
    return sorted(path for path in directory.iterdir() if WHEEL.fullmatch(path.name))


def failure(errors: str) -> DeepOpsError:
    """What pip's error text says, and what to do."""
    if NO_PROGRAM in errors:
        return DeepOpsError(
            "pip was led to a source, which would be built here: nothing was fetched",
            "a package that these need names an address instead of versions; fetch the others with --no-deps, and "
            "build that one: `pip wheel` on a node",
        )
    lines = errors.strip().splitlines() or ["it does not say why"]
    # without any, it is not pip that speaks: Python has no module of that name
    last = [line for line in lines if line.startswith("ERROR:")] or lines
    return DeepOpsError(f"pip could not fetch them: {last[-1].removeprefix('ERROR: ')}", _HINT)


def described(paths: Iterable[Path]) -> list[Wheel]:
    """The wheels with their hashes."""
    return [Wheel(path.name, sha256_of(path)) for path in paths]


def read(directory: Path) -> list[Wheel]:
    """The wheels of wheels.sha256, the newest of each package first; none where there is no such file."""
    path = directory / LIST
    if not path.exists():
        return []
    wheels = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
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
