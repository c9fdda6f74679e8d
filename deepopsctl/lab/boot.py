"""Waiting until a started container is a usable node: systemd up, password set, sshd answering."""

from __future__ import annotations

import socket
import time

from deepopsctl.errors import DeepOpsError
from deepopsctl.lab.podman import last_words, podman_output
from deepopsctl.lab.rootfs import USER

DEADLINE_S = 90.0
PAUSE_S = 0.1

# stdin: `user:password`; $1: seconds to wait. Prints systemd's state last, and the failed units before it.
FINISH_NODE = """chpasswd || exit 1
end=$(( $(date +%s) + $1 ))
while [ "$(date +%s)" -lt "$end" ]; do
    state=$(timeout "$1" systemctl is-system-running --wait 2>/dev/null)
    case "$state" in
        running) echo running; exit 0 ;;
        degraded) systemctl list-units --failed --plain --no-legend | cut -d' ' -f1; echo degraded; exit 0 ;;
    esac
    sleep 0.1
done
echo "${state:-no answer from systemd}"
exit 1
"""
ASK_PASSWORD = "rm -f /etc/sudoers.d/lab\n"


def finish_node(
    container: str, password: str, *, sudo_password: bool, deadline_s: float = DEADLINE_S
) -> list[str]:
    """Set the user's password, wait for systemd; returns the units that failed (normally none)."""
    script = (ASK_PASSWORD if sudo_password else "") + FINISH_NODE
    # on stdin, so that the password is in no process list
    printed = podman_output(
        *("exec", "--interactive", container, "sh", "-c", script, "sh", str(int(deadline_s))),
        stdin=f"{USER}:{password}\n",
        timeout_s=deadline_s + 30,
    )
    lines = [line for line in printed.splitlines() if line]
    if lines and lines[-1] == "running":
        return []
    if lines and lines[-1] == "degraded":
        return [line for line in lines[:-1] if line.endswith((".service", ".mount", ".socket", ".timer"))]
    raise DeepOpsError(
        f"{container}: systemd did not come up: {last_words(printed)}; its log: {_log(container)}",
        f"try again; `--rebuild` if the image may be broken",
    )


def wait_for_ssh(container: str, address: str, *, deadline_s: float = DEADLINE_S) -> None:
    """Wait until sshd at `address` greets."""
    end = time.monotonic() + deadline_s
    last = ""
    while time.monotonic() < end:
        last = _greeting(address)
        if last.startswith("SSH-"):
            return
        time.sleep(PAUSE_S)
    status = podman_output(
        "exec", container, "systemctl", "status", "--no-pager", "--full", "ssh.service", timeout_s=20
    )
    raise DeepOpsError(
        f"{container}: sshd at {address}:22 does not answer after {deadline_s:.0f} s ({last}): {last_words(status, 5)}",
        "a firewall on this machine may keep it from its containers",
    )


def _greeting(address: str) -> str:
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            return connection.recv(64).decode("ascii", "replace")
    except OSError as err:
        return str(err)


def _log(container: str) -> str:
    return last_words(podman_output("logs", "--tail", "10", container, timeout_s=20), 10)
