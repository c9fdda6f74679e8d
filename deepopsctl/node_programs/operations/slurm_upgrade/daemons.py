"""Whether Slurm's daemons serve in their new release, and what they say while they do not yet."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from ..._shared import command, slurm_client, slurm_output
from ..._shared.waiting import wait_until
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
    started = f"slurmdbd version {version} started"

    def progress() -> str:
        state = _unit("slurmdbd.service")
        lines = _journal("slurmdbd.service", state.get("InvocationID", ""))
        if any(started in line for line in lines):
            return ""
        if state.get("ActiveState") in ("failed", "inactive"):
            raise UpgradeError(f"slurmdbd does not run: {_last_error(lines)}")
        since = int(state.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
        minutes = max(time.monotonic() - since, 0) / 60
        return f"slurmdbd converts its tables since {minutes:.0f} min: {_last(lines)}"

    return wait_until(progress, _CALL_S, PAUSE_S, lambda text: not text)


def queue() -> tuple[int, int]:
    """How many records slurmctld keeps for slurmdbd, and how many it can; zero where it does not say."""
    size = re.search(r"DBD Agent queue size:\s*(\d+)", slurm_client.ask(["sdiag"]).output)
    settings = slurm_output.config(slurm_client.ask(slurm_client.CONFIG).output)
    return int(size[1]) if size else 0, slurm_output.number(settings, "MaxDBDMsgs")


def discarded(since: float) -> int:
    """How many records slurmctld has given up since then, as it had no room for more."""
    words = ["journalctl", "--quiet", "--no-pager", "--output", "cat", "--unit", "slurmctld.service"]
    shown = command.run([*words, "--since", f"@{int(since):d}"], _ANSWER_S)
    return sum(bool(_DISCARDED.search(line)) for line in shown.output.splitlines())


def controller(version: str, timeout_s: float) -> None:
    """Wait until slurmctld answers, in this version; '' is any."""
    ended = ("failed", "inactive")

    def answer() -> tuple[bool, dict[str, str]]:
        shown = slurm_client.ask(slurm_client.CONFIG)
        running = slurm_output.running_version(shown.output)
        if shown.ok and running and version in ("", running) and any(slurm_client.ping().values()):
            return True, {}
        return False, _unit("slurmctld.service")

    serves, state = wait_until(answer, timeout_s, PAUSE_S, lambda seen: seen[0] or seen[1].get("ActiveState") in ended)
    if not serves:
        lines = _journal("slurmctld.service", state.get("InvocationID", ""))
        raise UpgradeError(f"slurmctld does not run: {_last_error(lines)}")


def runs(unit: str) -> bool:
    """Whether systemd has it as running."""
    return _unit(unit).get("ActiveState") == "active"


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
