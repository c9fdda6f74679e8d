"""Host keys are pinned at first contact; a changed one stops everything for that node.

A scan does not authenticate the host (a key is public, anyone can show it), so a scan never adds keys to a
node that has some: only the following login, checked strictly against the pins, verifies that the node has
the private half.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.cluster.ssh_login import Target, options, quoted
from deepopsctl.errors import DeepOpsError
from deepopsctl.ssh.client import Client
from deepopsctl.ssh.effective_config import Route
from deepopsctl.ssh.exit_status import Failure
from deepopsctl.ssh.known_hosts import HostKey, KnownHosts, best, host_label, parse_host_key

# requested one by one where ssh-keyscan can't be used (through a jump host)
_KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
    "rsa-sha2-512,rsa-sha2-256,ssh-rsa",
)


class HostKeyError(DeepOpsError):
    """A host shows other host keys than the pinned ones."""


class NoAnswerError(DeepOpsError):
    """A host showed no host key at all."""


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
        offered = self.offered(target, route)
        for file, label in [(self.pins, label) for label in labels] + [(file, labels[0]) for file in self.trusted]:
            offered = _agreed(target, file, label, offered)
        return self.pins.pin(labels, offered)

    def accept(self, target: Target, route: Route) -> bool:
        """Pin the host's current keys instead of the old ones; True if they differ."""
        labels = labels_of(target, route)
        offered = self.offered(target, route)
        if all(self.pins.keys(label) == offered for label in labels):
            return False
        self.pins.replace(labels, offered)
        return True

    def changed(self, target: Target, route: Route) -> HostKeyError:
        """The error for a host with changed keys: pinned and offered fingerprints."""
        return _changed(
            target, self.pins.path, self.pins.keys(labels_of(target, route)[0]), self.offered(target, route)
        )

    def _align(self, target: Target, labels: tuple[str, ...], pinned: frozenset[HostKey]) -> bool:
        """Give every label the keys of the first, unless one of them is pinned with other keys."""
        for label in labels[1:]:
            _agreed(target, self.pins, label, pinned)
        return self.pins.pin(labels, pinned)

    def offered(self, target: Target, route: Route) -> frozenset[HostKey]:
        """The host's current keys; NoAnswerError if it shows none."""
        keys, reason = self._scan(route) if route.direct else self._probe(target)
        if not keys:
            raise NoAnswerError(reason)
        return frozenset(keys)

    def _scan(self, route: Route) -> tuple[set[HostKey], str]:
        answer = self.client.scan(route.host, route.port)
        keys = (parse_host_key(line.partition(" ")[2]) for line in answer.output.splitlines() if line[:1] != "#")
        return {key for key in keys if key}, answer.reason

    def _probe(self, target: Target) -> tuple[set[HostKey], str]:
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
                answer = self.client.probe(target, options(first))
                lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
            keys.update(key for key in (parse_host_key(line.partition(" ")[2]) for line in lines) if key)
            reason = answer.reason
            if answer.failure is Failure.UNREACHABLE and not keys:
                break
        return keys, reason


def labels_of(target: Target, route: Route) -> tuple[str, ...]:
    """Names of a host in known_hosts; the first is the one ssh looks up."""
    port = route.port
    first = route.alias.lower() or host_label(route.host, port)
    return tuple(dict.fromkeys([first, host_label(target.destination, port), host_label(target.name, port)]))


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
