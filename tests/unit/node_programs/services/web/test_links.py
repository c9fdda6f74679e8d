"""One-time links."""

from __future__ import annotations

from deepopsctl.node_programs.services.web.links import OF_ONE, VALID_S, Links


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_link_opens_once() -> None:
    links = Links()
    code = links.give("alice")

    assert links.owner(code) == "alice"
    assert [links.take(code), links.take(code), links.owner(code)] == ["alice", "", ""]


def test_a_link_that_is_too_old_opens_nothing() -> None:
    clock = Clock()
    links = Links(clock)
    code = links.give("alice")

    clock.now += VALID_S

    assert links.take(code) == ""


def test_another_code_opens_nothing() -> None:
    links = Links()
    code = links.give("alice")

    assert [links.take(each) for each in ("", code[:-1], code.swapcase(), "\udcff")] == [""] * 4
    assert links.take(code) == "alice"


def test_a_user_has_a_few_links_at_a_time_and_takes_none_of_others() -> None:
    links = Links()
    of_bob = links.give("bob")
    codes = [links.give("alice") for _ in range(OF_ONE + 3)]

    assert [links.owner(code) for code in codes] == [""] * 3 + ["alice"] * OF_ONE
    assert links.owner(of_bob) == "bob"


def test_what_is_kept_of_a_link_does_not_open_it() -> None:
    links = Links()
    code = links.give("alice")

    assert code not in repr(vars(links))
