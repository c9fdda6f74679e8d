"""Runs OpenSSH's programs, one process per call, and reads their exit codes; all are killed when the run is stopped."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from deepopsctl.cluster.ssh_login import CONFINED, Target, options, quoted, withheld, without_variables
from deepopsctl.errors import ControlMachineError
from deepopsctl.node_programs._shared.waiting import wait_until
from deepopsctl.ssh.remote_scripts import Script

_METHODS = re.compile(r"Permission denied \(([^)]*)\)")
_HOST_KEY = re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed|host key is known for")
_UNREACHABLE = re.compile(
    r"connection timed out|connection refused|no route to host|network is unreachable|could not resolve|"
    r"name or service not known|temporary failure in name resolution|connection reset|connection closed|"
    r"closed by remote host|banner exchange|operation timed out|not allowed at this time|broken pipe|"
    r"timeout, server",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(debug\d|Warning: Permanently added|\*\* |@@@|# )")
_PENALTY = re.compile(r"not allowed at this time|(closed by remote host|reset by peer)\s*$", re.IGNORECASE)


@dataclass(slots=True)
class Client:
    """Starts and tracks processes; `connect_timeout` is in seconds and covers the key exchange."""

    known_hosts: Path
    connect_timeout: int = 10
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _shared: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def login(
        self,
        target: Target,
        auth: Sequence[str],
        script: Script,
        environment: Mapping[str, str] | None = None,
    ) -> Answer:
        """Log in with the given authentication options and run a script."""
        arguments = [*_ssh(target), *self.options(), *auth, *target.arguments(), script.command]
        return self._run(arguments, script.data, environment or {}, self.connect_timeout + script.seconds)

    def probe(self, target: Target, first: Sequence[str]) -> Answer:
        """Connect without logging in (to see a host key): the first options win over the usual ones.

        A host may take a login without any key, so this has no variables for it either.
        """
        arguments = [*_ssh(target), *first, *self.options(), *target.arguments(), "true"]
        return self._run(arguments, "", {}, self.connect_timeout + 5)

    def route(self, target: Target) -> Route:
        """The effective destination, from `ssh -G`."""
        answer = self._run(["ssh", "-G", *self.options(), *target.arguments()], "", {}, 30)
        if not answer.ok:
            raise ControlMachineError(
                f"ssh can't use its configuration: {answer.reason}", "see `ssh -G` and ~/.ssh/config"
            )
        return read_route(answer.output, os.environ)

    def share(self, target: Target, auth: Sequence[str], control: Path) -> None:
        """Open one connection that others can share; without it each opens its own."""
        first = options({"ControlMaster": "yes", "ControlPath": quoted(control)})
        process = self._start(["ssh", "-N", "-T", *first, *self.options(), *auth, *target.arguments()], {})
        self._shared.append(process)
        wait_until(lambda: control.exists() or process.poll() is not None, self.connect_timeout, 0.02)

    def options(self) -> list[str]:
        """Options of every connection: pinned keys only, no side effects of the person's own configuration."""
        pairs: dict[str, object] = {
            "UserKnownHostsFile": quoted(self.known_hosts), "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes", "VerifyHostKeyDNS": "no",
            "HashKnownHosts": "no", "ConnectTimeout": self.connect_timeout, "ConnectionAttempts": 1,
            "ServerAliveInterval": 5, "ServerAliveCountMax": 3, "ControlMaster": "no", "ControlPath": "none",
            "RequestTTY": "no", "NumberOfPasswordPrompts": 1, "LogLevel": "ERROR", **CONFINED,
        }  # fmt: skip
        return options(pairs)

    def stop(self) -> None:
        """Kill running processes and start no more."""
        with self._lock:
            self._stopped = True
            for process in (*self._running, *self._shared):
                process.kill()
        for process in self._shared:
            process.wait()

    def _run(self, arguments: list[str], data: str, environment: Mapping[str, str], timeout: float) -> Answer:
        process = self._start(arguments, environment)
        try:
            output, errors = process.communicate(data.encode(errors="surrogateescape"), timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Answer(Failure.UNREACHABLE, "", f"no answer within {timeout:.0f} s")
        except KeyboardInterrupt:
            process.kill()
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        return read_answer(process.returncode, output.decode(errors="replace"), errors.decode(errors="replace"))

    def _start(self, arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            try:
                # a session of its own: no terminal to ask on, and Ctrl-C reaches only us
                process = subprocess.Popen(
                    arguments, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True,
                    env={**os.environ, "LC_ALL": "C", **environment},
                )  # fmt: skip
            except FileNotFoundError as error:
                raise ControlMachineError(
                    f"{arguments[0]} is not installed here", "install the package openssh-client"
                ) from error
            self._running.add(process)
            return process


def _ssh(target: Target) -> list[str]:
    """What a connection begins with: nothing of this machine's environment goes to the host."""
    return [*without_variables(withheld([target], os.environ)), "ssh", "-T"]


class Failure(Enum):
    """Why a login failed, or that the command failed after it."""

    NONE = auto()
    DENIED = auto()
    HOST_KEY = auto()
    UNREACHABLE = auto()
    COMMAND = auto()


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one ssh process. `methods` are the methods that the node offered when it denied the login."""

    failure: Failure
    output: str = ""
    reason: str = ""
    methods: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        """Whether the login worked and the command ended well."""
        return self.failure is Failure.NONE


def read_answer(code: int, output: str, errors: str) -> Answer:
    """Classify a finished ssh process; 255 is ssh's own failure, anything else the remote command's."""
    if code == 0:
        return Answer(Failure.NONE, output)
    reason = last_words(errors)
    if code != 255:
        return Answer(Failure.COMMAND, output, reason or f"the command on the node ended with {code}")
    if _HOST_KEY.search(errors):
        return Answer(Failure.HOST_KEY, output, reason)
    denied = _METHODS.search(errors)
    if denied:
        return Answer(Failure.DENIED, output, reason, frozenset(denied[1].split(",")))
    if "Too many authentication failures" in errors:
        return Answer(Failure.DENIED, output, "too many keys were offered", frozenset())
    if _PENALTY.search(errors):
        # after failed logins, OpenSSH 9.8 and later shuts an address out (PerSourcePenalties)
        reason = "sshd drops this machine's connections: after failed logins it does so for a minute or more"
    if _UNREACHABLE.search(errors):
        return Answer(Failure.UNREACHABLE, output, reason)
    return Answer(Failure.COMMAND, output, reason or "ssh failed without a reason")


def last_words(errors: str) -> str:
    """The last meaningful line of stderr, without ssh's own prefixes."""
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not _NOISE.match(line.strip())]
    if not lines:
        return ""
    line = re.sub(r"^(ssh: |kex_exchange_identification: )", "", lines[-1])
    # "connect to host 10.0.0.1 port 22: ...": the node is shown anyway, and equal texts fold into one row
    line = re.sub(r"^connect to host \S+ port \d+: ", "", line)
    line = re.sub(r"^Connection (closed|reset) by \S+ port \d+$", r"connection \1 by the node", line)
    return line[:1].lower() + line[1:300] if line[:2] != line[:2].upper() else line[:300]


@dataclass(frozen=True, slots=True)
class Route:
    """`alias` is the HostKeyAlias; `keys`: the person has a key, agent or ticket."""

    user: str
    host: str
    port: int
    alias: str = ""
    keys: bool = False

    @property
    def shown(self) -> str:
        """The host as ssh names it in its password prompt."""
        return self.alias or self.host


def read_route(output: str, environment: Mapping[str, str]) -> Route:
    """The route in the output of `ssh -G`."""
    values: dict[str, list[str]] = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key, []).append(value)

    def last(key: str, default: str = "") -> str:
        return values.get(key, [default])[-1]

    return Route(
        user=last("user"),
        host=last("hostname"),
        port=int(last("port", "22")),
        alias=last("hostkeyalias"),
        keys=(
            any(Path(file).expanduser().exists() for file in values.get("identityfile", ()))
            or last("identityagent", environment.get("SSH_AUTH_SOCK", "")) not in ("", "none")
            or last("pkcs11provider", "none") != "none"
            or (last("gssapiauthentication") == "yes" and _has_ticket(environment))
        ),
    )


def _has_ticket(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("KRB5CCNAME")) or Path(f"/tmp/krb5cc_{os.getuid()}").exists()  # noqa: S108 - Kerberos' own place
