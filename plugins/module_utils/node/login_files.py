"""The text of the files that decide who may log in to a node by SSH, and how much of a login node a user may use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files

ACCOUNT, SESSION = "deepopsctl", "deepopsctl session"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@+ \\-]*[A-Za-z0-9_.@+-])?\$?")
# only whole blocks: a foreign line is never lost to a marker that stands alone
_OUR_ACCOUNT = re.compile(rf"^# BEGIN {ACCOUNT}\n(?:.*\n)*?# END {ACCOUNT}(?:\n|\Z)", re.MULTILINE)
_OUR_SESSION = re.compile(rf"^# BEGIN {SESSION}: (.*)\n(?:.*\n)*?# END {SESSION}$", re.MULTILINE)
_COMMON_SESSION = re.compile(r"[ \t]*(?:@include|session[ \t]+(?:include|substack))[ \t]+common-session[ \t]*(?:#.*)?")
_SYSTEMD = re.compile(r"^(?!\s*#).*\bpam_systemd\.so", re.MULTILINE)
_LIMIT = re.compile(r"(?:infinity|[0-9]+(?:\.[0-9]+)?[KMGT%]?)")
# The file of the same name for one user's slice replaces the one for the slices of all users.
LIMITS = "/etc/systemd/system/user-%s.slice.d/deepopsctl.conf"


def refused_names(names: Sequence[str]) -> list[str]:
    """Those that PAM's files cannot carry."""
    return [name for name in names if not _NAME.fullmatch(name)]


def refused_limits(limits: Mapping[str, str]) -> list[str]:
    """Sentences for limits that systemd would not read."""
    wrong = [key for key in sorted(limits) if not re.fullmatch("[A-Z][A-Za-z]+", key)]
    problems = [f"{key} is not a property of a slice" for key in wrong]
    values = [entry for entry in sorted(limits.items()) if entry[0] not in wrong and not _LIMIT.fullmatch(entry[1])]
    problems += [f"{key}: {value} is not a valid size, number, percentage or infinity" for key, value in values]
    return ["login_access_limits: " + sentence for sentence in problems]


def unrestricted(text: str) -> str:
    """/etc/pam.d/sshd without our lines, and with the line that they replaced."""
    return _OUR_SESSION.sub(r"\1", _OUR_ACCOUNT.sub("", text))


def restricted(
    text: str, users: Sequence[str], groups: Sequence[str], node_name: str, job_environment_file: str = ""
) -> str:
    """The same with our lines: users have a job here, stay in its cgroup and know its directory; others pass by."""
    lines = []
    for line in unrestricted(text).split("\n"):
        lines += _session(line, users, groups, job_environment_file) if _COMMON_SESSION.fullmatch(line) else [line]
    # First: `done` in common-account (an expired password) ends the account stack, and this rule would never run.
    return "\n".join(_account(users, groups, node_name) + lines)


def job_environment(job_directory: str) -> str:
    """pam_env's configuration for sessions in a job: pam_slurm_adopt has named the job; '' where jobs have none."""
    if not job_directory:
        return ""
    own = job_directory if job_directory == "/tmp" else job_directory + "/${SLURM_JOB_ID}"
    return f"{node_files.HEADER}SLURM_TMPDIR DEFAULT={own}\nTMPDIR DEFAULT={own}\n"


def trust(addresses: Sequence[str], users: Sequence[str], groups: Sequence[str]) -> str:
    """sshd's settings on a compute node: it believes login nodes which user logs in, except users with more rights."""
    if not addresses:
        return ""
    not_users, not_groups = (",".join(["*", *("!" + name for name in names)]) for names in (users, groups))
    return (
        f"{node_files.HEADER}# no file of a user's decides which hosts are trusted\nIgnoreUserKnownHosts yes\n"
        f"Match Address {','.join(addresses)} User {not_users} Group {not_groups}\n"
        "    HostbasedAuthentication yes\n    IgnoreRhosts yes\n"
    )


def equivalent(hosts: Sequence[Mapping[str, Any]]) -> str:
    """shosts.equiv: the hosts that sshd believes, by address and by name."""
    return "".join(f"{label}\n" for host in hosts for label in labels(host))


def known_hosts(hosts: Sequence[Mapping[str, Any]]) -> str:
    """Lines of ssh_known_hosts."""
    return "".join(f"{','.join(labels(host))} {key}\n" for host in hosts for key in host["keys"])


def client(hosts: Sequence[Mapping[str, Any]]) -> str:
    """ssh's settings on a login node: the host's key speaks for its users, to compute nodes alone."""
    names = " ".join(label for host in hosts for label in labels(host))
    return f"{node_files.HEADER}EnableSSHKeysign yes\nHost {names}\n    HostbasedAuthentication yes\n"


def labels(host: Mapping[str, Any]) -> list[str]:
    """How a host is called, its addresses first."""
    return list(dict.fromkeys([*host["addresses"], host["name"]]))


def session_problem(text: str, noninteractive: str | None) -> str:
    """Why users' sessions would leave their job's cgroup; '' where they do not. Both are file contents."""
    hint = "pam_systemd moves a session out of its job's cgroup"
    if noninteractive is None:
        return "/etc/pam.d/common-session-noninteractive is missing: install libpam-runtime"
    if _SYSTEMD.search(noninteractive):
        return f"/etc/pam.d/common-session-noninteractive names pam_systemd: {hint}"
    if _SYSTEMD.search(unrestricted(text)):
        return f"/etc/pam.d/sshd names pam_systemd itself: {hint}; common-session has it"
    return ""


def _account(users: Sequence[str], groups: Sequence[str], node_name: str) -> list[str]:
    module = "account required pam_slurm_adopt.so action_adopt_failure=deny action_generic_failure=deny"
    return [
        "# BEGIN " + ACCOUNT,
        "# Administrators first: for them nothing of Slurm is asked, so that they get in while it is down.",
        *_administrators("account", users, groups, 1),
        module + (" nodename=" + node_name if node_name else ""),
        "# END " + ACCOUNT,
    ]


def _session(line: str, users: Sequence[str], groups: Sequence[str], environment: str) -> list[str]:
    variables = [f"session optional pam_env.so conffile={environment} user_readenv=0"] if environment else []
    return [
        f"# BEGIN {SESSION}: {line.strip()}",
        "# pam_systemd would move a user's session out of its job: only the first of the two is without it.",
        *_administrators("session", users, groups, 2 + len(variables)),
        *variables,
        "session substack common-session-noninteractive",
        "session [default=1] pam_permit.so",
        "session substack common-session",
        "# END " + SESSION,
    ]


def _administrators(management_group: str, users: Sequence[str], groups: Sequence[str], skipped: int) -> list[str]:
    """Lines that let administrators skip so many of the lines that follow."""
    tests = ["user in " + _words(users)] + (["user ingroup " + _words(groups)] if groups else [])
    return [
        f"{management_group} [success={skipped + len(tests) - 1 - index} default=ignore] pam_succeed_if.so quiet {test}"
        for index, test in enumerate(tests)
    ]


def _words(names: Sequence[str]) -> str:
    joined = ":".join(names)
    return f"[{joined}]" if " " in joined else joined


def limits(settings: Mapping[str, str]) -> str:
    """The drop-in for users' slices."""
    body = "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
    return f"{node_files.HEADER}[Slice]\n{body}"
