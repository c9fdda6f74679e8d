"""A bind password is tried before it is stored; with a real server: tests/lab/test_secrets_services.py."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs.suites.validate_environment import directory_bind

REFUSED, AWAY = (49, "Invalid credentials"), (-1, "Can't contact LDAP server")


@pytest.mark.parametrize(
    ("answers", "refusal"),
    [
        pytest.param({"ldap://a": (0, "Success")}, "", id="accepted"),
        pytest.param({"ldap://a": AWAY, "ldap://b": (0, "Success")}, "", id="one server is away"),
        pytest.param({"ldap://a": REFUSED, "ldap://b": (0, "Success")}, "ldap://a: Invalid credentials", id="refused"),
        pytest.param(
            {"ldap://a": AWAY, "ldap://b": AWAY}, f"ldap://a: {AWAY[1]}; ldap://b: {AWAY[1]}", id="all are away"
        ),
    ],
)
def test_a_password_is_accepted_where_a_server_accepts_it(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, str]], refusal: str
) -> None:
    monkeypatch.setattr(directory_bind, "_library", object)
    monkeypatch.setattr(directory_bind, "_bind", lambda _library, uri, *_words: answers[uri])

    directory = {"ca": "PEM", "bind_dn": "cn=reader", "servers": list(answers)}
    assert directory_bind.refusal(directory, "secret") == refusal


def test_without_the_library_nothing_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_bind, "_LIBRARIES", ("libnothing.so",))

    assert "is SSSD installed?" in directory_bind.refusal({"ca": "", "bind_dn": "", "servers": ["ldap://a"]}, "secret")
