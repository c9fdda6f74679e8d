"""Node list files in every accepted form, told apart by their content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from deepopsctl.draft import Draft
from deepopsctl.problems import Problems, RefusedError
from deepopsctl.readers.detect import Form, detect
from deepopsctl.readers.hostlist import draft_hostlist
from deepopsctl.readers.hostsfile import draft_hosts_file
from deepopsctl.readers.table import draft_table
from deepopsctl.sourcetext import MAX_BYTES, decode, read_source
from deepopsctl.spec import draft_spec

Reader = Callable[[str, str, Problems], Draft]

READERS: dict[Form, Reader] = {
    Form.YAML: draft_spec,
    Form.TABLE: draft_table,
    Form.HOSTS_FILE: draft_hosts_file,
    Form.HOSTLIST: draft_hostlist,
}

_NOT_YET = {
    Form.DEEPOPS_INI: "an Ansible inventory in INI form, such as DeepOps has",
    Form.SLURM_CONF: "a slurm.conf",
}


def read_nodes(path: Path | None, stdin: BinaryIO | None, problems: Problems) -> Draft:
    """The machines of a node list file, of standard input, or none."""
    if stdin:
        name, text = "stdin", decode(stdin.read(MAX_BYTES + 1), "stdin", problems)
    elif path:
        name, text = str(path), read_source(path, str(path), problems)
    else:
        return Draft("init", problems)
    if text is not None:
        return draft_text(text, name, problems)
    draft = Draft(name, problems)
    draft.incomplete = True
    return draft


def draft_text(text: str, name: str, problems: Problems) -> Draft:
    """The machines of a node list in any form; `name` stands for it in messages."""
    form = detect(text)
    if form in READERS:
        return READERS[form](text, name, problems)
    draft = Draft(name, problems)
    hint = "give the machines as a hostlist, hosts file, CSV or cluster.yml: see docs/reference/node-lists.md"
    draft.refuse(name, RefusedError(f"is {_NOT_YET[form]}: this version can't read it yet", hint))
    return draft
