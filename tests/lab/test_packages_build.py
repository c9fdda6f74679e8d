"""A source package built by the real command line: mmdebstrap, dpkg-buildpackage, reprepro; here, and on a node."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import PREFIX, command, fresh_cluster

pytestmark = pytest.mark.without_slurm
FILES = {
    "hello": "#!/bin/sh\necho hello\n",
    "debian/changelog": "hello (2.0-1) unstable; urgency=low\n\n  * First.\n\n"
    " -- Test <test@example.com>  Mon, 02 Nov 2026 12:00:00 +0000\n",
    "debian/control": "Source: hello\nSection: misc\nPriority: optional\nMaintainer: Test <test@example.com>\n"
    "Build-Depends: libfile-which-perl\nStandards-Version: 4.7.0\n\n"
    "Package: hello\nArchitecture: all\nDescription: test\n A test.\n",
    # by dpkg's own programs: debhelper would be most of the time
    "debian/rules": "#!/usr/bin/make -f\nclean build build-arch build-indep binary-arch:\n"
    "binary binary-indep:\n\tinstall -D hello debian/hello/usr/bin/hello\n\tmkdir -p debian/hello/DEBIAN\n"
    "\tdpkg-gencontrol -phello -Pdebian/hello\n\tdpkg-deb --root-owner-group --build debian/hello ..\n",
    "debian/source/format": "3.0 (quilt)\n",
}


def source(directory: Path, text: str = "echo hello") -> tuple[str, str]:
    """A release tarball with a directory debian/, and its checksum."""
    tree = directory / "hello-2.0"
    for name, content in FILES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("echo hello", text), encoding="utf-8")
        path.chmod(0o755)
    tarball = directory / "hello-2.0.tar.gz"
    with tarfile.open(tarball, "w:gz") as tar:
        tar.add(tree, tree.name)
    shutil.rmtree(tree)
    checksum = subprocess.run(["sha256sum", str(tarball)], capture_output=True, text=True, check=True).stdout.split()[0]
    return str(tarball), checksum


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster directory, and a cache of its own."""
    directory = tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory / "cache"))
        made = command("init", str(directory / "hpc"), "--controller", "ctl1=192.0.2.1", "--compute", "n1=192.0.2.2")
        assert made.returncode == 0, made.stderr
        yield directory / "hpc"


def build(cluster: Path, tarball: str, checksum: str, *more: str) -> tuple[int, dict[str, Any], str]:
    options = (*more, "--for", "debian13", "--source", tarball, "--sha256", checksum, "--json")
    done = command("-C", str(cluster), "packages", "build", "hello", *options)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_source_package_is_built_once_for_the_same_inputs(cluster: Path, tmp_path: Path) -> None:
    tarball, checksum = source(tmp_path)
    code, made, printed = build(cluster, tarball, checksum)
    assert (code, made["built"], made["changed"], made["suite"]) == (0, True, True, "trixie-hello"), printed
    assert made["version"] == "2.0-0~deb13+deepopsctl1"
    record = json.loads(Path(made["directory"], "inputs.json").read_text(encoding="utf-8"))
    assert record["sources"][0]["sha256"] == checksum
    assert "libfile-which-perl" in record["build_dependencies"]
    assert "building: compiling hello" in printed

    code, again, _ = build(cluster, tarball, checksum)
    assert (code, again["built"], again["changed"], again["version"]) == (0, False, False, made["version"])

    other, checksum = source(tmp_path, "echo goodbye")
    code, changed, printed = build(cluster, other, checksum)
    assert (code, changed["built"], changed["version"]) == (0, True, "2.0-0~deb13+deepopsctl2"), printed

    listed = json.loads(command("-C", str(cluster), "packages", "list", "--json").stdout)
    assert [(each["version"], each["suite"]) for each in listed["builds"]] == [
        ("2.0-0~deb13+deepopsctl1", ""),
        ("2.0-0~deb13+deepopsctl2", "trixie-hello"),
    ]


def test_a_source_with_another_checksum_is_not_built(cluster: Path, tmp_path: Path) -> None:
    tarball, _ = source(tmp_path)
    code, refused, _ = build(cluster, tarball, "0" * 64)
    assert code == 1
    assert "not 0000" in refused["errors"][0]["message"]


@pytest.mark.usefixtures("cluster")
def test_a_node_builds_what_this_machine_publishes(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with fresh_cluster(f"{PREFIX}-build", tmp_path_factory, "--compute", "1") as lab:
        tarball, checksum = source(tmp_path, "echo built on a node")
        code, refused, _ = build(lab.directory, tarball, checksum, "--on", "cn01")
        assert (code, refused["errors"][0]["message"]) == (1, "cn01 has no mmdebstrap")
        lab.root("cn01", "apt-get -qq update && apt-get -qq install --no-install-recommends mmdebstrap")

        code, made, printed = build(lab.directory, tarball, checksum, "--on", "cn01")

        assert (code, made["built"], made["changed"], made["suite"]) == (0, True, True, "trixie-hello"), printed
        assert "building: compiling hello" in printed
        assert not lab.holds("cn01", "ls -d /var/tmp/deepopsctl-build-*")
        package = next(Path(made["directory"]).glob("hello_*.deb"))
        shown = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=True).stdout
        assert b"echo built on a node" in shown
