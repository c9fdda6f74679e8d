"""Reads node lists of every accepted format, and files with their addresses (`init --addresses`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import yaml

from deepopsctl.cluster.builder import Draft
from deepopsctl.cluster.spec import draft_document
from deepopsctl.imports.ansible_inventory import parse_ini, parse_yaml_inventory
from deepopsctl.imports.deepops import draft_inventory
from deepopsctl.imports.detect import Form, detect, is_ip_address
from deepopsctl.imports.node_sources import parse_json_inventory, parse_openchami, parse_warewulf
from deepopsctl.imports.other_files import recognise
from deepopsctl.imports.plain_lists import addresses_by_name, draft_hostlist, draft_hosts_file, draft_table
from deepopsctl.imports.slurm_conf import draft_slurm_conf
from deepopsctl.model.cluster import Role
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.source import MAX_BYTES, check_markers, decode, read_source
from deepopsctl.text.values import check_address
from deepopsctl.text.yaml_reader import AnyTagLoader, Document, parse_yaml

Reader = Callable[[str, str, Problems], Draft]
_EXCEL = re.compile(r"sep=.\n", re.IGNORECASE)

KEY = "settings"
_VARIABLE = re.compile(r"[a-z][a-z0-9_]*")

# Formats with groups, which may have site-specific names.
INVENTORY_PARSERS = {
    Form.DEEPOPS_INI: parse_ini, Form.ANSIBLE_YAML: parse_yaml_inventory, Form.ANSIBLE_JSON: parse_json_inventory,
    Form.OPENCHAMI: parse_openchami, Form.WAREWULF: parse_warewulf,
}  # fmt: skip

# The file to read in a directory: DeepOps's `config`, a clone of DeepOps, /etc/slurm.
_IN_DIRECTORY = (
    "inventory", "config/inventory", "slurm.conf", "hosts",
    "inventory.yml", "inventory.yaml", "hosts.yml", "hosts.yaml", "nodes.conf",
)  # fmt: skip
_NO_GROUPS: Mapping[str, Role] = MappingProxyType({})


def draft_yaml(text: str, where: str, problems: Problems) -> Draft:
    """The nodes, and the settings in `carryover.direct_settings`."""
    check_markers(text, where, problems)
    document = parse_yaml(text, where, problems)
    if document is None or not isinstance(document.value, dict) or document.value.get(KEY) is None:
        return draft_document(document, where, problems)
    rest = {key: value for key, value in document.value.items() if key != KEY}
    draft = draft_document(Document(rest, document.lines), where, problems)
    # parse_yaml returns strings only, and these values are for Ansible
    try:
        settings = yaml.load(text, AnyTagLoader)[KEY]  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else document.line((KEY,))
        problems.add(f"{where}:{line}", f"not valid YAML: {error.problem}", "put it in quotes if it is text")
        return draft
    wrong = [] if isinstance(settings, dict) else [str(settings)]
    wrong = wrong or [str(name) for name in settings if not _VARIABLE.fullmatch(str(name))]
    if wrong:
        hint = "write `name: value`, as in settings.yml"
        problems.add(f"{where}:{document.line((KEY,))}", f"settings: {wrong[0]} is not a variable of Ansible's", hint)
    else:
        draft.carryover.direct_settings.update(settings)
    return draft


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
    if what := recognise(text, form):
        problems.add(name, f"this is {what.name}, not a node list", what.instead)
        draft = Draft(name, problems)
        draft.incomplete = True
        return draft
    if form in INVENTORY_PARSERS:
        return draft_inventory(INVENTORY_PARSERS[form], text, name, directory, problems, groups)
    if groups:
        problems.add("--group", f"{name} is not an inventory: it has no groups", "leave --group out")
    if form is Form.SLURM_CONF:
        # it includes other files
        return draft_slurm_conf(text, name, directory, problems)
    return READERS[form](text, name, problems)


def add_addresses(draft: Draft, path: Path | None) -> None:
    """Set addresses that are missing, or names themselves, from a hosts file or another node list."""
    if path is None:
        return
    known = _addresses(path, draft.problems)
    for node in draft.nodes.values():
        # a full name of the node's own is in many files only by its short one
        written = (node.address or node.name).lower()
        own = written.partition(".")[0] == node.name.lower()
        address = "" if is_ip_address(written) else known.get(written) or (known.get(node.name.lower()) if own else "")
        if address:
            try:
                node.address = check_address(address)
            except RefusedError as refusal:
                draft.problems.refuse(str(path), node.name, refusal)
    missing = [node.name for node in draft.nodes.values() if not node.address]
    if missing and known and len(missing) == len(draft.nodes):
        draft.problems.add(str(path), "has no address of any node of this cluster", "compare the names in both files")


def _file_in(path: Path) -> Path:
    """The node list file in a directory, or the path itself."""
    return next((path / name for name in _IN_DIRECTORY if (path / name).is_file()), path)


def _addresses(path: Path, problems: Problems) -> dict[str, str]:
    text = None if path.is_dir() else read_source(path, str(path), Problems())
    if text is not None and detect(text) is Form.HOSTS_FILE:
        return addresses_by_name(text)
    listed = read_nodes(path, None, problems)
    return {name: node.address for name, node in listed.nodes.items() if node.address}


READERS: dict[Form, Reader] = {
    Form.YAML: draft_yaml,
    Form.TABLE: draft_table,
    Form.HOSTS_FILE: draft_hosts_file,
    Form.HOSTLIST: draft_hostlist,
}
