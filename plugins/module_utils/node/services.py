"""systemd units by `systemctl show`, one call for all of them: what they are, and whether they stay up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Dict

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until

# Where a unit has an init script as well, `enable` and `disable` keep links for other inits, too, which nothing here
# reads, and each of the two calls for that makes systemd reload all of its units: a fifth of a second of CPU.
ENVIRONMENT = {"SYSTEMCTL_SKIP_SYSV": "1"}
PROPERTIES = (
    "Id,Type,LoadState,ActiveState,SubState,UnitFileState,ConditionResult,ConditionTimestampMonotonic,"
    "NeedDaemonReload,NRestarts,ActiveEnterTimestampMonotonic"
)

# for so long a unit must have run without a restart (seconds): one that says itself when it is ready is active only
# then, and one that listens on its port is ready; others are active as soon as their program starts; longer where
# systemd has restarted it by itself before
CALM_READY_S, CALM_S, CALM_AGAIN_S = 2, 5, 12
# between two looks at units that have not started (seconds)
LOOK_S = 0.5
# a restart of systemd's is of interest for so long (seconds): some daemons fail only after a while
RECENT_S = 60
# a restart that repeats itself says enough
RESTARTS = 2


class Units(Dict[str, Dict[str, str]]):
    """{unit: {property: value}}; to ask it for a unit that systemd did not answer about is an error of the node's."""

    def __init__(self, result: node_command.Result) -> None:
        super().__init__()
        self._result = result

    def __missing__(self, name: str) -> dict[str, str]:
        raise node_errors.HintedError(
            f"systemd does not answer about {name}: {self._result.failure}",
            f"`systemctl show {name}` has to answer on the node: try `systemctl daemon-reexec`, or "
            "restart the node; then"
            " deploy again",
        )


def show(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """{unit: {property: value}} for the named units; unknown ones have LoadState=not-found."""
    if not names:
        return {}
    result = node_command.run(["systemctl", "show", "--property", PROPERTIES, "--"] + list(names))
    blocks = [block for block in result.output.strip().split("\n\n") if block]
    units = Units(result)
    for name, block in zip(names, blocks):
        units[name] = dict(line.partition("=")[::2] for line in block.splitlines())
    return units


def is_enabled(properties: Mapping[str, str]) -> bool:
    """True for units that start at boot, or that cannot be enabled at all (static)."""
    return properties.get("UnitFileState") in (
        "enabled",
        "enabled-runtime",
        "static",
        "alias",
        "generated",
        "indirect",
    )


def is_active(properties: Mapping[str, str]) -> bool:
    """True when the unit runs (or, for a oneshot, has run)."""
    return properties.get("ActiveState") in ("active", "activating", "reloading")


def is_refused_by_condition(properties: Mapping[str, str]) -> bool:
    """True when a condition kept the unit from starting; of one that was never started systemd says no as well."""
    tried = properties.get("ConditionTimestampMonotonic") not in (None, "", "0")
    return tried and properties.get("ConditionResult") == "no"


def wait_until_active(name: str, seconds: float) -> dict[str, str]:
    """Wait until a unit is active for good; returns its last properties."""
    settled = ("active", "failed", "inactive")
    return wait_until(lambda: show([name]).get(name, {}), seconds, 0.2, lambda unit: unit.get("ActiveState") in settled)


def is_listening(port: int) -> bool:
    """True when something listens on this node's TCP port; asks the kernel, so that no daemon sees a caller."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as stream:
                rows = [line.split() for line in stream]
        except OSError:
            continue
        if any(row[1].endswith(wanted) and row[3] == "0A" for row in rows[1:]):
            return True
    return False


def wait_for_port(port: int, seconds: float) -> bool:
    """True as soon as something listens on this node's port."""
    return wait_until(lambda: is_listening(port), seconds, 0.1)


def journal_tail(name: str, lines: int = 12) -> str:
    """The end of a unit's journal, for an error message."""
    return _logged(["--unit", name], lines)


def own_journal_tail(name: str, lines: int) -> str:
    """The same, without what systemd says of it."""
    return _logged([f"_SYSTEMD_UNIT={name}"], lines)


def _logged(which: list[str], lines: int) -> str:
    argv = ["journalctl", "--quiet", "--no-pager", "--lines", str(lines), "--output", "cat"]
    return node_command.run(argv + which).output.strip()


def main_pids(names: Sequence[str]) -> dict[str, int]:
    """{unit: process id of its daemon}; 0 for one that does not run."""
    shown = node_command.run(["systemctl", "show", "--property", "MainPID", "--value", "--"] + list(names)).output
    pids = shown.split() + ["0"] * len(names)
    return {name: int(pid) if pid.isdigit() else 0 for name, pid in zip(names, pids)}


def main_pid(name: str) -> int:
    """Process id of a unit's daemon; 0 when it does not run."""
    return main_pids([name])[name]


def runs_a_replaced_program(pid: int) -> bool:
    """True when the program file of a running process has been replaced or removed since it started."""
    try:
        return os.readlink(f"/proc/{pid}/exe").endswith(" (deleted)")
    except OSError:
        return False


def restarts(properties: Mapping[str, str]) -> int:
    """How often systemd has restarted a unit by itself since a user started it."""
    text = properties.get("NRestarts") or "0"
    return int(text) if text.isdigit() else 0


def age(properties: Mapping[str, str]) -> float:
    """For how long a unit is active, in seconds; all the time where systemd does not say."""
    since = properties.get("ActiveEnterTimestampMonotonic") or "0"
    return time.monotonic() - int(since) / 1e6 if since.isdigit() and since != "0" else float("inf")


def is_restarting(properties: Mapping[str, str]) -> bool:
    """Whether systemd restarted a unit by itself more than once, and lately: one that was killed is back for good."""
    return restarts(properties) >= RESTARTS and age(properties) < RECENT_S


def is_blocked(properties: Mapping[str, str]) -> bool:
    """Whether a condition of its own keeps a unit from running."""
    return is_refused_by_condition(properties) and properties.get("ActiveState") == "inactive"


def _calm(properties: Mapping[str, str], port: int | None) -> int:
    """For how many seconds a unit must have run to be called stable."""
    if restarts(properties):
        return CALM_AGAIN_S
    ready = properties.get("Type") in ("notify", "notify-reload") or (port and is_listening(port))
    return CALM_READY_S if ready else CALM_S


class Watch:
    """Units that should run, and their ports, watched until they have settled or it is plain that they do not."""

    def __init__(self, names: Sequence[str], ports: Mapping[str, int]) -> None:
        self.ports = ports
        self.started = time.monotonic()
        self.first = show(names)
        self.now = self.first

    def problems(self, seconds: float) -> dict[str, str]:
        """{unit: why it does not stay up}; waits for at most so long, and not at all where all is calm already."""
        while True:
            waiting = {name: why for name, why in self._waiting() if why}
            over = time.monotonic() - self.started > seconds
            if not waiting or over or all(self._is_hopeless(name) for name in waiting):
                return waiting
            time.sleep(max(self._pause(name) for name in waiting))
            self.now = show(list(self.first))

    def _waiting(self) -> Iterator[tuple[str, str]]:
        for name, properties in self.now.items():
            yield name, self._why(name, properties)

    def _why(self, name: str, properties: Mapping[str, str]) -> str:
        if is_blocked(properties):
            return ""
        state = f"{properties.get('ActiveState', 'unknown')}, {properties.get('SubState', '?')}"
        if properties.get("ActiveState") != "active":
            return f"does not run ({state}){self._restarted(name)}"
        if self._to_go(name) > 0:
            return f"does not stay up{self._restarted(name)}"
        port = self.ports.get(name)
        return f"runs but does not listen on port {port}" if port and not is_listening(port) else ""

    def _to_go(self, name: str) -> float:
        """For how many seconds more a unit that runs must do so."""
        return _calm(self.now[name], self.ports.get(name)) - age(self.now[name])

    def _pause(self, name: str) -> float:
        """Until the next look at a unit, in seconds: one that only has to stay up is not looked at before it has."""
        to_go = self._to_go(name) if self.now[name].get("ActiveState") == "active" else 0.0
        return min(to_go, CALM_READY_S) if to_go > 0 else LOOK_S

    def _restarted(self, name: str) -> str:
        count = restarts(self.now[name])
        return f": systemd restarted it {count} time{'' if count == 1 else 's'}" if count else ""

    def _is_hopeless(self, name: str) -> bool:
        """Whether nothing more is to be expected: it gave up, or is restarted over and over."""
        before, now = self.first.get(name, {}), self.now[name]
        gave_up = now.get("ActiveState") in ("failed", "inactive") and now.get("SubState") != "auto-restart"
        return gave_up or restarts(now) - restarts(before) >= RESTARTS
