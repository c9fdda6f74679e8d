"""Statements for MariaDB: no name or password ends one, and which users without rights are whose."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.node_modules import load

mariadb = load("node.mariadb")
command = load("node.command")
ownership = load("node.ownership")
record = load("node.record")
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
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(record, "STATE", str(tmp_path))
    monkeypatch.setattr(mariadb, "is_installed", lambda: True)
    monkeypatch.setattr(mariadb, "sql", server.sql)
    return server


def converge(*logins: str, dry: bool = False) -> list[tuple[str, str]]:
    """One call of a step that wants these logins; what it did."""
    done: list[tuple[str, str]] = []
    owned = ownership.load("monitoring", "node")

    def did(_sentence: str, _kind: str, name: str, action: str, **_more: str) -> None:
        done.append((name, action))

    def save_owned() -> None:
        if not dry:
            ownership.save("monitoring", "node", owned)

    wanted = {"component": "monitoring", "database_logins": list(logins)}
    step = SimpleNamespace(wanted=wanted, owned=owned, dry=dry, did=did, save_owned=save_owned)
    mariadb.ensure_logins(step)
    return done


@pytest.mark.parametrize("name", ["slurm'@'%'; DROP DATABASE x", "", "a b", "slurm\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(HintedError, match="no plain name of a user"):
        mariadb.check_names([name])
    with pytest.raises(HintedError, match="no plain name of a database"):
        mariadb.check_names(["slurm"], [name])


def test_a_password_with_quotes_stays_one_text_and_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    password, asked = "it's \\ 'quoted", []

    def sql(statement: str, *_options: str) -> object:
        asked.append(statement)
        shows = statement.startswith("SHOW")
        return command.Result("mariadb", 0 if shows else 1, "", "" if shows else f"near {password}", 0.0)

    monkeypatch.setattr(mariadb, "is_installed", lambda: True)
    monkeypatch.setattr(mariadb, "sql", sql)

    with pytest.raises(HintedError, match=re.escape("MariaDB refused: near ***")):
        mariadb.ensure_database(
            SimpleNamespace(dry=False), {"name": "slurm_acct_db", "user": "slurm", "password": password}
        )
    # as MariaDB reads a text: a backslash takes the next character as it is
    (text,) = re.findall(r"IDENTIFIED BY '((?:[^'\\]|\\.)*)';", asked[-1])
    assert re.sub(r"\\(.)", r"\1", text) == password


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


def test_the_login_of_a_former_step_is_this_steps(server: Server) -> None:
    server.users.add("prometheus")
    ownership.save("monitoring", "login", {**ownership.load("monitoring", "login"), "logins": ["prometheus"]})

    assert converge("prometheus") == []
    assert converge() == [("prometheus", "remove")]
    assert not ownership.owns_anything("monitoring")
