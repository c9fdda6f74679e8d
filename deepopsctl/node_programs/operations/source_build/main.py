"""What `node_program` starts: units and programs of a Slurm built from source, on the node where it runs.

Nothing is deleted before `finish`: running steps and programs have its libraries open, and a way back needs it whole.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared import atomic_file, spank
from ..._shared.command import CommandError, require, run

UNITS = "/etc/systemd/system"
CONFIG = "/etc/slurm"
RECORDS = "/var/lib/deepopsctl/records"
# there until an undo has ended: which units were stopped for it
UNDOING = "/var/lib/deepopsctl/takeover-undo"
LINKER = "/etc/ld.so.conf.d/slurm.conf"
# where a package's programs are
PACKAGED = ("/usr/bin", "/usr/sbin")
# plugins/module_utils/node/backups.py and files.py have the same
SUFFIX = ".before-deepopsctl"
MANAGED = b"# Written by deepopsctl"
_NAMES = """
sacct sackd sacctmgr salloc sattach sbatch sbcast scancel scontrol scrontab scrun sdiag sgather sh5util sinfo slurmctld
slurmd slurmdbd slurmrestd slurmstepd sprio squeue sreport srun sshare sstat strigger sview
"""
PROGRAMS = frozenset(_NAMES.split())
PAGES = re.compile(
    rf"(?:{'|'.join(sorted(PROGRAMS))}|slurm|slurm\.conf|slurmdbd\.conf|[a-z_]*(?:gres|cgroup|topology|burst_buffer|"
    r"acct_gather|job_container|knl|helpers|mpi|oci|scrun)[a-z_]*\.conf)\.[158](?:\.gz)?"
)
TIME_S = 120.0

Request = dict[str, Any]
Result = dict[str, Any]


class BuildError(Exception):
    """It can't be done; the message has the reason."""


def main(request: Request) -> Result:
    """One phase; SystemExit with the reason where it fails."""
    try:
        return {"changed": _PHASES[request["phase"]](request)}
    except (BuildError, CommandError, OSError) as error:
        raise SystemExit(str(error)) from error


def set_aside_units(request: Request) -> bool:
    """Give the units of these daemons to the packages. What runs continues; its next restart is the packaged one."""
    paths = [path for path in map(unit_path, request["daemons"]) if os.path.isfile(path) and not os.path.islink(path)]
    if not request["check_mode"]:
        _move_units({path: path + SUFFIX for path in paths})
    return bool(paths)


def restore_units(request: Request) -> bool:
    """The units from before, and the daemons by them."""
    paths = [path for path in map(unit_path, request["daemons"]) if os.path.isfile(path + SUFFIX)]
    enabled = _move_units({path + SUFFIX: path for path in paths})
    if enabled:
        _systemctl("restart", *enabled)
    return bool(paths)


def replace_programs(request: Request) -> bool:
    """Links to the packages' programs in place of those that were built, which would be found first."""
    prefix = request["prefix"]
    running = sorted({name for name, program in processes() if within(program, prefix) and name in _DAEMONS})
    if running and not request["check_mode"]:
        # a deploy that was cut off between the two
        _systemctl("restart", *running)
    # of daemons that this node does not run, too
    others = [name for name in _DAEMONS if f"={prefix}/".encode() in _read(unit_path(name))]
    changed = set_aside_units({**request, "daemons": others})
    for path in built_programs(prefix):
        changed = True
        if request["check_mode"]:
            continue
        kept = os.path.join(kept_in(prefix), os.path.basename(os.path.dirname(path)))
        os.makedirs(kept, exist_ok=True)
        os.rename(path, os.path.join(kept, os.path.basename(path)))
        packaged = [os.path.join(directory, os.path.basename(path)) for directory in PACKAGED]
        # jobs and shells have its path
        for target in filter(os.path.lexists, packaged):
            os.symlink(target, path)
            break
    return changed


def restore_programs(prefix: str) -> bool:
    """The programs from before, in place of the links."""
    kept = sorted(glob.glob(os.path.join(kept_in(prefix), "*bin", "*")))
    for path in kept:
        os.replace(path, os.path.join(prefix, os.path.relpath(path, kept_in(prefix))))
    shutil.rmtree(kept_in(prefix), ignore_errors=True)
    return bool(kept)


def undo(request: Request) -> bool:
    """These daemons and their configuration as they were before the deploy; without a prefix, the packages' daemons."""
    prefix = request["prefix"]
    saved = [kept_in(prefix), *(unit_path(name) + SUFFIX for name in _DAEMONS)] if prefix else []
    # of packages, nothing but their configuration has changed
    saved += [] if prefix else glob.glob(os.path.join(CONFIG, "*" + SUFFIX))
    if not any(map(os.path.exists, (*saved, UNDOING))):
        return False
    changed = False
    if prefix:
        refuse_other_release(prefix)
        changed = restore_programs(prefix)
    names = [name for name in request["daemons"] if not prefix or os.path.isfile(unit_path(name) + SUFFIX)]
    units = [f"{name}.service" for name in names]
    running = [name for name in units if run(["systemctl", "--quiet", "is-active", name], TIME_S).ok]
    # one that was cut off has stopped them, or has not started all of them again
    running = sorted({*running, *_read(UNDOING).decode().split()})
    atomic_file.write_synced(UNDOING, "\n".join(running))
    if running:
        _systemctl("stop", *running)
    changed = restore_files(CONFIG) or bool(prefix and units) or changed
    for name in request["daemons"]:
        for path in (
            os.path.join(UNITS, f"{name}.service.d", "deepopsctl.conf"),
            f"/etc/default/{name}",
        ):
            if _is_managed(path):
                os.unlink(path)
    restore_units(request)
    if running:
        _systemctl("daemon-reload")
        _systemctl("reenable", "--quiet", *running)
        _systemctl("start", *running)
    # to deepopsctl it is a Slurm that it did not install again
    for path in glob.glob(os.path.join(RECORDS, "slurm.*")):
        os.unlink(path)
    os.unlink(UNDOING)
    return changed


def refuse_other_release(prefix: str) -> None:
    """A newer release has changed state and database by now: the older one can't read them."""
    programs = (os.path.join(kept_in(prefix), "bin", "sinfo"), os.path.join(PACKAGED[0], "sinfo"))
    versions = [require([path, "--version"], TIME_S).split()[-1] for path in programs if os.path.exists(path)]
    releases = {version.rpartition(".")[0] for version in versions}
    if len(releases) > 1:
        raise BuildError(f"Slurm is {versions[1]} by now: {versions[0]} can't read its state")


def restore_files(directory: str) -> bool:
    """The saved files in place of deepopsctl's, which are removed where there was none."""
    saved = sorted(glob.glob(os.path.join(directory, "*" + SUFFIX)))
    for path in sorted(glob.glob(os.path.join(directory, "*"))):
        if _is_managed(path):
            os.unlink(path)
    for path in saved:
        # also in place of a link that a deploy has made
        os.replace(path, path[: -len(SUFFIX)])
    return bool(saved)


def verify(request: Request) -> bool:
    """Raise a BuildError where what was built is still in use."""
    prefix = request["prefix"]
    if built_programs(prefix):
        raise BuildError(f"Slurm's programs in {prefix} were not replaced yet: deploy first")
    users = sorted({name for name, program in processes() if within(program, prefix)} | set(library_users(prefix)))
    if users:
        raise BuildError(
            f"{', '.join(users)} started from {prefix} and still run: wait for the jobs from before to end"
        )
    return False


def finish(request: Request) -> bool:
    """Remove what was built, once nothing uses it."""
    verify(request)
    paths = list(remains(request["prefix"]))
    for path in paths if not request["check_mode"] else ():
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    if LINKER in paths and not request["check_mode"]:
        require(["ldconfig"], TIME_S)
    return bool(paths)


def remains(prefix: str) -> Iterator[str]:
    """All that `make install` left, and what was set aside. libpmi stays: programs of users are linked with it.

    So do plugins that plugstack.conf has jobs load (pyxis): without one that it requires, no job would start.
    """
    links = (os.path.join(prefix, directory, name) for directory in ("bin", "sbin") for name in sorted(PROGRAMS))
    yield from (path for path in links if os.path.islink(path) and os.path.dirname(os.readlink(path)) in PACKAGED)
    kept = loaded_plugins()
    for directory in sorted(glob.glob(os.path.join(prefix, "lib*/slurm"))):
        inside = [entry.path for entry in os.scandir(directory)]
        yield from sorted(set(inside) - kept) if kept & set(inside) else [directory]
    for pattern in ("lib*/libslurm*", "include/slurm", "share/doc/slurm-*"):
        yield from sorted(glob.glob(os.path.join(prefix, pattern)))
    pages = sorted(glob.glob(os.path.join(prefix, "share/man/man[158]/*")))
    yield from (path for path in pages if PAGES.fullmatch(os.path.basename(path)))
    yield from filter(os.path.exists, [kept_in(prefix), *(unit_path(name) + SUFFIX for name in _DAEMONS)])
    lines = _read(LINKER).decode(errors="replace").split()
    if lines and all(line.startswith(os.path.join(prefix, "lib")) for line in lines):
        yield LINKER


def loaded_plugins() -> set[str]:
    """Files that plugstack.conf names."""
    return {plugin["path"] for plugin in spank.plugins()}


def built_programs(prefix: str) -> list[str]:
    """Files of Slurm's programs below the prefix."""
    paths = [os.path.join(prefix, directory, name) for directory in ("bin", "sbin") for name in sorted(PROGRAMS)]
    return [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]


def processes() -> Iterator[tuple[str, str]]:
    """(name, path of the program) of all that runs."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            program = os.readlink(f"/proc/{entry}/exe")
        except OSError:
            continue
        yield os.path.basename(program).split(" ")[0], program


def library_users(prefix: str) -> Iterator[str]:
    """Names of programs that have Slurm's libraries or plugins of the prefix open, which are to go."""
    opened = re.compile(rf" ({re.escape(prefix)}/lib[^/]*/(?:libslurm|slurm/).*)$", re.MULTILINE)
    kept = loaded_plugins()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        if set(opened.findall(_read(f"/proc/{entry}/maps").decode(errors="replace"))) - kept:
            yield _read(f"/proc/{entry}/comm").decode(errors="replace").strip()


def within(program: str, prefix: str) -> bool:
    """Whether a program is one of Slurm's below the prefix, set aside or not."""
    return program.startswith(prefix + "/") and os.path.basename(program).split(" ")[0] in PROGRAMS


def kept_in(prefix: str) -> str:
    """Where programs are kept, on the same file system."""
    return os.path.join(prefix, "lib", "slurm" + SUFFIX)


def unit_path(daemon: str) -> str:
    """The unit file that comes before a package's."""
    return os.path.join(UNITS, f"{daemon}.service")


def _is_managed(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path) and _read(path).startswith(MANAGED)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _move_units(targets: Mapping[str, str]) -> list[str]:
    """Rename unit files; names of those that start at boot, whose links named the file from before."""
    names = sorted({os.path.basename(path).replace(SUFFIX, "") for path in targets})
    enabled = [name for name in names if run(["systemctl", "--quiet", "is-enabled", name], TIME_S).ok]
    for path, target in targets.items():
        os.replace(path, target)
    if targets:
        _systemctl("daemon-reload")
    if enabled:
        _systemctl("reenable", "--quiet", *enabled)
    return enabled


def _systemctl(*words: str) -> None:
    require(["systemctl", *words], TIME_S)


_DAEMONS: Sequence[str] = ("slurmctld", "slurmdbd", "slurmd")
_PHASES = {
    "set aside": set_aside_units, "restore": restore_units, "replace": replace_programs, "undo": undo, "verify": verify,
    "finish": finish,
}  # fmt: skip
