"""How ssh reaches a node: its login and port, paths as ssh writes them, and jump hosts.

A jump host is a ProxyCommand, because ProxyJump passes neither keys nor known hosts to the hop.

A jump host is authenticated with the cluster's key or one of the user's, and checked against the cluster's known_hosts.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import MappingProxyType

# ssh's default keys, which it tries only if no key is configured
# Of every call of ssh: a node gets nothing of this machine's, whatever ~/.ssh/config says, and no call does more than
# it was made for. Options stand before that file, and the first value counts.
CONFINED: Mapping[str, str] = MappingProxyType({
    "ForwardAgent": "no", "ForwardX11": "no", "ForwardX11Trusted": "no", "GSSAPIDelegateCredentials": "no",
    "ClearAllForwardings": "yes", "Tunnel": "no", "PermitLocalCommand": "no", "RemoteCommand": "none",
    "AddKeysToAgent": "no", "UpdateHostKeys": "no",
    # only the first SetEnv counts; the name is one that no sshd accepts
    "SetEnv": "DEEPOPSCTL=1",
})  # fmt: skip
# of a key exchange: the usual one of OpenSSH 9.0 to 9.8 (sntrup761) takes 0.1 s of this machine's CPU, this one a tenth
CHEAP: Mapping[str, str] = MappingProxyType({"KexAlgorithms": "^ecdh-sha2-nistp256"})
# a connection that the person shares was checked by other rules than the pinned key
ALONE: Mapping[str, str] = MappingProxyType({"ControlMaster": "no", "ControlPath": "none"})
# Variables that ssh, Ansible and their helpers read here, and that tell a node nothing
_NEEDED = (
    "HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TMPDIR", "DISPLAY", "XDG_*",
    "SSH_AUTH_SOCK", "SSH_ASKPASS*", "KRB5*", "ANSIBLE_*", "DEEPOPSCTL_*", "PYTHON*", "VIRTUAL_ENV",
)  # fmt: skip
_OWN_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


def jump_target(hop: str, proxy: str = "") -> Target:
    """One [USER@]HOST[:PORT] of cluster.yml's jump_host."""
    user, _, place = hop.rpartition("@")
    # an IPv6 address has its colons in brackets
    address, bracket, rest = place.removeprefix("[").partition("]")
    host, _, port = (address, "", rest.removeprefix(":")) if bracket else place.partition(":")
    return Target(host, host, user, int(port or 0), proxy)


def jump_names(jump_host: str) -> tuple[str, ...]:
    """The jump hosts on the way, by the names they have in reports."""
    return tuple(jump_target(hop).name for hop in jump_host.split(",") if hop)


def jump_login(key: str) -> list[str]:
    """Options to log in to a jump host: this key or the user's default keys, without prompts."""
    own = [part for path in _OWN_KEYS for part in options({"IdentityFile": path})]
    return [*options({"BatchMode": "yes", "IdentityFile": quoted(key)}), *own]


def proxy_command(login: Sequence[str], target: Target) -> str:
    """A ProxyCommand through `target`, for ssh's `-o`."""
    arguments = ["ssh", "-T", *login, "-W", "[%h]:%p", *target.arguments()]
    # the outer ssh expands %h and %p; every other % is meant for the inner one
    return " ".join(part if part == "[%h]:%p" else shlex.quote(part.replace("%", "%%")) for part in arguments)


def inventory_option(jump_host: str, key: str, known_hosts: str) -> str:
    """The ProxyCommand option for Ansible's ssh arguments; key and known_hosts may be templates."""
    login = [
        *options({
            "UserKnownHostsFile": f"{quoted(known_hosts)} ~/.ssh/known_hosts", "StrictHostKeyChecking": "yes",
            "ConnectTimeout": 10, "LogLevel": "ERROR", **ALONE, **CONFINED,
        }),
        *jump_login(key),
    ]  # fmt: skip
    proxy = ""
    for hop in filter(None, jump_host.split(",")):
        proxy = proxy_command(login, jump_target(hop, proxy))
    return f"-o {shlex.quote('ProxyCommand=' + proxy)}"


@dataclass(frozen=True, slots=True)
class Target:
    """One host: its name in reports, how to reach it, and the proxy command ('' for a direct connection)."""

    name: str
    destination: str
    user: str = ""
    port: int = 0
    proxy: str = ""

    def arguments(self) -> list[str]:
        """What ssh needs to know about this machine, the destination last."""
        port = ["-p", str(self.port)] if self.port else []
        user = ["-l", self.user] if self.user else []
        proxy = ["-o", f"ProxyCommand={self.proxy}"] if self.proxy else []
        return [*port, *user, *proxy, "--", self.destination]


@dataclass(frozen=True, slots=True)
class Login:
    """How a person logs in where not as cluster.yml says: `-u`, `-k` and `-K` of a command; None where not asked."""

    user: str = ""
    password: str | None = field(default=None, repr=False)
    sudo_password: str | None = field(default=None, repr=False)


AS_DECLARED = Login()


def quoted(path: Path | str) -> str:
    """A path as ssh's configuration reads it: with blanks, and % meaning itself."""
    return '"' + str(path).replace("%", "%%") + '"'


def options(pairs: Mapping[str, object]) -> list[str]:
    """`-o KEY=VALUE` for each pair."""
    return [part for key, value in pairs.items() for part in ("-o", f"{key}={value}")]


@cache
def cheap_exchange() -> Mapping[str, str]:
    """The option for connections that carry nothing secret, so that nothing has to be kept from computers to come.

    Empty where this machine's configuration of ssh chooses exchanges itself, where its ssh does not know the option
    (before OpenSSH 8.1), or there is no ssh.
    """
    try:
        chosen, usual, cheap = map(_exchanges, ([], ["-F", "none"], ["-F", "none", *options(CHEAP)]))
    except OSError:
        return {}
    return CHEAP if cheap and chosen == usual else {}


def _exchanges(arguments: Iterable[str]) -> list[str]:
    """The line of `ssh -G` with these arguments that has the key exchanges."""
    shown = subprocess.run(["ssh", "-G", *arguments, "any"], capture_output=True, text=True, check=False)
    return [line for line in shown.stdout.splitlines() if line.startswith("kexalgorithms ")]


def withheld(targets: Iterable[Target], environment: Iterable[str]) -> list[str]:
    """Names of the variables that ~/.ssh/config would send to one of the hosts, so that ssh must not have them.

    No option overrules SendEnv: every one of them adds to the list.
    """
    sent = {pattern for target in targets for pattern in _sent_to(target)}
    return sorted(name for name in environment if _matches(name, sent) and not _matches(name, _NEEDED))


def without_variables(names: Sequence[str]) -> list[str]:
    """What a command begins with that must not have these variables."""
    return ["env", *(word for name in names for word in ("-u", name))] if names else []


def _sent_to(target: Target) -> list[str]:
    try:
        shown = subprocess.run(
            ["ssh", "-G", *target.arguments()], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
            errors="replace", check=False, timeout=30,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        # the call itself will name the reason
        return []
    return [line.split(" ", 1)[1] for line in shown.splitlines() if line.startswith("sendenv ")]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
