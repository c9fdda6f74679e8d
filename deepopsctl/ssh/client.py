"""Runs OpenSSH's programs, one process per call; all of them are killed when the run is stopped."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deepopsctl.cluster.ssh_login import Target, options, quoted
from deepopsctl.errors import ControlMachineError
from deepopsctl.ssh.effective_config import Route, read_route
from deepopsctl.ssh.exit_status import Answer, Failure, read_answer
from deepopsctl.ssh.remote_scripts import Script


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
        arguments = ["ssh", "-T", "-a", "-x", *self.options(), *auth, *target.arguments(), script.command]
        return self._run(arguments, script.data, environment or {}, self.connect_timeout + script.seconds)

    def probe(self, target: Target, first: Sequence[str]) -> Answer:
        """Connect without logging in (to see a host key): the first options win over the usual ones."""
        arguments = ["ssh", "-T", *first, *self.options(), *target.arguments(), "true"]
        return self._run(arguments, "", {}, self.connect_timeout + 5)

    def scan(self, host: str, port: int) -> Answer:
        """All host keys that a host offers, as ssh-keyscan prints them; no lines if it does not answer."""
        where = ["-p", str(port)] if port else []
        answer = self._run(
            ["ssh-keyscan", "-T", str(self.connect_timeout), *where, "--", host],
            "",
            {},
            self.connect_timeout * 2 + 5,
        )
        if answer.output.strip():
            return Answer(Failure.NONE, answer.output)
        text = re.sub(r"^(connect|getaddrinfo) \S+ ", "", answer.reason) or f"no answer within {self.connect_timeout} s"
        return Answer(Failure.UNREACHABLE, "", text)

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
        deadline = time.monotonic() + self.connect_timeout
        while not control.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def options(self) -> list[str]:
        """Options of every connection: pinned keys only, no side effects of the person's own configuration."""
        pairs: dict[str, object] = {
            "UserKnownHostsFile": quoted(self.known_hosts), "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes", "UpdateHostKeys": "no", "VerifyHostKeyDNS": "no",
            "HashKnownHosts": "no", "ConnectTimeout": self.connect_timeout, "ConnectionAttempts": 1,
            "ServerAliveInterval": 5, "ServerAliveCountMax": 3, "ControlMaster": "no", "ControlPath": "none",
            "ClearAllForwardings": "yes", "PermitLocalCommand": "no", "RemoteCommand": "none",
            "RequestTTY": "no", "NumberOfPasswordPrompts": 1, "LogLevel": "ERROR",
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
