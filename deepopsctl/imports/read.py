"""Reads node lists of every accepted format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from deepopsctl.cluster.builder import Draft
from deepopsctl.imports.csv_table import draft_table
from deepopsctl.imports.deepops import draft_deepops, draft_yaml_inventory
from deepopsctl.imports.detect import Form, detect
from deepopsctl.imports.plain_lists import draft_hostlist, draft_hosts_file
from deepopsctl.imports.slurm_conf import draft_slurm_conf
from deepopsctl.imports.yaml_list import draft_yaml
from deepopsctl.model.cluster import Role
from deepopsctl.text.problems import Problems
from deepopsctl.text.source import MAX_BYTES, decode, read_source

Reader = Callable[[str, str, Problems], Draft]
SiteReader = Callable[[str, str, Path | None, Problems], Draft]
_EXCEL = re.compile(r"sep=.\n", re.IGNORECASE)

READERS: dict[Form, Reader] = {
    Form.YAML: draft_yaml,
    Form.TABLE: draft_table,
    Form.HOSTS_FILE: draft_hosts_file,
    Form.HOSTLIST: draft_hostlist,
}

# Formats that include other files: their readers need the directory.
SITE_READERS: dict[Form, SiteReader] = {
    Form.SLURM_CONF: draft_slurm_conf,
}

# Formats with groups, which may have site-specific names.
INVENTORY_READERS = {Form.DEEPOPS_INI: draft_deepops, Form.ANSIBLE_YAML: draft_yaml_inventory}

# The file to read in a directory: DeepOps's `config`, a clone of DeepOps, /etc/slurm.
_IN_DIRECTORY = (
    "inventory", "config/inventory", "slurm.conf", "hosts",
    "inventory.yml", "inventory.yaml", "hosts.yml", "hosts.yaml",
)  # fmt: skip
_NO_GROUPS: Mapping[str, Role] = MappingProxyType({})


def read_nodes(
    path: Path | None, stdin: BinaryIO | None, problems: Problems, groups: Mapping[str, Role] = _NO_GROUPS
) -> Draft:
    """The nodes of a node list file, of standard input, or none; `groups` has the roles of inventory groups."""
    if stdin:
        name, text = "stdin", decode(stdin.read(MAX_BYTES + 1), "stdin", problems)
    elif path:
        path = _file_in(path)
        name, text = str(path), read_source(path, str(path), problems)
    else:
        return Draft("init", problems)
    if text is not None:
        return draft_text(text, name, problems, path.parent if path else None, groups)
    draft = Draft(name, problems)
    draft.incomplete = True
    return draft


def draft_text(
    text: str, name: str, problems: Problems, directory: Path | None = None, groups: Mapping[str, Role] = _NO_GROUPS
) -> Draft:
    """The nodes of a node list of any format; `name` is for messages, `directory` for included files."""
    if _EXCEL.match(text):
        # Excel's first line declares the separator: comment it out, to keep the line numbers
        text = f"#{text}"
    form = detect(text)
    if form in INVENTORY_READERS:
        return INVENTORY_READERS[form](text, name, directory, problems, groups)
    if groups:
        problems.add("--group", f"{name} is no inventory: it has no groups", "leave --group out")
    if form in SITE_READERS:
        return SITE_READERS[form](text, name, directory, problems)
    return READERS[form](text, name, problems)


def _file_in(path: Path) -> Path:
    """The node list file in a directory, or the path itself."""
    return next((path / name for name in _IN_DIRECTORY if (path / name).is_file()), path)
