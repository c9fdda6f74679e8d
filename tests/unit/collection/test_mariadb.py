"""Statements for MariaDB: no name or password ends one, and which users without rights are whose."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.node_modules import Step, load

mariadb = load("node.mariadb")
command = load("node.command")
ownership = load("node.ownership")
HintedError = load("node.errors").HintedError


class Server:
    """A MariaDB: its users, and the statements that came."""

    def __init__(self) -> None:
        self.users = {"root"}
        self.statements: list[str] = []
        self.answers = True

    def sql(self, statement: str, *_options: str) -> Any:
        self.statements.append(statement)
        name = (re.findall(r"'([^']*)'", statement) or [""])[0]
        if statement.startswith("CREATE USER"):
            self.users.add(name)
        if statement.startswith("DROP USER"):
            self.users.remove(name)
        shown = "1\n" if statement.startswith("SELECT") and name in self.users else ""
        return command.Result("mariadb", 0 if self.answers else 1, shown, "", 0.0)


@pytest.fixture
def server(state: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(mariadb, "is_installed", lambda: True)
    monkeypatch.setattr(mariadb, "sql", server.sql)
    return server


def converge(*logins: str, dry: bool = False) -> list[tuple[str, ...]]:
    """One call of a step that wants these logins; what it did."""
    step: Any = Step(dry=dry, owned=ownership.load("monitoring", "node"))
    step.wanted = {"component": "monitoring", "database_logins": list(logins)}
    mariadb.ensure_logins(step)
    if not dry:
        ownership.save("monitoring", "node", step.owned)
    return [change[1:] for change in step.changes]


@pytest.mark.parametrize("name", ["slurm'@'%'; DROP DATABASE x", "", "a b", "slurm\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(HintedError, match="not a plain name of a user"):
        mariadb.check_names([name])
    with pytest.raises(HintedError, match="not a plain name of a database"):
        mariadb.check_names(["slurm"], [name])


def test_a_password_with_quotes_stays_one_text_and_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    password, asked = "it's'quoted", []

    def sql(statement: str, *_options: str) -> object:
        asked.append(statement)
        shows = statement.startswith("SHOW")
        return command.Result("mariadb", 0 if shows else 1, "", "" if shows else f"near {statement[-120:]}", 0.0)

    monkeypatch.setattr(mariadb, "is_installed", lambda: True)
    monkeypatch.setattr(mariadb, "sql", sql)

    with pytest.raises(HintedError, match=re.escape("IDENTIFIED BY '***'")):
        mariadb.ensure_database(
            SimpleNamespace(dry=False), {"name": "slurm_acct_db", "user": "slurm", "password": password}
        )
    # as MariaDB reads a text, whatever its sql_mode: two quotes are one
    (text,) = re.findall(r"IDENTIFIED BY '((?:[^']|'')*)';", asked[-1])
    assert text.replace("''", "'") == password


@pytest.mark.parametrize("password", ["a\\tb", "a#b", "a b", '"a', ""])
def test_a_password_that_slurmdbd_would_read_differently_is_refused_on_its_own_host_too(password: str) -> None:
    with pytest.raises(HintedError, match="can't hold the password"):
        mariadb.ensure_database(SimpleNamespace(dry=False), elsewhere(password=password))


def test_a_login_of_roots_own_takes_the_place_of_none_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    homes: list[str | None] = []

    def run(*_words: object, env: dict[str, str] | None, **_more: object) -> Any:
        homes.append(env["HOME"] if env else None)
        return command.Result("mariadb", 1, "", "", 0.0)

    monkeypatch.setattr(mariadb.node_command, "run_merged", run)

    mariadb.login_works("slurm", "s3cret", "slurm_acct_db")
    mariadb.sql("SHOW DATABASES;")

    # root's own is for what root asks: it may need a password
    assert homes == ["/nonexistent", None]


def test_a_login_is_created_once_and_removed_when_it_is_no_longer_wanted(server: Server) -> None:
    assert converge("prometheus", dry=True) == [("prometheus", "set")]
    assert converge("prometheus") == [("prometheus", "set")]
    assert converge("prometheus") == []
    assert converge(dry=True) == [("prometheus", "remove")]
    assert "prometheus" in server.users
    assert converge() == [("prometheus", "remove")]
    assert server.users == {"root"}
    assert not ownership.owns_anything("monitoring")


def test_a_login_that_somebody_else_created_is_left_unchanged(server: Server) -> None:
    server.users.add("prometheus")

    assert converge("prometheus") == []
    assert converge() == []
    assert "prometheus" in server.users


def test_a_mariadb_that_does_not_answer_is_asked_again_by_the_next_deploy(server: Server) -> None:
    converge("prometheus")
    server.answers = False
    assert converge() == []
    server.answers = True

    assert converge() == [("prometheus", "remove")]


def elsewhere(**more: object) -> dict[str, object]:
    """A database of another server, as a role asks for it; nothing listens on its port."""
    base = {"name": "slurm_acct_db", "user": "slurm", "password": "s3cret", "server": "127.0.0.1", "server_port": 1}
    return {**base, "login": "[client]\n", **more}


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of this host that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("grants", "all_rights"),
    [
        ("GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO `slurm`@`10.0.0.5`", True),
        (r"GRANT ALL PRIVILEGES ON `slurm\\_acct\\_db`.* TO `slurm`@`%`", True),
        ("GRANT ALL PRIVILEGES ON `slurm%`.* TO `slurm`@`%` WITH GRANT OPTION", True),
        ("GRANT ALL PRIVILEGES ON *.* TO `slurm`@`%`", True),
        ("GRANT USAGE ON *.* TO `slurm`@`%`\nGRANT SELECT, INSERT ON `slurm_acct_db`.* TO `slurm`@`%`", False),
        ("GRANT ALL PRIVILEGES ON `other`.* TO `slurm`@`%`", False),
        (r"GRANT ALL PRIVILEGES ON `slurm\\_acct`.* TO `slurm`@`%`", False),
    ],
)
def test_rights_on_the_database_are_read_from_the_grants(grants: str, all_rights: bool) -> None:
    assert mariadb.has_all_rights(grants, "slurm_acct_db") is all_rights


@pytest.mark.parametrize(
    ("login", "message"),
    [
        ({"server": "db1 --execute"}, "not a valid name or address"),
        ({"server": "-h"}, "not a valid name or address"),
        ({"password": "a b"}, "can't hold the password"),
        ({"password": 'a"b'}, "can't hold the password"),
        ({"password": "a\nStorageHost=evil"}, "can't hold the password"),
        ({"password": ""}, "can't hold the password"),
        ({"user": "slurm'"}, "not a plain name of a user"),
        ({}, "the database server 127.0.0.1 port 1 does not answer: Connection refused"),
    ],
)
def test_a_server_that_can_not_be_used_is_refused(login: dict[str, object], message: str) -> None:
    with pytest.raises(HintedError, match=message):
        mariadb.verify_elsewhere(SimpleNamespace(dry=False), elsewhere(**login))


def test_a_server_that_refuses_the_login_is_named_with_the_statements_that_help(
    monkeypatch: pytest.MonkeyPatch, listening: int
) -> None:
    refusal = "ERROR 1045 (28000): Access denied for user 'slurm'@'ctl1.example.com' (using password: YES)"
    monkeypatch.setattr(mariadb, "is_installed", lambda: True)
    monkeypatch.setattr(mariadb, "sql", lambda *_words: command.Result("mariadb", 1, "", refusal, 0.0))

    with pytest.raises(HintedError, match="refuses slurm: ERROR 1045") as caught:
        mariadb.verify_elsewhere(SimpleNamespace(dry=False), elsewhere(server_port=listening))

    assert "GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO 'slurm'@'ctl1.example.com';" in caught.value.hint
    assert "s3cret" not in caught.value.hint + str(caught.value)
