"""Packages of another suite of Debian, fetched by this machine's apt without touching its own lists."""

from __future__ import annotations

import subprocess
from pathlib import Path

from deepopsctl.lab.image import own_mirror
from deepopsctl.lifecycle.package_sources import DEFAULT_MIRROR, KEYRING


class Suite:
    """apt with this suite alone, in a directory of its own."""

    def __init__(self, suite: str, directory: Path) -> None:
        self._debs = directory / "debs"
        for name in ("lists/partial", "cache/archives/partial", "debs"):
            (directory / name).mkdir(parents=True)
        sources = directory / "sources.list"
        sources.write_text(f"deb [signed-by={KEYRING}] {own_mirror() or DEFAULT_MIRROR} {suite} main\n")
        settings = {
            "Dir::State::lists": directory / "lists", "Dir::Cache": directory / "cache",
            "Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "-", "APT::Sandbox::User": "",
            "Acquire::Check-Valid-Until": "false", "Acquire::Languages": "none",
        }  # fmt: skip
        self._options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        subprocess.run(["apt-get", *self._options, "update"], check=True, capture_output=True)

    def depends(self, package: str) -> str:
        """What a package depends on, as apt-cache prints it."""
        argv = ["apt-cache", *self._options, "depends", "--no-recommends", "--no-suggests", package]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def download(self, *packages: str) -> list[Path]:
        """The files of packages."""
        subprocess.run(["apt-get", *self._options, "download", *packages], cwd=self._debs, check=True)
        return sorted(self._debs.glob("*.deb"))
