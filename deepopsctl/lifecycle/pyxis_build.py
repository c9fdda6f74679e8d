"""Pyxis and Enroot: built against the Slurm that nodes get, and served with it.

Slurm loads no plugin of another release. For a Slurm of the cluster's own repository they are in the suite of that
Slurm, so that nodes get both in one transaction; for the distribution's they have a suite of their own. Their sources
are pinned in versions.yml, or by `environment_pyxis` of a site: addresses, or files of this machine.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.settings import site_values
from deepopsctl.content import content_dir
from deepopsctl.errors import DeepOpsError
from deepopsctl.files import read_text, sha256_of
from deepopsctl.lab.image import own_mirror
from deepopsctl.lifecycle.build_host import BuildHost
from deepopsctl.lifecycle.package_build import Build, BuildRequest, BuildStore
from deepopsctl.lifecycle.package_repository import PackageRepository
from deepopsctl.lifecycle.package_sources import (
    Source,
    SourceFile,
    archives_for,
    fetch_file,
    file_with_checksum,
    find_source,
)
from deepopsctl.slurm.package_choice import PYXIS, SOURCE, SYSTEMS, choose_repository, has_pyxis
from deepopsctl.slurm.releases import release_of
from deepopsctl.text.answers import texts, words

Notify = Callable[[str], None]
SETTING = "environment_pyxis"
PACKAGING = Path(__file__).with_name("pyxis_packaging")
_HEADERS = "libslurm-dev"
# the first entry of a changelog: the build adds its own
_CHANGELOG = """\
pyxis ({version}) unstable; urgency=medium

  * Packaged by deepopsctl.

 -- deepopsctl <root@localhost>  Sun, 01 Nov 2026 00:00:00 +0000
"""


@dataclass(frozen=True, slots=True)
class Target:
    """The Slurm that Pyxis is built against: its release, and its build, where it is one of this machine's."""

    system: str
    release: str
    slurm: Build | None = None


def is_wanted(directory: ClusterDir) -> bool:
    """Whether the settings have containers by Pyxis."""
    return PYXIS in texts(site_values(directory).get("environment_containers"))


def lacking(directory: ClusterDir, release: str) -> list[str]:
    """The systems whose Slurm of this release is in the cluster's repository without Pyxis, though it is wanted."""
    served = PackageRepository(directory).suites().items() if is_wanted(directory) else ()
    return [
        SYSTEMS[platform]
        for platform, suites in served
        for values in suites.values()
        if (values["source"], values["release"]) == (SOURCE, release) and not has_pyxis(values)
    ]


def target_of(directory: ClusterDir, store: BuildStore, system: str, release: str, mirror: str) -> Target:
    """The Slurm that nodes of a system get: by the settings, or the release that is asked for."""
    values = site_values(directory)
    install = "repository" if release else str(values.get("slurm_install") or "distro")
    release = release or str(values.get("slurm_release") or "")
    if install == "distro":
        own = archives_for(system, mirror)[:1]
        return Target(system, release_of(find_source("slurm", "", own, store.apt).version))
    platform = next(name for name, each in SYSTEMS.items() if each == system)
    chosen = choose_repository(PackageRepository(directory).suites(), install, release, platform)
    built = next((each for each in store.builds() if each.text("digest") == chosen["build"] and each.is_whole), None)
    if built is None or _HEADERS not in built.packages:
        what = "this machine has no build of" if built is None else f"there is no {_HEADERS} among the packages of"
        raise DeepOpsError(
            f"{what} Slurm {chosen['version']} for {system}: Pyxis can't be built against it",
            f"`deepopsctl packages build slurm`, or `packages add slurm` with its {_HEADERS}, on this machine",
        )
    return Target(system, str(chosen["release"]), built)


def build_pyxis(
    directory: ClusterDir, store: BuildStore, host: BuildHost, target: Target, mirror: str, notify: Notify
) -> tuple[Build, bool, str, bool]:
    """Build and serve it: the build, whether it was made now, its suite, and whether that changed."""
    pinned = pinned_sources(directory)
    source = _source(pinned, target.release, store.sources)
    notify(f"pyxis {pinned['pyxis'][0]} and enroot {pinned['enroot'][0]} for Slurm {target.release}")
    installed = tuple(_libraries(target.slurm)) if target.slurm else ()
    request = BuildRequest(source, target.system, host.architecture(), mirror or own_mirror(), installed=installed)
    made, is_new = store.build(request, host, notify)
    repository = PackageRepository(directory)
    suite, changed = repository.publish(target.slurm, [made]) if target.slurm else repository.publish(made)
    return made, is_new, suite, changed


def pinned_sources(directory: ClusterDir) -> dict[str, tuple[str, SourceFile]]:
    """{name: (version, file)} of both; a file of another checksum is not used."""
    versions = yaml.safe_load(read_text(content_dir() / "group_vars" / "all" / "versions.yml"))
    values = site_values(directory).get(SETTING) or versions[SETTING]
    pinned = {}
    for name in ("pyxis", "enroot"):
        entry = words(values.get(name) if isinstance(values, Mapping) else None)
        file = file_with_checksum(f"{SETTING}: {name}", entry.get("source", ""), entry.get("sha256", ""))
        pinned[name] = (entry.get("version", ""), file)
    return pinned


def _source(pinned: Mapping[str, tuple[str, SourceFile]], release: str, cache: Path) -> Source:
    """Pyxis with packaging that has Enroot's release; the version begins with Slurm's."""
    version, tarball = pinned["pyxis"]
    _, enroot = pinned["enroot"]
    # a 0 as Debian's revision, as of all that has no packaging of Debian's
    full = f"{release}+pyxis{version}-0"
    return Source(PYXIS, full, "", tarball, _packaging(full, enroot, cache), (enroot,))


def _packaging(version: str, enroot: SourceFile, cache: Path) -> SourceFile:
    """A tarball of debian/ with Enroot's release in it; the same inputs make the same file."""
    contents = [
        *((path.name, path.read_bytes()) for path in sorted(PACKAGING.iterdir()) if path.is_file()),
        ("changelog", _CHANGELOG.format(version=version).encode()),
        ("enroot.tar", fetch_file(enroot, cache).read_bytes()),
    ]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in contents:
            entry = tarfile.TarInfo(f"debian/{name}")
            entry.size, entry.mode = len(content), 0o755 if name == "rules" else 0o644
            tar.addfile(entry, io.BytesIO(content))
    path = cache / "pyxis-packaging.tar"
    path.write_bytes(packed.getvalue())
    return SourceFile(path.name, sha256_of(path), (str(path),))


def _libraries(slurm: Build) -> Iterator[Path]:
    """Slurm's headers, and the libraries that they need."""
    for name, file in slurm.packages.items():
        if name.startswith("libslurm") and not name.endswith("-perl"):
            yield slurm.directory / file
