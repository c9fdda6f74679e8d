"""systemd units by `systemctl show`: one call for all of them."""

from __future__ import annotations

import os
import time

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command as node_command

# Where a unit has an init script as well, `enable` and `disable` keep links for other inits, too, which nothing here
# reads, and each of the two calls for that makes systemd reload all of its units: a fifth of a second of CPU.
ENVIRONMENT = {"SYSTEMCTL_SKIP_SYSV": "1"}
PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,ConditionResult,ConditionTimestampMonotonic,NeedDaemonReload,"
    "NRestarts,ActiveEnterTimestampMonotonic"
)


def show(names):
    """{unit: {property: value}} for the named units; unknown ones have LoadState=not-found."""
    if not names:
        return {}
    output = node_command.run(["systemctl", "show", "--property", PROPERTIES, "--"] + list(names)).output
    blocks = [block for block in output.strip().split("\n\n") if block]
    units = {}
    for name, block in zip(names, blocks):
        units[name] = dict(line.partition("=")[::2] for line in block.splitlines())
    return units


def is_enabled(properties):
    """True for units that start at boot, or that cannot be enabled at all (static)."""
    return properties.get("UnitFileState") in (
        "enabled",
        "enabled-runtime",
        "static",
        "alias",
        "generated",
        "indirect",
    )


def is_active(properties):
    """True when the unit runs (or, for a oneshot, has run)."""
    return properties.get("ActiveState") in ("active", "activating", "reloading")


def is_refused_by_condition(properties):
    """True when a condition kept the unit from starting; of one that was never started systemd says no as well."""
    tried = properties.get("ConditionTimestampMonotonic") not in (None, "", "0")
    return tried and properties.get("ConditionResult") == "no"


def wait_until_active(name, seconds):
    """Wait until a unit is active for good; returns its last properties."""
    deadline = time.monotonic() + seconds
    while True:
        properties = show([name]).get(name, {})
        settled = properties.get("ActiveState") in ("active", "failed", "inactive")
        if settled or time.monotonic() > deadline:
            return properties
        time.sleep(0.2)


def is_listening(port):
    """True when something listens on this machine's TCP port; asks the kernel, so that no daemon sees a caller."""
    wanted = ":%04X" % port
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as stream:
                rows = [line.split() for line in stream]
        except OSError:
            continue
        if any(row[1].endswith(wanted) and row[3] == "0A" for row in rows[1:]):
            return True
    return False


def wait_for_port(port, seconds):
    """True as soon as something listens on this machine's port."""
    deadline = time.monotonic() + seconds
    while not is_listening(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def journal_tail(name, lines=12):
    """The end of a unit's journal, for an error message."""
    return _logged(["--unit", name], lines)


def own_journal_tail(name, lines):
    """The same, without what systemd says of it."""
    return _logged(["_SYSTEMD_UNIT=%s" % name], lines)


def _logged(which, lines):
    argv = ["journalctl", "--quiet", "--no-pager", "--lines", str(lines), "--output", "cat"]
    return node_command.run(argv + which).output.strip()


def main_pid(name):
    """Process id of a unit's daemon; 0 when it does not run."""
    argv = ["systemctl", "show", "--property", "MainPID", "--value", "--", name]
    shown = node_command.run(argv).output.strip()
    return int(shown) if shown.isdigit() else 0


def runs_a_replaced_program(pid):
    """True when the program file of a running process has been replaced or removed since it started."""
    try:
        return os.readlink("/proc/%d/exe" % pid).endswith(" (deleted)")
    except OSError:
        return False
