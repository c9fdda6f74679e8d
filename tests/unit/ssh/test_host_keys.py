from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deepopsctl.cluster.ssh_login import Target
from deepopsctl.ssh.client import Answer, Client, Failure, Route
from deepopsctl.ssh.host_keys import HostKey, HostKeyError, HostKeys, KnownHosts, NoAnswerError

ED25519 = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIHuKFJrFKlSN1oTvwmMQw0JpOPrYQo3qzbSgVhRTMEeP")
RSA = HostKey("ssh-rsa", "AAAAB3NzaC1yc2EAAAADAQABAAAAgQDc")
STRANGER = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIG/BNj5ceSxHv164NueTzX2aUqibHeHV/fZb49d3+0Ib")

TARGET = Target("gpu01", "192.0.2.1", "ubuntu")
ROUTE = Route("ubuntu", "192.0.2.1", 22)


@dataclass(slots=True)
class Network(Client):
    """A client whose machines show these keys to a scan."""

    shown: list[HostKey] = field(default_factory=list)
    scans: int = 0

    def scan(self, host: str, port: int) -> Answer:
        self.scans += 1
        lines = [f"{host} {key.type} {key.blob}" for key in self.shown]
        return Answer(Failure.NONE if lines else Failure.UNREACHABLE, "\n".join(lines), "no route to host")


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path / "known_hosts", shown=[ED25519, RSA])


def hostkeys(network: Network, *trusted: KnownHosts) -> HostKeys:
    return HostKeys(KnownHosts(network.known_hosts), trusted, network)


def test_first_contact_pins_all_keys_under_name_and_address(network: Network) -> None:
    assert hostkeys(network).secure(TARGET, ROUTE)
    pins = KnownHosts(network.known_hosts)
    assert pins.keys("gpu01") == pins.keys("192.0.2.1") == {ED25519, RSA}


def test_another_port_is_pinned_as_such(network: Network) -> None:
    hostkeys(network).secure(TARGET, Route("ubuntu", "192.0.2.1", 2222))
    pins = KnownHosts(network.known_hosts)
    assert pins.keys("[gpu01]:2222") == pins.keys("[192.0.2.1]:2222") == {ED25519, RSA}
    assert not pins.keys("192.0.2.1")


def test_a_pinned_node_is_not_scanned_again(network: Network) -> None:
    hostkeys(network).secure(TARGET, ROUTE)
    network.shown = [STRANGER]
    assert not hostkeys(network).secure(TARGET, ROUTE)
    assert network.scans == 1


def test_a_scan_never_adds_keys_to_a_pinned_node(network: Network) -> None:
    network.shown = [ED25519]
    hostkeys(network).secure(TARGET, ROUTE)
    network.shown = [ED25519, STRANGER]
    hostkeys(network).secure(TARGET, ROUTE)
    assert KnownHosts(network.known_hosts).keys("gpu01") == {ED25519}


def test_a_changed_key_is_told_with_both_fingerprints(network: Network) -> None:
    hostkeys(network).secure(TARGET, ROUTE)
    network.shown = [STRANGER]
    error = hostkeys(network).changed(TARGET, ROUTE)
    assert ED25519.fingerprint in error.message
    assert STRANGER.fingerprint in error.message
    assert "--accept-new-keys gpu01" in error.hint


def test_a_node_that_moved_to_another_address_keeps_its_pins(network: Network) -> None:
    hostkeys(network).secure(TARGET, ROUTE)
    moved = Target("gpu01", "192.0.2.9", "ubuntu")
    assert hostkeys(network).secure(moved, Route("ubuntu", "192.0.2.9", 22))
    assert KnownHosts(network.known_hosts).keys("192.0.2.9") == {ED25519, RSA}


def test_another_machine_under_a_known_name_is_refused(network: Network) -> None:
    hostkeys(network).secure(TARGET, ROUTE)
    before = network.known_hosts.read_text()
    network.shown = [STRANGER]
    with pytest.raises(HostKeyError, match=re.escape(STRANGER.fingerprint)):
        hostkeys(network).secure(Target("gpu01", "192.0.2.9", "ubuntu"), Route("ubuntu", "192.0.2.9", 22))
    assert network.known_hosts.read_text() == before


def test_a_name_given_to_another_pinned_machine_is_refused(network: Network) -> None:
    KnownHosts(network.known_hosts).pin(["192.0.2.1"], [ED25519])
    KnownHosts(network.known_hosts).pin(["gpu01"], [STRANGER])
    with pytest.raises(HostKeyError):
        hostkeys(network).secure(TARGET, ROUTE)


def test_what_the_person_knows_already_is_believed_more_than_a_scan(network: Network, tmp_path: Path) -> None:
    own = KnownHosts(tmp_path / "own")
    own.pin(["192.0.2.1"], [ED25519])
    network.shown = [STRANGER]
    with pytest.raises(HostKeyError, match=re.escape(str(own.path))):
        hostkeys(network, own).secure(TARGET, ROUTE)
    assert not network.known_hosts.exists()


def test_a_key_shown_beside_a_known_one_is_not_pinned(network: Network, tmp_path: Path) -> None:
    own = KnownHosts(tmp_path / "own")
    own.pin(["192.0.2.1"], [ED25519])
    hostkeys(network, own).secure(TARGET, ROUTE)
    assert KnownHosts(network.known_hosts).keys("gpu01") == {ED25519}


def test_accepting_replaces_the_pins_of_this_node_only(network: Network) -> None:
    hostkeys(network).secure(TARGET, ROUTE)
    KnownHosts(network.known_hosts).pin(["gpu02"], [RSA])
    network.shown = [STRANGER]
    assert hostkeys(network).accept(TARGET, ROUTE)
    pins = KnownHosts(network.known_hosts)
    assert pins.keys("gpu01") == pins.keys("192.0.2.1") == {STRANGER}
    assert pins.keys("gpu02") == {RSA}
    assert not hostkeys(network).accept(TARGET, ROUTE)


def test_a_machine_that_shows_no_key_is_no_answer(network: Network) -> None:
    network.shown = []
    with pytest.raises(NoAnswerError, match="no route to host"):
        hostkeys(network).secure(TARGET, ROUTE)
