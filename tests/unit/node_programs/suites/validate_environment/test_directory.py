"""What a directory service answers, by a `getent` that has its entries; TLS with a real server on loopback."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from deepopsctl.certificates.authority import Authority, new_authority
from deepopsctl.node_programs.suites.validate_environment import directory
from tests.support.files import write_files, write_program

ENTRIES = {
    "passwd": [
        "grace:*:20010:20000::/home/grace:/bin/bash",
        "lise:*:20011:20000::/home/lise:/bin/bash",
        "ada:*:20012:20000::/home/ada:/bin/bash",
        # Slurm knows lower case only
        "Guest:*:20013:20000::/home/guest:/bin/bash",
    ],
    "group": ["curie-lab:*:20001:grace,Guest,../etc,gone", "empty:*:20002:", "docs:*:20003:lise"],
}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`getent -s sss DATABASE -- KEY...` and a sss_cache that does nothing."""
    tools = write_files(tmp_path / "bin", {name: "\n".join([*lines, ""]) for name, lines in ENTRIES.items()})
    result = 'grep -E "^($key:|[^:]*:[^:]*:$key:)" "$database"'
    write_program(tools / "getent", f"database={tools}/$3; shift 4\nfor key; do {result}; done")
    write_program(tools / "sss_cache", "")
    monkeypatch.setattr(directory, "SOCKET", str(tools))
    monkeypatch.setenv("PATH", str(tools), prepend=":")


@pytest.mark.usefixtures("service")
def test_members_are_those_whom_the_directory_knows() -> None:
    answer = directory.members(["curie-lab", "empty", "nowhere"])

    assert answer["people"] == [{"name": "grace", "uid": 20010, "gid": 20000}]
    # `gone` is listed: it may be an answer that is missing
    assert [(each["name"], each["members"]) for each in answer["groups"]] == [
        ("curie-lab", ["grace", "gone"]),
        ("empty", []),
    ]
    missing, empty, skipped = answer["deepops_warnings"]
    assert missing.endswith("nowhere")
    assert empty.endswith("empty")
    assert skipped.endswith("../etc; Guest; gone")


@pytest.mark.usefixtures("service")
def test_the_accounts_of_members_are_compared_with_slurm() -> None:
    groups = {"groups": ["docs", "curie-lab"], "accounts": [{"group": "curie-lab", "account": "def-curie"}]}

    people = directory.with_members({"people": [], "groups": []}, groups)

    # lise may log in, and charges nothing
    assert people == {"people": [{"name": "grace", "groups": ["def-curie"]}], "groups": [{"name": "def-curie"}]}


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("person", "conflicts"),
    [
        ({"name": "ada", "uid": 60001}, ["the user ada is in the directory as well, with the id 20012"]),
        ({"name": "bea", "uid": 20011}, ["the id 20011 of the user bea is that of lise in the directory"]),
        # each person has a group of the same name and id
        ({"name": "docs", "uid": 60002}, ["the group docs is in the directory as well, with the id 20003"]),
        ({"name": "cleo", "uid": 20002}, ["the id 20002 of the group cleo is that of empty in the directory"]),
        ({"name": "bea", "uid": 60001}, []),
    ],
)
def test_only_a_name_or_id_that_the_directory_has_is_a_conflict(
    person: dict[str, object], conflicts: list[str]
) -> None:
    groups = [{"name": "def-lab", "gid": 60003}]

    assert directory.conflicts({"people": [person], "groups": groups}) == conflicts


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """A TLS server on loopback: its address, its authority, and another authority."""
    path = tmp_path_factory.mktemp("tls")
    today = date.today()
    managed, other = Authority(new_authority(today)), Authority(new_authority(today))
    identity = managed.identify("localhost", ["127.0.0.1"], today)
    (path / "cert.pem").write_text(identity.certificate + identity.key)
    (path / "ca.pem").write_text(managed.certificate)
    (path / "other.pem").write_text(other.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path / "cert.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                context.wrap_socket(connection, server_side=True).close()
            except ssl.SSLError:
                continue
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"ldaps://localhost:{listener.getsockname()[1]}", path / "ca.pem", path / "other.pem"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_server_is_asked_only_with_a_certificate_of_the_authority(server: tuple[str, Path, Path]) -> None:
    address, managed, other = server

    assert directory.why_no_tls(address, str(managed)) == ""
    assert "certificate" in directory.why_no_tls(address, str(other))
    assert directory.why_no_tls("ldaps://localhost:1", str(managed)) == "Connection refused"
