"""HAProxy's table: what goes into its commands, and whose cookie opens what."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs.services.web import routes
from deepopsctl.node_programs.services.web.routes import Route

ALICE = Route("/user/alice/", "192.0.2.7", 41001, routes.name_of("alice"), routes.secret_of("alice", b"key"))


def test_haproxy_shows_what_was_added() -> None:
    shown = f"0x55d0c0 {ALICE.path} {ALICE.value}\n\n"

    assert routes.read(shown) == {"/user/alice/": ALICE}
    assert routes.add(ALICE).endswith(f"add map {routes.TABLE} /user/alice/ {ALICE.value}")


@pytest.mark.parametrize(
    ("path", "address", "port"),
    [
        ("/user/alice/; shutdown sessions /", "192.0.2.7", 41001),
        ("/user/alice/\nshow env", "192.0.2.7", 41001),
        ("/hub/", "192.0.2.7", 41001),
        ("/user/a/b/", "192.0.2.7", 41001),
        ("/user/alice/", "192.0.2.7 x", 41001),
        ("/user/alice/", "node7", 41001),
        ("/user/alice/", "192.0.2.7", 22),
        ("/user/alice/", "192.0.2.7", 70000),
    ],
)
def test_nothing_else_comes_into_a_command(path: str, address: str, port: int) -> None:
    with pytest.raises(ValueError, match="not a route"):
        Route(path, address, port, ALICE.name, ALICE.secret)


def test_each_user_has_another_cookie_and_another_certificate() -> None:
    assert routes.secret_of("bob", b"key") != ALICE.secret
    assert routes.secret_of("alice", b"other") != ALICE.secret
    assert routes.name_of("bob") != ALICE.name
    assert len(ALICE.name.split(".")[0]) <= 63


@pytest.mark.parametrize("path", ["/user/alice/", "/user/alice/lab?next=//x/../", "/user/alice/lab/tree/a%20b.ipynb"])
def test_a_page_of_ones_own_notebook_is_followed(path: str) -> None:
    assert routes.is_own_path(path, "/user/alice/")


@pytest.mark.parametrize(
    "path",
    [
        "/user/bob/lab", "/user/alice", "//evil.example/user/alice/", "https://evil.example/user/alice/",
        "/user/alice/../bob/", "/user/alice/%2e%2e/bob/", "/user/alice/..%2Fbob", "/user/alice/\\evil", "",
    ],
)  # fmt: skip
def test_any_other_page_is_not(path: str) -> None:
    assert not routes.is_own_path(path, "/user/alice/")
