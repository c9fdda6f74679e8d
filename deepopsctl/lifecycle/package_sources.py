"""Source packages: which files they have, by the signed index of a suite or as given, and the verified download."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.errors import ControlMachineError, DeepOpsError, InputError
from deepopsctl.files import sha256_of
from deepopsctl.lab.image import CODENAMES, own_mirror
from deepopsctl.slurm.releases import RELEASES, find_release, release_of

# the source packages whose name is another
SOURCE_NAMES = {"slurm": "slurm-wlm"}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEFAULT_MIRROR = "https://deb.debian.org/debian"
HELPER = "/usr/lib/apt/apt-helper"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"(https?|file)://\S+")
_TARBALL = re.compile(r"\.(orig\.tar|tar|tgz|tbz|txz)(\.\w+)?$")
_DEBIAN = re.compile(r"\.debian\.tar\.\w+$")
_VERSION = re.compile(r"[-_](\d+(?:\.\d+)+)")
_COMPONENTS = "main contrib non-free"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source package: where it is (addresses, or one path), and its checksum."""

    name: str
    sha256: str
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A source package. `packaging` has its directory debian/, if that is not in `tarball`; `suite` if it has one.

    `included` are files that are in `packaging`: they are recorded.
    """

    name: str
    version: str
    suite: str
    tarball: SourceFile
    packaging: SourceFile | None = None
    included: tuple[SourceFile, ...] = ()

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that are fetched. The .dsc is not: the index that lists them is signed, and has the checksums."""
        return (self.tarball, *((self.packaging,) if self.packaging else ()))


@dataclass(frozen=True, slots=True)
class Archive:
    """A suite of a mirror with source packages."""

    mirror: str
    suite: str


def require_release(release: str) -> None:
    """Refuse a release of Slurm that is missing or unknown."""
    known = ", ".join(each.name for each in RELEASES)
    if not release:
        raise InputError.single("--release", "which release of Slurm is missing", f"known are: {known}")
    if find_release(release_of(release)) is None:
        raise InputError.single("--release", f"Slurm {release} is unknown", f"known are: {known}")


def source_from_tarball(name: str, release: str, tarball: SourceFile, packaging: SourceFile | None) -> Source:
    """A release tarball, with its packaging or with a directory debian/ of its own; its name has the version."""
    match = _VERSION.search(tarball.name)
    version = match[1] if match else ""
    if not version or (release and not _is_of(version, release)):
        raise InputError.single(
            "--source",
            f"{tarball.name} is not of version {release}" if version else f"{tarball.name} has no version in its name",
            "name it as its publisher does, for example slurm-26.05.5.tar.bz2",
        )
    # Debian's revisions begin with 1: a package that it makes later is newer
    return Source(SOURCE_NAMES.get(name, name), f"{version}-0", "", tarball, packaging)


def file_with_checksum(option: str, text: str, sha256: str) -> SourceFile:
    """A file by its path or address; the checksum is required."""
    if not _SHA256.fullmatch(sha256):
        raise InputError.single(
            option, f"{text}: its sha256 is not given", "a release page lists it; `sha256sum FILE` prints it"
        )
    if _URL.fullmatch(text):
        return SourceFile(text.rpartition("/")[2], sha256, (text,))
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise InputError.single(option, f"{path} does not exist", "give a file, or a URL that begins with https://")
    return SourceFile(path.name, sha256, (str(path),))


def archives_for(os: str, mirror: str, suites: Sequence[str] = ()) -> list[list[Archive]]:
    """Where sources are looked for: the suites of the nodes' release, then those of each later one; or these suites."""
    mirror = mirror or own_mirror() or DEFAULT_MIRROR
    security = own_mirror("Debian-Security")
    if suites:
        return [[Archive(mirror, suite)] for suite in suites]
    names = list(CODENAMES)
    groups = [[Archive(mirror, CODENAMES[name])] for name in names[names.index(os) :]]
    for group in groups:
        if security and group[0].suite != "sid":
            group.append(Archive(security, f"{group[0].suite}-security"))
    return groups


def find_source(name: str, release: str, groups: Sequence[Sequence[Archive]], apt: Path) -> Source:
    """The newest version of a release in the first group of suites that has it; a DeepOpsError where none has."""
    package = SOURCE_NAMES.get(name, name)
    others: set[str] = set()
    for archives in groups:
        stanzas = [(archive, stanza) for archive in archives for stanza in _stanzas(archive, package, apt)]
        fitting = [(archive, stanza) for archive, stanza in stanzas if _is_of(stanza["Version"], release)]
        if fitting:
            return _source(package, fitting)
        others.update(stanza["Version"] for _, stanza in stanzas)
    suites = ", ".join(dict.fromkeys(archive.suite for archives in groups for archive in archives))
    has = f"; there is {', '.join(sorted(others))}" if others else ""
    raise DeepOpsError(
        f"no source of {f'{name} {release}'.strip()} in {suites}{has}",
        "name another suite (--suite), or give a release tarball: --source FILE-OR-URL --sha256 SUM",
    )


def _source(package: str, fitting: Sequence[tuple[Archive, dict[str, str]]]) -> Source:
    version = _newest(sorted({stanza["Version"] for _, stanza in fitting}))
    of_version = [(archive, stanza) for archive, stanza in fitting if stanza["Version"] == version]
    files = tuple(_files(of_version))
    tarball = next((file for file in files if _TARBALL.search(file.name) and not _DEBIAN.search(file.name)), None)
    if tarball is None:
        raise DeepOpsError(f"{package} {version} has no source tarball in the index")
    packaging = next((file for file in files if _DEBIAN.search(file.name)), None)
    return Source(package, version, of_version[0][0].suite, tarball, packaging)


def fetch(source: Source, cache: Path) -> dict[str, Path]:
    """{name: path} of the verified files; fetched once."""
    return {file.name: fetch_file(file, cache) for file in source.files}


def fetch_file(file: SourceFile, cache: Path) -> Path:
    """The path of a verified file; fetched once."""
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{file.sha256}-{file.name}"
    if target.is_file() and sha256_of(target) == file.sha256:
        return target
    reasons = []
    partial = target.with_suffix(".partial")
    for place in file.places:
        reason = _copy(place, partial)
        if not reason and (actual := sha256_of(partial)) != file.sha256:
            partial.unlink()
            raise DeepOpsError(
                f"{place}: its sha256 is {actual}, not {file.sha256}",
                "it is another file, or was changed on the way: nothing is built from it",
            )
        if not reason:
            return partial.replace(target)
        reasons.append(f"{place}: {reason}")
    raise DeepOpsError(
        f"{file.name} can't be fetched: {'; '.join(reasons)}",
        "a mirror that lists a source and does not have it needs time, or another one: --mirror",
    )


def _copy(place: str, target: Path) -> str:
    """Why a file can't be had; '' where it can."""
    if not _URL.fullmatch(place):
        shutil.copyfile(place, target)
        return ""
    # apt's own settings for proxies and certificates; without a checksum, which is compared by the caller
    done = _run([HELPER, "-o", "APT::Sandbox::User=", "download-file", place, str(target)])
    if done.returncode == 0 and target.is_file():
        return ""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith(("E:", "Err", "  "))]
    return " ".join(" ".join(lines).split()) or f"apt-helper ended with {done.returncode}"


def _stanzas(archive: Archive, package: str, apt: Path) -> Iterator[dict[str, str]]:
    """The package's entries in the signed index of a suite."""
    root = apt / re.sub(r"\W+", "-", f"{archive.mirror}-{archive.suite}")
    options = _own_apt(archive, root)
    done = _run(["apt-get", *options, "update"])
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
        raise DeepOpsError(
            f"{archive.suite} of {archive.mirror}: {' '.join(errors[:2]) or 'apt-get update failed'}",
            "its index must be there and signed by Debian (package debian-archive-keyring): --mirror names another",
        )
    listed = _run(["apt-get", *options, "indextargets", "--format", "$(FILENAME)", "Created-By: Sources"])
    for name in listed.stdout.split():
        yield from entries_of(package, _run([HELPER, *options, "cat-file", name]).stdout)


def _own_apt(archive: Archive, root: Path) -> list[str]:
    """Options of an apt that knows one suite's sources, and writes to `root` alone."""
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        (root / name).mkdir(parents=True, exist_ok=True)
    sources = root / "etc" / "sources.list"
    sources.write_text(
        f"deb-src [signed-by={KEYRING}] {archive.mirror} {archive.suite} {_COMPONENTS}\n", encoding="utf-8"
    )
    settings = {
        "Dir::State": root / "state", "Dir::Cache": root / "cache", "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-", "Dir::Etc::preferencesparts": "-", "Dir::State::status": "/dev/null",
        "Acquire::Languages": "none", "APT::Update::Error-Mode": "any", "APT::Sandbox::User": "",
        # unstable's signed index expires within days and mirrors may lag
        **({"Acquire::Check-Valid-Until": "false"} if archive.suite in ("sid", "unstable") else {}),
    }  # fmt: skip
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def entries_of(package: str, index: str) -> Iterator[dict[str, str]]:
    """The entries of a package in a Sources file; lines that continue a field keep their line ends."""
    for block in re.split(r"\n\s*\n", index):
        if not re.search(f"^Package: {re.escape(package)}$", block, re.MULTILINE):
            continue
        yield {match[1]: match[2].strip() for match in re.finditer(r"^(\S+):(.*(?:\n[ \t].*)*)", block, re.MULTILINE)}


def _files(stanzas: Sequence[tuple[Archive, dict[str, str]]]) -> Iterator[SourceFile]:
    """The files of one version; each may be in several archives, where it has the same checksum."""
    places: dict[tuple[str, str], list[str]] = {}
    for archive, stanza in stanzas:
        for line in stanza.get("Checksums-Sha256", "").splitlines():
            if len(words := line.split()) == 3 and _SHA256.fullmatch(words[0]) and "/" not in words[2]:
                address = f"{archive.mirror}/{stanza['Directory']}/{words[2]}"
                places.setdefault((words[2], words[0]), []).append(address)
    # a file that one archive lists may be in the other alone
    mirrors = dict.fromkeys((archive.mirror, stanza["Directory"]) for archive, stanza in stanzas)
    for (name, sha256), known in places.items():
        others = [f"{mirror}/{directory}/{name}" for mirror, directory in mirrors]
        yield SourceFile(name, sha256, tuple(dict.fromkeys([*known, *others])))


def _is_of(version: str, release: str) -> bool:
    return not release or release_of(version) == release or version == release


def _newest(versions: Sequence[str]) -> str:
    newest = versions[0]
    for version in versions[1:]:
        if _run(["dpkg", "--compare-versions", version, "gt", newest]).returncode == 0:
            newest = version
    return newest


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, errors="replace")
    except FileNotFoundError as error:
        raise ControlMachineError(
            f"{argv[0]} is not on this machine", "packages are built on Debian or Ubuntu: run it on such a machine"
        ) from error
