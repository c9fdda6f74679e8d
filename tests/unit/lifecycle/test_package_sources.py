"""Source packages: their index, their files, and the checksums."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.files import sha256_of
from deepopsctl.lifecycle.package_sources import (
    Source,
    SourceFile,
    entries_of,
    fetch,
    file_with_checksum,
    require_release,
    source_from_tarball,
)

SUM = "a" * 64
INDEX = f"""\
Package: slurm-wlm-contrib
Version: 24.11.5-2

Package: slurm-wlm
Binary: slurmd,
 slurmctld
Version: 24.11.5-4
Checksums-Sha256:
 {SUM} 99 slurm-wlm_24.11.5.orig.tar.gz
Directory: pool/main/s/slurm-wlm
"""


def tarball(tmp_path: Path, content: str = "release") -> Path:
    path = tmp_path / "slurm-24.11.5.tar.bz2"
    path.write_text(content, encoding="utf-8")
    return path


def source_of(path: Path) -> Source:
    return source_from_tarball("slurm", "24.11", file_with_checksum("--source", str(path), sha256_of(path)), None)


def test_an_entry_of_the_index_is_found_by_its_whole_name() -> None:
    (entry,) = entries_of("slurm-wlm", INDEX)
    assert entry["Version"] == "24.11.5-4"
    assert entry["Checksums-Sha256"].split() == [SUM, "99", "slurm-wlm_24.11.5.orig.tar.gz"]


def test_a_file_with_another_checksum_is_refused_and_not_kept(tmp_path: Path) -> None:
    file = file_with_checksum("--source", str(tarball(tmp_path)), SUM)
    with pytest.raises(DeepOpsError, match=f"not {SUM}"):
        fetch(source_from_tarball("slurm", "24.11", file, None), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_is_fetched_once(tmp_path: Path) -> None:
    path = tarball(tmp_path)
    source = source_of(path)
    fetched = fetch(source, tmp_path / "cache")
    path.unlink()
    assert fetch(source, tmp_path / "cache") == fetched
    assert fetched[path.name].read_text(encoding="utf-8") == "release"


def test_a_cached_file_that_was_changed_is_fetched_again(tmp_path: Path) -> None:
    path = tarball(tmp_path)
    fetch(source_of(path), tmp_path / "cache")[path.name].write_text("other", encoding="utf-8")
    assert fetch(source_of(path), tmp_path / "cache")[path.name].read_text(encoding="utf-8") == "release"


def test_a_file_that_the_index_names_and_no_mirror_has_is_an_error(tmp_path: Path) -> None:
    file = SourceFile("slurm.orig.tar.gz", SUM, ((tmp_path / "pool" / "slurm.orig.tar.gz").as_uri(),))
    with pytest.raises(DeepOpsError, match=r"slurm\.orig\.tar\.gz can't be fetched"):
        fetch(Source("slurm-wlm", "26.05.5-1", "sid", file), tmp_path)


def test_a_tarball_without_a_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its sha256 is not given"):
        file_with_checksum("--source", str(tarball(tmp_path)), "")


def test_a_tarball_of_another_release_is_refused(tmp_path: Path) -> None:
    file = file_with_checksum("--source", str(tarball(tmp_path)), SUM)
    with pytest.raises(InputError, match=r"slurm-24\.11\.5\.tar\.bz2 is not of version 26\.05"):
        source_from_tarball("slurm", "26.05", file, None)


@pytest.mark.parametrize("release", ["", "27.99", "latest"])
def test_a_release_of_slurm_that_is_missing_or_unknown_is_refused(release: str) -> None:
    with pytest.raises(InputError, match="--release"):
        require_release(release)
