"""Judges this machine, from which everything is done."""

from __future__ import annotations

from collections.abc import Iterator

from deepopsctl.checks import Check
from deepopsctl.doctor.facts import ControlFacts
from deepopsctl.doctor.verdicts import failed, passed, warned

TARGET = "control"
LEAST_MB, ENOUGH_MB = 100, 1000


def judge_here(seen: ControlFacts) -> tuple[Check, ...]:
    """Everything but the clock, which only the nodes can tell."""
    return tuple(_checks(seen))


def _checks(seen: ControlFacts) -> Iterator[Check]:
    python = seen.python
    if python.good:
        yield passed("control-python", TARGET, python.installed, python.wanted)
    else:
        yield failed("control-python", TARGET, "deepopsctl was not tried with it", python.installed, python.wanted)
    yield _packages(seen)
    if seen.ssh:
        yield passed("control-ssh", TARGET, seen.ssh)
    else:
        yield failed("control-ssh", TARGET, "this machine has no ssh client")
    yield _disk(seen.free_mb)
    if seen.open_files:
        yield failed("control-files", TARGET, f"others may read {', '.join(seen.open_files)}")
    else:
        yield passed("control-files", TARGET, "only you may read them")
    if seen.vault:
        yield failed("control-vault", TARGET, seen.vault)
    else:
        yield passed("control-vault", TARGET, "the password opens them")


def _packages(seen: ControlFacts) -> Check:
    measured = ", ".join(f"{package.name} {package.installed or 'missing'}" for package in seen.packages)
    expected = ", ".join(f"{package.name} {package.wanted}" for package in seen.packages)
    bad = [package for package in seen.packages if not package.good]
    if not bad:
        return passed("control-packages", TARGET, measured, expected)
    words = ", ".join(f"{p.name} is {p.installed}" if p.installed else f"{p.name} is not installed" for p in bad)
    return failed("control-packages", TARGET, words, measured, expected)


def _disk(free_mb: int) -> Check:
    expected = f"at least {ENOUGH_MB}"
    if free_mb < LEAST_MB:
        message = "the folders of runs will not fit"
        return failed("control-disk", TARGET, message, str(free_mb), expected, unit="MiB free")
    if free_mb < ENOUGH_MB:
        return warned("control-disk", TARGET, "little room is left", str(free_mb), expected, "MiB free")
    return passed("control-disk", TARGET, f"{free_mb / 1024:.1f}", unit="GiB free")
