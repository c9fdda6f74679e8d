"""Node list files in every accepted form, told apart by their content."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from deepopsctl.draft import Draft
from deepopsctl.problems import Problems
from deepopsctl.sourcetext import MAX_BYTES, decode, read_source
from deepopsctl.spec import draft_spec


def read_nodes(path: Path | None, stdin: BinaryIO | None, problems: Problems) -> Draft:
    """The machines of a node list file, of standard input, or none."""
    if stdin:
        name, text = "stdin", decode(stdin.read(MAX_BYTES + 1), "stdin", problems)
    elif path:
        name, text = str(path), read_source(path, str(path), problems)
    else:
        return Draft("init", problems)
    if text is None:
        draft = Draft(name, problems)
        draft.incomplete = True
        return draft
    return draft_spec(text, name, problems)
