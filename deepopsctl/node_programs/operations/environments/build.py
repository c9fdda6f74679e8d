"""One environment: uv unpacks its wheels next to where it will be, and it is there at once, by one rename.

Nothing of a wheel is run: uv compares hashes and unpacks, and Python compiles without the environment's own start-up
files. What comes out belongs to root, and users cannot write it.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

from ..._shared import command
from ..._shared.wheels import sha256_of

# written last: what has none is not whole
RECORD = "environment.json"
MODULES = "modulefiles"
HIDDEN = ".removing-"
# uv, which the module python offers to users
TOOLS = "tools"
_TIME_S = 3600.0
_ENVIRONMENT = {"PATH": command.PATH, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
# no file of a user's or of the node's changes what uv does, and it asks nobody
_UV = ("--no-config", "--offline", "--no-cache", "--no-python-downloads", "--quiet")

Version = Mapping[str, Any]


class BuildError(Exception):
    """It can't be built; the message has the reason."""


def place(directory: str, version: Version) -> str:
    """Where an environment is."""
    return os.path.join(directory, version["name"], version["version"])


def module(directory: str, version: Version, prefix: str = "") -> str:
    """Its module file; module systems do not see one with HIDDEN as prefix."""
    return os.path.join(directory, MODULES, version["name"], prefix + version["version"])


def absent(directory: str, versions: Iterable[Version]) -> list[Version]:
    """Those that are not there, or were made of other wheels."""
    return [each for each in versions if _record(place(directory, each)) != _made_of(each)]


def _made_of(version: Version) -> dict[str, Any]:
    made = {"python": version["python"], "wheels": version["wheels"]}
    return {**made, "libraries": True} if version.get("libraries") else made


def _record(path: str) -> Any:
    try:
        with open(os.path.join(path, RECORD), encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def build(directory: str, wheelhouse: str, version: Version) -> None:
    """Build one version; what is there under its name, and is not whole, is replaced."""
    target = place(directory, version)
    python = version["interpreter"]
    if os.uname().machine != version["machine"]:
        raise BuildError(f"{target} is locked for {version['machine']}, and this node is {os.uname().machine}")
    if not os.path.exists(python):
        raise BuildError(
            f"this node has no {python}, which {version['name']}/{version['version']} needs: install it, and "
            "declare where it is (modules_declared: python/VERSION with a prefix)"
        )
    os.umask(0o022)
    parent = os.path.dirname(target)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    # what a run that was cut off has left
    made, old, tools = (os.path.join(parent, f".{what}-{version['version']}") for what in ("new", "old", "tools"))
    for path in (made, old, tools):
        shutil.rmtree(path, ignore_errors=True)
    # here, as /tmp may be memory
    os.mkdir(tools, mode=0o700)
    try:
        _install(_uv(tools, wheelhouse, version["installer"]), wheelhouse, version, made, tools)
        _compile(python, made, target)
        if version.get("libraries"):
            _link_libraries(made)
        _protect(made)
        _write_record(made, version)
        if os.path.isdir(target):
            os.rename(target, old)
        os.rename(made, target)
        _offer(os.path.join(tools, "uv"), os.path.join(directory, TOOLS))
    finally:
        for path in (made, old, tools):
            shutil.rmtree(path, ignore_errors=True)


def _uv(tools: str, wheelhouse: str, installer: Mapping[str, str]) -> str:
    """The program uv of its wheel, whose hash is compared first."""
    ((file, sha256),) = installer.items()
    copy = os.path.join(tools, file)
    shutil.copyfile(os.path.join(wheelhouse, file), copy)
    if sha256_of(copy) != sha256:
        raise BuildError(f"{wheelhouse}/{file} has another hash than the lock: remove it, and deploy again")
    member = f"{'-'.join(file.split('-')[:2])}.data/scripts/uv"
    path = os.path.join(tools, "uv")
    with zipfile.ZipFile(copy) as archive, archive.open(member) as source, open(path, "wb") as sink:
        shutil.copyfileobj(source, sink)
    os.chmod(path, 0o700)
    return path


def _offer(uv: str, directory: str) -> None:
    os.makedirs(directory, mode=0o755, exist_ok=True)
    os.chmod(uv, 0o755)  # noqa: S103 (users run it)
    os.replace(uv, os.path.join(directory, "uv"))


def _install(uv: str, wheelhouse: str, version: Version, made: str, tools: str) -> None:
    listed = os.path.join(tools, "requirements.txt")
    with open(listed, "w", encoding="utf-8") as stream:
        stream.write(version["lock"])
    env = {**_ENVIRONMENT, "TMPDIR": tools}
    python = version["interpreter"]
    command.require([uv, "venv", *_UV, "--relocatable", "--python", python, made], _TIME_S, env=env)
    command.require(
        [
            uv, "pip", "install", *_UV, "--no-index", "--find-links", wheelhouse, "--require-hashes", "--no-deps",
            "--only-binary", ":all:", "--link-mode", "hardlink", "--python", os.path.join(made, "bin", "python"),
            "--requirement", listed,
        ],
        _TIME_S, env=env,
    )  # fmt: skip


def _compile(python: str, made: str, target: str) -> None:
    """Bytecode for users, who can't write it. -I -S: no start-up file of a package (*.pth) runs as root."""
    argv = [python, "-I", "-S", "-m", "compileall", "-q", "-s", made, "-p", target, os.path.join(made, "lib")]
    # packages have files for other Pythons, too: these stay uncompiled
    command.run(argv, _TIME_S, env=_ENVIRONMENT)


def _link_libraries(made: str) -> None:
    """Headers and libraries of the wheels (nvidia/cudnn/include, tensorrt_libs, libcudf) where compilers look.

    Wheels have libnccl.so.2 alone: the linker wants libnccl.so.
    """
    (packages,) = glob.glob(os.path.join(glob.escape(made), "lib", "python3*", "site-packages"))
    own = glob.escape(packages)
    headers = glob.glob(f"{own}/nvidia/*/include/*") + glob.glob(f"{own}/nvidia/include/*")
    # RAPIDS: each package is a prefix of its own; others, such as torch, have headers that are not for this
    headers += [path for path in glob.glob(f"{own}/*/include/*") if os.path.isdir(f"{os.path.dirname(path)}/../lib64")]
    libraries = [path for pattern in ("nvidia/*/lib/*.so*", "nvidia/lib/*.so*", "*_libs/*.so*", "*/lib64/*.so*")
                 for path in glob.glob(f"{own}/{pattern}")]  # fmt: skip
    if not libraries:
        raise BuildError("its wheels have no libraries (nvidia/*/lib, *_libs, */lib64): leave out `libraries: true`")
    for directory, paths in (("include", headers), ("lib", libraries)):
        os.makedirs(os.path.join(made, directory), mode=0o755, exist_ok=True)
        for path in sorted(paths):
            _link(path, os.path.join(made, directory, os.path.basename(path)))
    for path in libraries:
        name = os.path.basename(path)
        short = os.path.join(made, "lib", name.partition(".so")[0] + ".so")
        if ".so." in name:
            _link(path, short)


def _link(path: str, link: str) -> None:
    if not os.path.lexists(link) and not os.path.basename(path).startswith("__"):
        os.symlink(os.path.relpath(path, os.path.dirname(link)), link)


def _protect(made: str) -> None:
    """Everybody reads all of it, root alone writes."""
    for place_, directories, files in os.walk(made):
        for name in (*directories, *files):
            path = os.path.join(place_, name)
            if os.path.islink(path):
                continue
            executable = os.path.isdir(path) or os.stat(path).st_mode & stat.S_IXUSR
            os.chmod(path, 0o755 if executable else 0o644)
            os.chown(path, 0, 0)
    os.chmod(made, 0o755)  # noqa: S103 (users read it)


def _write_record(made: str, version: Version) -> None:
    with open(os.path.join(made, RECORD), "w", encoding="utf-8") as stream:
        json.dump(_made_of(version), stream, sort_keys=True)
