"""A login shell in a user's name, for root: what the user's own files start there ends with it.

A login shell runs `.bash_profile`, which may start anything. In a transient unit all of it is in one cgroup, without
a way out of it, within limits, and killed when the shell ends.
"""

from __future__ import annotations

import os
import sys

# systemd's own client waits a little longer than the unit may run
GRACE_S = 15
_PROPERTIES = (
    "Type=exec",
    "KillMode=control-group",
    "SendSIGHUP=yes",
    "TimeoutStopSec=2s",
    # a setuid program, the user's own systemd, at and cron would start something that is not in this unit
    "NoNewPrivileges=yes",
    "InaccessiblePaths=-/run/user -/run/dbus -/run/systemd/private",
    "RestrictSUIDSGID=yes",
    "MemoryMax=2G",
    "TasksMax=512",
    "CPUWeight=20",
    "OOMPolicy=kill",
    "UMask=0022",
    # what PAM would do for a login
    "EnvironmentFile=-/etc/environment",
)
# systemd would fill in variables of its own environment for those of the text
_ESCAPED = "import os, sys; words = sys.argv[1:]; os.execvp(words[0], [*words[:-1], words[-1].replace('$', '$$')])"


def login_shell(user: str, limit_s: float) -> list[str]:
    """The start of a command whose last word is the text for a login bash of the user's, in its home."""
    properties = [*_PROPERTIES, "User=" + user, "WorkingDirectory=-~", f"RuntimeMaxSec={limit_s:.0f}"]
    return [
        sys.executable,
        "-I",
        "-c",
        _ESCAPED,
        "systemd-run",
        "--quiet",
        "--collect",
        "--wait",
        "--pipe",
        f"--unit=deepopsctl-login-{os.getpid()}-{os.urandom(4).hex()}",
        *("--property=" + each for each in properties),
        "--",
        "/bin/bash",
        "-l",
        "-c",
    ]
