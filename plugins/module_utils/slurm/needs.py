"""What a configuration of Slurm needs of a node: programs, plugins, directories, devices, and one id of Slurm's user.

Looked at before anything is changed. `deepopsctl/slurm/needs.py` decides what a node needs; here is whether it has it.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import stat
import threading
from typing import Any, Iterator, Mapping, Tuple

from .spank import obstacles

Needs = Mapping[str, Any]
# a key of slurm.conf or cluster.yml, a sentence, and whether it is known here that this is asked for the first time
Problem = Tuple[str, str, bool]

SLURM_USER = "slurm"
# where packages and builds have Slurm's plugins, where PluginDir does not say it
PLUGIN_DIRECTORIES = (
    "/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm",
)  # fmt: skip
# any directory of plugins has it
ALWAYS_THERE = "auth_munge.so"
IN_MEMORY = ("tmpfs", "ramfs")
# for the other keys Slurm takes a pattern for the name of a file
PATTERNS = ("Prolog", "Epilog", "TaskProlog")
# a file server that hangs must not hang the node's answer
ANSWER_S = 15
_NVIDIA = "/dev/nvidia"


def slurm_ids() -> list[int]:
    """The ids of the user slurm and its group here; [] where there is no such user."""
    try:
        entry = pwd.getpwnam(SLURM_USER)
    except KeyError:
        return []
    return [entry.pw_uid, entry.pw_gid]


def unmet(needs: Needs, version: str = "") -> list[dict[str, Any]]:
    """What is missing here: `key`, `message`, and `new` where deepopsctl's prolog does not call that program yet.

    `version` is that of Slurm, if known.
    """
    if not needs:
        return []
    problems: list[Problem] = []
    done = threading.Event()

    def work() -> None:
        problems.extend(_problems(needs, version))
        done.set()

    threading.Thread(target=work, daemon=True).start()
    if not done.wait(ANSWER_S):
        problems.append(("slurm_config", f"its paths can't be read within {ANSWER_S} s: a file server hangs", False))
    return [{"key": key, "message": message, "new": new} for key, message, new in dict.fromkeys(problems)]


def _problems(needs: Needs, version: str) -> Iterator[Problem]:
    away = [path for path in needs.get("mounts", ()) if not os.path.ismount(path)]
    for program in needs.get("programs", ()):
        yield from _program(program, away)
    directories = _plugin_directories(needs.get("plugin_directories", ""))
    for plugin in needs.get("plugins", ()) if directories else ():
        if not any(os.path.exists(os.path.join(path, plugin["file"])) for path in directories):
            key, where = plugin["key"], " or ".join(directories)
            yield key, f"{key}={plugin['name']}: there is no {plugin['file']} in {where}", False
    for reason in obstacles(version, needs.get("plugstack", "")):
        yield "slurm_plugstack", reason, False
    for entry in needs.get("directories", ()):
        yield from _directory(entry, away)
    for path in needs.get("devices", ()):
        if not os.path.exists(path) and (not path.startswith(_NVIDIA) or _has_driver()):
            yield "gpus", f"the GPU's device {path} is not there", False
    yield from _temporary(needs.get("temporary") or {})


def _program(program: Needs, away: list[str]) -> Iterator[Problem]:
    """Of a pattern that deepopsctl's own program has, each file that matches is run; without one, nothing."""
    key, written = str(program["key"]), str(program["path"])
    if _is_below(written, away):
        return
    is_pattern = key in PATTERNS and any(letter in written for letter in "*?[")
    for path in sorted(glob.glob(written)) if is_pattern else [written]:
        fault = _fault(path) or (_closed_to_users(path) if program.get("user") else "")
        if fault:
            message = f"{key}={written} {(fault if path == written else f'has {path}, which {fault}')}"
            yield key, message, not _calls(program.get("called_by", ""), written)


def _calls(wrapper: str, path: str) -> bool:
    """Whether deepopsctl's own program calls the site's already; true where it never does."""
    if not wrapper:
        return True
    try:
        with open(wrapper, errors="replace") as stream:
            return bool(re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w./*-])", stream.read()))
    except OSError:
        return False


def _fault(path: str) -> str:
    """Why a program can't be run, '' where it can."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"can't be read ({error.strerror or error})"
    if not stat.S_ISREG(mode):
        return "is a directory" if stat.S_ISDIR(mode) else "is not a file"
    if not mode & 0o111:
        return "is not executable"
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        return "is on a file system that is mounted noexec"
    interpreter = _interpreter(path)
    if interpreter and not os.path.exists(interpreter):
        return f"is a script for {interpreter}, which is not there"
    return ""


def _closed_to_users(path: str) -> str:
    """Why users can't run a program that root can, '' where they can."""
    mode = os.stat(path).st_mode
    if not (mode & 0o001 and (mode & 0o004 or _interpreter(path) is None)):
        return "can't be run by users"
    closed = next((parent for parent in _parents(path) if not os.stat(parent).st_mode & 0o001), "")
    return f"can't be run by users: they may not enter {closed}" if closed else ""


def _interpreter(path: str) -> str | None:
    """The program that a script's first line names; None for anything that is not a script."""
    try:
        with open(path, "rb") as stream:
            line = stream.readline(4096)
    except OSError:
        return None
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    return words[0] if words else None


def _directory(entry: Needs, away: list[str]) -> Iterator[Problem]:
    """A directory that must be there, or, with `made`, that a deploy or a daemon makes."""
    key, path = str(entry["key"]), str(entry["path"])
    if _is_below(path, away):
        return
    where = next((each for each in [path, *_parents(path)] if os.path.lexists(each)), "/")
    if not os.path.isdir(where):
        yield key, f"{key}: {where} is not a directory", False
    elif where != path and not entry.get("made"):
        yield key, f"{key}: the directory {path} is not there", False
    elif os.statvfs(where).f_flag & os.ST_RDONLY:
        yield key, f"{key}: {where} is read-only", False
    elif entry.get("executes") and os.statvfs(where).f_flag & os.ST_NOEXEC:
        yield key, f"{key}: jobs start from {where}, which is mounted noexec", False
    elif entry.get("on_disk") and _file_system(where) in IN_MEMORY:
        yield (
            key,
            (f"{key}: {path} is in the node's memory ({_file_system(where)}): what jobs write there is taken from it"),
            False,
        )


def _temporary(entry: Needs) -> Iterator[Problem]:
    """TmpDisk is what slurmd reports at least, or the node is drained."""
    if not entry:
        return
    try:
        status = os.statvfs(entry["path"])
    except OSError as error:
        yield "TmpFS", f"TmpFS={entry['path']}: {error.strerror or error}", False
        return
    size = status.f_blocks * status.f_frsize // 2**20
    if size < int(entry["mb"]):
        yield "TmpDisk", f"TmpDisk={int(entry['mb'])} is more than the {size} MiB of {entry['path']}", False


def _file_system(path: str) -> str:
    """The type of the file system that a path is on."""
    best, word = "", ""
    with open("/proc/mounts", errors="replace") as stream:
        for line in stream:
            _source, place, kind = line.split()[:3]
            place = place.replace("\\040", " ")
            inside = os.path.realpath(path) == place or os.path.realpath(path).startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best):
                best, word = place, kind
    return word


def _plugin_directories(written: str) -> list[str]:
    """Where plugins are; [] where Slurm is not installed yet."""
    patterns = [path for path in written.split(":") if path] or PLUGIN_DIRECTORIES
    there = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return there if any(os.path.exists(os.path.join(path, ALWAYS_THERE)) for path in there) else []


def _has_driver() -> bool:
    """Without any device the driver comes with this deploy."""
    return bool(glob.glob(_NVIDIA + "[0-9]*"))


def _is_below(path: str, directories: list[str]) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in directories)


def _parents(path: str) -> Iterator[str]:
    while path not in ("/", ""):
        path = os.path.dirname(path)
        yield path
