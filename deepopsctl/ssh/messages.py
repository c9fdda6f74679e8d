"""Results and hints for people, from the report of a node's script."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from deepopsctl.ssh.exit_status import Answer, Failure
from deepopsctl.ssh.remote_scripts import Report
from deepopsctl.ssh.results import NodeResult, Status, Sudo

_CHANGES = {
    "key": "key installed",
    "mode": "modes of ~/.ssh put right",
    "controller-key": "its own key made",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a node besides its report: the change of its host key, the login user, the other nodes."""

    name: str
    user: str
    pins: str
    others: Collection[str] = ()


def worked(facts: Facts, report: Report) -> NodeResult:
    """The result of a script that finished."""
    changes = dict.fromkeys(report.all("changed"))
    parts = [facts.pins] if facts.pins else []
    parts += [text for word, text in _CHANGES.items() if word in changes]
    status, sudo, text, hint = _sudo(facts, report)
    parts += [text] if text else []
    called = report.last("host").partition(".")[0]
    if called != facts.name and called in facts.others:
        parts.append(f"its hostname is {called}")
        hint = hint or "compare the addresses in cluster.yml: two nodes may be swapped"
    return NodeResult(facts.name, status, bool(facts.pins) or bool(changes), sudo, "; ".join(parts), hint)


def _sudo(facts: Facts, report: Report) -> tuple[Status, Sudo, str, str]:
    """Evaluate sudo's answers: the node's status, its sudo rights, a message and a hint."""
    word, _, reason = report.last("sudo").partition(" ")
    tried = report.last("sudo-password")
    if word == Sudo.NONE:
        hint = f"let {facts.user} use sudo there (group sudo or wheel), or name another user in cluster.yml"
        return Status.FAILED, Sudo.NONE, f"no sudo for {facts.user}: {reason}", hint
    if tried == "refused":
        hint = f"see whether {facts.user} may use sudo there, and with which password"
        return Status.FAILED, Sudo.PASSWORD, "sudo refused the password given with -K", hint
    if tried == "accepted":
        hint = "give -K at `deepopsctl deploy` too"
        return Status.READY, Sudo.PASSWORD, "sudo asks for a password, the one given works", hint
    if word == Sudo.PASSWORD:
        hint = "give -K at `deepopsctl deploy`; here, -K tries the password"
        return Status.READY, Sudo.PASSWORD, "sudo asks for a password", hint
    return Status.READY, Sudo(word), "", ""


def failed(facts: Facts, answer: Answer) -> NodeResult:
    """The result of a failed login or a failed script."""
    if answer.failure is Failure.UNREACHABLE:
        return unreachable(facts, answer.reason)
    report = Report.read(answer.output)
    message = report.last("error") or answer.reason
    changed = bool(facts.pins) or bool(report.all("changed"))
    return NodeResult(facts.name, Status.FAILED, changed, Sudo.UNKNOWN, message, "fix this on the node, then run again")


def unreachable(facts: Facts, reason: str) -> NodeResult:
    """The result of a node that did not answer."""
    hint = "is it switched on, and sshd running? run again when it is back"
    return NodeResult(facts.name, Status.UNREACHABLE, bool(facts.pins), Sudo.UNKNOWN, reason, hint)


def refused(facts: Facts, methods: Collection[str]) -> NodeResult:
    """The result of a refused password. It is never tried twice."""
    message = f"the password of {facts.user} was refused"
    hint = "check the password; nodes that have another one: `--limit NODES`"
    if methods and not {"password", "keyboard-interactive"} & set(methods):
        offered = ", ".join(sorted(methods))
        message = f"no key is accepted and sshd takes no passwords (it offers {offered})"
        hint = "give a key that may log in with --identity FILE"
        return NodeResult(facts.name, Status.FAILED, bool(facts.pins), Sudo.UNKNOWN, message, hint)
    return NodeResult(facts.name, Status.REFUSED, bool(facts.pins), Sudo.UNKNOWN, message, hint)


def unverified(facts: Facts, answer: Answer, report: Report) -> NodeResult:
    """The result of a refused login with the installed key: the usual reasons are on the node."""
    home = report.last("home")
    message, hint = f"the key is installed, but the node does not accept it: {answer.reason}", ""
    if home and int(home, 8) & 0o022:
        message = f"the key is installed, but sshd ignores it: ~{facts.user} is writable by others (mode {home})"
        hint = f"on the node: chmod go-w ~{facts.user}"
    hint = hint or "on the node, see AuthorizedKeysFile and PubkeyAuthentication in /etc/ssh/sshd_config"
    return NodeResult(facts.name, Status.FAILED, changed=True, message=message, hint=hint)


def not_tried(facts: Facts, where: str) -> NodeResult:
    """The result for a node on which a password refused elsewhere was not tried."""
    message = f"the password was refused on {where}, so it was not tried here, to avoid locked accounts"
    return NodeResult(
        facts.name, Status.NOT_TRIED, bool(facts.pins), Sudo.UNKNOWN, message, "run again with the right one"
    )


def no_password(facts: Facts) -> NodeResult:
    """The result without an accepted key and without a prompt for the password."""
    message = "no key is accepted and no password is given"
    hint = "--password-file FILE, --identity FILE, or run it on a terminal, where it asks"
    return NodeResult(facts.name, Status.FAILED, bool(facts.pins), Sudo.UNKNOWN, message, hint)
