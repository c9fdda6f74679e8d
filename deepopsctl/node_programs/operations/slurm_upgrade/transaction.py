"""Packages before the transaction: fetched, simulated, and the ones there now kept to go back to."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence

from ..._shared import command
from . import PACKAGES, REPOSITORIES, UpgradeError

# a deploy has apt hold Slurm's packages, so that nothing else changes them; here apt fetches and simulates only
_HELD_TOO = ("--ignore-hold", "--allow-change-held-packages")
_APT = ("apt-get", "--yes", "--quiet", "--no-install-recommends", *_HELD_TOO)
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "APT_LISTCHANGES_FRONTEND": "none"}
_FETCH_S, _READ_S = 1800, 60
# of the role package_repository
OWN = (
    "/etc/apt/preferences.d/deepopsctl-packages",
    "/etc/apt/sources.list.d/deepopsctl-packages.sources",
    "/etc/apt/keyrings/deepopsctl-packages.asc",
)
_NEW = "deepopsctl-new.list"
# `Inst slurmd [24.11.5-4] (26.05.5-1 deepopsctl:trixie-slurm-wlm-26.05 [amd64])`
_REPLACED = re.compile(r"^Inst (\S+) \[([^\]]+)\]", re.MULTILINE)
_REMOVED = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
# old shared libraries may go with what needed them, and so may a Pyxis that the new release has none of: where
# plugstack.conf requires it, the plan refuses
_LIBRARY = re.compile(r"libslurm\d+\w*|libslurmdb\d+\w*|slurm-wlm-pyxis")


def prepare(packages: Mapping[str, str], *, keep: bool) -> None:
    """Fetch {name: version} and simulate the installation; with `keep`, fetch what is there now as well.

    Nothing is installed. An UpgradeError where it would not work, or would remove a package: Debian's slurmctld
    cancels all jobs when it is removed, and libraries are what users' programs are linked with.
    """
    if not packages:
        return
    names = [f"{name}={version}" for name, version in sorted(packages.items())]
    simulated = _apt("--simulate", "install", *names)
    removed = removed_in(simulated)
    if removed:
        raise UpgradeError(
            f"apt would remove {' '.join(sorted(removed))}: nothing was changed. A library of the new release that they"
            " do not fit has to come with what they need: `deepopsctl packages add` takes it with Slurm's packages"
        )
    _apt("--download-only", "install", *names)
    if keep:
        _keep(replaced_in(simulated))


def obstacle(packages: Mapping[str, str], index: str) -> str:
    """Why apt could not install {name: version} of a repository with this index, '' where it could.

    Its sources, lists and preferences are copies: nothing of it stays, and no file of the repository is needed.
    """
    if not packages:
        return ""
    with tempfile.TemporaryDirectory(prefix="deepopsctl-apt-") as scratch:
        # apt reads lists as a user of its own
        os.chmod(scratch, 0o755)  # noqa: S103 (nothing secret is in it, and the directories below are root's)
        options = _apart(scratch, index)
        alone = ["-o", "Dir::Etc::sourcelist=" + os.path.join(scratch, "parts", _NEW), "-o", "Dir::Etc::sourceparts=-"]
        names = [f"{name}={version}" for name, version in sorted(packages.items())]
        try:
            _apt(*options, *alone, "-o", "APT::Get::List-Cleanup=0", "update")
            removed = removed_in(_apt(*options, "--simulate", "install", *names))
        except UpgradeError as error:
            return str(error).replace(scratch, "(new)")
        return f"apt would remove {' '.join(sorted(removed))}" if removed else ""


def _apart(scratch: str, index: str) -> list[str]:
    """Options with which apt sees the repository besides what the node has."""
    etc, lists = "/etc/apt", "/var/lib/apt/lists"
    for name in ("repository", "parts", "preferences", "lists/partial"):
        os.makedirs(os.path.join(scratch, name))
    _link(os.path.join(etc, "sources.list.d"), os.path.join(scratch, "parts"))
    _link(os.path.join(etc, "preferences.d"), os.path.join(scratch, "preferences"))
    _link(lists, os.path.join(scratch, "lists"))
    where = os.path.join(scratch, "repository")
    texts = {
        os.path.join(where, "Packages"): index,
        os.path.join(scratch, "parts", _NEW): f"deb [trusted=yes] file:{where} ./\n",
        os.path.join(scratch, "preferences", "new"): 'Package: *\nPin: origin ""\nPin-Priority: 1001\n',
    }
    for path, text in texts.items():
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
    values = {
        "Dir::Etc::sourceparts": "parts", "Dir::Etc::preferencesparts": "preferences", "Dir::State::lists": "lists",
        "Dir::Cache::pkgcache": "", "Dir::Cache::srcpkgcache": "",
    }  # fmt: skip
    pairs = [f"{key}={os.path.join(scratch, name) if name else ''}" for key, name in values.items()]
    return [word for pair in pairs for word in ("-o", pair)]


def _link(source: str, target: str) -> None:
    """Links to the files of a directory, but for those of the cluster's own repository."""
    for name in os.listdir(source) if os.path.isdir(source) else []:
        path = os.path.join(source, name)
        if os.path.isfile(path) and path not in OWN and name != "lock":
            os.symlink(path, os.path.join(target, name))


def withdraw() -> bool:
    """Remove the cluster's repository from apt's sources and preferences; a deploy adds the one that is declared."""
    there = [path for path in OWN if os.path.exists(path)]
    for path in there:
        os.unlink(path)
    return bool(there)


def removed_in(simulated: str) -> list[str]:
    """The packages that apt would remove, but for libraries of the old release."""
    return [name for name in _REMOVED.findall(simulated) if not _LIBRARY.fullmatch(name)]


def replaced_in(simulated: str) -> dict[str, str]:
    """{name: version now} of the packages that apt would replace."""
    return dict(_REPLACED.findall(simulated))


def kept() -> dict[str, tuple[str, str]]:
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


def _keep(versions: Mapping[str, str]) -> None:
    """Fetch packages that are installed now; those of an interrupted call are there already."""
    there = kept()
    missing = sorted(name for name, version in versions.items() if there.get(name, ("", ""))[1] != version)
    if not missing:
        return
    os.makedirs(PACKAGES, 0o700, exist_ok=True)
    scratch = PACKAGES + ".partial"
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch, 0o700)
    words = []
    for name in missing:
        file = _unpacked(name, versions[name])
        if file:
            shutil.copy(file, scratch)
        else:
            words.append(f"{name}={versions[name]}")
    _download(words, scratch)
    # of an upgrade whose end this host has missed: there would be two versions to go back to
    for name in there.keys() & set(missing):
        os.unlink(there[name][0])
    for file in os.listdir(scratch):
        os.replace(os.path.join(scratch, file), os.path.join(PACKAGES, file))
    os.rmdir(scratch)


def _unpacked(name: str, version: str) -> str:
    """The file of a package in a repository that a deploy has unpacked here: of them apt knows the new one alone."""
    file = f"{name}_{version.partition(':')[2] or version}_*.deb"
    return next(iter(glob.glob(os.path.join(REPOSITORIES, "*", "pool", "**", file), recursive=True)), "")


def _download(words: Sequence[str], directory: str) -> None:
    if not words:
        return
    # apt's own user may not write there: apt then says so, and fetches as root
    done = command.run_merged(
        ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", directory, "apt-get", "--quiet", "download", *words],
        _FETCH_S,
        env=command.environment(**_ENVIRONMENT),
    )
    if not done.ok:
        raise UpgradeError(
            f"what is installed now can't be fetched again, so there would be no way back: {_words(done)}"
        )


def _apt(*arguments: str) -> str:
    done = command.run_merged([*_APT, *arguments], _FETCH_S, env=command.environment(**_ENVIRONMENT))
    if not done.ok:
        verb = next(word for word in arguments if word in ("install", "update"))
        raise UpgradeError(f"apt-get {verb}: {_words(done)}")
    return done.output


def _words(done: command.Result) -> str:
    """What apt complains of."""
    lines = [line.strip() for line in done.output.splitlines() if line.startswith(("E:", " "))]
    return "; ".join(lines[-6:]) or done.failure
