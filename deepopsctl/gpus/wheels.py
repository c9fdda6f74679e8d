"""Wheels from a package index, fetched once by the control machine's pip, checked by hash and cached."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepopsctl.errors import DeepOpsError
from deepopsctl.files import sha256_of, user_cache

# for an index that hangs; a large wheel over a slow connection takes long
_PIP_TIMEOUT_S = 1800
# pip builds a source by a program: one that may start none runs nothing of what it fetches, whatever an index, a
# requirement or a wheel's own dependencies (`x @ https://...`) lead it to
_STARTS_A_PROGRAM = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system")
NO_PROGRAM = "deepopsctl: what was fetched is a source, which would be built"
_PIP = f"""
import runpy, sys
def refuse(event, arguments):
    if event in {_STARTS_A_PROGRAM!r}:
        raise PermissionError({NO_PROGRAM!r})
sys.addaudithook(refuse)
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
# -P: a pip.py in the directory where a person is would be taken for pip
PIP_DOWNLOAD = (
    sys.executable, "-P", "-c", _PIP, "download", "--quiet", "--disable-pip-version-check", "--no-input",
    "--only-binary=:all:",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file of a package index, for one platform."""

    package: str
    version: str
    platform: str
    sha256: str


def cache_directory(environment: Mapping[str, str]) -> Path:
    """The cache directory of fetched wheels, in the user's cache."""
    return user_cache(environment, "wheels")


def fetch(wheel: Wheel, cache: Path) -> Path:
    """The wheel's file; fetched once, also by parallel processes."""
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    cached = cache / f"{wheel.sha256}.whl"
    with _locked(cache / f".{wheel.sha256}.lock"):
        if cached.is_file() and sha256_of(cached) == wheel.sha256:
            return cached
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as directory:
            _download(wheel, Path(directory)).replace(cached)
    return cached


def fetch_for(architecture: str, library: Mapping[str, Any], cache: Path) -> Path:
    """The wheel of an entry of versions.yml for a CPU architecture; `any` is for all of them."""
    wheel = library["wheels"].get("any") or library["wheels"].get(architecture)
    if wheel is None:
        raise DeepOpsError(f"there is no wheel of {library['package']} for {architecture}")
    return fetch(Wheel(library["package"], str(library["version"]), wheel["platform"], wheel["sha256"]), cache)


def _download(wheel: Wheel, directory: Path) -> Path:
    wanted = directory / "wanted.txt"
    wanted.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    argv = [
        *PIP_DOWNLOAD, "--no-deps", "--no-cache-dir", "--require-hashes", "--platform", wheel.platform,
        "--dest", str(directory), "--requirement", str(wanted),
    ]  # fmt: skip
    name = f"{wheel.package} {wheel.version}"
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise DeepOpsError(f"{name} did not arrive within {_PIP_TIMEOUT_S // 60} minutes", _HINT) from None
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        last = (done.stderr.strip().splitlines() or ["no wheel for this platform"])[-1]
        raise DeepOpsError(f"pip could not fetch {name}: {last}", _HINT)
    return wheels[0]


_HINT = "the control machine needs pip and a package index (pip's own settings apply): try `pip download` manually"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
