"""Host keys are pinned in known_hosts files (sshd(8)) at first contact; a changed one stops all work on that node.

A scan does not authenticate the host (a key is public, anyone can show it), so a scan never adds keys to a
node that has some: only the following login, checked strictly against the pins, verifies that the node has
the private half.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.cluster.ssh_login import Target, cheap_exchange, options, quoted
from deepopsctl.errors import DeepOpsError
from deepopsctl.files import write_atomic
from deepopsctl.ssh.client import Client, Failure, Route

# requested one by one: a host shows one key a connection
_KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
    "rsa-sha2-512,rsa-sha2-256,ssh-rsa",
)

_KEY = re.compile(r"(?P<type>[a-z0-9@.-]+)\s+(?P<blob>[A-Za-z0-9+/]+={0,2})(?:\s|$)")


class HostKeyError(DeepOpsError):
    """A host shows other host keys than the pinned ones."""


class NoAnswerError(DeepOpsError):
    """A host showed no host key at all."""


@dataclass(frozen=True, slots=True, order=True)
class HostKey:
    """One public host key."""

    type: str
    blob: str

    @property
    def fingerprint(self) -> str:
        """As ssh shows it: `SHA256:...`."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def parse_host_key(text: str) -> HostKey | None:
    """The key in `TYPE BASE64 [COMMENT]`; None where there is none."""
    match = _KEY.match(text.strip())
    if not match:
        return None
    try:
        base64.b64decode(match["blob"], validate=True)
    except binascii.Error:
        return None
    return HostKey(match["type"], match["blob"])


class KnownHosts:
    """One known_hosts file, safe to use from several threads; lines it can't read stay as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._plain: dict[str, set[HostKey]] = {}
        self._hashed: list[tuple[bytes, bytes, HostKey]] = []
        self._read()

    def keys(self, label: str) -> frozenset[HostKey]:
        """The keys pinned for a label."""
        with self._lock:
            return self._keys(label)

    def pin(self, labels: Iterable[str], keys: Iterable[HostKey]) -> bool:
        """Append what is missing so that all labels have all keys; True if anything was."""
        wanted = list(dict.fromkeys(labels))
        with self._lock:
            lines = []
            for key in sorted(keys):
                missing = [label for label in wanted if key not in self._keys(label)]
                if missing:
                    lines.append(f"{','.join(reversed(missing))} {key.type} {key.blob}\n")
                    self._add(missing, key)
            if lines:
                self._append("".join(lines))
            return bool(lines)

    def replace(self, labels: Iterable[str], keys: Iterable[HostKey]) -> None:
        """Replace the keys of these labels; other hosts keep theirs."""
        wanted = list(dict.fromkeys(labels))
        with self._lock:
            lines = (_without(line, wanted) for line in self._text().splitlines())
            remaining = [line for line in lines if line]
            remaining += [f"{','.join(reversed(wanted))} {key.type} {key.blob}" for key in sorted(keys)]
            write_atomic(self.path, "".join(f"{line}\n" for line in remaining))
            self._read()

    def _keys(self, label: str) -> frozenset[HostKey]:
        keys = set(self._plain.get(label, ()))
        keys.update(key for salt, digest, key in self._hashed if _hash(label, salt) == digest)
        return frozenset(keys)

    def _add(self, labels: Iterable[str], key: HostKey) -> None:
        for label in labels:
            self._plain.setdefault(label, set()).add(key)

    def _append(self, text: str) -> None:
        # one write: a kill between two keys of a node would leave it half pinned
        with self.path.open("ab+") as file:
            glue = b""
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                glue = b"" if file.read(1) == b"\n" else b"\n"
            file.write(glue + text.encode())

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def _read(self) -> None:
        self._plain, self._hashed = {}, []
        for line in self._text().splitlines():
            names, _, rest = line.strip().partition(" ")
            key = parse_host_key(rest)
            # markers (@revoked, @cert-authority) are ssh's business, not pins
            if not key or names.startswith(("#", "@")):
                continue
            salted = _parse_hashed(names)
            if salted:
                self._hashed.append((*salted, key))
            else:
                self._add([name.lower() for name in names.split(",")], key)


@dataclass(frozen=True, slots=True)
class HostKeys:
    """Pins host keys in the cluster's file; `trusted` are the person's and the system's own files."""

    pins: KnownHosts
    trusted: tuple[KnownHosts, ...]
    client: Client

    def secure(self, target: Target, route: Route) -> bool:
        """Make sure that ssh can check this host against a pin; True if pins were added."""
        labels = labels_of(target, route)
        pinned = self.pins.keys(labels[0])
        if pinned:
            return self._align(target, labels, pinned)
        offered = self.offered(target)
        for file, label in [(self.pins, label) for label in labels] + [(file, labels[0]) for file in self.trusted]:
            offered = _agreed(target, file, label, offered)
        return self.pins.pin(labels, offered)

    def accept(self, target: Target, route: Route) -> bool:
        """Pin the host's current keys instead of the old ones; True if they differ."""
        labels = labels_of(target, route)
        offered = self.offered(target)
        if all(self.pins.keys(label) == offered for label in labels):
            return False
        self.pins.replace(labels, offered)
        return True

    def changed(self, target: Target, route: Route) -> HostKeyError:
        """The error for a host with changed keys: pinned and offered fingerprints."""
        return _changed(target, self.pins.path, self.pins.keys(labels_of(target, route)[0]), self.offered(target))

    def _align(self, target: Target, labels: tuple[str, ...], pinned: frozenset[HostKey]) -> bool:
        """Give every label the keys of the first, unless one of them is pinned with other keys."""
        for label in labels[1:]:
            _agreed(target, self.pins, label, pinned)
        return self.pins.pin(labels, pinned)

    def offered(self, target: Target) -> frozenset[HostKey]:
        """The host's current keys; NoAnswerError if it shows none.

        By ssh, which asks for a login without any key or password. ssh-keyscan asks for none, which sshd since OpenSSH
        9.8 takes amiss: after three scans it hangs up for a while. ssh-keyscan does not pass a jump host either.
        """
        keys: set[HostKey] = set()
        reason = ""
        for key_types in _KEY_TYPES:
            with tempfile.TemporaryDirectory() as scratch:
                file = Path(scratch) / "known_hosts"
                first: dict[str, object] = {
                    "HostKeyAlgorithms": key_types,
                    "StrictHostKeyChecking": "accept-new",
                    "UserKnownHostsFile": quoted(file),
                    "BatchMode": "yes",
                    "PreferredAuthentications": "none",
                }
                answer = self.client.probe(target, [*options({**first, **cheap_exchange()})])
                lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
            keys.update(key for key in (parse_host_key(line.partition(" ")[2]) for line in lines) if key)
            reason = answer.reason
            if answer.failure is Failure.UNREACHABLE and not keys:
                break
        if not keys:
            raise NoAnswerError(reason)
        return frozenset(keys)


def labels_of(target: Target, route: Route) -> tuple[str, ...]:
    """Names of a host in known_hosts; the first is the one ssh looks up."""
    port = route.port
    first = route.alias.lower() or host_label(route.host, port)
    return tuple(dict.fromkeys([first, host_label(target.destination, port), host_label(target.name, port)]))


def host_label(host: str, port: int = 0) -> str:
    """How a known_hosts file names a host: plain on port 22, else `[host]:port`."""
    return host.lower() if port in (0, 22) else f"[{host.lower()}]:{port}"


def best(keys: Iterable[HostKey]) -> str:
    """Type and fingerprint of the key that ssh prefers: ed25519, then ecdsa, then rsa."""
    ordered = sorted(keys, key=lambda key: ("ed25519" not in key.type, key))
    return f"{ordered[0].type} {ordered[0].fingerprint}" if ordered else "none"


def _parse_hashed(names: str) -> tuple[bytes, bytes] | None:
    parts = names.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return None
    try:
        return base64.b64decode(parts[2], validate=True), base64.b64decode(parts[3], validate=True)
    except binascii.Error:
        return None


def _hash(label: str, salt: bytes) -> bytes:
    return hmac.digest(salt, label.encode(), "sha1")


def _without(line: str, labels: list[str]) -> str:
    """The line without these labels; '' if no other is left."""
    names, _, rest = line.strip().partition(" ")
    if names.startswith(("#", "@")) or not parse_host_key(rest):
        return line
    salted = _parse_hashed(names)
    if salted:
        return "" if any(_hash(label, salted[0]) == salted[1] for label in labels) else line
    remaining = [name for name in names.split(",") if name.lower() not in labels]
    return f"{','.join(remaining)} {rest}" if remaining else ""


def _agreed(target: Target, file: KnownHosts, label: str, offered: frozenset[HostKey]) -> frozenset[HostKey]:
    """The offered keys that a file confirms (all, if it does not know the label), else a refusal."""
    known = file.keys(label)
    if known and not known & offered:
        raise _changed(target, file.path, known, offered)
    # anybody can show the known public key next to one of their own: only confirmed keys are accepted
    return known & offered if known else offered


def _changed(target: Target, file: Path, known: frozenset[HostKey], offered: frozenset[HostKey]) -> HostKeyError:
    types = {key.type for key in known} & {key.type for key in offered}
    before, now = (best(key for key in keys if key.type in types or not types) for keys in (known, offered))
    return HostKeyError(
        f"{file} has {before}, the host now shows {now}",
        f"if {target.name} was really reinstalled: `ssh setup --accept-new-keys {target.name}`; "
        "if not, this may be an attack: nothing was sent to it",
    )
