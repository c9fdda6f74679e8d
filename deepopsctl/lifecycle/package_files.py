"""Packages built elsewhere, a vendor or a later suite: verified, and kept as a build of this machine."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deepopsctl.errors import ControlMachineError, InputError, Problem
from deepopsctl.files import read_text, sha256_of, write_atomic
from deepopsctl.lifecycle.package_build import INPUTS, Build, BuildStore
from deepopsctl.lifecycle.package_sources import SOURCE_NAMES
from deepopsctl.slurm.releases import find_release, release_of

_FIELDS = ("Package", "Version", "Architecture", "Source", "Depends", "Pre-Depends")
# `slurm-wlm-basic-plugins (= 26.05.5-1)`
_EXACT = re.compile(r"([\w.+-]+)(?::\w+)? \(= ([^)]+)\)")
_SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")
# what a cluster can't do without
_NEEDED = {"slurm-wlm": ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-basic-plugins")}


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A .deb: its control fields and its checksum."""

    path: Path
    name: str
    version: str
    architecture: str
    source: str
    exact: tuple[tuple[str, str], ...]
    sha256: str


def add_packages(
    store: BuildStore, name: str, system: str, architecture: str, files: Sequence[Path], sums: Mapping[str, str]
) -> tuple[Build, bool]:
    """Keep packages as a build, and whether they are new; InputError with everything that is wrong with them.

    `sums` are the checksums by file name that each file must have, if there are any.
    """
    source = SOURCE_NAMES.get(name, name)
    packages = [_read(path) for path in dict.fromkeys(files)]
    own = [package for package in packages if package.source == source]
    problems = [*_problems(packages, own, source, architecture), *(_differing(packages, sums) if sums else ())]
    if problems:
        raise InputError([Problem(where, message, hint) for where, message, hint in problems])
    version = own[0].version
    digest = hashlib.sha256(json.dumps([system, *sorted(package.sha256 for package in packages)]).encode()).hexdigest()
    record: dict[str, object] = {
        "schema": 1,
        "name": source,
        "source": source,
        "source_version": version,
        "version": version,
        "revision": 0,
        "release": release_of(version),
        "os": system,
        "architecture": architecture,
        "suite": "",
        "digest": digest,
        "features": [],
        "sources": [],
        "build_dependencies": {},
        "packages": {
            package.name: {"file": package.path.name, "sha256": package.sha256, "version": package.version}
            for package in packages
        },
        "built": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    target = store.directory / "builds" / f"{source}-{version}-{system}-{architecture}-{digest[:8]}"
    if existing := next((each for each in store.builds() if each.text("digest") == digest and each.is_whole), None):
        return existing, False
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".adding-") as scratch:
        result = Path(scratch, "result")
        result.mkdir()
        for package in packages:
            shutil.copyfile(package.path, result / package.path.name)
        write_atomic(result / INPUTS, json.dumps(record, indent=1) + "\n")
        shutil.rmtree(target, ignore_errors=True)
        result.rename(target)
    return Build(target, record), True


def read_sums(path: Path) -> dict[str, str]:
    """{file name: SHA-256} of a list that `sha256sum` printed."""
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    matches = [_SUM.fullmatch(line) for line in lines]
    bad = next((number for number, match in enumerate(matches, 1) if match is None), None)
    if bad is not None or not lines:
        raise InputError.single(
            f"{path.name}:{bad or 1}", "is not a line of `sha256sum`", "a line is 64 hexadecimal digits, blanks, a file"
        )
    return {Path(match[2]).name: match[1] for match in matches if match}


def _read(path: Path) -> PackageFile:
    argv = ["dpkg-deb", "--show", "--showformat", "\\n".join(f"${{{field}}}" for field in _FIELDS), str(path)]
    try:
        shown = subprocess.run(argv, capture_output=True, text=True, check=False, errors="replace")
    except FileNotFoundError as error:
        raise ControlMachineError("packages are read on Debian or Ubuntu: dpkg-deb is not on this machine") from error
    values = shown.stdout.split("\n")
    if shown.returncode or len(values) != len(_FIELDS):
        raise InputError.single(str(path), "is not a Debian package, or not a whole one", "fetch it again")
    name, version, architecture, source, *depends = values
    # `slurm-wlm (26.05.5-1)`; a package without the field is its own source
    return PackageFile(
        path,
        name,
        version,
        architecture,
        source.partition(" ")[0] or name,
        tuple(_EXACT.findall(", ".join(depends))),
        sha256_of(path),
    )


def _problems(
    packages: Sequence[PackageFile], own: Sequence[PackageFile], source: str, architecture: str
) -> Iterator[tuple[str, str, str]]:
    names = {package.name: package.version for package in packages}
    if len(names) < len(packages):
        twice = sorted({package.name for package in packages if [p.name for p in packages].count(package.name) > 1})
        yield "FILE", f"{', '.join(twice)} is there more than once", "give each package once"
    for package in packages:
        if package.architecture not in (architecture, "all"):
            yield package.path.name, f"is for {package.architecture}, not {architecture}", "give that one"
    versions = sorted({package.version for package in own})
    if len(versions) != 1:
        what = f"are of {len(versions)} versions of {source}: {', '.join(versions)}" if own else f"none is of {source}"
        yield "FILE", what, "give all packages of one version"
        return
    if source in _NEEDED and find_release(release_of(versions[0])) is None:
        yield "FILE", f"{versions[0]} is of no known release of Slurm", "see `deepopsctl packages build --help`"
    if missing := _missing(own, _NEEDED.get(source, ()), versions[0]):
        listed = ", ".join(f"{name} {versions[0]}" for name in missing)
        yield "FILE", f"missing is {listed}", "a cluster needs these in exactly this version: give them, too"


def _missing(own: Sequence[PackageFile], needed: Sequence[str], version: str) -> list[str]:
    """The packages of this version that those which a cluster needs do not work without."""
    known = {package.name: package for package in own}
    wanted = list(needed)
    for name in wanted:
        exact = known[name].exact if name in known else ()
        wanted += [other for other, its_version in exact if its_version == version and other not in wanted]
    return [name for name in wanted if name not in known]


def _differing(packages: Sequence[PackageFile], sums: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for package in packages:
        wanted = sums.get(package.path.name)
        if wanted is None:
            yield package.path.name, "is not in the list of checksums", "give the list that has all files"
        elif wanted != package.sha256:
            yield package.path.name, f"its sha256 is {package.sha256}, not {wanted}", "it was changed: fetch it again"
