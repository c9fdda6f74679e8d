"""Results of `ssh setup` for each node: data, messages and hints, lines for people, the JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from deepopsctl.errors import ExitCode
from deepopsctl.model.json_objects import LoginEntry, SshSetupObject
from deepopsctl.run.hints import hint_for
from deepopsctl.ssh.client import Answer, Failure
from deepopsctl.ssh.remote_scripts import Report
from deepopsctl.text.node_sets import fold_in_order


class Status(StrEnum):
    """The result of a node. Only `ready` is good."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    HOST_KEY = "host key changed"
    REFUSED = "password refused"
    NOT_TRIED = "not tried"
    FAILED = "failed"


class Sudo(StrEnum):
    """The sudo rights of the cluster's user on a node; `unknown` if they could not be checked."""

    PASSWORDLESS = "passwordless"
    PASSWORD = "password"  # noqa: S105 - a word for people, no secret
    NONE = "none"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node: its status, whether anything was changed, message and hint."""

    name: str
    status: Status
    changed: bool = False
    sudo: Sudo = Sudo.UNKNOWN
    message: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether Ansible can now log in without a password."""
        return self.status is Status.READY


OnNode = Callable[[NodeResult], None]

_CHANGES = {
    "key": "key installed",
    "mode": "modes of ~/.ssh put right",
    "controller-key": "its own key made",
}

_ROOTS_FILE = "keys belong in root's file (docs/deploy/ssh.md): see the reason"

HEADER = ("nodes", "status", "sudo", "note")


@dataclass(frozen=True, slots=True)
class SetupResult:
    """All nodes in the order of cluster.yml, and the jump host where there is one."""

    nodes: tuple[NodeResult, ...]
    jump_host: NodeResult | None = None
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every node is ready."""
        return self.exit_code is ExitCode.OK

    @property
    def exit_code(self) -> ExitCode:
        """0, or 4 if nodes could not be reached and nothing else went wrong, or 1."""
        hosts = [*self.nodes, *([self.jump_host] if self.jump_host else [])]
        bad = {host.status for host in hosts if not host.ok}
        if not bad:
            return ExitCode.OK
        return ExitCode.UNREACHABLE if bad == {Status.UNREACHABLE} else ExitCode.FAILED


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
    kept = report.last("kept")
    if kept and status is Status.READY:
        parts.append(f"keys are in ~/.ssh: {kept}")
        hint = hint or f"{_ROOTS_FILE}, also on the node; `deploy` tries it again"
    adopted = report.last("adopted")
    if adopted:
        parts.append(f"{adopted} {'key' if adopted == '1' else 'keys'} of ~/.ssh moved to root's file")
    if report.last("python"):
        parts.append("no python3 there")
        hint = hint or hint_for("python3: not found")
    called = report.last("host").partition(".")[0]
    if called != facts.name and called in facts.others:
        parts.append(f"its hostname is {called}")
        hint = hint or "compare the addresses in cluster.yml: two nodes may be swapped"
    return NodeResult(facts.name, status, bool(facts.pins) or bool(changes), sudo, "; ".join(parts), hint)


def failed(facts: Facts, answer: Answer) -> NodeResult:
    """The result of a failed login or a failed script."""
    if answer.failure is Failure.UNREACHABLE:
        return unreachable(facts, answer.reason)
    report = Report.read(answer.output)
    message = report.last("error") or answer.reason
    changed = bool(facts.pins) or bool(report.all("changed"))
    return NodeResult(facts.name, Status.FAILED, changed, Sudo.UNKNOWN, message, "fix this on the node, then run again")


def not_run(facts: Facts) -> NodeResult:
    """The result of a login that worked, and ran something else than the script."""
    message = f"the login of {facts.user} works, but it does not run what it is given"
    hint = "on the node, see ForceCommand in sshd_config, command= in ~/.ssh/authorized_keys, and the login shell"
    return NodeResult(facts.name, Status.FAILED, bool(facts.pins), Sudo.UNKNOWN, message, hint)


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
    if report.last("kept"):
        hint = hint or "sshd may read root's file of keys alone there: give -K, so that the key can be added to it"
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


def table_rows(result: SetupResult) -> list[tuple[str, ...]]:
    """One row under HEADER for all nodes with the same result; failures last."""
    hosts = [*([result.jump_host] if result.jump_host else []), *result.nodes]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in sorted(hosts, key=lambda host: not host.ok):
        groups.setdefault((node.status, node.sudo or "-", node.message or "-"), []).append(node.name)
    return [(fold_in_order(names), *key) for key, names in groups.items()]


def hints(result: SetupResult) -> list[str]:
    """Every hint once, with its nodes."""
    hosts = [*([result.jump_host] if result.jump_host else []), *result.nodes]
    groups: dict[str, list[str]] = {}
    for node in hosts:
        if node.hint:
            groups.setdefault(node.hint, []).append(node.name)
    return [f"{fold_in_order(names)}: {hint}" for hint, names in groups.items()]


def summary_line(result: SetupResult) -> str:
    """The last line: number of nodes by status."""
    counts = Counter(node.status for node in result.nodes)
    changed = sum(node.changed for node in result.nodes)
    parts = [f"{count} {status}" for status, count in counts.items()]
    return f"{', '.join(parts)}; {changed or 'nothing'} changed" if parts else "no nodes"


def result_object(result: SetupResult) -> SshSetupObject:
    """The JSON object of `ssh setup`."""
    document: SshSetupObject = {
        "schema": 1,
        "command": "ssh setup",
        "ok": result.ok,
        "nodes": [_node_object(node) for node in result.nodes],
        "warnings": list(result.warnings),
    }
    if result.jump_host:
        document["jump_host"] = _node_object(result.jump_host)
    return document


def _sudo(facts: Facts, report: Report) -> tuple[Status, Sudo, str, str]:
    """Evaluate sudo's answers: the node's status, its sudo rights, a message and a hint."""
    word, _, reason = report.last("sudo").partition(" ")
    tried = report.last("sudo-password")
    if word == Sudo.NONE:
        hint = f"let {facts.user} use sudo there (group sudo or wheel), or name another user in cluster.yml"
        return Status.FAILED, Sudo.NONE, f"no sudo for {facts.user}: {reason}", hint_for(reason) or hint
    if tried == "refused":
        hint = f"see whether {facts.user} may use sudo there, and with which password"
        return Status.FAILED, Sudo.PASSWORD, "sudo refused the password given with -K", hint
    if tried == "accepted":
        hint = "give -K at `deepopsctl deploy` too"
        return Status.READY, Sudo.PASSWORD, "sudo asks for a password, the one given works", hint
    if word == Sudo.PASSWORD:
        hint = "give -K at `deepopsctl deploy`; here, -K tries the password"
        return Status.READY, Sudo.PASSWORD, "sudo asks for a password", hint
    return Status.READY, Sudo(word) if word in {*Sudo} else Sudo.UNKNOWN, "", ""


def _node_object(node: NodeResult) -> LoginEntry:
    return {
        "name": node.name,
        "ok": node.ok,
        "changed": node.changed,
        "status": str(node.status),
        "sudo": str(node.sudo),
        "message": node.message,
        "hint": node.hint,
    }
