"""Host keys: pinned at first contact, in files of known hosts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deepopsctl.cluster.ssh_login import Target
from deepopsctl.ssh.client import Answer, Client, Failure, Route
from deepopsctl.ssh.host_keys import (
    HostKey,
    HostKeyError,
    HostKeys,
    KnownHosts,
    NoAnswerError,
    best,
    host_label,
    parse_host_key,
)

ED25519 = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIHuKFJrFKlSN1oTvwmMQw0JpOPrYQo3qzbSgVhRTMEeP")
RSA = HostKey("ssh-rsa", "AAAAB3NzaC1yc2EAAAADAQABAAAAgQDc")
STRANGER = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIG/BNj5ceSxHv164NueTzX2aUqibHeHV/fZb49d3+0Ib")

TARGET = Target("gpu01", "192.0.2.1", "ubuntu")
ROUTE = Route("ubuntu", "192.0.2.1", 22)


@dataclass(slots=True)
class Network(Client):
    """A client whose machines show these keys, one a connection, as ssh writes them down."""

    shown: list[HostKey] = field(default_factory=list)
    probes: int = 0

    def probe(self, target: Target, first: Sequence[str]) -> Answer:
        self.probes += 1
        wanted = dict(option.split("=", 1) for option in first if "=" in option)
        key = next((key for key in self.shown if key.type in wanted["HostKeyAlgorithms"].split(",")), None)
        if key:
            line = f"{target.destination} {key.type} {key.blob}\n"
            Path(wanted["UserKnownHostsFile"].strip('"')).write_text(line, encoding="utf-8")
        return Answer(Failure.DENIED if key else Failure.UNREACHABLE, "", "no route to host")


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


def test_a_scan_never_adds_keys_to_a_pinned_node(network: Network) -> None:
    network.shown = [ED25519]
    hostkeys(network).secure(TARGET, ROUTE)
    network.shown = [ED25519, STRANGER]
    hostkeys(network).secure(TARGET, ROUTE)
    assert KnownHosts(network.known_hosts).keys("gpu01") == {ED25519}


def test_a_changed_key_is_reported_with_both_fingerprints(network: Network) -> None:
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


def test_another_host_under_a_known_name_is_refused(network: Network) -> None:
    hostkeys(network).secure(TARGET, ROUTE)
    before = network.known_hosts.read_text()
    network.shown = [STRANGER]
    with pytest.raises(HostKeyError, match=re.escape(STRANGER.fingerprint)):
        hostkeys(network).secure(Target("gpu01", "192.0.2.9", "ubuntu"), Route("ubuntu", "192.0.2.9", 22))
    assert network.known_hosts.read_text() == before


def test_a_name_given_to_another_pinned_host_is_refused(network: Network) -> None:
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


def test_a_key_shown_next_to_a_known_one_is_not_pinned(network: Network, tmp_path: Path) -> None:
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


def test_a_host_that_shows_no_key_is_no_answer(network: Network) -> None:
    network.shown = []
    with pytest.raises(NoAnswerError, match="no route to host"):
        hostkeys(network).secure(TARGET, ROUTE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


def line(names: str, key: HostKey) -> str:
    return f"{names} {key.type} {key.blob}\n"


@pytest.mark.parametrize(
    ("host", "port", "label"),
    [
        ("gpu01", 0, "gpu01"),
        ("GPU01", 22, "gpu01"),
        ("192.0.2.1", 2222, "[192.0.2.1]:2222"),
        ("2001:db8::1", 0, "2001:db8::1"),
        ("2001:db8::1", 2222, "[2001:db8::1]:2222"),
    ],
)
def test_names_hosts_as_ssh_looks_them_up(host: str, port: int, label: str) -> None:
    assert host_label(host, port) == label


def test_finds_keys_that_ssh_keygen_has_hashed(file: Path) -> None:
    file.write_text(line("gpu01,192.0.2.1", ED25519) + line("[gpu01]:2222", STRANGER))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu01" not in file.read_text()
    assert KnownHosts(file).keys("192.0.2.1") == {ED25519}
    assert KnownHosts(file).keys("[gpu01]:2222") == {STRANGER}


def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    public = tmp_path / "key.pub"
    public.write_text(f"{ED25519.type} {ED25519.blob} test\n")
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(public)], check=True, capture_output=True, text=True).stdout
    assert ED25519.fingerprint in shown.split()


def test_pinning_twice_changes_nothing(file: Path) -> None:
    pins = KnownHosts(file)
    assert pins.pin(["gpu01"], [ED25519])
    before = file.read_text()
    assert not pins.pin(["gpu01"], [ED25519])
    assert not KnownHosts(file).pin(["gpu01"], [ED25519])
    assert file.read_text() == before


def test_pinning_adds_only_the_names_that_are_missing(file: Path) -> None:
    file.write_text(line("192.0.2.1", ED25519))
    KnownHosts(file).pin(["192.0.2.1", "gpu01"], [ED25519])
    assert file.read_text() == line("192.0.2.1", ED25519) + line("gpu01", ED25519)


def test_appends_after_a_line_that_has_no_end(file: Path) -> None:
    file.write_text(line("ctl1", STRANGER).rstrip("\n"))
    KnownHosts(file).pin(["gpu01"], [ED25519])
    assert KnownHosts(file).keys("ctl1") == {STRANGER}
    assert KnownHosts(file).keys("gpu01") == {ED25519}


def test_replaces_the_keys_of_one_node_and_leaves_the_rest(file: Path) -> None:
    kept = "# a comment\n@revoked * ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==\nnonsense\n"
    file.write_text(kept + line("gpu01,192.0.2.1,old-name", ED25519) + line("gpu02", ED25519))
    KnownHosts(file).replace(["192.0.2.1", "gpu01"], [STRANGER])
    assert file.read_text() == (
        kept + line("old-name", ED25519) + line("gpu02", ED25519) + line("gpu01,192.0.2.1", STRANGER)
    )


def test_replaces_hashed_keys_too(file: Path) -> None:
    file.write_text(line("gpu01", ED25519))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    pins = KnownHosts(file)
    pins.replace(["gpu01"], [STRANGER])
    assert pins.keys("gpu01") == {STRANGER}


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 !!!", "ssh-ed25519 AAA", "not a key at all"])
def test_what_is_no_key_is_none(text: str) -> None:
    assert parse_host_key(text) is None


def test_shows_the_key_that_ssh_prefers() -> None:
    assert best([HostKey("ssh-rsa", "AAAA"), ED25519]) == f"ssh-ed25519 {ED25519.fingerprint}"
