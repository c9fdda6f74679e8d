"""What a node says of apt and dpkg: read from their own files here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deepopsctl.status import package_progress


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-11-29 01:12:51 unpack libpmix2:amd64 <none> 4.2.2-1", "unpacks libpmix2"),
        ("2026-11-29 01:12:51 status half-configured slurmd:amd64 24.11.5-4", "sets up slurmd"),
        ("2026-11-29 01:12:51 trigproc man-db:amd64 2.13 <none>", "works on triggers of man-db"),
        ("2026-11-29 01:12:51 startup packages configure", ""),
        ("2026-11-29 01:12:51 unpack \x1b[31m:amd64 <none> 1", ""),
    ],
)
def test_a_line_of_dpkgs_log_is_shown_in_words(line: str, shown: str) -> None:
    assert package_progress.shown(f"0\n{line}\n") == shown


def test_before_dpkg_begins_the_packages_are_counted_that_were_fetched(tmp_path: Path) -> None:
    archives, log = tmp_path / "archives", tmp_path / "dpkg.log"
    archives.mkdir()
    for name in ("a.deb", "b.deb", "lock"):
        (archives / name).touch()
    script = package_progress.INSPECT.format(minutes=1).replace("/var/cache/apt/archives", str(archives))
    script = script.replace("/var/log/dpkg.log", str(log))

    def inspect() -> str:
        done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True, check=False)
        return package_progress.shown(done.stdout)

    assert inspect() == "has fetched 2 packages"
    log.write_text("2026-11-29 01:12:51 status installed x:all 1\n2026-11-29 01:12:52 install munge:amd64 <none> 1\n")
    assert inspect() == "unpacks munge"
