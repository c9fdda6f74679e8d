"""Whether units stay up: one that systemd starts again and again runs now and then, too."""

from __future__ import annotations

import time

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import services as node_services

# for so long a unit must have run without a restart (seconds); longer where systemd has restarted it by itself before
CALM_S, CALM_AGAIN_S = 5, 12
# a restart of systemd's is of interest for so long (seconds): some daemons fail only after a while
RECENT_S = 60
# a restart that repeats itself says enough
RESTARTS = 2


def restarts(properties):
    """How often systemd has restarted a unit by itself since somebody started it."""
    text = properties.get("NRestarts") or "0"
    return int(text) if text.isdigit() else 0


def age(properties):
    """For how long a unit is active, in seconds; all the time where systemd does not say."""
    since = properties.get("ActiveEnterTimestampMonotonic") or "0"
    return time.monotonic() - int(since) / 1e6 if since.isdigit() and since != "0" else float("inf")


def is_restarting(properties):
    """Whether systemd restarted a unit by itself more than once, and lately: one that was killed is back for good."""
    return restarts(properties) >= RESTARTS and age(properties) < RECENT_S


def is_blocked(properties):
    """Whether a condition of its own keeps a unit from running."""
    return node_services.is_refused_by_condition(properties) and properties.get("ActiveState") == "inactive"


class Watch:
    """Units that should run, and their ports, watched until they have settled or it is plain that they do not."""

    def __init__(self, names, ports):
        self.ports = ports
        self.started = time.monotonic()
        self.first = node_services.show(names)
        self.now = self.first

    def problems(self, seconds):
        """{unit: why it does not stay up}; waits for at most so long, and not at all where all is calm already."""
        while True:
            waiting = {name: why for name, why in self._waiting() if why}
            over = time.monotonic() - self.started > seconds
            if not waiting or over or all(self._is_hopeless(name) for name in waiting):
                return waiting
            time.sleep(0.5)
            self.now = node_services.show(list(self.first))

    def _waiting(self):
        for name, properties in self.now.items():
            yield name, self._why(name, properties)

    def _why(self, name, properties):
        if is_blocked(properties):
            return ""
        state = "%s, %s" % (properties.get("ActiveState", "unknown"), properties.get("SubState", "?"))
        if properties.get("ActiveState") != "active":
            return "does not run (%s)%s" % (state, self._restarted(name))
        if age(properties) < (CALM_AGAIN_S if restarts(properties) else CALM_S):
            return "does not stay up%s" % self._restarted(name)
        port = self.ports.get(name)
        return "runs but does not listen on port %d" % port if port and not node_services.is_listening(port) else ""

    def _restarted(self, name):
        count = restarts(self.now[name])
        return ": systemd restarted it %d time%s" % (count, "" if count == 1 else "s") if count else ""

    def _is_hopeless(self, name):
        """Whether nothing more is to be expected: it gave up, or is restarted over and over."""
        before, now = self.first.get(name, {}), self.now[name]
        gave_up = now.get("ActiveState") in ("failed", "inactive") and now.get("SubState") != "auto-restart"
        return gave_up or restarts(now) - restarts(before) >= RESTARTS
