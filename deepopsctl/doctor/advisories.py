"""Known vulnerabilities of Slurm and MUNGE, and which versions have them. Data, no network.

Sources: Slurm's CHANGELOG and SchedMD's release pages; Debian's changelogs of slurm-wlm and munge. Seen last on AS_OF.
A release that is not listed is fixed where it is newer than all that are, else it has had no fix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

AS_OF = "2026-11-24"
_DEBIAN = re.compile(r"(?:\d+:)?(?P<upstream>[^-~+]+)-(?P<base>[0-9.]+)(?:[+~]deb(?P<release>\d+)u(?P<level>\d+))?")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Advisory:
    """CVE names, date (ISO), the first fixed micro version by release, and the first affected release (`since`).

    `debian`: the first fixed package by upstream version, as (revision, Debian release, security level).
    """

    names: str
    date: str
    fixed: Mapping[str, int]
    debian: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    since: str = ""


SLURM = (
    Advisory("CVE-2022-29500, -29501, -29502", "2022-05-05", {"20.11": 9, "21.08": 8, "22.05": 0}),
    Advisory("CVE-2023-41914", "2023-10-11", {"22.05": 10, "23.02": 6}, {"22.05.8": ("4", 12, 1)}),
    Advisory("CVE-2023-49933, -49936, -49937, -49938", "2023-12-13", {"22.05": 11, "23.02": 7, "23.11": 1},
             {"22.05.8": ("4", 12, 2)}),
    Advisory("CVE-2023-49935", "2023-12-13", {"23.02": 7, "23.11": 1}, {"22.05.8": ("4", 12, 2)}, "23.02"),
    Advisory("CVE-2023-49934", "2023-12-13", {"23.11": 1}, since="23.11"),
    Advisory("CVE-2024-42511", "2024-07-31", {"23.02": 8, "23.11": 9, "24.05": 2}, since="23.02"),
    Advisory("CVE-2024-48936", "2024-10-23", {"24.05": 4}, since="24.05"),
    Advisory("CVE-2025-43904", "2025-05-07", {"23.11": 11, "24.05": 8, "24.11": 5, "25.05": 0},
             {"22.05.8": ("4", 12, 3)}),
    Advisory("CVE-2026-65107, -65108, -65109, -65138, -65139, -65140, -65165, -65168", "2026-09-02",
             {"25.05": 9, "25.11": 8, "26.05": 4}, {"24.11.5": ("4", 13, 1)}),
    Advisory("launch credentials of other users, heap overflow in step I/O (no CVE number)", "2026-10-13",
             {"26.05": 5}, since="26.05"),
)  # fmt: skip
MUNGE = (
    Advisory("CVE-2026-25506 (leaks the key: rotate it after the update)", "2026-02-10", {"0.5": 18},
             {"0.5.15": ("2", 12, 1), "0.5.16": ("1.1", 13, 1)}),
)  # fmt: skip


def open_ones(version: str, advisories: tuple[Advisory, ...]) -> list[Advisory]:
    """Open advisories of a version, newest first: a Debian package (`24.11.5-4+deb13u1`) or upstream (`24.11.5`)."""
    matches = [each for each in advisories if _has(version, each)]
    return sorted(matches, key=lambda each: each.date, reverse=True)


def is_a_version(version: str) -> bool:
    """Whether it can be compared at all."""
    return bool(re.match(r"(?:\d+:)?\d+\.\d+\.\d+", version))


def _has(version: str, advisory: Advisory) -> bool:
    major, minor, micro = _parts(version)
    releases = {_release(text): fixed for text, fixed in advisory.fixed.items()}
    release = (major, minor)
    if release > max(releases) or (advisory.since and release < _release(advisory.since)):
        return False
    if release in releases and micro >= releases[release]:
        return False
    return not _is_patched(version, advisory)


def _is_patched(version: str, advisory: Advisory) -> bool:
    """Whether Debian's package has the fix though its upstream version has not."""
    package = _DEBIAN.match(version)
    wanted = advisory.debian.get(package["upstream"]) if package else None
    if not package or not wanted:
        return False
    base, release, level = wanted
    if package["base"] != base:
        # a later revision was made after it, from a source that has it
        return _ordered(package["base"]) > _ordered(base)
    return package["release"] == str(release) and int(package["level"]) >= level


def _parts(version: str) -> tuple[int, int, int]:
    numbers = (*_ordered(version.partition(":")[2] or version), 0, 0, 0)
    return numbers[0], numbers[1], numbers[2]


def _release(text: str) -> tuple[int, int]:
    return _parts(text)[:2]


def _ordered(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(text))
