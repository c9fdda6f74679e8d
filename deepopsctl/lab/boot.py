"""Waiting until a started container is a usable node: sshd answers, systemd is up, the password is set.

The order matters on cgroup v2. A `podman exec` puts its process into the root of the node's cgroup tree as long as
systemd has enabled no controllers there, and then systemd cannot enable any (the kernel allows processes or
controllers in a cgroup, not both): slurmd would find nothing to confine jobs with. So nothing is executed in a node
before its sshd greets.
"""

from __future__ import annotations

import socket
import time
from threading import Event

from deepopsctl.errors import DeepOpsError
from deepopsctl.lab.podman import last_words, podman_output
from deepopsctl.lab.rootfs import USER

# a node boots in a second; on an emulated CPU it took 100
DEADLINE_S = 180.0
PAUSE_S = 0.1
CHECK_INTERVAL_S = 3.0

# stdin: `user:password`; $1: seconds to wait. Prints the units that failed, then systemd's state.
WAIT_FOR_SYSTEMD = """chpasswd || exit 1
end=$(( $(date +%s) + $1 ))
while [ "$(date +%s)" -lt "$end" ]; do
    state=$(timeout "$1" systemctl is-system-running --wait 2>/dev/null)
    case "$state" in
        running) echo running; exit 0 ;;
        degraded) systemctl list-units --failed --plain --no-legend | cut -d' ' -f1; echo degraded; exit 0 ;;
    esac
    sleep 0.1
done
systemctl list-jobs --no-pager 2>&1 | tail -n 5
echo "systemd is ${state:-not answering}"
exit 1
"""
MAKE_SUDO_ASK = "rm -f /etc/sudoers.d/lab\n"


def wait_for_ssh(container: str, address: str, stopped: Event, *, deadline_s: float = DEADLINE_S) -> None:
    """Wait until sshd at `address` greets, the container dies, or `stopped` is set."""
    started = time.monotonic()
    next_check = CHECK_INTERVAL_S
    last = ""
    while (waited := time.monotonic() - started) < deadline_s and not stopped.is_set():
        last = _greeting(address)
        if last.startswith("SSH-"):
            return
        if waited > next_check:
            next_check += CHECK_INTERVAL_S
            if not _state(container).startswith("running"):
                break
        stopped.wait(PAUSE_S)
    raise _not_up(container, f"no sshd at {address}:22 after {waited:.0f} s ({last or 'interrupted'})")


def finish_node(container: str, password: str, *, sudo_asks: bool, deadline_s: float = DEADLINE_S) -> tuple[str, ...]:
    """Set the user's password and wait for systemd; returns the units that failed (normally none)."""
    script = (MAKE_SUDO_ASK if sudo_asks else "") + WAIT_FOR_SYSTEMD
    # on stdin, so that the password is in no process list
    printed = podman_output(
        *("exec", "--interactive", container, "sh", "-c", script, "sh", str(int(deadline_s))),
        stdin=f"{USER}:{password}\n",
        timeout_s=deadline_s + 30,
    )
    lines = printed.split()
    if lines and lines[-1] == "running":
        return ()
    if lines and lines[-1] == "degraded":
        return tuple(word for word in lines[:-1] if word.endswith((".service", ".mount", ".socket", ".timer")))
    raise _not_up(container, last_words(printed) or "no answer from systemd")


def _not_up(container: str, symptom: str) -> DeepOpsError:
    """The error of a node that did not come up, with the output of podman and of the node."""
    state = _state(container)
    log = podman_output("logs", "--tail", "10", container, timeout_s=20)
    if state.startswith("running"):
        log += podman_output("exec", container, "systemctl", "status", "--no-pager", "ssh.service", timeout_s=20)
        hint = "a firewall on this machine may keep it from its containers"
    else:
        hint = "try again; if it fails again, rebuild the image with --rebuild"
    return DeepOpsError(
        f"{container} did not come up: {symptom}; container {state}; its log: {last_words(log, 5) or 'empty'}", hint
    )


def _greeting(address: str) -> str:
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            return connection.recv(64).decode("ascii", "replace") or "connection closed"
    except OSError as err:
        return str(err)


def _state(container: str) -> str:
    form = "{{.State.Status}} with exit code {{.State.ExitCode}}"
    return last_words(podman_output("inspect", "--type", "container", "--format", form, container, timeout_s=20))
