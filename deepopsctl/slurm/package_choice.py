"""Which of the packages that were built a node gets, and whether the Slurm there may be upgraded to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepopsctl.node_programs._shared import spank
from deepopsctl.slurm.releases import release_of, upgrade_refusal
from deepopsctl.text.answers import texts, words
from deepopsctl.text.problems import RefusedError

SOURCE = "slurm-wlm"
# Slurm's plugin for containers; the package has the name of a part of Slurm, as it goes with a release of it
PYXIS, PYXIS_PACKAGE, PYXIS_PLUGINS = "pyxis", "slurm-wlm-pyxis", spank.OF_PACKAGES
# the platforms that packages are made for, as `packages --for` names them
SYSTEMS = {"Debian 12": "debian12", "Debian 13": "debian13"}


def choose_repository(
    repositories: Mapping[str, Mapping[str, Mapping[str, object]]],
    install: str,
    release: str,
    platform: str,
    *,
    pyxis: bool = False,
) -> dict[str, object]:
    """The repository of a platform's Slurm with its `suite`; empty where all packages are the distribution's.

    With `pyxis` it has that plugin, for the distribution's Slurm that plugin alone.
    """
    suites = repositories.get(platform, {})
    if install == "distro":
        return _with_pyxis(_newest(suites, PYXIS), platform) if pyxis else {}
    chosen = _of_slurm(suites, install, release, platform)
    return _with_pyxis(chosen, platform, str(chosen["release"])) if pyxis else chosen


def _newest(suites: Mapping[str, Mapping[str, object]], source: str) -> dict[str, object]:
    fitting = [(str(values["release"]), suite) for suite, values in suites.items() if values["source"] == source]
    return {**suites[max(fitting)[1]], "suite": max(fitting)[1]} if fitting else {}


def _with_pyxis(repository: dict[str, object], platform: str, release: str = "") -> dict[str, object]:
    if not has_pyxis(repository):
        of_release = f" --release {release}" if release else ""
        raise RefusedError(
            f"environment_containers has pyxis, and it was not built for the Slurm {release or 'of'} {platform}: "
            f"deepopsctl packages build pyxis{of_release} --for {SYSTEMS.get(platform, 'SYSTEM')}"
        )
    return repository


def has_pyxis(repository: Mapping[str, object]) -> bool:
    """Whether a suite has Pyxis."""
    return PYXIS_PACKAGE in (*texts(repository.get("packages")), *texts(repository.get("libraries")))


def versions_of(repository: Mapping[str, object]) -> dict[str, str]:
    """{package: version} of all packages of a suite that have to be of just that version."""
    version = str(repository.get("version"))
    return {**dict.fromkeys(texts(repository.get("packages")), version), **words(repository.get("added"))}


def _of_slurm(
    suites: Mapping[str, Mapping[str, object]], install: str, release: str, platform: str
) -> dict[str, object]:
    if install != "repository":
        raise RefusedError(f"slurm_install is {install!r}, which is neither distro nor repository")
    built = {
        str(values["release"]): {**values, "suite": suite}
        for suite, values in suites.items()
        if values["source"] == SOURCE
    }
    if release in built:
        return built[release]
    if release or not built:
        wanted = f"Slurm {release}" if release else "Slurm"
        has = f" (there is {', '.join(sorted(built))})" if built else ""
        system = SYSTEMS.get(platform)
        how = (
            f"deepopsctl packages build slurm --release {release or 'RELEASE'} --for {system}"
            if system
            else f"they can be for {' and '.join(SYSTEMS)} only, slurm_install: distro takes the distribution's"
        )
        raise RefusedError(
            f"slurm_install is repository, and no packages of {wanted} were built for {platform}{has}: {how}"
        )
    if len(built) > 1:
        raise RefusedError(
            f"Slurm {' and '.join(sorted(built))} were built for {platform}: set slurm_release to one of them"
        )
    return next(iter(built.values()))


def with_versions(names: Sequence[str], repository: Mapping[str, object]) -> Sequence[str] | dict[str, str]:
    """Packages with the version that a repository has of them; '' is any, and so are all without a repository."""
    if not repository:
        return names
    known = versions_of(repository)
    return {name: known.get(name, "") for name in names}


def hop_refusal(installed: str, repository: Mapping[str, object], *, upgrade: bool = False) -> str:
    """Why the repository's Slurm can't follow the installed packages (lines of `dpkg-query`); '' where it can.

    Only an `upgrade` takes nodes to another release, in Slurm's order.
    """
    wanted = str(repository["release"])
    releases = sorted({release_of(line) for line in installed.splitlines() if line.endswith(" installed")} - {""})
    refused = next((reason for release in releases if (reason := upgrade_refusal(release, wanted))), "")
    others = [release for release in releases if release != wanted]
    if refused or upgrade or not others:
        return refused
    return (
        f"Slurm {others[0]} is installed here: `deepopsctl upgrade slurm --to {wanted}` takes the cluster to {wanted}"
    )
