"""Whether Slurm's daemons serve in their new release, and what they say while they do not yet."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from ..._shared import command, slurm_output
from . import UpgradeError

PAUSE_S = 2.0
# one call lasts so long: the connection may not last as long as a conversion
_CALL_S = 20.0
_ANSWER_S = 30
_DISCARDED = re.compile(r"agent queue is full.*discarding")


def accounting(version: str) -> str:
    """'' once slurmdbd serves, else how far it is. UpgradeError where it has given up.

    It says that it has started once its tables are converted, also where there was nothing to convert.
    """
    deadline = time.monotonic() + _CALL_S
    started = f"slurmdbd version {version} started"
    while True:
        state = _unit("slurmdbd.service")
        lines = _journal("slurmdbd.service", state.get("InvocationID", ""))
        if any(started in line for line in lines):
            return ""
        if state.get("ActiveState") in ("failed", "inactive"):
            raise UpgradeError(f"slurmdbd does not run: {_last_error(lines)}")
        if time.monotonic() > deadline:
            since = int(state.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
            minutes = max(time.monotonic() - since, 0) / 60
            return f"slurmdbd converts its tables since {minutes:.0f} min: {_last(lines)}"
        time.sleep(PAUSE_S)


def queue() -> tuple[int, int]:
    """How many records slurmctld keeps for slurmdbd, and how many it can; zero where it does not say."""
    own = command.slurm_environment()
    figures = (
        re.search(r"DBD Agent queue size:\s*(\d+)", command.run(["sdiag"], _ANSWER_S, env=own).output),
        re.search(
            r"^MaxDBDMsgs\s*=\s*(\d+)",
            command.run(["scontrol", "show", "config"], _ANSWER_S, env=own).output,
            re.MULTILINE,
        ),
    )
    size, limit = (int(figure[1]) if figure else 0 for figure in figures)
    return size, limit


def discarded(since: float) -> int:
    """How many records slurmctld has given up since then, as it had no room for more."""
    words = ["journalctl", "--quiet", "--no-pager", "--output", "cat", "--unit", "slurmctld.service"]
    shown = command.run([*words, "--since", f"@{int(since):d}"], _ANSWER_S)
    return sum(bool(_DISCARDED.search(line)) for line in shown.output.splitlines())


def controller(version: str, timeout_s: float) -> None:
    """Wait until slurmctld answers, in this version; '' is any."""
    deadline = time.monotonic() + timeout_s
    while True:
        shown = command.run(["scontrol", "show", "config"], _ANSWER_S, env=command.slurm_environment())
        running = slurm_output.running_version(shown.output)
        if shown.ok and running and version in ("", running) and any(_ping().values()):
            return
        state = _unit("slurmctld.service")
        if state.get("ActiveState") in ("failed", "inactive") or time.monotonic() > deadline:
            lines = _journal("slurmctld.service", state.get("InvocationID", ""))
            raise UpgradeError(f"slurmctld does not run: {_last_error(lines)}")
        time.sleep(PAUSE_S)


def runs(unit: str) -> bool:
    """Whether systemd has it as running."""
    return _unit(unit).get("ActiveState") == "active"


def _ping() -> dict[str, bool]:
    return slurm_output.pinged(command.run(["scontrol", "ping"], _ANSWER_S, env=command.slurm_environment()).output)


def _unit(name: str) -> dict[str, str]:
    wanted = "ActiveState,SubState,InvocationID,ActiveEnterTimestampMonotonic"
    shown = command.run(["systemctl", "show", "--property", wanted, "--", name], _ANSWER_S).output
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def _journal(unit: str, invocation: str) -> list[str]:
    """What a daemon has said since its start."""
    which = ["_SYSTEMD_INVOCATION_ID=" + invocation] if invocation else ["--unit", unit, "--lines", "20"]
    words = ["journalctl", "--quiet", "--no-pager", "--output", "cat", *which]
    return [line for line in command.run(words, _ANSWER_S).output.splitlines() if line.strip()]


def _last(lines: Sequence[str]) -> str:
    return lines[-1][:200] if lines else "it has not said anything yet"


def _last_error(lines: Sequence[str]) -> str:
    return _last([line for line in lines if re.search(r"fatal|error", line)] or lines)
