"""What runs on a node for the clients of storage: the running kernel, and where packages come from."""

from __future__ import annotations

import hashlib
from http.client import IncompleteRead
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.support import node_modules as nodeside

node_changes = nodeside.load("node.changes")
node_drift = nodeside.load("node.drift")
node_kernel = nodeside.load("node.kernel")
node_packages = nodeside.load("node.packages")
node_record = nodeside.load("node.record")
sources = nodeside.load("storage.client_sources")

RELEASE = "6.12.48+deb13-amd64"


class TestKernel:
    @pytest.mark.parametrize("file", ["lustre.ko", "lustre.ko.xz", "lustre.ko.zst"])
    def test_a_module_is_found_wherever_it_lies_and_however_it_is_packed(self, tmp_path: Path, file: str) -> None:
        directory = tmp_path / RELEASE / "updates" / "dkms"
        directory.mkdir(parents=True)
        (directory / file).write_text("", encoding="utf-8")

        assert node_kernel.has_module("lustre", RELEASE, str(tmp_path))
        assert not node_kernel.has_module("lustre", "6.1.0-41-amd64", str(tmp_path))
        assert not node_kernel.has_module("lust", RELEASE, str(tmp_path))

    def test_packages_that_bring_a_kernel_are_known_from_those_that_only_sound_so(self) -> None:
        kernels = [
            "linux-generic", "linux-headers-6.8.0-35", "linux-headers-6.8.0-35-generic", "linux-headers-amd64",
            "linux-image-6.12.48+deb13-amd64", "linux-image-amd64", "linux-modules-extra-6.8.0-35-generic",
        ]  # fmt: skip
        others = [
            "linux-base", "linux-libc-dev", "linux-image-6.12.48+deb13-amd64-dbg", "linux-compiler-gcc-14-x86",
            "linux-headers-6.12.48+deb13-common", "linux-kbuild-6.12", "linux-perf",
        ]  # fmt: skip

        assert node_kernel.packages_in([*others, *kernels]) == kernels

    def test_a_kernel_without_headers_anywhere_is_refused_with_those_that_have_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(node_packages, "candidates", lambda names: {})
        monkeypatch.setattr(node_packages, "installed", lambda names: {})
        monkeypatch.setattr(node_packages, "known", lambda prefix: [f"{prefix}amd64", f"{prefix}6.12.50-amd64"])

        with pytest.raises(node_kernel.KernelError) as caught:
            node_kernel.check_headers("lustre 2.17.0", "1.2.3-none")

        words = "lustre 2.17.0: its module can't be compiled, there is no linux-headers-1.2.3-none for the running"
        assert str(caught.value) == f"{words} kernel"
        assert "(linux-headers-6.12.50-amd64)" in caught.value.hint

    def test_headers_that_apt_knows_are_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node_packages, "candidates", lambda names: dict.fromkeys(names, "1"))

        node_kernel.check_headers("lustre 2.17.0", "1.2.3-none")


class TestVersions:
    @pytest.mark.parametrize(
        ("version", "takes"),
        [
            *((version, True) for version in ("8.3", "8.3.1-1", "20:8.3.0", "8.3~rc1")),
            *((version, False) for version in ("8.30.0", "20:7.4.6", "18.3.0", "83")),
        ],
    )
    def test_a_series_takes_its_own_releases(self, version: str, takes: bool) -> None:
        assert sources.is_of_version(version, "8.3") is takes

    def test_the_newest_of_the_wanted_release_is_taken(self) -> None:
        assert sources.choose(["2.17.1-1", "2.17.0-2", "2.17.0-1"], "2.17.0") == "2.17.0-2"
        assert sources.choose(["2.17.1-1"], "2.17.0") == ""


class TestSources:
    def test_a_package_of_another_hash_is_refused_and_nothing_of_it_stays(self, tmp_path: Path) -> None:
        archive = tmp_path / "a_1_amd64.deb"
        archive.write_bytes(b"not what was promised")
        directory = tmp_path / "kept"

        with pytest.raises(sources.ArchiveError) as caught:
            sources.ensure_archives(
                node_changes.Noted(dry=False), str(directory), [{"url": f"file://{archive}", "sha256": "0" * 64}]
            )

        assert hashlib.sha256(b"not what was promised").hexdigest() in str(caught.value)
        assert list(directory.iterdir()) == []

    def test_a_package_that_is_there_is_not_fetched_again(self, tmp_path: Path) -> None:
        content = b"a package"
        (tmp_path / "a_1_amd64.deb").write_bytes(content)
        wanted = {"url": "file:///gone/a_1_amd64.deb", "sha256": hashlib.sha256(content).hexdigest()}
        noted = node_changes.Noted(dry=False)

        sources.ensure_archives(noted, str(tmp_path), [wanted])

        assert [change["name"] for change in noted.changes] == [str(tmp_path / "Packages")]

    def test_an_address_that_does_not_answer_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(sources.ArchiveError, match=r"cannot fetch file:///nowhere/a_1_amd64\.deb"):
            sources.fetch("file:///nowhere/a_1_amd64.deb", "0" * 64, str(tmp_path / "a"))

    @pytest.mark.parametrize(
        ("rest", "words"),
        [
            (b"", "it ended after 3 of 5000 bytes"),
            (IncompleteRead(b""), "IncompleteRead"),
            (TimeoutError("timed out"), "timed out"),
        ],
    )
    def test_a_download_that_breaks_off_is_reported_as_such(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: bytes | Exception, words: str
    ) -> None:
        answer = MagicMock(headers={"Content-Length": "5000"})
        answer.__enter__.return_value = answer
        answer.read.side_effect = [b"abc", rest]
        monkeypatch.setattr(sources, "open_url", lambda _url, **_: answer)

        with pytest.raises(sources.ArchiveError, match=rf"cannot fetch https://a\.example/a\.deb: {words}"):
            sources.fetch("https://a.example/a.deb", "0" * 64, str(tmp_path / "a"))

        assert list(tmp_path.iterdir()) == []


def test_the_gate_sees_a_package_that_somebody_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"digest": "d", "items": dict(node_record.items(), held=["beegfs-client-dkms", "linux-image-amd64"])}

    monkeypatch.setattr(node_packages, "held", lambda: {"beegfs-client-dkms", "linux-image-amd64", "other"})
    assert node_drift.differences(record) == []

    monkeypatch.setattr(node_packages, "held", lambda: {"beegfs-client-dkms"})
    assert node_drift.differences(record) == ["package linux-image-amd64 is held no more"]
