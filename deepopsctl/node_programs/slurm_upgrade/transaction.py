"""Packages before the transaction: fetched, simulated, and the ones there now kept to go back to."""

from __future__ import annotations

import os
import re
import shutil
from typing import Dict, Mapping, Tuple

from .._shared import command
from . import PACKAGES, UpgradeError
from .query import installed

_APT = ("apt-get", "--yes", "--quiet", "--no-install-recommends")
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "APT_LISTCHANGES_FRONTEND": "none"}
_FETCH_S, _READ_S = 1800, 60
_REMOVED = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
# old shared libraries may go with what needed them
_LIBRARY = re.compile(r"libslurm\d+\w*|libslurmdb\d+\w*")


def prepare(packages: Mapping[str, str], *, keep: bool) -> None:
    """Fetch {name: version} and simulate the installation; with `keep`, fetch what is there now as well.

    Nothing is installed. An UpgradeError where it would not work, or would remove a package of Slurm's: Debian's
    slurmctld cancels all jobs when it is removed.
    """
    if not packages:
        return
    names = ["{}={}".format(name, version) for name, version in sorted(packages.items())]
    simulated = _apt("--simulate", "install", *names)
    removed = [name for name in _REMOVED.findall(simulated) if _is_slurms(name)]
    if removed:
        raise UpgradeError("apt would remove {}: nothing was changed".format(" ".join(sorted(removed))))
    _apt("--download-only", "install", *names)
    if keep:
        _keep({name: version for name, version in installed().items() if packages.get(name) != version})


def kept() -> Dict[str, Tuple[str, str]]:
    """{name: (file, version)} of the packages that were there before."""
    result = {}
    for file in sorted(os.listdir(PACKAGES)) if os.path.isdir(PACKAGES) else []:
        path = os.path.join(PACKAGES, file)
        shown = command.run(["dpkg-deb", "--show", "--showformat=${Package} ${Version}", path], _READ_S)
        if not shown.ok:
            raise UpgradeError(shown.failure)
        name, version = shown.output.split()
        result[name] = (path, version)
    return result


def _is_slurms(name: str) -> bool:
    return name.startswith(("slurm", "libpam-slurm", "sackd", "munge", "mariadb-server")) and not _LIBRARY.fullmatch(
        name
    )


def _keep(versions: Mapping[str, str]) -> None:
    """Fetch the packages that are installed; those of an interrupted call are there already."""
    there = kept()
    missing = sorted(name for name, version in versions.items() if there.get(name, ("", ""))[1] != version)
    if not missing:
        return
    os.makedirs(PACKAGES, 0o700, exist_ok=True)
    scratch = PACKAGES + ".partial"
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch, 0o700)
    words = ["{}={}".format(name, versions[name]) for name in missing]
    # apt's own user may not write there: apt then says so, and fetches as root
    done = command.run_merged(
        ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", scratch, "apt-get", "--quiet", "download", *words],
        _FETCH_S,
        env=command.environment(**_ENVIRONMENT),
    )
    if not done.ok:
        raise UpgradeError(
            "what is installed now can't be fetched again, so there would be no way back: {}".format(_words(done))
        )
    for file in os.listdir(scratch):
        os.replace(os.path.join(scratch, file), os.path.join(PACKAGES, file))
    os.rmdir(scratch)


def _apt(*arguments: str) -> str:
    done = command.run_merged([*_APT, *arguments], _FETCH_S, env=command.environment(**_ENVIRONMENT))
    if not done.ok:
        raise UpgradeError("apt-get {}: {}".format(arguments[0].lstrip("-"), _words(done)))
    return done.output


def _words(done: command.Result) -> str:
    """What apt complains of."""
    lines = [line.strip() for line in done.output.splitlines() if line.startswith(("E:", " "))]
    return "; ".join(lines[-6:]) or done.failure
