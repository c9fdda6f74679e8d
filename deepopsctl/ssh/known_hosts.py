"""Files of pinned host keys (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"): read, append, replace."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.files import write_atomic

_KEY = re.compile(r"(?P<type>[a-z0-9@.-]+)\s+(?P<blob>[A-Za-z0-9+/]+={0,2})(?:\s|$)")


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


def host_label(host: str, port: int = 0) -> str:
    """How a known_hosts file names a host: plain on port 22, else `[host]:port`."""
    return host.lower() if port in (0, 22) else f"[{host.lower()}]:{port}"


def best(keys: Iterable[HostKey]) -> str:
    """Type and fingerprint of the key that ssh prefers: ed25519, then ecdsa, then rsa."""
    ordered = sorted(keys, key=lambda key: ("ed25519" not in key.type, key))
    return f"{ordered[0].type} {ordered[0].fingerprint}" if ordered else "none"


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
