"""Waiting until a started container is a usable node: systemd up, password set, sshd answering."""

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
    log = podman_output("logs", "--tail", "10", container, timeout_s=20)
    raise DeepOpsError(
        f"{container} did not boot: {last_words(printed) or 'no answer from systemd'} "
        f"(container {_state(container)}; its log: {last_words(log, 10) or 'empty'})",
        "try once more; if it stays so, build the image anew with --rebuild",
    )


def wait_for_ssh(container: str, address: str, stopped: Event, *, deadline_s: float = DEADLINE_S) -> None:
    """Wait until sshd at `address` greets, or until `stopped`."""
    end = time.monotonic() + deadline_s
    last = "not tried"
    while time.monotonic() < end and not stopped.is_set():
        last = _greeting(address)
        if last.startswith("SSH-"):
            return
        stopped.wait(PAUSE_S)
    status = podman_output("exec", container, "systemctl", "status", "--no-pager", "ssh.service", timeout_s=20)
    raise DeepOpsError(
        f"{container}: no sshd at {address}:22 within {deadline_s:.0f} s ({last}): {last_words(status, 5)}",
        "a firewall on this machine may keep it from its containers",
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
