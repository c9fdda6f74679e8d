"""A hostlist file: one node expression a line, NAMES or NAMES=ADDRESSES, with # comments."""

from __future__ import annotations

from deepopsctl.draft import Draft
from deepopsctl.entries import NodeEntry
from deepopsctl.problems import Problems, RefusedError
from deepopsctl.sourcetext import check_markers, significant_lines


def draft_hostlist(text: str, source: str, problems: Problems) -> Draft:
    """The machines of a hostlist; their roles come from options."""
    draft = Draft(source, problems)
    check_markers(text, source, problems)
    for number, line in significant_lines(text):
        names, equals, addresses = line.partition("=")
        where = f"{source}:{number}"
        if equals and not addresses.strip():
            draft.refuse(where, RefusedError("no address after =", "write NAMES=ADDRESSES or only NAMES"))
        else:
            draft.add(NodeEntry(where=where, names=names, addresses=addresses))
    return draft
