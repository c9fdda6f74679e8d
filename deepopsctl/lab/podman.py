"""podman's command line: the one place that runs it, with bounded time and readable errors."""

from __future__ import annotations

import json
import os
import subprocess

from deepopsctl.errors import ControlMachineError, DeepOpsError

PACKAGES = "podman runc netavark aardvark-dns iptables nftables mmdebstrap"
INSTALL_HINT = f"on Debian: apt-get install --no-install-recommends {PACKAGES}"

# Said by podman 4 when the unused CNI plugins are absent, and for every device file that no driver serves.
HARMLESS = ("Error validating CNI config file", "Could not locate device")


class PodmanError(DeepOpsError):
    """podman failed; the message has the end of its output."""


def podman(*arguments: str, stdin: str = "", timeout_s: float = 120) -> str:
    """Run podman and return its stdout."""
    finished = _run(arguments, stdin, timeout_s)
    if finished.returncode != 0:
        words = last_words(finished.stderr or finished.stdout) or f"exit code {finished.returncode}"
        raise PodmanError(f"podman {arguments[0]} failed: {words}")
    return finished.stdout


def podman_output(*arguments: str, stdin: str = "", timeout_s: float = 120) -> str:
    """Stdout and stderr of a podman command that may fail, for diagnosis."""
    finished = _run(arguments, stdin, timeout_s)
    return finished.stdout + finished.stderr


def podman_succeeds(*arguments: str, timeout_s: float = 120) -> bool:
    """Whether podman ends with 0: for its `exists` questions and for best-effort removal."""
    return _run(arguments, "", timeout_s).returncode == 0


def podman_json(*arguments: str) -> object:
    """Run podman and parse the JSON it prints; nothing printed means an empty list."""
    text = podman(*arguments)
    try:
        return json.loads(text) if text.strip() else []
    except json.JSONDecodeError as err:
        raise PodmanError(f"podman {arguments[0]} printed no JSON: {text.strip()[:200]}") from err


def last_words(text: str, lines: int = 3) -> str:
    """The last meaningful lines of a tool's output, on one line; '' without output."""
    telling = [
        line.strip() for line in text.splitlines() if line.strip() and not any(word in line for word in HARMLESS)
    ]
    return " / ".join(telling[-lines:])


def _run(arguments: tuple[str, ...], stdin: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        # An own session: Ctrl-C must not kill podman over a half-made container; `up` removes it in order.
        return subprocess.run(
            ["podman", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            start_new_session=True,
            # podman 5 warns of cgroup v1 with every command, in the midst of what others print
            env={**os.environ, "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"},
        )
    except FileNotFoundError as err:
        raise ControlMachineError("podman is not installed on this machine", INSTALL_HINT) from err
    except subprocess.TimeoutExpired as err:
        raise PodmanError(
            f"podman {arguments[0]} did not end within {timeout_s:.0f} s",
            "look for a stuck container with `podman ps -a`",
        ) from err
