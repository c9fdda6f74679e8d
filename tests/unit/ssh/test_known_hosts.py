from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deepopsctl.ssh.host_keys import HostKey, KnownHosts, best, host_label, parse_host_key

ED25519 = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIHuKFJrFKlSN1oTvwmMQw0JpOPrYQo3qzbSgVhRTMEeP")
OTHER = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIG/BNj5ceSxHv164NueTzX2aUqibHeHV/fZb49d3+0Ib")


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


def test_a_missing_file_knows_nobody(file: Path) -> None:
    assert KnownHosts(file).keys("gpu01") == frozenset()


def test_finds_keys_by_name_and_by_address(file: Path) -> None:
    file.write_text(line("gpu01,192.0.2.1", ED25519))
    assert KnownHosts(file).keys("gpu01") == KnownHosts(file).keys("192.0.2.1") == {ED25519}


def test_finds_keys_that_ssh_keygen_has_hashed(file: Path) -> None:
    file.write_text(line("gpu01,192.0.2.1", ED25519) + line("[gpu01]:2222", OTHER))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu01" not in file.read_text()
    assert KnownHosts(file).keys("192.0.2.1") == {ED25519}
    assert KnownHosts(file).keys("[gpu01]:2222") == {OTHER}


def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    public = tmp_path / "key.pub"
    public.write_text(f"{ED25519.type} {ED25519.blob} test\n")
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(public)], check=True, capture_output=True, text=True).stdout
    assert ED25519.fingerprint in shown.split()


def test_ssh_finds_a_pinned_key_by_name_and_by_address(file: Path) -> None:
    KnownHosts(file).pin(["[192.0.2.1]:2222", "[gpu01]:2222"], [ED25519])
    for label in ("[192.0.2.1]:2222", "[gpu01]:2222"):
        found = subprocess.run(["ssh-keygen", "-F", label, "-f", str(file)], capture_output=True, text=True)
        assert ED25519.blob in found.stdout


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
    file.write_text(line("ctl1", OTHER).rstrip("\n"))
    KnownHosts(file).pin(["gpu01"], [ED25519])
    assert KnownHosts(file).keys("ctl1") == {OTHER}
    assert KnownHosts(file).keys("gpu01") == {ED25519}


def test_replaces_the_keys_of_one_node_and_leaves_the_rest(file: Path) -> None:
    kept = "# a comment\n@revoked * ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==\nnonsense\n"
    file.write_text(kept + line("gpu01,192.0.2.1,old-name", ED25519) + line("gpu02", ED25519))
    KnownHosts(file).replace(["192.0.2.1", "gpu01"], [OTHER])
    assert file.read_text() == (
        kept + line("old-name", ED25519) + line("gpu02", ED25519) + line("gpu01,192.0.2.1", OTHER)
    )


def test_replaces_hashed_keys_too(file: Path) -> None:
    file.write_text(line("gpu01", ED25519))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    pins = KnownHosts(file)
    pins.replace(["gpu01"], [OTHER])
    assert pins.keys("gpu01") == {OTHER}


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 !!!", "ssh-ed25519 AAA", "not a key at all"])
def test_what_is_no_key_is_none(text: str) -> None:
    assert parse_host_key(text) is None


def test_shows_the_key_that_ssh_prefers() -> None:
    rsa = HostKey("ssh-rsa", "AAAA")
    assert best([rsa, ED25519]) == f"ssh-ed25519 {ED25519.fingerprint}"
