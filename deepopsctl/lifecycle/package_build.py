"""Packages built from a source package, in a clean root of the nodes' release, once for the same inputs.

mmdebstrap makes the root, runs build-package.sh in it and removes it; without root it does so in a user namespace.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from deepopsctl.errors import DeepOpsError
from deepopsctl.files import sha256_of, user_cache, write_atomic
from deepopsctl.lab.image import CODENAMES
from deepopsctl.lifecycle.build_host import BuildHost
from deepopsctl.lifecycle.package_sources import Source, fetch
from deepopsctl.slurm.releases import release_of
from deepopsctl.text.answers import Fields

Notify = Callable[[str], None]

SCRIPT = Path(__file__).with_name("build-package.sh")
INPUTS = "inputs.json"
LOG = "build.log"
_INSTALL = (
    '--customize-hook=chroot "$1" sh -c "DEBIAN_FRONTEND=noninteractive'
    ' apt-get --quiet --yes --no-install-recommends install /build/installed/*.deb"'
)
# between two lines of progress while it compiles
_PROGRESS_S = 30
_DEB = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_(?P<architecture>[^_]+)\.deb")
_INSTALLED = re.compile(r"^ (\S+) \(= (\S+)\),?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Feature:
    """A part that a build can be without: a file that shows it, packages it needs, packages that carry it."""

    file: str
    needs: tuple[str, ...] = ()
    overlay: Mapping[str, str] = field(default_factory=dict)


# Debian builds gpu_nvml in another source package: main can't depend on NVIDIA's library. A package of its own also
# here, with the same name, so that nodes without GPUs need no library of NVIDIA.
_NVML = {
    "control": """
Package: slurm-wlm-nvml-plugin
Architecture: any
Depends: ${shlibs:Depends}, ${misc:Depends}, slurm-wlm-basic-plugins (= ${binary:Version})
Description: Slurm NVML plugin
 slurmd detects NVIDIA's GPUs, their links and MIG instances by NVML.

Package: slurm-wlm-nvml-plugin-dev
Architecture: any
Section: devel
Depends: ${misc:Depends}, slurm-wlm-nvml-plugin (= ${binary:Version})
Description: Slurm NVML plugin development files
 Static library of the NVML plugin.
""",
    "slurm-wlm-nvml-plugin.install": "usr/lib/*/slurm-wlm/gpu_nvml.so\n",
    "slurm-wlm-nvml-plugin-dev.install": "usr/lib/*/slurm-wlm/gpu_nvml.a\nusr/lib/*/slurm-wlm/gpu_nvml.la\n",
}
# configure leaves out without an error what it does not find: each is looked for in the packages
FEATURES: Mapping[str, Mapping[str, Feature]] = {
    "slurm-wlm": {
        "nvml": Feature("/gpu_nvml.so", ("libnvidia-ml-dev",), _NVML),
        "pmix": Feature("/mpi_pmix.so"),
        "pam": Feature("/pam_slurm_adopt.so"),
        "rest": Feature("/slurmrestd"),
        "lua": Feature("/job_submit_lua.so"),
        "jwt": Feature("/auth_jwt.so"),
        "cgroup-v2": Feature("/cgroup_v2.so"),
        "accounting": Feature("/accounting_storage_mysql.so"),
    }
}


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A source package, the nodes' release, and the features that the packages must have.

    `installed` are packages of an earlier build that it is built against.
    """

    source: Source
    os: str
    architecture: str
    mirror: str = ""
    features: tuple[str, ...] = ()
    installed: tuple[Path, ...] = ()

    @property
    def digest(self) -> str:
        """What the result depends on, but for the versions of build dependencies, which are recorded."""
        inputs: dict[str, object] = {
            "script": sha256_of(SCRIPT),
            "sources": sorted(file.sha256 for file in self.source.files),
            "version": self.source.version,
            "os": self.os,
            "architecture": self.architecture,
            "features": sorted(self.features),
            "overlay": self.overlay,
            "needs": self.needs,
        }
        if self.installed:
            inputs["installed"] = sorted(sha256_of(path) for path in self.installed)
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()

    @property
    def _features(self) -> Iterator[Feature]:
        known = FEATURES.get(self.source.name, {})
        return (known[name] for name in self.features)

    @property
    def needs(self) -> list[str]:
        """Packages besides those of the source's own build dependencies."""
        return [name for feature in self._features for name in feature.needs]

    @property
    def overlay(self) -> dict[str, str]:
        """Files for debian/; `control` is appended."""
        files: dict[str, str] = {}
        for feature in self._features:
            for name, text in feature.overlay.items():
                files[name] = files.get(name, "") + text
        return files

    def version(self, revision: int) -> str:
        """Above the source's own in its own suite, below it in a later one: what a later release brings is newer."""
        native = self.source.suite.startswith(CODENAMES[self.os])
        return f"{self.source.version}{'+' if native else f'~{self.os[:3]}{self.os[6:]}+'}deepopsctl{revision}"


@dataclass(frozen=True, slots=True)
class Build:
    """A finished build: its directory, and what is recorded there."""

    directory: Path
    record: Mapping[str, object]

    def text(self, name: str) -> str:
        """An entry of the record."""
        return str(self.record.get(name, ""))

    @property
    def packages(self) -> dict[str, str]:
        """{name: file} of the packages."""
        return {name: entry.text("file") for name, entry in Fields(self.record).members("packages")}

    @property
    def others(self) -> tuple[str, ...]:
        """The packages of another version: libraries that were added with it."""
        own = self.text("version")
        entries = Fields(self.record).members("packages")
        return tuple(name for name, entry in entries if entry.values.get("version", own) != own)

    @property
    def is_whole(self) -> bool:
        """Whether its packages are all there and unchanged."""
        entries = self.record.get("packages")
        return isinstance(entries, dict) and all(
            (self.directory / entry["file"]).is_file() and sha256_of(self.directory / entry["file"]) == entry["sha256"]
            for entry in entries.values()
        )


@dataclass(frozen=True, slots=True)
class BuildStore:
    """All builds of this machine, and the sources that they were made from."""

    directory: Path

    @classmethod
    def of_user(cls, environment: Mapping[str, str]) -> BuildStore:
        """The one in the user's cache."""
        return cls(user_cache(environment, "packages"))

    @property
    def sources(self) -> Path:
        """Verified files of source packages."""
        return self.directory / "sources"

    @property
    def apt(self) -> Path:
        """Indexes of source packages."""
        return self.directory / "apt"

    def builds(self) -> list[Build]:
        """All finished builds, by name and age."""
        paths = sorted((self.directory / "builds").glob(f"*/{INPUTS}"))
        records = [(path.parent, json.loads(path.read_text(encoding="utf-8"))) for path in paths]
        builds = [Build(directory, record) for directory, record in records if isinstance(record, dict)]
        return sorted(builds, key=lambda each: (each.text("name"), each.text("os"), each.text("built")))

    def find(self, request: BuildRequest) -> Build | None:
        """The build of the same inputs, if its packages are all there and unchanged."""
        return next((each for each in self.builds() if each.text("digest") == request.digest and each.is_whole), None)

    def build(self, request: BuildRequest, host: BuildHost, notify: Notify) -> tuple[Build, bool]:
        """The build of these inputs, and whether it was made now."""
        if existing := self.find(request):
            return existing, False
        files = fetch(request.source, self.sources)
        made_before = [
            each
            for each in self.builds()
            if (each.text("source"), each.text("source_version"), each.text("os"))
            == (request.source.name, request.source.version, request.os)
        ]
        version = request.version(1 + max((int(each.text("revision")) for each in made_before), default=0))
        place = self.directory / "builds"
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place, prefix=".building-") as name:
            inputs, result = Path(name, "inputs"), Path(name, "result")
            _write_inputs(inputs, request, files, version)
            result.mkdir()
            _run_build(host, request, inputs, result, place / LOG, notify)
            (place / LOG).replace(result / LOG)
            record = _record(request, result, version)
            write_atomic(result / INPUTS, json.dumps(record, indent=1) + "\n")
            target = place / f"{request.source.name}-{version}-{request.os}-{request.architecture}"
            shutil.rmtree(target, ignore_errors=True)
            result.rename(target)
        return Build(target, record), True


def default_features(source_name: str, without: Sequence[str]) -> tuple[str, ...]:
    """The features of a source package but those that are not wanted; an unknown name is a DeepOpsError."""
    known = FEATURES.get(source_name, {})
    for name in without:
        if name not in known:
            raise DeepOpsError(f"--without {name}: {source_name} has no such feature", f"known are: {', '.join(known)}")
    return tuple(name for name in known if name not in without)


def mmdebstrap_argv(request: BuildRequest, inputs: Path, result: Path) -> tuple[str, ...]:
    """A root of the nodes' release, the build in it, and its result."""
    # NVIDIA's library, which is built against and not included
    components = "main,contrib,non-free" if request.needs else "main"
    return (
        "mmdebstrap",
        "--variant=buildd",
        # the mmdebstrap of Debian 13 has no useradd in this variant
        "--include=fakeroot,passwd,util-linux",
        f"--components={components}",
        '--customize-hook=mkdir "$1/build"',
        f"--customize-hook=sync-in {inputs} /build",
        *((_INSTALL,) if request.installed else ()),
        '--customize-hook=chroot "$1" /bin/sh /build/build-package.sh',
        f"--customize-hook=sync-out /build/result {result}",
        CODENAMES[request.os],
        "/dev/null",
        *((request.mirror,) if request.mirror else ()),
    )


def _write_inputs(directory: Path, request: BuildRequest, files: Mapping[str, Path], version: str) -> None:
    (directory / "overlay").mkdir(parents=True)
    shutil.copyfile(files[request.source.tarball.name], directory / "orig")
    if request.source.packaging:
        shutil.copyfile(files[request.source.packaging.name], directory / "packaging")
    for path in request.installed:
        (directory / "installed").mkdir(exist_ok=True)
        shutil.copyfile(path, directory / "installed" / path.name)
    shutil.copyfile(SCRIPT, directory / SCRIPT.name)
    texts = {"version": version, "packages": " ".join(request.needs)}
    for name, text in {**texts, **{f"overlay/{name}": text for name, text in request.overlay.items()}}.items():
        (directory / name).write_text(text + "\n", encoding="utf-8")


def _run_build(host: BuildHost, request: BuildRequest, inputs: Path, result: Path, log: Path, notify: Notify) -> None:
    started = reported = time.monotonic()
    with log.open("w", encoding="utf-8") as stream:

        def output(line: str) -> None:
            nonlocal reported
            stream.write(f"{line}\n")
            stream.flush()
            if time.monotonic() - reported > _PROGRESS_S:
                reported = time.monotonic()
                notify(f"  {(reported - started) / 60:.1f} min: {line.strip()[:80]}")

        try:
            host.build(inputs, result, partial(mmdebstrap_argv, request), notify, output)
        except DeepOpsError as error:
            raise DeepOpsError(error.message, f"{log} has its whole output") from error


def _record(request: BuildRequest, result: Path, version: str) -> dict[str, object]:
    """What was built, of what, and with which versions; a DeepOpsError where a feature is missing."""
    packages: dict[str, dict[str, str]] = {}
    contents: list[str] = []
    for path in sorted(result.glob("*.deb")):
        match = _DEB.fullmatch(path.name)
        if match:
            packages[match["name"]] = {"file": path.name, "sha256": sha256_of(path)}
            # file names leave out what is before a colon
            if match["version"] != version.rpartition(":")[2]:
                packages[match["name"]]["version"] = match["version"]
            contents += _contents(path)
    if not packages:
        raise DeepOpsError(f"the build of {request.source.name} made no packages")
    known = FEATURES.get(request.source.name, {})
    missing = [name for name in request.features if not any(line.endswith(known[name].file) for line in contents)]
    if missing:
        raise DeepOpsError(
            f"{request.source.name} was built without {', '.join(missing)}, though that was wanted",
            "look for it in the output of configure (build.log); or build without it: "
            + " ".join(f"--without {name}" for name in missing),
        )
    return {
        "schema": 1,
        "name": request.source.name,
        "source": request.source.name,
        "source_version": request.source.version,
        "version": version,
        "revision": int(version.rpartition("deepopsctl")[2]),
        "release": release_of(version),
        "os": request.os,
        "architecture": request.architecture,
        "suite": request.source.suite,
        "digest": request.digest,
        "features": list(request.features),
        "sources": [asdict(file) for file in (*request.source.files, *request.source.included)],
        "build_dependencies": _build_dependencies(result),
        "packages": packages,
        "built": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _contents(path: Path) -> list[str]:
    listed = subprocess.run(["dpkg-deb", "--contents", str(path)], capture_output=True, text=True, check=True)
    return [line.split(" -> ")[0] for line in listed.stdout.splitlines()]


def _build_dependencies(result: Path) -> dict[str, str]:
    """{name: version} of all packages that were in the root, from the .buildinfo."""
    return {
        name: version
        for path in result.glob("*.buildinfo")
        for name, version in _INSTALLED.findall(path.read_text(encoding="utf-8"))
    }
