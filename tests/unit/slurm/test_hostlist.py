"""Hostlists on nodes: read and written as Slurm and ClusterShell do."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs._shared.hostlist import HostlistError, expand, fold, written_out
from deepopsctl.text.node_sets import expand as expand_as_clustershell


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("ctl1", ["ctl1"]),
        ("gpu[01-03,07],ctl1", ["gpu01", "gpu02", "gpu03", "gpu07", "ctl1"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
    ],
)
def test_hostlists_are_expanded_as_slurm_does(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[x]", "n[0-2999999]", "n[5-3]", "n[]", "n[1-2", "n[1-2]]", "n 1", "n[1-400][1-400]", "n[-1]", "\x1b[31mn"],
)
def test_what_is_no_hostlist_is_refused_before_it_grows(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@pytest.mark.parametrize("text", ["gpu[01-03,07],login1", "r[1-2]n[08-10]", "a,b", "n[9-11]"])
def test_hostlists_are_read_as_clustershell_reads_them(text: str) -> None:
    assert sorted(expand(text)) == sorted(expand_as_clustershell(text))
    assert sorted(expand(fold(sorted(expand(text))))) == sorted(expand(text))


def test_text_after_a_range_is_written_out_and_all_else_stays() -> None:
    assert written_out("r[1-2]-a,n1") == "r1-a,r2-a,n1"
    assert written_out("n[1-2],m[1,3]") == "n[1-2],m[1,3]"
