"""Slurm's releases: upgrades that are allowed, and what each removed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from deepopsctl.slurm.releases import (
    GONE,
    KEYS,
    RELEASES,
    REMOVALS,
    find_release,
    release_of,
    upgrade_path,
    upgrade_refusal,
)


@pytest.mark.parametrize(
    ("installed", "wanted"), [("24.11", "26.05"), ("25.11", "26.05"), ("24.11", "24.11"), ("22.05", "23.11")]
)
def test_an_upgrade_within_the_window_is_allowed(installed: str, wanted: str) -> None:
    assert upgrade_refusal(installed, wanted) == ""


@pytest.mark.parametrize(
    ("installed", "wanted", "reason"),
    [
        ("22.05", "26.05", "the way is 22.05 -> 23.11 -> 25.05 -> 26.05"),
        ("22.05", "24.11", "the way is 22.05 -> 23.11 -> 24.11"),
        ("19.05", "26.05", "with 19.05 jobs, state and accounting would be lost"),
        ("26.05", "24.11", "does not go back from 26.05 to 24.11"),
        ("26.05", "27.13", "Slurm 27.13 is unknown"),
    ],
)
def test_any_other_upgrade_is_refused_with_the_reason(installed: str, wanted: str, reason: str) -> None:
    assert reason in upgrade_refusal(installed, wanted)


def test_each_step_of_a_path_is_an_allowed_upgrade() -> None:
    for release in RELEASES:
        for before, after in pairwise(upgrade_path("22.05", release.name)):
            known = find_release(after)
            assert known is not None
            assert before in known.direct_from


@pytest.mark.parametrize(
    ("version", "release"),
    [("24.11.5-4+deb13u1", "24.11"), ("slurm-wlm 26.05.5", "26.05"), ("1:23.11.4-1", "23.11"), ("none", "")],
)
def test_the_release_is_read_from_a_version(version: str, release: str) -> None:
    assert release_of(version) == release


def test_an_upgrade_names_what_the_releases_in_between_removed() -> None:
    removed = {(each.key, each.value): each.effect for each in REMOVALS if "22.05" < each.release <= "24.05"}
    assert removed["SchedulerAuth", ""] == "fatal"
    assert removed["SelectType", "select/cons_res"] == "fatal"
    assert ("FrontendName", "") not in removed
    assert ("FastSchedule", "") not in removed


def test_no_key_is_both_known_to_all_releases_and_removed() -> None:
    assert not KEYS & GONE.keys()
