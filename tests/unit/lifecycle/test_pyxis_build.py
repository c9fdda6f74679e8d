"""Pyxis is built of pinned sources, against the Slurm that nodes get."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.lifecycle.build_host import ArgvOf, Notify
from deepopsctl.lifecycle.package_build import BuildStore
from deepopsctl.lifecycle.pyxis_build import Target, build_pyxis, lacking, pinned_sources, target_of


@dataclass(slots=True)
class Stopped(Exception):  # noqa: N818 (no error: the test ends here)
    """What the build host would have got."""

    argv: tuple[str, ...] = ()
    inputs: dict[str, bytes] = field(default_factory=dict)


class Host:
    """Ends the build where mmdebstrap would begin."""

    def architecture(self) -> str:
        return "amd64"

    def build(self, inputs: Path, result: Path, argv: ArgvOf, notify: Notify, output: Notify) -> None:
        files = {path.relative_to(inputs).as_posix(): path.read_bytes() for path in inputs.rglob("*") if path.is_file()}
        raise Stopped(argv(inputs, result), files)


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    made = ClusterDir(tmp_path / "cluster")
    made.settings.parent.mkdir(parents=True)
    made.settings.write_text(yaml.safe_dump(settings(tmp_path)), encoding="utf-8")
    return made


def settings(tmp_path: Path) -> dict[str, object]:
    entries = {}
    for name in ("pyxis", "enroot"):
        file = tmp_path / f"{name}.tar.gz"
        file.write_bytes(name.encode())
        entries[name] = {"version": "1.2", "source": str(file), "sha256": hashlib.sha256(name.encode()).hexdigest()}
    return {"environment_containers": ["pyxis"], "environment_pyxis": entries}


def build(directory: ClusterDir, store: BuildStore) -> Stopped:
    with pytest.raises(Stopped) as stopped:
        build_pyxis(directory, store, Host(), Target("debian13", "26.05"), "", lambda _: None)
    return stopped.value


def test_the_packaging_has_enroots_verified_source_and_a_version_that_begins_with_slurms(
    directory: ClusterDir, tmp_path: Path
) -> None:
    made, again = (build(directory, BuildStore(tmp_path / "store")) for _ in range(2))

    assert made.inputs["orig"] == b"pyxis"
    assert made.inputs["version"] == b"26.05+pyxis1.2-0~deb13+deepopsctl1\n"
    assert made.inputs == again.inputs
    packed = tmp_path / "packaging.tar"
    packed.write_bytes(made.inputs["packaging"])
    with tarfile.open(packed) as tar:
        assert {*tar.getnames()} == {
            f"debian/{name}" for name in ("changelog", "control", "enroot.tar", "rules", "task_prolog.c")
        }
        enroot = tar.extractfile("debian/enroot.tar")
        assert enroot is not None
        assert enroot.read() == b"enroot"


def test_a_source_of_another_checksum_is_not_built(directory: ClusterDir, tmp_path: Path) -> None:
    (tmp_path / "enroot.tar.gz").write_bytes(b"changed")
    with pytest.raises(DeepOpsError, match="its sha256 is"):
        build_pyxis(directory, BuildStore(tmp_path), Host(), Target("debian13", "26.05"), "", lambda _: None)


def test_the_pinned_sources_are_complete_and_a_site_has_to_give_both(directory: ClusterDir) -> None:
    directory.settings.write_text("{}\n", encoding="utf-8")
    assert {name: version for name, (version, _) in pinned_sources(directory).items() if version}.keys() == {
        "pyxis",
        "enroot",
    }
    directory.settings.write_text("environment_pyxis: {pyxis: {source: x}}\n", encoding="utf-8")
    with pytest.raises(InputError, match="sha256"):
        pinned_sources(directory)


def serve(directory: ClusterDir, **more: object) -> None:
    suite = {"source": "slurm-wlm", "release": "26.05", "version": "26.05.5-1", "build": "digest", **more}
    document = {"deepops_package_repositories": {"Debian 13": {"trixie-slurm-wlm-26.05": suite}}}
    directory.settings.with_name("packages.yml").write_text(yaml.safe_dump(document), encoding="utf-8")


def test_a_release_without_pyxis_is_named_where_it_is_wanted(directory: ClusterDir) -> None:
    serve(directory, packages=["slurmd"])
    assert (lacking(directory, "26.05"), lacking(directory, "25.11")) == (["debian13"], [])
    serve(directory, packages=["slurmd"], libraries=["slurm-wlm-pyxis"])
    assert lacking(directory, "26.05") == []
    serve(directory, packages=["slurmd"])
    directory.settings.write_text("environment_containers: [podman]\n", encoding="utf-8")
    assert lacking(directory, "26.05") == []


def test_a_slurm_whose_headers_are_not_here_is_refused(directory: ClusterDir, tmp_path: Path) -> None:
    serve(directory, packages=["slurmd"])
    with pytest.raises(DeepOpsError, match=r"no build of Slurm 26.05.5-1 for debian13"):
        target_of(directory, BuildStore(tmp_path / "store"), "debian13", "26.05", "")
