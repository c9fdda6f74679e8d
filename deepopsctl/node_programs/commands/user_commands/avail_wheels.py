"""`avail_wheels [NAME...]`: the wheels that `pip install --no-index` finds here, for the loaded Python.

Names may have `*` and a version as pip writes it; columns and options are those that users of the Alliance know.
"""

from __future__ import annotations

import argparse
import configparser
import fnmatch
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..._shared import command

OK, NONE, INVALID = 0, 1, 2
WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-(?P<build>\d[^-]*))?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl"
)
COLUMNS = ("name", "version", "localversion", "build", "python", "abi", "arch", "platform")
# the role modules writes it where there is a wheelhouse
SITE = "/etc/deepopsctl/pip.conf"
DEFAULT_COLUMNS = ("name", "version", "python", "arch")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._*?-]+)\s*(?:\[[^\]]*\])?\s*([^;#\s][^;#]*)?")
_CLAUSE = re.compile(r"(===|==|!=|<=|>=|~=|<|>)\s*([A-Za-z0-9._*+!-]+)")
_RELEASE = re.compile(
    r"v?(?:\d+!)?(\d+(?:\.\d+)*)(?:[._-]?(a|alpha|b|beta|c|rc|pre|preview)[._-]?(\d*))?(?:[._-]?(post|rev|r)[._-]?(\d*))?(?:[._-]?(dev)[._-]?(\d*))?"
)
_BEFORE = {"a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1, "preview": -1}

Version = tuple[tuple[int, ...], tuple[int, int], int, int]


class Wheel(NamedTuple):
    """A file of the wheelhouse."""

    name: str
    version: str
    localversion: str
    build: str
    python: str
    abi: str
    arch: str
    platform: str

    @property
    def key(self) -> str:
        """The name as pip compares it."""
        return normal(self.name)


class Python(NamedTuple):
    """What decides which wheels fit: 3.13 is (3, 13)."""

    major: int
    minor: int

    def takes(self, wheel: Wheel) -> bool:
        """Whether pip of this Python would install it, as far as Python is concerned."""
        for tag in wheel.python.split("."):
            match = re.fullmatch(r"(py|cp)(\d)(\d*)", tag)
            if not match or int(match[2]) != self.major:
                continue
            minor = int(match[3]) if match[3] else None
            if match[1] == "py" or "abi3" in wheel.abi.split("."):
                if minor is None or minor <= self.minor:
                    return True
            elif minor == self.minor:
                return True
        return False


class Wanted(NamedTuple):
    """A name, which may be a pattern, and clauses of versions."""

    name: str
    clauses: Sequence[tuple[str, str]] = ()

    def matches(self, wheel: Wheel) -> bool:
        """Whether the wheel is one of those."""
        return fnmatch.fnmatchcase(wheel.key, self.name) and all(
            fits(wheel.version, wheel.localversion, *each) for each in self.clauses
        )


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = parser().parse_args(arguments)
    columns = options.column or list(DEFAULT_COLUMNS)
    directories = wheelhouses(os.environ)
    if not directories:
        sys.stderr.write("error: this cluster has no wheelhouse, or it is not mounted here\n")
        return INVALID
    try:
        wanted = [parse(text) for text in [*options.names, *options.more, *requirements(options.requirement)]]
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    if options.version:
        wanted = [Wanted(each.name, (*each.clauses, ("==", options.version))) for each in wanted or [Wanted("*")]]
    wheels = list(read(directories))
    fitting = [wheel for wheel in wheels if _fits_here(wheel, options)]
    matching = [wheel for wheel in fitting if not wanted or any(each.matches(wheel) for each in wanted)]
    if not (options.all or options.all_versions or options.version):
        # of those that are asked for: pip takes an older one where a requirement names it
        matching = latest(matching)
    missing = [each for each in wanted if not any(each.matches(wheel) for wheel in fitting)]
    rows = (
        [] if options.missing_only else [tuple(getattr(wheel, name) for name in columns) for wheel in ordered(matching)]
    )
    if options.missing or options.missing_only:
        rows += [tuple(each.name if name == "name" else "" for name in columns) for each in missing]
    sys.stdout.write(table(columns, list(dict.fromkeys(rows)), raw=options.raw))
    return OK if matching or not wanted else NONE


def parser() -> argparse.ArgumentParser:
    """The options; names with `_` are those of the Alliance's command."""
    made = argparse.ArgumentParser(prog="avail_wheels", description="Wheels that `pip install --no-index` finds here.")
    made.add_argument("names", nargs="*", metavar="NAME", help="torch, 'torch*', 'numpy>=2'")
    made.add_argument("-n", "--name", dest="more", action="append", default=[], metavar="NAME", help="the same")
    made.add_argument("-v", "--version", metavar="VERSION", help="this version; '2.*' is a pattern")
    made.add_argument("--all_versions", "--all-versions", action="store_true", help="not only the latest")
    made.add_argument(
        "-p", "--python", action="append", default=[], type=python, metavar="VERSION", help="for Python 3.13"
    )
    made.add_argument("--all_pythons", "--all-pythons", action="store_true", help="for every Python")
    made.add_argument("--all_archs", "--all-archs", action="store_true", help="for every processor")
    made.add_argument("-a", "--all", action="store_true", help="all versions, Pythons and processors")
    made.add_argument("-r", "--requirement", action="append", default=[], metavar="FILE", help="names of a file")
    made.add_argument("--not-available", dest="missing", action="store_true", help="also names without a wheel")
    made.add_argument("--not-available-only", dest="missing_only", action="store_true", help="only those")
    made.add_argument("--column", nargs="+", choices=COLUMNS, metavar="COLUMN", help=", ".join(COLUMNS))
    made.add_argument("--raw", action="store_true", help="without headings, one space between columns")
    return made


def python(text: str) -> Python:
    """The version of an option."""
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)(?:\.[0-9]+)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is not a valid version such as 3.13")
    return Python(int(match[1]), int(match[2]))


def wheelhouses(environment: Mapping[str, str], site: str = SITE) -> list[str]:
    """Directories of wheels: of $WHEELHOUSE, which the module python sets, $PIP_FIND_LINKS of the user, or the site's.

    The last is what that module has pip read: it need not be loaded for that.
    """
    text = environment.get("WHEELHOUSE") or environment.get("PIP_FIND_LINKS") or _of_pip(site)
    return [each for each in re.split(r"[\s:]+", text) if os.path.isdir(each)]


def _of_pip(path: str) -> str:
    settings = configparser.ConfigParser(interpolation=None)
    try:
        settings.read(path, encoding="utf-8")
    except (configparser.Error, ValueError):
        return ""
    return settings.get("global", "find-links", fallback="")


def requirements(files: Iterable[str]) -> Iterator[str]:
    """The lines of requirements.txt that name a package."""
    for path in files:
        with open(path, encoding="utf-8") as stream:
            lines = (line.split("#")[0].strip() for line in stream)
            yield from (line for line in lines if line and not line.startswith("-"))


def parse(text: str) -> Wanted:
    """`torch`, `torch*`, `numpy>=2,<3`."""
    match = _REQUIREMENT.match(text)
    if not match:
        raise ValueError(f"not the name of a package: {text}")
    rest = (match[2] or "").strip()
    matches = [_CLAUSE.fullmatch(each.strip()) for each in rest.split(",")] if rest else []
    clauses = [(each[1], each[2]) for each in matches if each]
    if len(clauses) != len(matches):
        raise ValueError(f"not a version as pip has it: {text}")
    return Wanted(normal(match[1]), tuple(clauses))


def read(directories: Iterable[str]) -> Iterator[Wheel]:
    """All wheels; also in directories below, one level deep, as wheelhouses are sorted by processor."""
    for directory in directories:
        entries = _entries(directory)
        for place in [entries, *(_entries(each.path) for each in entries if _is_directory(each))]:
            for entry in place:
                match = WHEEL.fullmatch(entry.name)
                if match:
                    yield _wheel(match.groupdict())


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        # such as software that only some may use; the rest is listed
        sys.stderr.write(f"{directory}: {error.strerror}\n")
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def _wheel(parts: dict[str, str | None]) -> Wheel:
    version, _, local = str(parts["version"]).partition("+")
    tags = str(parts["platform"])
    match = re.search(r"linux[0-9_]*_([a-z]\w*)$", tags)
    arch = match[1] if match else {"any": "generic"}.get(tags, tags)
    return Wheel(
        str(parts["name"]).replace("_", "-"), version, local, parts["build"] or "", str(parts["python"]),
        str(parts["abi"]), arch, tags,
    )  # fmt: skip


def _fits_here(wheel: Wheel, options: argparse.Namespace) -> bool:
    arch = options.all or options.all_archs or wheel.arch in ("generic", platform.machine())
    return arch and (
        options.all or options.all_pythons or any(each.takes(wheel) for each in options.python or [loaded()])
    )


_LOADED: list[Python] = []


def loaded() -> Python:
    """The Python that the user's `python` is, in a virtual environment that one's."""
    if not _LOADED:
        program = shutil.which("python") or shutil.which("python3") or sys.executable
        answer = command.run([program, "-c", "import sys; print(*sys.version_info[:2])"], 30, env=dict(os.environ))
        words = answer.output.split()
        _LOADED.append(Python(*map(int, words)) if answer.ok else Python(*sys.version_info[:2]))
    return _LOADED[0]


def latest(wheels: Iterable[Wheel]) -> list[Wheel]:
    """Of each package, what it has in its latest version."""
    newest: dict[str, Version] = {}
    wheels = list(wheels)
    for wheel in wheels:
        newest[wheel.key] = max(newest.get(wheel.key, ((), (0, 0), 0, 0)), order(wheel.version))
    return [wheel for wheel in wheels if order(wheel.version) == newest[wheel.key]]


def ordered(wheels: Iterable[Wheel]) -> list[Wheel]:
    """By name, the latest version first."""
    newest_first = sorted(wheels, key=lambda wheel: order(wheel.version), reverse=True)
    return sorted(newest_first, key=lambda wheel: (wheel.key,))


def normal(name: str) -> str:
    """A name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def order(version: str) -> Version:
    """A version to compare by (PEP 440 without epochs); what is not a valid version comes first."""
    match = _RELEASE.fullmatch(version.lower())
    if not match:
        return ((), (0, 0), 0, 0)
    release = tuple(map(int, match[1].split(".")))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    # 1.0.dev1 < 1.0a1 < 1.0rc1 < 1.0 < 1.0.post1
    stage = (_BEFORE[match[2]], int(match[3] or 0)) if match[2] else (0, 0)
    if match[6] and not match[2] and not match[4]:
        stage = (-4, 0)
    post = int(match[5] or 0) + 1 if match[4] else 0
    return (release, stage, post, -1 if match[6] else 0)


def fits(version: str, localversion: str, operator: str, other: str) -> bool:
    """Whether a version is what an operator of pip says; `pip freeze` writes `==2.9.1+cu128`."""
    other, _, other_local = other.partition("+")
    if other_local and normal(other_local) != normal(localversion):
        return operator == "!="
    if other.endswith(".*"):
        same = version == other[:-2] or version.startswith(other[:-1])
        return same if operator != "!=" else not same
    this_one, other_one = order(version), order(other)
    if operator == "~=":
        series = other.rpartition(".")[0]
        return this_one >= other_one and (version == series or version.startswith(series + "."))
    results = {
        "==": this_one == other_one,
        "!=": this_one != other_one,
        "<=": this_one <= other_one,
        ">=": this_one >= other_one,
        "<": this_one < other_one,
    }
    return results.get(operator, version == other if operator == "===" else this_one > other_one)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, raw: bool) -> str:
    """Columns of text."""
    if raw:
        return "".join(" ".join(row) + "\n" for row in rows)
    widths = [max(map(len, column)) for column in zip(columns, *rows)]
    lines = [columns, tuple("-" * width for width in widths), *rows]
    return "".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() + "\n" for line in lines)
