"""Which packages a node gets Slurm from."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from deepopsctl.slurm.package_choice import choose_repository, hop_refusal, with_versions
from deepopsctl.text.problems import RefusedError

Entry = Mapping[str, object]
Repositories = Mapping[str, Mapping[str, Entry]]

OLD = {"source": "slurm-wlm", "release": "24.11", "version": "24.11.5-4+deepopsctl1", "packages": ["slurmd"]}
NEW = {**OLD, "release": "26.05", "version": "26.05.5-1~deb13+deepopsctl1"}
TOOL = {"source": "apptainer", "release": "", "version": "1.4.5-1", "packages": ["apptainer"]}
BUILT = {"Debian 13": {"trixie-slurm-wlm-24.11": OLD, "trixie-apptainer": TOOL}}
BOTH = {"Debian 13": {**BUILT["Debian 13"], "trixie-slurm-wlm-26.05": NEW}}


def test_the_distribution_needs_no_repository() -> None:
    assert choose_repository({}, "distro", "", "Debian 13") == {}
    assert with_versions(["munge", "slurmd"], {}) == ["munge", "slurmd"]


def test_the_only_release_that_was_built_is_taken() -> None:
    assert choose_repository(BUILT, "repository", "", "Debian 13") == {**OLD, "suite": "trixie-slurm-wlm-24.11"}


def test_a_release_is_chosen_by_its_name() -> None:
    assert choose_repository(BOTH, "repository", "26.05", "Debian 13")["version"] == NEW["version"]


@pytest.mark.parametrize(
    ("install", "release", "platform", "reason"),
    [
        ("repository", "", "Debian 12", "no packages of Slurm were built for Debian 12"),
        # `packages --for` refuses it
        ("repository", "26.05", "Ubuntu 24.04", "for Ubuntu 24.04: they can be for Debian 12 and Debian 13 only"),
        (
            "repository",
            "25.11",
            "Debian 13",
            r"there is 24.11, 26.05\): deepopsctl packages build slurm --release 25.11",
        ),
        ("repository", "", "Debian 13", "set slurm_release"),
        ("source", "", "Debian 13", "neither distro nor repository"),
    ],
)
def test_what_can_not_be_installed_is_refused(install: str, release: str, platform: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        choose_repository(BOTH, install, release, platform)


def test_packages_of_the_repository_are_installed_in_its_version_and_others_in_any() -> None:
    assert with_versions(["munge", "slurmd"], OLD) == {"munge": "", "slurmd": "24.11.5-4+deepopsctl1"}


PYXIS: Mapping[str, object] = {
    "source": "pyxis",
    "release": "24.11",
    "version": "24.11+pyxis0.24.0-0",
    "packages": ["slurm-wlm-pyxis"],
}


def test_pyxis_comes_with_the_slurm_that_it_was_built_against() -> None:
    # of the distribution's Slurm, in a suite of its own
    distro: Repositories = {"Debian 13": {**BUILT["Debian 13"], "trixie-pyxis-24.11": PYXIS}}
    chosen = choose_repository(distro, "distro", "", "Debian 13", pyxis=True)
    assert with_versions(["slurmd", "slurm-wlm-pyxis"], chosen) == {"slurmd": "", "slurm-wlm-pyxis": PYXIS["version"]}
    # of the cluster's, in that one's
    version = "26.05+pyxis0.24.0-0"
    new: Entry = {
        **NEW,
        "libraries": ["enroot", "slurm-wlm-pyxis"],
        "added": {"slurm-wlm-pyxis": version},
    }
    own: Repositories = {"Debian 13": {**distro["Debian 13"], "trixie-slurm-wlm-26.05": new}}
    chosen = choose_repository(own, "repository", "26.05", "Debian 13", pyxis=True)
    assert with_versions(["slurmd", "slurm-wlm-pyxis"], chosen) == {
        "slurmd": NEW["version"],
        "slurm-wlm-pyxis": version,
    }


@pytest.mark.parametrize(
    ("install", "release", "command"),
    [
        ("distro", "", "deepopsctl packages build pyxis --for debian13"),
        ("repository", "24.11", "deepopsctl packages build pyxis --release 24.11 --for debian13"),
    ],
)
def test_a_pyxis_that_was_not_built_is_refused_with_the_command(install: str, release: str, command: str) -> None:
    with pytest.raises(RefusedError, match=command):
        choose_repository(BOTH, install, release, "Debian 13", pyxis=True)


def test_an_installed_slurm_outside_the_window_is_refused() -> None:
    installed = "slurmd 22.05.8-4+deb12u3 installed\nslurm-client 22.05.8-4+deb12u3 installed\n"
    assert "22.05 -> 23.11 -> 25.05 -> 26.05" in hop_refusal(installed, NEW)


@pytest.mark.parametrize("installed", ["", "slurmd 26.05.5-1 installed\n", "slurmd 22.05.8-4 config-files\n"])
def test_a_slurm_of_the_same_release_or_none_is_not(installed: str) -> None:
    assert hop_refusal(installed, NEW) == ""


def test_only_an_upgrade_goes_to_another_release() -> None:
    installed = "slurmd 24.11.5-4 installed\n"
    assert "`deepopsctl upgrade slurm --to 26.05`" in hop_refusal(installed, NEW)
    assert hop_refusal(installed, NEW, upgrade=True) == ""
