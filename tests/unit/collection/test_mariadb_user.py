"""Statements for MariaDB: no name or password ends one."""

from __future__ import annotations

import re

import pytest

from tests.support.node_modules import Call, FailedError, load, plugin

mariadb_user = plugin("modules", "mariadb_user")
command = load("node.command")


@pytest.mark.parametrize("name", ["slurm'@'%'; DROP DATABASE x", "", "a b", "slurm\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(FailedError, match="no plain name of a user"):
        Call({"user": name}).run(mariadb_user)
    with pytest.raises(FailedError, match="no plain name of a database") if name else pytest.raises(FailedError):
        Call({"user": "slurm", "database": name + ";"}).run(mariadb_user)


def test_a_password_with_quotes_stays_one_text_and_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    password, asked = "it's \\ 'quoted", []

    def sql(statement: str, *_options: str) -> object:
        asked.append(statement)
        shows = statement.startswith("SHOW")
        return command.Result("mariadb", 0 if shows else 1, "", "" if shows else f"near {password}", 0.0)

    monkeypatch.setattr(mariadb_user, "is_installed", lambda: True)
    monkeypatch.setattr(mariadb_user, "sql", sql)

    with pytest.raises(FailedError, match=re.escape("MariaDB refused: near ***")):
        Call({"user": "slurm", "database": "slurm_acct_db", "password": password}).run(mariadb_user)
    # as MariaDB reads a text: a backslash takes the next character as it is
    (text,) = re.findall(r"IDENTIFIED BY '((?:[^'\\]|\\.)*)';", asked[-1])
    assert re.sub(r"\\(.)", r"\1", text) == password
