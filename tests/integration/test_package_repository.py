"""A cluster's repository, made by the real reprepro and gpg, and read by the real apt."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.files import sha256_of
from deepopsctl.lifecycle.package_build import Build
from deepopsctl.lifecycle.package_repository import PackageRepository
from tests.support.files import build_package

ARCHITECTURE = subprocess.run(
    ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
).stdout.strip()
SUITE = "trixie-tool-1.2"


def build_of(tmp_path: Path, revision: int = 1) -> Build:
    """A build as `packages build` leaves it, with a package that has nothing in it."""
    version = f"1.2-1+deepopsctl{revision}"
    directory = tmp_path / f"build{revision}"
    use = {"Section": "misc", "Priority": "optional"}
    packages = {
        name: {"file": build_package(directory, name, version, ARCHITECTURE, **use).name}
        for name in ("tool", "tool-dev")
    }
    record = {"source": "tool", "release": "1.2", "version": version, "os": "debian13", "architecture": ARCHITECTURE}
    return Build(directory, {**record, "digest": f"digest{revision}", "packages": packages})


@pytest.fixture
def repository(tmp_path: Path) -> PackageRepository:
    directory = ClusterDir(tmp_path / "cluster")
    directory.settings.parent.mkdir(parents=True)
    directory.spec.write_text(
        "schema: 1\ncluster: {name: hpc}\nnodes: [{names: ctl1, roles: [controller, compute]}]\n", encoding="utf-8"
    )
    return PackageRepository(directory)


def unpack(repository: PackageRepository, tmp_path: Path) -> tuple[Path, dict[str, object]]:
    """A published build as a deploy has it on a node: its archive unpacked in a directory, and the suite's values."""
    assert repository.publish(build_of(tmp_path)) == (SUITE, True)
    root, values = tmp_path / "node", repository.suites()["Debian 13"][SUITE]
    archive = repository.cluster.path / str(values["archive"])
    with tarfile.open(archive) as tar:
        assert tar.getnames()[-1] == f"dists/{SUITE}/InRelease"
    root.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", root], check=True)
    return root, values


def update(root: Path, key: str) -> subprocess.CompletedProcess[str]:
    """`apt-get update` of an apt that knows this repository alone."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (root / name).mkdir(parents=True, exist_ok=True)
    keyring, sources = root / "key.asc", root / "sources.list"
    keyring.write_text(key, encoding="utf-8")
    sources.write_text(f"deb [signed-by={keyring}] file:{root} {SUITE} main\n", encoding="utf-8")
    return apt(root, "update")


def apt(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "Dir::State": root / "state", "Dir::Cache": root / "cache", "Dir::Etc::sourcelist": root / "sources.list",
        "Dir::Etc::sourceparts": "-", "Dir::State::status": "/dev/null", "APT::Sandbox::User": "",
        "APT::Update::Error-Mode": "any",
    }  # fmt: skip
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    return subprocess.run(["apt-get", *options, *arguments], capture_output=True, text=True, check=False)


def test_apt_reads_what_was_published_and_checks_its_signature(repository: PackageRepository, tmp_path: Path) -> None:
    node, values = unpack(repository, tmp_path)

    assert update(node, str(values["key"])).returncode == 0
    assert "1.2-1+deepopsctl1" in apt(node, "--simulate", "install", "tool").stdout
    # developers' packages stay here
    assert values["packages"] == ["tool"]
    assert repository.key.stat().st_mode & 0o777 == 0o600


def test_what_a_published_suite_offers_is_read_from_its_archive(repository: PackageRepository, tmp_path: Path) -> None:
    plugin = tmp_path / "build1" / "tree" / "usr" / "lib" / "x86_64-linux-gnu" / "slurm-wlm" / "mpi_pmix_v5.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("")
    _node, values = unpack(repository, tmp_path)

    offer = repository.offer(values)

    assert offer.plugins == {"tool": ("mpi_pmix_v5.so",)}
    assert "Package: tool\n" in offer.index
    assert "Version: 1.2-1+deepopsctl1\n" in offer.index


def test_a_repository_that_was_changed_on_the_way_is_refused_by_apt(
    repository: PackageRepository, tmp_path: Path
) -> None:
    node, values = unpack(repository, tmp_path)
    signed = node / "dists" / SUITE / "InRelease"
    signed.write_text(signed.read_text("utf-8").replace("Label: deepopsctl", "Label: deepopsctk"), "utf-8")

    assert "BADSIG" in update(node, str(values["key"])).stderr


def test_the_key_of_another_cluster_is_refused_by_apt(repository: PackageRepository, tmp_path: Path) -> None:
    node, _values = unpack(repository, tmp_path)
    repository.key.unlink()
    repository.publish(build_of(tmp_path / "again"))

    done = update(node, str(repository.suites()["Debian 13"][SUITE]["key"]))

    assert done.returncode != 0
    assert "is not signed" in done.stderr


def test_the_same_build_is_not_published_twice(repository: PackageRepository, tmp_path: Path) -> None:
    repository.publish(build_of(tmp_path))
    before = {path: path.read_bytes() for path in repository.cluster.path.rglob("*") if path.is_file()}
    assert repository.publish(build_of(tmp_path / "again")) == (SUITE, False)
    assert {path: path.read_bytes() for path in repository.cluster.path.rglob("*") if path.is_file()} == before


def test_what_was_built_against_a_build_is_in_its_suite_also_after_a_rebuild(
    repository: PackageRepository, tmp_path: Path
) -> None:
    directory, version = tmp_path / "plugin", "1.2+plugin0.1-0"
    file = build_package(directory, "tool-plugin", version, ARCHITECTURE, Section="misc", Priority="optional").name
    entry = {"file": file, "sha256": sha256_of(directory / file)}
    plugin = Build(directory, {"version": version, "digest": "plugin", "packages": {"tool-plugin": entry}})
    assert repository.publish(build_of(tmp_path), [plugin]) == (SUITE, True)

    again = build_of(tmp_path, 2)
    assert repository.publish(again, repository.added(again, [plugin])) == (SUITE, True)

    values = repository.suites()["Debian 13"][SUITE]
    assert (values["packages"], values["libraries"]) == (["tool"], ["tool-plugin"])
    assert values["added"] == {"tool-plugin": version}
    assert f"Version: {version}\n" in repository.offer(values).index
    assert repository.publish(again, [plugin]) == (SUITE, False)


def test_another_build_replaces_it_with_the_same_key(repository: PackageRepository, tmp_path: Path) -> None:
    repository.publish(build_of(tmp_path))
    before = repository.suites()["Debian 13"][SUITE]
    assert repository.publish(build_of(tmp_path, 2)) == (SUITE, True)
    after = repository.suites()["Debian 13"][SUITE]
    assert (after["version"], after["key"]) == ("1.2-1+deepopsctl2", before["key"])
    assert after["sha256"] != before["sha256"]
