"""What a plan asks a bare node: what it has in common with others, and what stops a deploy there."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import packages_query, reach, room
from deepopsctl.node_programs.operations.node_class import likeness
from tests.support.files import write_files

FILES = {
    "hosts": "127.0.0.1 localhost\n192.0.2.11 gpu01.example.com gpu01\n",
    "fstab": "UUID=0b9a7c3e-1111-2222-3333-444455556666 / ext4 defaults 0 1\n",
    "default/ssh": "SSHD_OPTS=\n",
    "hostname": "gpu01\n",
    "ssh/ssh_host_rsa_key": "secret",
}
OTHER = {
    **FILES,
    "hosts": "127.0.0.1 localhost\n192.0.2.12 gpu02.example.com gpu02\n",
    "fstab": "UUID=ffffffff-1111-2222-3333-444455556666 / ext4 defaults 0 1\n",
    "hostname": "gpu02\n",
    "ssh/ssh_host_rsa_key": "another",
}


def configuration(directory: Path, files: dict[str, str], *own: str) -> list[str]:
    write_files(directory, files)
    return list(likeness.configuration(str(directory), likeness.Own(own)))


def test_names_addresses_and_ids_of_disks_make_no_difference(tmp_path: Path) -> None:
    one = configuration(tmp_path / "1", FILES, "gpu01", "192.0.2.11")

    assert one == configuration(tmp_path / "2", OTHER, "gpu02", "192.0.2.12")


@pytest.mark.parametrize(("name", "text"), [("default/ssh", "SSHD_OPTS=-4\n"), ("hosts", "127.0.0.1 x\n"), ("new", "")])
def test_anything_else_does(tmp_path: Path, name: str, text: str) -> None:
    one = configuration(tmp_path / "1", FILES, "gpu01", "192.0.2.11")

    assert one != configuration(tmp_path / "2", {**OTHER, name: text}, "gpu02", "192.0.2.12")


def test_the_name_of_another_node_makes_a_difference() -> None:
    own = likeness.Own(["gpu01"])

    assert own.without("gpu01:gpu012:gpu01-x gpu02") == "<own>:gpu012:gpu01-x gpu02"


def test_the_areas_are_the_same_when_asked_again() -> None:
    assert likeness.areas("x") == likeness.areas("x")
    assert likeness.memory().startswith("MemTotal:")


def test_the_sources_of_apt_without_those_that_are_off(tmp_path: Path) -> None:
    stanzas = "Types: deb\nURIs: http://a/ https://b/\n\nEnabled: no\nURIs: http://off/\n# URIs: http://comment/\n"
    lines = "deb [signed-by=/k] http://c/debian x main\n# deb http://old/ x main\n"
    write_files(tmp_path, {"sources.list": lines, "sources.list.d/a.sources": stanzas, "sources.list.d/a.save": lines})

    assert packages_query.addresses(str(tmp_path)) == ["http://a/", "http://c/debian", "https://b/"]


def test_an_address_that_does_not_answer_has_a_reason() -> None:
    # nothing listens on port 1
    assert "refused" in reach.unanswered(["http://127.0.0.1:1/"])["http://127.0.0.1:1/"]


def test_too_little_space_is_reported_with_what_is_needed() -> None:
    disk = {"path": "/var", "free_mb": 80, "inodes": 1000, "free_inodes": 900, "read_only": False}

    assert room.shortages(disk) == ["/var has 80 MiB left, 500 are needed"]
    assert room.shortages({**disk, "free_mb": 800}) == []
