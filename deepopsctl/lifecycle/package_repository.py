"""A cluster's signed repository: one archive per suite, which a deploy unpacks on the nodes.

Each source package and release has its own suite (`trixie-slurm-24.11`), written by reprepro from one build, so that
nodes use exactly that build, and going back is another suite. What was built against a Slurm of the cluster (Pyxis) is
in the suite of that Slurm: nodes get both in one transaction. The private key stays in the cluster directory.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import ControlMachineError, DeepOpsError
from deepopsctl.files import sha256_of, write_atomic
from deepopsctl.lab.image import CODENAMES
from deepopsctl.lifecycle.package_build import Build
from deepopsctl.node_programs._shared.openpgp import fingerprints
from deepopsctl.slurm.plugin_files import files_in
from deepopsctl.text.answers import Fields, members, texts

ORIGIN = "deepopsctl"
VARIABLE = "deepops_package_repositories"
_HEADER = """\
# Written by `deepopsctl packages`: the repositories of packages that it built, by platform and suite. A deploy installs
# from one where settings.yml has `slurm_install: repository`.
"""
# developers' packages stay on the control machine
_LEFT_OUT = ("-dev", "-doc", "-emulator", "-dbgsym", "-torque")
_TOOLS = {"reprepro": "reprepro", "gpg": "gpg"}


@dataclass(frozen=True, slots=True)
class Offer:
    """What a suite offers: apt's index, and the names of plugins by package."""

    index: str
    plugins: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PackageRepository:
    """The directory `packages` of a cluster directory."""

    cluster: ClusterDir

    @property
    def directory(self) -> Path:
        """Private: it holds the signing key."""
        return self.cluster.path / "packages"

    @property
    def key(self) -> Path:
        """The private key."""
        return self.directory / "signing-key.asc"

    @property
    def variables(self) -> Path:
        """What a deploy reads."""
        return self.cluster.settings.with_name("packages.yml")

    def suites(self) -> dict[str, dict[str, dict[str, object]]]:
        """{platform: {suite: its values}} that are served."""
        try:
            document = yaml.safe_load(self.variables.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {
            platform: {suite: {**values.values} for suite, values in members(suites.values)}
            for platform, suites in Fields.of(document).members(VARIABLE)
        }

    def added(self, build: Build, builds: Sequence[Build]) -> list[Build]:
        """Which of `builds` the suite of a build serves with it."""
        suite, platform = suite_of(build), platform_of(build)
        digests = texts(self.suites().get(platform, {}).get(suite, {}).get("added_builds"))
        return [each for each in builds if each.text("digest") in digests and each.is_whole]

    def publish(self, build: Build, added: Sequence[Build] = ()) -> tuple[str, bool]:
        """Serve a build with what was built against it; returns its suite, and whether that changed."""
        for tool, package in _TOOLS.items():
            if not shutil.which(tool):
                raise ControlMachineError(
                    f"{tool} is not installed on this machine", f"apt-get install --no-install-recommends {package}"
                )
        suite, platform = suite_of(build), platform_of(build)
        served = self.suites()
        known = served.get(platform, {}).get(suite, {})
        archive = self.directory / f"{suite}.tar"
        digests = [each.text("digest") for each in added]
        with self._signer() as (home, fingerprint):
            if (
                (known.get("build"), known.get("fingerprint")) == (build.text("digest"), fingerprint)
                and list(texts(known.get("added_builds"))) == digests
                and archive.is_file()
                and sha256_of(archive) == known.get("sha256")
            ):
                return suite, False
            public = _gpg(home, "--armor", "--export", fingerprint).decode("ascii")
            names = self._write_archive([build, *added], suite, archive, home, fingerprint)
        own = frozenset(build.packages) - frozenset(build.others)
        values: dict[str, object] = {
            "source": build.text("source"), "release": build.text("release"), "version": build.text("version"),
            "archive": f"packages/{archive.name}", "sha256": sha256_of(archive), "build": build.text("digest"),
            "fingerprint": fingerprint, "key": public,
            "packages": [name for name in names if name in own],
            "libraries": [name for name in names if name not in own],
        }  # fmt: skip
        if added:
            values["added_builds"] = digests
            values["added"] = {
                name: each.text("version") for each in added for name in each.packages if name not in each.others
            }
        served.setdefault(platform, {})[suite] = values
        text = yaml.safe_dump({VARIABLE: served}, sort_keys=True, width=120)
        write_atomic(self.variables, f"{_HEADER}{text}")
        return suite, True

    def offer(self, values: Mapping[str, object]) -> Offer:
        """What the archive of a suite has: apt's index of it, and the plugins of each package.

        No plugins on a control machine that can't read packages.
        """
        is_readable = bool(shutil.which("dpkg-deb"))
        archive = self.cluster.path / str(values["archive"])
        if not archive.is_file():
            raise ControlMachineError(f"{archive} does not exist", "`deepopsctl packages build` makes it again")
        index, plugins = "", dict[str, tuple[str, ...]]()
        with tarfile.open(archive) as stream, tempfile.TemporaryDirectory() as scratch:
            for member in stream:
                file = stream.extractfile(member) if member.isfile() else None
                if file and member.name.endswith("/Packages"):
                    index += file.read().decode("utf-8") + "\n"
                elif file and is_readable and member.name.endswith(".deb"):
                    package = Path(scratch, Path(member.name).name)
                    with package.open("wb") as target:
                        shutil.copyfileobj(file, target)
                    plugins[package.name.partition("_")[0]] = files_in(_contents(package))
                    package.unlink()
        return Offer(index, plugins)

    def new_key(self, builds: Sequence[Build]) -> Callable[[], None]:
        """What replaces the signing key, and signs all suites again; refused where the build of one is not here."""
        served = {str(values.get("build")): suite for each in self.suites().values() for suite, values in each.items()}
        there = {build.text("digest"): build for build in builds if build.is_whole}
        missing = sorted(suite for digest, suite in served.items() if digest not in there)
        if missing or not served:
            what = f"this machine has no build of {', '.join(missing)}" if missing else "no packages are served"
            raise DeepOpsError(
                f"signing-key: {what}: nothing was changed", "`deepopsctl packages build` or `add` first"
            )

        def sign() -> None:
            self.key.unlink(missing_ok=True)
            for digest in served:
                self.publish(there[digest], self.added(there[digest], builds))

        return sign

    def _write_archive(
        self, builds: Sequence[Build], suite: str, archive: Path, home: Path, fingerprint: str
    ) -> list[str]:
        """The packages of builds as a signed suite in one file; returns their names."""
        files = {
            name: build.directory / file
            for build in builds
            for name, file in build.packages.items()
            if not name.endswith(_LEFT_OUT)
        }
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=".publishing-") as temporary:
            base = Path(temporary)
            (base / "conf").mkdir()
            (base / "conf" / "distributions").write_text(
                f"Origin: {ORIGIN}\nLabel: {ORIGIN}\nSuite: {suite}\nCodename: {suite}\nComponents: main\n"
                f"Architectures: {builds[0].text('architecture')}\nSignWith: {fingerprint}\n",
                encoding="utf-8",
            )
            paths = [str(path) for path in files.values()]
            _run(["reprepro", "--silent", "-b", str(base), "includedeb", suite, *paths], home)
            _pack(base, suite, archive)
        return sorted(files)

    @contextmanager
    def _signer(self) -> Iterator[tuple[Path, str]]:
        """A directory for gpg with the cluster's key, made at first use, and its fingerprint."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        write_atomic(self.directory / ".gitignore", "*\n")
        # gpg's agent listens on a socket there, whose path may not be long
        home = Path(tempfile.mkdtemp(prefix="deepopsctl-gpg-"))
        try:
            if self.key.is_file():
                _gpg(home, "--import", str(self.key))
            else:
                name = f"deepopsctl packages of {self.cluster.cluster().name}"
                _gpg(home, "--quick-generate-key", name, "ed25519", "sign", "never")
                write_atomic(self.key, _gpg(home, "--armor", "--export-secret-keys").decode("ascii"), 0o600)
            yield home, fingerprints(_gpg(home, "--export"))[0]
        finally:
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True, check=False)
            shutil.rmtree(home, ignore_errors=True)


def _contents(package: Path) -> str:
    done = subprocess.run(["dpkg-deb", "--contents", str(package)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ControlMachineError(f"{package.name} in the cluster's repository can't be read: {done.stderr.strip()}")
    return done.stdout


def suite_of(build: Build) -> str:
    """`trixie-slurm-wlm-24.11`; without a release number where the version has none."""
    release = build.text("release")
    return f"{CODENAMES[build.text('os')]}-{build.text('source')}{f'-{release}' if release else ''}"


def platform_of(build: Build) -> str:
    """`Debian 13`, as deploys name it."""
    os = build.text("os")
    return f"{os[:-2].capitalize()} {os[-2:]}"


def _pack(base: Path, suite: str, archive: Path) -> None:
    """The signed index comes last: a node that has it has all of the archive."""
    signed = base / "dists" / suite / "InRelease"
    files = [path for name in ("pool", "dists") for path in sorted((base / name).rglob("*"))]
    files = [path for path in files if path.is_file() and path != signed]
    temporary = archive.with_suffix(".partial")
    with tarfile.open(temporary, "w") as tar:
        for path in [*files, signed]:
            tar.add(path, path.relative_to(base).as_posix(), filter=_as_root)
    temporary.replace(archive)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o644
    return entry


def _gpg(home: Path, *arguments: str) -> bytes:
    return _run(["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *arguments], home)


def _run(argv: list[str], home: Path) -> bytes:
    environment = {"GNUPGHOME": str(home), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, env=environment, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise DeepOpsError(f"{argv[0]} failed: {' '.join(lines[-3:])}")
    return done.stdout
