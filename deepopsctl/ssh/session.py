"""The setup of hosts: pin a key, log in, run the script, verify the login; many at once, with one password."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deepopsctl.cluster.ssh_login import Target, cheap_exchange, jump_login, options, quoted
from deepopsctl.ssh import results
from deepopsctl.ssh.client import Answer, Client, Failure, Route
from deepopsctl.ssh.host_keys import HostKeyError, HostKeys, NoAnswerError
from deepopsctl.ssh.key_pair import KeyPair
from deepopsctl.ssh.passwords import AskPass
from deepopsctl.ssh.remote_scripts import NOTHING, Report, Script, work_script
from deepopsctl.ssh.results import Facts, NodeResult, OnNode, Status

WORKERS = 32


@dataclass(slots=True)
class Tools:
    """Shared by the sessions of a run; `own_keys`: try the person's own keys and agent before a password."""

    client: Client
    hostkeys: HostKeys
    askpass: AskPass
    key: KeyPair
    names: frozenset[str]
    identity: Path | None = None
    own_keys: bool = True
    sudo_password: str | None = None


@dataclass(slots=True)
class Session:
    """The setup of one node. `accepted`: whether a password was accepted; None if none was tried."""

    target: Target
    tools: Tools
    keys: tuple[str, ...]
    accept_new: bool = False
    own_key: str = ""
    comment: str = ""
    accepted: bool | None = None
    sudo_refused: bool = False
    controller_key: str = ""
    controller_identity: str = ""
    _route: Route | None = None
    _pinned: str = ""
    _methods: frozenset[str] = field(default_factory=frozenset)

    @property
    def facts(self) -> Facts:
        """Facts for the result."""
        others = self.tools.names - {self.target.name}
        return Facts(self.target.name, self.target.user or "the user", self._pinned, others)

    def with_keys(self) -> NodeResult | None:
        """Run the setup if a key is accepted; None if a password is needed."""
        try:
            if self.accept_new:
                self._pinned = "new host key accepted" if self.tools.hostkeys.accept(self.target, self.route) else ""
            else:
                self._pinned = "host key pinned" if self.tools.hostkeys.secure(self.target, self.route) else ""
        except HostKeyError as error:
            return self._stranger(error)
        except NoAnswerError as error:
            return results.unreachable(self.facts, error.message)
        return self._try_keys()

    def _try_keys(self) -> NodeResult | None:
        for auth in self._key_logins():
            answer = self._login(auth)
            if answer.failure is not Failure.DENIED:
                return self._settle(answer, verified=auth == self._cluster_key)
            self._methods = answer.methods or self._methods
        if self._methods and not self._methods & {"password", "keyboard-interactive"}:
            return results.refused(self.facts, self._methods)
        return None

    def with_password(self, password: str) -> NodeResult:
        """Run the setup with a password, which is sent once."""
        answer = self._password_login(password, "password")
        if (
            answer.failure is Failure.DENIED
            and "password" not in answer.methods
            and "keyboard-interactive" in answer.methods
        ):
            # the node does not offer the first method
            answer = self._password_login(password, "keyboard-interactive")
        if answer.failure is Failure.DENIED:
            self.accepted = False
            return results.refused(self.facts, answer.methods)
        if answer.failure in (Failure.NONE, Failure.COMMAND):
            self.accepted = True
        return self._settle(answer, verified=False)

    @property
    def route(self) -> Route:
        """The ssh destination of this node; resolved once."""
        if self._route is None:
            self._route = self.tools.client.route(self.target)
        return self._route

    @property
    def _cluster_key(self) -> tuple[str, ...]:
        return key_login(self.tools.key.private)

    def _key_logins(self) -> Iterator[tuple[str, ...]]:
        if not self.tools.key.created:
            yield self._cluster_key
        if self.tools.identity:
            yield key_login(self.tools.identity)
        elif self.tools.own_keys and self.route.keys:
            # only if there is a key: sshd blocks an address after some failed logins
            yield (
                "-o",
                "BatchMode=yes",
                "-o",
                "PreferredAuthentications=gssapi-with-mic,publickey",
            )

    def _script(self) -> Script:
        return work_script(list(self.keys), self.own_key, self.comment, self.tools.sudo_password)

    def _login(self, auth: Sequence[str]) -> Answer:
        return self.tools.client.login(self.target, auth, self._script())

    def _password_login(self, password: str, method: str) -> Answer:
        auth = options({"BatchMode": "no", "PubkeyAuthentication": "no", "PreferredAuthentications": method})
        with self.tools.askpass.answer(password, self.route.user, self.route.shown) as environment:
            return self.tools.client.login(self.target, auth, self._script(), environment)

    def _settle(self, answer: Answer, *, verified: bool) -> NodeResult:
        if answer.failure is Failure.HOST_KEY:
            return self._changed_host_key()
        if not answer.ok:
            return results.failed(self.facts, answer)
        report = Report.read(answer.output)
        if not report.lines:
            return results.not_run(self.facts)
        self.controller_key = report.last("public")
        self.controller_identity = report.last("identity")
        self.sudo_refused = report.last("sudo-password") == "refused"
        if not verified:
            verification = self.tools.client.login(
                self.target, (*self._cluster_key, *options(cheap_exchange())), NOTHING
            )
            if verification.failure is Failure.DENIED:
                return results.unverified(self.facts, verification, report)
            if not verification.ok:
                return self._settle(verification, verified=True)
        return self._worked(report)

    def _worked(self, report: Report) -> NodeResult:
        return results.worked(self.facts, report)

    def _changed_host_key(self) -> NodeResult:
        try:
            return self._stranger(self.tools.hostkeys.changed(self.target, self.route))
        except NoAnswerError as error:
            return results.unreachable(self.facts, error.message)

    def _stranger(self, error: HostKeyError) -> NodeResult:
        return NodeResult(self.target.name, Status.HOST_KEY, message=error.message, hint=error.hint)


def key_login(private: Path) -> tuple[str, ...]:
    """Authentication options: this key and no other, no questions."""
    pairs: dict[str, object] = {
        "BatchMode": "yes",
        "PreferredAuthentications": "publickey",
        "IdentitiesOnly": "yes",
        "IdentityFile": quoted(private),
    }
    return tuple(options(pairs))


class JumpSession(Session):
    """The setup of a jump host: nothing is installed if the login works already."""

    __slots__ = ()

    def _try_keys(self) -> NodeResult | None:
        auth = (*jump_login(str(self.tools.key.private)), *options(cheap_exchange()))
        answer = self.tools.client.login(self.target, auth, NOTHING)
        if answer.failure is Failure.DENIED:
            return None
        if answer.failure in (Failure.NONE, Failure.COMMAND):
            # a bastion may forward connections and refuse commands: that is enough
            return NodeResult(
                self.target.name,
                Status.READY,
                bool(self._pinned),
                message=self._pinned,
            )
        return self._settle(answer, verified=True)

    def _worked(self, report: Report) -> NodeResult:
        # sudo is not needed there, and its hostname does not matter
        return results.worked(self.facts, report.without("sudo", "sudo-password", "host", "python"))


class Attempt(Protocol):
    """Interface of a session: `accepted` is the node's answer to the password, None without one."""

    accepted: bool | None

    @property
    def facts(self) -> Facts:
        """Facts of the node."""

    def with_keys(self) -> NodeResult | None:
        """Run the setup if a key is accepted; None if a password is needed."""

    def with_password(self, password: str) -> NodeResult:
        """Run the setup with a password."""


@dataclass(slots=True)
class Password:
    """The login password: its source, and the nodes' answers to it."""

    value: str = ""
    ask: Callable[[], str] | None = None
    accepted: bool = False
    refused_by: str = ""

    def get(self) -> str:
        """The password, asked for at most once; '' where there is none."""
        if not self.value and self.ask:
            self.value = self.ask()
            self.ask = None
        return self.value

    def record_answer(self, session: Attempt) -> None:
        """Record a node's answer; one success outweighs refusals, because nodes may have their own passwords."""
        if session.accepted:
            self.accepted = True
        elif session.accepted is False and not self.accepted:
            self.refused_by = session.facts.name


@dataclass(slots=True)
class Round:
    """One set of sessions at a time; `run` returns when each has a result."""

    password: Password
    on_node: OnNode
    stop: Callable[[], None]
    _waiting: deque[Attempt] = field(default_factory=deque)
    _trying: int = 0

    def try_all(self, sessions: Iterable[Attempt]) -> dict[str, NodeResult]:
        """Results by node name. The callback gets each as it comes, in this thread."""
        results: dict[str, NodeResult] = {}
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                for result in self._results(pool, sessions):
                    results[result.name] = result
                    self.on_node(result)
            except BaseException:
                self.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return results

    def _results(self, pool: ThreadPoolExecutor, sessions: Iterable[Attempt]) -> Iterator[NodeResult]:
        pending = {pool.submit(session.with_keys): session for session in sessions}
        with_password: set[Future[NodeResult | None]] = set()
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                session = pending.pop(future)
                if future in with_password:
                    self._trying -= 1
                    self.password.record_answer(session)
                result = future.result()
                if result is None:
                    self._waiting.append(session)
                else:
                    yield result
            yield from self._give_up()
            for session in self._released():
                attempt: Future[NodeResult | None] = pool.submit(session.with_password, self.password.get())
                with_password.add(attempt)
                pending[attempt] = session

    def _give_up(self) -> Iterator[NodeResult]:
        """Results of waiting nodes for which there is no password, or a refused one."""
        while self._waiting and (self.password.refused_by or not self.password.get()):
            facts = self._waiting.popleft().facts
            by = self.password.refused_by
            yield results.not_tried(facts, by) if by else results.no_password(facts)

    def _released(self) -> Iterator[Attempt]:
        """Sessions that may use the password now: the first alone, the others once it was accepted."""
        while self._waiting and (self.password.accepted or self._trying == 0):
            self._trying += 1
            yield self._waiting.popleft()
