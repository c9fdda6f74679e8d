"""The lines in PAM's and systemd's files by which users log in to their jobs."""

from __future__ import annotations

import pytest

from tests.support import node_modules as nodeside

files = nodeside.load("node.login_files")

STACK = """\
# PAM configuration for the Secure Shell service
@include common-auth
account    required     pam_nologin.so
@include common-account
session    required     pam_loginuid.so
@include common-session
session    required     pam_limits.so
@include common-password
"""
NONINTERACTIVE = "session required pam_unix.so\n# pam_systemd.so is for interactive sessions\n"


def lines(text: str, kind: str) -> list[str]:
    """The lines of one type, and of the account stack's include, in their order."""
    return [line for line in text.splitlines() if line.startswith((kind, f"@include common-{kind}"))]


def test_users_need_a_job_before_the_account_stack_can_end_early() -> None:
    result = lines(files.restricted(STACK, ["root", "ubuntu"], ["sudo"], ""), "account")

    assert result[:3] == [
        "account [success=2 default=ignore] pam_succeed_if.so quiet user in root:ubuntu",
        "account [success=1 default=ignore] pam_succeed_if.so quiet user ingroup sudo",
        "account required pam_slurm_adopt.so action_adopt_failure=deny action_generic_failure=deny",
    ]
    assert result[3:] == lines(STACK, "account") != []


def test_only_administrators_have_the_session_with_pam_systemd() -> None:
    result = lines(files.restricted(STACK, ["root"], [], "n1"), "session")

    assert result[1:5] == [
        "session [success=2 default=ignore] pam_succeed_if.so quiet user in root",
        "session substack common-session-noninteractive",
        "session [default=1] pam_permit.so",
        "session substack common-session",
    ]


@pytest.mark.parametrize(
    "include", ["@include common-session", "session include common-session", "session substack common-session # x"]
)
def test_what_it_wrote_can_be_taken_back_to_the_byte(include: str) -> None:
    text = STACK.replace("@include common-session", include)
    once = files.restricted(text, ["root"], ["sudo"], "")

    assert files.restricted(once, ["root"], ["sudo"], "") == once
    assert files.restricted(once, ["root", "new"], [], "") == files.restricted(text, ["root", "new"], [], "")
    assert files.unrestricted(once) == text


@pytest.mark.parametrize("text", ["", "# nothing\n", "# BEGIN deepopsctl\nauth required pam_unix.so\n", "no newline"])
def test_lines_of_others_are_never_lost(text: str) -> None:
    assert files.unrestricted(text) == text
    assert files.restricted(text, ["root"], [], "").endswith(text)


@pytest.mark.parametrize(
    ("text", "noninteractive", "problem"),
    [
        (STACK, NONINTERACTIVE, ""),
        (STACK, None, "common-session-noninteractive is missing"),
        (STACK, "session optional pam_systemd.so\n", "common-session-noninteractive names pam_systemd"),
        (STACK + "session optional pam_systemd.so\n", NONINTERACTIVE, "sshd names pam_systemd itself"),
    ],
)
def test_a_session_that_would_leave_its_job_is_a_problem(text: str, noninteractive: str | None, problem: str) -> None:
    result = files.session_problem(text, noninteractive)

    assert problem in result if problem else not result


@pytest.mark.parametrize("name", ["", "a b ", "two\nlines", "a:b", "a]b", "#x", "ends\\", "-x", "(x)"])
def test_names_that_would_mean_something_to_pam_are_refused(name: str) -> None:
    assert files.refused_names(["ubuntu", "domain admins", "LAB\\root", "svc$", name]) == [name]


def test_names_with_spaces_are_one_word_for_pam() -> None:
    assert "user ingroup [sudo:domain admins]" in files.restricted("", ["root"], ["sudo", "domain admins"], "")


def test_limits_are_what_systemd_reads() -> None:
    assert files.limits({"TasksMax": "2000", "MemoryMax": "25%"}).endswith("[Slice]\nMemoryMax=25%\nTasksMax=2000\n")
    assert not files.refused_limits({"MemoryMax": "8G", "CPUQuota": "400%", "TasksMax": "infinity"})
    assert files.refused_limits({"MemoryMax": "8 GB", "CPUQuota": "1\n[Service]", "Bad\nKey": "1"}) == [
        "login_access_limits: Bad\nKey is not a property of a slice",
        "login_access_limits: CPUQuota: 1\n[Service] is not a valid size, number, percentage or infinity",
        "login_access_limits: MemoryMax: 8 GB is not a valid size, number, percentage or infinity",
    ]


def test_a_member_by_the_first_group_is_one_too() -> None:
    assert 0 in nodeside.plugin("modules", "login_access").uids([], ["root", "no-such-group"])


HOSTS = [{"name": "login1", "addresses": ["192.0.2.2", "2001:db8::2"], "keys": ["ssh-ed25519 AAAA"]}]


def test_a_session_in_a_job_knows_the_jobs_directory_and_an_administrators_does_not() -> None:
    result = lines(files.restricted(STACK, ["root"], ["sudo"], "", "/etc/security/x.conf"), "session")

    assert result[1:5] == [
        "session [success=4 default=ignore] pam_succeed_if.so quiet user in root",
        "session [success=3 default=ignore] pam_succeed_if.so quiet user ingroup sudo",
        "session optional pam_env.so conffile=/etc/security/x.conf user_readenv=0",
        "session substack common-session-noninteractive",
    ]
    assert files.job_environment("") == ""
    assert "SLURM_TMPDIR DEFAULT=/tmp\n" in files.job_environment("/tmp")
    assert "TMPDIR DEFAULT=/local/slurm-jobs/${SLURM_JOB_ID}\n" in files.job_environment("/local/slurm-jobs")


def test_login_nodes_are_believed_for_nobody_who_has_more_rights() -> None:
    text = files.trust(["192.0.2.2", "2001:db8::2"], ["root", "ubuntu"], ["sudo", "wheel"])

    assert "Match Address 192.0.2.2,2001:db8::2 User *,!root,!ubuntu Group *,!sudo,!wheel\n" in text
    # outside of the block no user is
    assert "HostbasedAuthentication" not in text.partition("Match ")[0]
    assert files.trust([], ["root"], ["sudo"]) == ""


def test_only_the_named_hosts_are_trusted_by_address_and_by_name() -> None:
    assert files.equivalent(HOSTS) == "192.0.2.2\n2001:db8::2\nlogin1\n"
    assert files.known_hosts(HOSTS) == "192.0.2.2,2001:db8::2,login1 ssh-ed25519 AAAA\n"
    assert "Host 192.0.2.2 2001:db8::2 login1\n    HostbasedAuthentication yes\n" in files.client(HOSTS)
