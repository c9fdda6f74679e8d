"""Named environments of Python packages: the setting `environments`, and the lock file of each version.

A lock is DIR/environments/NAME/VERSION.lock: every wheel with its hash, in the form that pip and uv install from. A
version that has a lock is on the nodes after a deploy; without it, it is not.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from deepopsctl.environment import wheels
from deepopsctl.environment.wheels import Target, Wheel
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.files import read_text, sha256_of, write_atomic
from deepopsctl.gpus.wheels import PIP_DOWNLOAD
from deepopsctl.node_programs.commands.user_commands.avail_wheels import WHEEL, order
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.values import suggest

SETTING = "environments"
# in the cluster directory
DIRECTORY = "environments"
LOCK = ".lock"
_KEYS = frozenset({"python", "packages", "default", "libraries"})
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_VERSION = re.compile(r"[0-9]{4}\.[0-9]{2}(?:\.[0-9]{1,3})?")
# modules that other roles write
_TAKEN = frozenset({"cuda", "gcc", "httpproxy", "openmpi", "python"})
_HEAD = re.compile(r"# Python (3\.[0-9]{1,2}) on (x86_64|aarch64), glibc 2\.([0-9]{1,3})")
_PACKAGES = "# packages: "
_INSTALLER = "# installer: "
_ENTRY = re.compile(r"([A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+ --hash=sha256:([0-9a-f]{64}))  # ([A-Za-z0-9._+!-]+\.whl)")
_LOCK_IT = "run `deepopsctl environments lock {}`"
_PLAIN = re.compile(r"[a-z0-9-]+")
_FORM = "write {python: '3.13', packages: [numpy, 'torch<3']}"
# a large set of wheels over a slow connection
_PIP_TIMEOUT_S = 7200


@dataclass(frozen=True, slots=True)
class Environment:
    """One entry of the setting. `python` is '' for the nodes' own, `default` is '' for the newest version."""

    name: str
    packages: tuple[str, ...]
    python: str = ""
    default: str = ""
    # whether other software is built against its libraries
    libraries: bool = False


@dataclass(frozen=True, slots=True)
class Lock:
    """What one version is made of; `installer` is the wheel of the uv that installs the others."""

    name: str
    version: str
    target: Target
    packages: tuple[str, ...]
    installer: Wheel
    wheels: tuple[Wheel, ...]

    @property
    def module(self) -> str:
        """What users load."""
        return f"{self.name}/{self.version}"

    def text(self) -> str:
        """The content of its file."""
        target = self.target
        lines = [
            f"# {self.module}, written by `deepopsctl environments lock`: the module that users load",
            f"# Python {target.python} on {target.machine}, glibc 2.{target.glibc}",
            _PACKAGES + ", ".join(self.packages),
            _INSTALLER + _entry(self.installer),
            *map(_entry, self.wheels),
        ]
        return "".join(f"{line}\n" for line in lines)


def _entry(wheel: Wheel) -> str:
    return f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}  # {wheel.file}"


def declared(setting: object) -> dict[str, Environment]:
    """The environments of the setting by name; an InputError has everything that is wrong with it."""
    if not isinstance(setting, Mapping):
        raise InputError.single(SETTING, "must be names with values", f"{SETTING}: dl: " + _FORM)
    problems = Problems()
    result = {str(name): _declared(str(name), entry, problems) for name, entry in setting.items()}
    problems.raise_if_any()
    return result


def _declared(name: str, entry: object, problems: Problems) -> Environment:
    where = f"{SETTING}: {name}"
    if not _NAME.fullmatch(name) or name in _TAKEN:
        reason = "deepopsctl has a module of this name" if name in _TAKEN else "is not a valid name of a module"
        problems.add(where, reason, "use small letters, digits, - and _: dl, bio-2")
    if not isinstance(entry, Mapping) or set(entry) - _KEYS or not isinstance(entry.get("packages"), list):
        problems.add(where, f"its keys are {', '.join(sorted(_KEYS))}, and packages is a list", _FORM)
        return Environment(name, ())
    python, default = str(entry.get("python") or ""), str(entry.get("default") or "")
    if python and not wheels.PYTHON.fullmatch(python):
        problems.add(where, f"{python} is not a version of Python", "write it in quotes: '3.13'")
    if default and not _VERSION.fullmatch(default):
        problems.add(where, f"{default} is not a version of an environment", "`deepopsctl environments list` has them")
    if not isinstance(entry.get("libraries", False), bool):
        problems.add(where, "libraries is true or false", "true for cuDNN, NCCL and the like: CPATH, LIBRARY_PATH")
    packages: list[str] = []
    try:
        packages = wheels.checked([str(each) for each in entry["packages"]], (), where)
    except InputError as error:
        for each in error.problems:
            problems.add(each.where, each.message, each.hint)
    if not entry["packages"]:
        problems.add(where, "has no packages", _FORM)
    return Environment(name, tuple(sorted(packages)), python, default, entry.get("libraries") is True)


def read_locks(directory: Path) -> list[Lock]:
    """All locks of a cluster directory: by name, the newest version first."""
    paths = sorted((directory / DIRECTORY).glob(f"*/*{LOCK}"))
    locks = [read_lock(path) for path in paths]
    newest_first = sorted(locks, key=lambda lock: order(lock.version), reverse=True)
    return sorted(newest_first, key=lambda lock: lock.name)


def lock_path(directory: Path, name: str, version: str) -> Path:
    """Where a version's lock is."""
    return directory / DIRECTORY / name / f"{version}{LOCK}"


def read_lock(path: Path) -> Lock:
    """One lock; an InputError names the line that is wrong."""
    name, version = path.parent.name, path.name.removesuffix(LOCK)
    where = f"{DIRECTORY}/{name}/{path.name}"
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise InputError.single(where, "is not NAME/YEAR.MONTH.lock", "`deepopsctl environments lock NAME` writes them")
    lines = read_text(path).splitlines()
    head = _HEAD.fullmatch(lines[1]) if len(lines) > 3 else None
    if head is None or not lines[2].startswith(_PACKAGES) or not lines[3].startswith(_INSTALLER):
        raise InputError.single(where, "its first lines are not those of a lock", _HINT)
    target = Target(head[1], head[2], int(head[3]))
    packages = tuple(filter(None, lines[2].removeprefix(_PACKAGES).split(", ")))
    installer = _read_entry(lines[3].removeprefix(_INSTALLER), f"{where}:4")
    entries = tuple(_read_entry(line, f"{where}:{number}") for number, line in enumerate(lines[4:], 5))
    return Lock(name, version, target, packages, installer, entries)


_HINT = "take it from git again, or remove it and run `deepopsctl environments lock NAME`"


def _read_entry(line: str, where: str) -> Wheel:
    match = _ENTRY.fullmatch(line)
    if match is None or not WHEEL.fullmatch(match[3]):
        raise InputError.single(where, "is not a package with its hash and file", _HINT)
    return Wheel(match[3], match[2])


def installer_of(content: Path) -> Mapping[str, Any]:
    """The pinned uv, as versions.yml has it."""
    versions = yaml.safe_load(read_text(content / "group_vars" / "all" / "versions.yml"))
    pinned: Mapping[str, Any] = versions["deepops_uv"]
    return pinned


def is_outdated(environment: Environment, locks: Sequence[Lock]) -> bool:
    """Whether the newest lock is of other packages, or another Python, than the setting; or there is none."""
    newest = next((lock for lock in locks if lock.name == environment.name), None)
    if newest is None or newest.packages != environment.packages:
        return True
    return environment.python not in ("", newest.target.python)


def make_lock(
    environment: Environment, target: Target, installer: Mapping[str, Any], known: Sequence[Lock], cache: Path
) -> Lock | None:
    """What pip chooses today, as a new version; None where the newest has the same. What is fetched stays in the cache.

    `installer` is uv's entry of versions.yml, `known` are the locks of this environment.
    """
    pinned = installer["wheels"].get(target.machine)
    if pinned is None:
        raise DeepOpsError(f"there is no uv for {target.machine}", "environments are built on x86_64 and aarch64")
    uv = Wheel(f"uv-{installer['version']}-py3-none-{pinned['platform']}.whl", pinned["sha256"])
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as fetched:
        chosen = wheels.described(wheels.fetch(environment.packages, target, Path(fetched), deps=True))
        for wheel in chosen:
            (Path(fetched) / wheel.file).replace(_cached(cache, wheel))
    chosen.sort(key=lambda wheel: wheel.name)
    newest = known[0] if known else None
    if newest and (newest.target, list(newest.wheels)) == (target, chosen):
        # another text for the same wheels: no new version
        return None if newest.packages == environment.packages else replace(newest, packages=environment.packages)
    version = _next_version([lock.version for lock in known])
    return Lock(environment.name, version, target, environment.packages, uv, tuple(chosen))


def _next_version(known: Sequence[str]) -> str:
    """This month's first version, or the one after the last: 2026.12, 2026.12.1."""
    month = f"{date.today():%Y.%m}"
    numbers = [int(version[len(month) + 1 :] or 0) for version in known if version.startswith(month)]
    return f"{month}.{max(numbers) + 1}" if numbers else month


def save_lock(directory: Path, lock: Lock) -> Path:
    """Write a lock."""
    path = lock_path(directory, lock.name, lock.version)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lock.text())
    return path


def size_of(lock: Lock, cache: Path) -> int:
    """The bytes of its wheels, as far as they are in the cache."""
    return sum(path.stat().st_size for wheel in lock.wheels if (path := _cached(cache, wheel)).is_file())


def fetch_locked(wanted: Sequence[Wheel], target: Target, cache: Path) -> dict[str, Path]:
    """The files of these wheels, by name: from the cache, or fetched by pip, which compares the hashes."""
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    missing = [wheel for wheel in wanted if not _is_cached(cache, wheel)]
    if missing:
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as directory:
            _download(missing, target, Path(directory))
            for wheel in missing:
                _one_of(Path(directory), wheel).replace(_cached(cache, wheel))
    return {wheel.file: _cached(cache, wheel) for wheel in wanted}


def _download(missing: Sequence[Wheel], target: Target, directory: Path) -> None:
    listed = directory / "wanted.txt"
    listed.write_text("".join(f"{_entry(wheel)}\n" for wheel in missing), encoding="utf-8")
    argv = [
        *PIP_DOWNLOAD, "--no-deps", "--require-hashes", *target.options(), "--dest", str(directory),
        "--requirement", str(listed),
    ]  # fmt: skip
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise wheels.failure(done.stderr)


def _one_of(directory: Path, wheel: Wheel) -> Path:
    """The file with the wheel's content: an index may have another name for the same."""
    for path in directory.glob("*.whl"):
        if sha256_of(path) == wheel.sha256:
            return path
    raise DeepOpsError(f"the index has no {wheel.file} with the hash of the lock", "its authors may have withdrawn it")


def _cached(cache: Path, wheel: Wheel) -> Path:
    return cache / f"{wheel.sha256}.whl"


def _is_cached(cache: Path, wheel: Wheel) -> bool:
    path = _cached(cache, wheel)
    return path.is_file() and sha256_of(path) == wheel.sha256


def default_of(environment: Environment, locks: Sequence[Lock]) -> str:
    """The version that `module load NAME` takes, of the environment's locks; '' without any."""
    versions = [lock.version for lock in locks if lock.name == environment.name]
    if environment.default and environment.default not in versions:
        hint = suggest(environment.default, versions) if versions else _LOCK_IT.format(environment.name)
        where = f"{SETTING}: {environment.name}"
        raise InputError.single(where, f"there is no version {environment.default}", hint)
    return environment.default or next(iter(versions), "")


def removable(modules: Sequence[str], environments: Mapping[str, Environment], locks: Sequence[Lock]) -> list[str]:
    """The modules, each once; an InputError for another text, and for a default that stays declared.

    One without a lock may be on nodes all the same: its lock was removed before.
    """
    problems = Problems()
    for module in modules:
        name, _, version = module.partition("/")
        if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
            problems.add(module, "is not a version of an environment", "write NAME/VERSION: dl/2026.12")
        elif name in environments and version == default_of(environments[name], locks):
            hint = f"`deepopsctl environments lock {name}` makes a new one; or take {name} out of `{SETTING}`"
            problems.add(module, "is the default version", hint)
    problems.raise_if_any()
    return list(dict.fromkeys(modules))


def remove_locks(directory: Path, modules: Sequence[str]) -> None:
    """Remove the locks of versions that are no longer on the nodes."""
    for module in modules:
        path = lock_path(directory, *module.split("/"))
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def on_nodes(setting: object, directory: Path, modules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What nodes get, for the role `environments`: every version of every declared environment.

    `modules` is the setting `modules_declared`: a Python that the site has in a directory.
    """
    try:
        environments, locks = declared(setting), read_locks(directory)
        return [
            _on_nodes(lock, default_of(environment, locks), modules, libraries=environment.libraries)
            for environment in environments.values()
            for lock in _locks_of(environment, locks)
        ]
    except InputError as error:
        raise RefusedError(error.message, error.hint) from error


def _locks_of(environment: Environment, locks: Sequence[Lock]) -> list[Lock]:
    own = [lock for lock in locks if lock.name == environment.name]
    if not own:
        where = f"{SETTING}: {environment.name}"
        raise InputError.single(where, "has no lock", _LOCK_IT.format(environment.name))
    return own


def of_lock(lock: Lock) -> dict[str, Any]:
    """What nodes get of one lock, for the role `web`: with the distribution's own Python."""
    return _on_nodes(lock, lock.version, {})


def _on_nodes(lock: Lock, default: str, modules: Mapping[str, Any], *, libraries: bool = False) -> dict[str, Any]:
    return {
        "name": lock.name,
        "version": lock.version,
        "default": lock.version == default,
        "python": lock.target.python,
        "interpreter": _interpreter(lock.target.python, modules),
        "machine": lock.target.machine,
        "glibc": lock.target.glibc,
        "libraries": libraries,
        # their names alone: the rest would be a program to a module system
        "packages": [match[0] for each in lock.packages if (match := _PLAIN.match(each))],
        "installer": {lock.installer.file: lock.installer.sha256},
        "wheels": {wheel.file: wheel.sha256 for wheel in lock.wheels},
        "lock": lock.text(),
    }


def _interpreter(python: str, modules: Mapping[str, Any]) -> str:
    """The site's own Python of this version, or the distribution's."""
    for key, entry in modules.items():
        name, _, version = str(key).partition("/")
        of_version = name == "python" and f"{version}.".startswith(f"{python}.")
        if of_version and isinstance(entry, Mapping) and "prefix" in entry:
            return f"{entry['prefix']}/bin/python{python}"
    return f"/usr/bin/python{python}"


def templates(versions: Sequence[Mapping[str, Any]], directory: str) -> list[dict[str, Any]]:
    """Files of a node: each version's module and lock, and last of all, when the modules are there, the default ones.

    The lock is in its environment: a deploy sees that one is gone.
    """
    modules = f"{directory}/modulefiles"
    of_versions = [
        {"src": source, "dest": f"{place}/{each['name']}/{each['version']}{end}", "vars": {"environment": each}}
        for each in versions
        for source, place, end in (("lock.j2", directory, "/requirements.lock"), ("module.j2", modules, ""))
    ]
    defaults = [
        {"src": "version.j2", "dest": f"{modules}/{each['name']}/.version", "vars": {"version": each["version"]}}
        for each in versions
        if each["default"]
    ]
    return of_versions + defaults
