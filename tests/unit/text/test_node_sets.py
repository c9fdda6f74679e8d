"""Node expressions: expansion, folding, pairing, and what is refused. Of any names: tests/unit/test_properties.py."""

from __future__ import annotations

import tracemalloc

import pytest

from deepopsctl.text.node_sets import MAX_EXPRESSION, expand, fold, fold_in_order, pair
from deepopsctl.text.problems import RefusedError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ctl1", ["ctl1"]),
        ("ctl1,ctl2", ["ctl1", "ctl2"]),
        (" ctl1 , ctl2 ", ["ctl1", "ctl2"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[0-2]", ["n0", "n1", "n2"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("n[3,1-2]", ["n3", "n1", "n2"]),
        ("n[1,01]", ["n1", "n01"]),
        ("n[1-5/2]", ["n1", "n3", "n5"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
        ("10.0.1.[9-11]", ["10.0.1.9", "10.0.1.10", "10.0.1.11"]),
        ("2001:db8::[1-2]", ["2001:db8::1", "2001:db8::2"]),
    ],
)
def test_expands_in_the_order_written(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no names are given"),
        ("a,,b", "empty part"),
        ("n[1-3", "not closed"),
        ("n1-3]", "do not match"),
        ("n[[1]]", "do not match"),
        ("n]1[", "do not match"),
        ("n[]", "is not a valid range"),
        ("n[1-]", "is not a valid range"),
        ("n[1-3,]", "is not a valid range"),
        ("n[1--3]", "is not a valid range"),
        ("n[3-1]", "runs backwards"),
        ("n[01-3]", "number of digits"),
        ("n[1-010]", "number of digits"),
        ("n[1-5/0]", "step of 0"),
        ("@gpu", "groups (@)"),
        ("n*", "wildcards"),
        ("n?", "wildcards"),
        ("a!b", "can't be part"),
        ("n1 n2", "can't be part"),
        ("n1;n2", "can't be part"),
        ("n\u0663", "can't be part"),
        ("n[\u0661-\u0663]", "is not a valid range"),
        ("n[1-99999999999999999999]", "is not a valid range"),
    ],
)
def test_refuses_a_malformed_expression(text: str, message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        expand(text)
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["n[1-999999999]", "n[1-999999999999999]", "n[1-1000][1-1000]", "a[1-60000],b[1-60000]"]
)
def test_refuses_an_absurd_range_before_it_is_expanded(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(RefusedError, match="stands for"):
        expand(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_accepts_the_largest_expression() -> None:
    assert len(expand(f"n[1-{MAX_EXPRESSION}]")) == MAX_EXPRESSION


def test_never_looks_groups_up() -> None:
    assert fold(["@all", "n1"]) == "@all,n1"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1"], "n1"),
        (["n2", "n1", "n3"], "n[1-3]"),
        (["gpu01", "gpu02", "gpu10"], "gpu[01-02,10]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n1", "n3", "n5"], "n[1,3,5]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["ctl1", "gpu1"], "ctl1,gpu1"),
        (["n1", "n1"], "n1"),
        ([], ""),
    ],
)
def test_folds_a_set_as_slurm_reads_it(names: list[str], text: str) -> None:
    assert fold(names) == text


def test_padded_names_that_run_past_their_digits_are_two_ranges() -> None:
    names = [f"gpu{number:02d}" for number in range(1, 121)]

    assert fold(names) == fold_in_order(names) == "gpu[01-99,100-120]"
    assert list(expand(fold(names))) == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n2", "n1"], "n2,n1"),
        (["n1", "n2", "n7", "n8"], "n[1-2,7-8]"),
        (["n9", "n10"], "n[9-10]"),
        (["n09", "n10"], "n[09-10]"),
        (["n9", "n09"], "n9,n09"),
        (["10.0.0.9", "10.0.0.5"], "10.0.0.9,10.0.0.5"),
        (["10.0.1.255", "10.0.2.1"], "10.0.1.255,10.0.2.1"),
        (["a1b1", "a1b2", "a2b1"], "a1b[1-2],a2b1"),
        (["n1", "n1"], "n1,n1"),
        (["2001:db8::9", "2001:db8::a"], "2001:db8::9,2001:db8::a"),
        ([], ""),
    ],
)
def test_folds_in_order(names: list[str], text: str) -> None:
    assert fold_in_order(names) == text
    assert list(expand(text) if text else ()) == names


def test_pairs_names_with_addresses_in_the_order_written() -> None:
    assert pair("n[1-2]", "10.0.0.9,10.0.0.5") == (("n1", "10.0.0.9"), ("n2", "10.0.0.5"))


def test_refuses_to_pair_lists_of_different_length() -> None:
    with pytest.raises(RefusedError, match=r"gpu\[01-16\] stands for 16 names and 10.0.1.\[11-25\] for 15 addresses"):
        pair("gpu[01-16]", "10.0.1.[11-25]")


def test_a_range_that_grows_wider_has_a_hint_with_both_meanings() -> None:
    with pytest.raises(RefusedError) as caught:
        expand("n[08-100]")

    assert caught.value.hint == "write 008-100, or if the numbers are 08 and 100: 08-99,100-100"
