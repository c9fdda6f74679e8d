"""What a module did or would do, as entries that plan and deploy report alike: `changes` in a module's result."""

from __future__ import annotations

import difflib

HIDDEN = "(secret)\n"


def entry(kind, name, action, **more):
    """One change: `kind` of thing, its name and what happens to it; `detail`, `policy`, `diff` where there are any."""
    found = {"kind": kind, "name": name, "action": action}
    found.update({key: value for key, value in more.items() if value})
    return found


def unified(before, after):
    """The difference of two texts, without the two lines that would name them."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return "".join("%s\n" % line for line in list(lines)[2:])
