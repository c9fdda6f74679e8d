"""Whether what the deploy installed for users is there, and they find the commands that guides name."""

from __future__ import annotations

from collections.abc import Sequence

from ..._shared import command, identities
from ..._shared.checks import FAIL, PASS, Check
from .checks import check

INSTALLED, TOOLS, ANSWERS = "environment-installed", "environment-tools", "environment-queue"
COMMANDS = (
    "sq",
    "seff",
    "why",
    "partition-stats",
    "avail_wheels",
    "stage-in",
    "stage-out",
    "pack-dataset",
    "git",
    "git-lfs",
    "htop",
    "nano",
    "parallel",
    "rsync",
    "squashfuse",
    "tmux",
    "unzip",
    "vim",
    "zstd",
)
# of login nodes only
LOGIN_COMMANDS = ("curl", "man", "rclone", "wget")
LIMIT_S = 60
_MARK = "deepopsctl-missing: "
_SEARCH = 'for name in {}; do command -v "$name" >/dev/null || echo "' + _MARK + '$name"; done'


def verify_installed(node: str, differences: Sequence[str]) -> Check:
    """Files, packages, units: what the records of the last good deploy say, compared with the node (node_info)."""
    if not differences:
        return check(INSTALLED, node, PASS, "as deployed", "as deployed")
    measured = f"{len(differences)} differences"
    return check(INSTALLED, node, FAIL, measured, "as deployed", message=identities.first_few(differences))


def verify_tools(node: str, more: Sequence[str] = ()) -> list[Check]:
    """One check for commands that an account without rights finds in a login shell, one for what Slurm answers them."""
    wanted = [*COMMANDS, *more]
    # in one shell: each login shell reads all of /etc/profile.d
    search = _as_nobody(_SEARCH.format(" ".join(wanted)))
    lines = search.output.splitlines()
    missing = [name for name in wanted if not search.ok or _MARK + name in lines]
    status, message = (FAIL, "missing: " + ", ".join(missing)) if missing else (PASS, "")
    tools = check(TOOLS, node, status, len(wanted) - len(missing), len(wanted), "commands", message)
    answers = [_as_nobody(name) for name in ("sq", "partition-stats")]
    failures = [answer.failure for answer in answers if not answer.ok]
    queue = check(ANSWERS, node, FAIL if failures else PASS, "no answer" if failures else "answered", "answered",
                  message="; ".join(failures))  # fmt: skip
    return [tools, queue]


def _as_nobody(script: str) -> command.Result:
    return command.run(["runuser", "-u", "nobody", "--", "bash", "-lc", script], LIMIT_S)
