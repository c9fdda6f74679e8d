"""Detects the format of a node list by its content."""

from __future__ import annotations

import ipaddress
import re
from difflib import get_close_matches
from enum import Enum, auto

from deepopsctl.text.source import significant_lines

COLUMNS = ("name", "address", "role", "gpus", "gpu_type", "features", "port")
# Other common names.
COLUMN_ALIASES = {
    "hostname": "name",
    "host": "name",
    "ip": "address",
    "ip_address": "address",
    "roles": "role",
}
DELIMITERS = "\t,;"

_SLURM = re.compile(r"(clustername|nodename|partitionname|slurmctldhost|controlmachine)\s*=", re.IGNORECASE)
_INI_SECTION = re.compile(r"\[[A-Za-z][A-Za-z0-9_.:-]*\]\s*")
_YAML_START = re.compile(r"---|%YAML|\{|- |[\"']?[A-Za-z_][A-Za-z0-9_ -]*[\"']?\s*:(\s|$)")


_IN_GROUP = re.compile(r"\s+(hosts|children)\s*:")
_GROUP_KEY = re.compile(r"\s+(hosts|children|vars)\s*:")
# what `ansible-inventory --list` prints, and OpenCHAMI's SMD and its lists of nodes
_JSON_INVENTORY = re.compile(r'"(_meta|hostvars)"\s*:|"hosts"\s*:\s*\[')
_JSON_OPENCHAMI = re.compile(r'"(Components|ComponentID|xname|bmc_mac)"\s*:')
_OPENCHAMI = re.compile(r"\s*(- )?\s*(xname|bmc_mac)\s*:")
_WAREWULF = re.compile(r"(nodeprofiles|WW_INTERNAL)\s*:|\s+network devices\s*:")
# top-level keys of a cluster.yml or a list of nodes
_SPEC = re.compile(r"(schema|nodes|cluster)\s*:|- ")


class Form(Enum):
    """The formats of a node list."""

    YAML = auto()
    TABLE = auto()
    HOSTS_FILE = auto()
    HOSTLIST = auto()
    DEEPOPS_INI = auto()
    ANSIBLE_YAML = auto()
    ANSIBLE_JSON = auto()
    OPENCHAMI = auto()
    WAREWULF = auto()
    SLURM_CONF = auto()


# they have groups
INVENTORIES = frozenset({Form.DEEPOPS_INI, Form.ANSIBLE_YAML, Form.ANSIBLE_JSON, Form.OPENCHAMI, Form.WAREWULF})


def detect(text: str) -> Form:
    """The format of a node list; a hostlist if nothing else matches."""
    lines = [line for _, line in significant_lines(text)]
    first = lines[0] if lines else ""
    if any(_SLURM.match(line.lstrip()) for line in lines):
        return Form.SLURM_CONF
    if any(_INI_SECTION.fullmatch(line) for line in lines):
        return Form.DEEPOPS_INI
    if first.startswith(("{", "[")) and (form := _json_form(text)):
        return form
    if _YAML_START.match(first):
        return _yaml_form(lines)
    if is_header(first):
        return Form.TABLE
    words = first.split()
    return Form.HOSTS_FILE if len(words) > 1 and is_ip_address(words[0].partition("/")[0]) else Form.HOSTLIST


def _json_form(text: str) -> Form | None:
    """The format of JSON that another tool wrote, if any."""
    if _JSON_INVENTORY.search(text):
        return Form.ANSIBLE_JSON
    return Form.OPENCHAMI if _JSON_OPENCHAMI.search(text) else None


def _yaml_form(lines: list[str]) -> Form:
    for form, key in ((Form.WAREWULF, _WAREWULF), (Form.OPENCHAMI, _OPENCHAMI)):
        if any(key.match(line) for line in lines):
            return form
    return Form.ANSIBLE_YAML if _is_inventory(lines) else Form.YAML


def _is_inventory(lines: list[str]) -> bool:
    """Whether YAML is an Ansible inventory: top-level groups, with hosts or children in one of them."""
    followed = zip(lines, [*lines[1:], ""], strict=True)
    # a group may have such a name, too
    spec = any(_SPEC.match(line) and (line[0] == "-" or not _GROUP_KEY.match(after)) for line, after in followed)
    return any(_IN_GROUP.match(line) for line in lines) and not spec


def is_header(line: str) -> bool:
    """Whether a line names columns, even misspelled ones."""
    cells = [cell.strip(" \"'").lower() for cell in split_cells(line)]
    known = [*COLUMNS, *COLUMN_ALIASES]
    if len(cells) == 1:
        return cells[0] in ("name", "hostname")
    # two different columns: `hosta,hostb` is near to `host` twice, and a hostlist
    close = {word for cell in cells for word in get_close_matches(cell, known, n=1, cutoff=0.8)}
    return any(cell in known for cell in cells) or len(close) > 1


def delimiter_of(line: str) -> str:
    """What separates the cells of a header: a tab, a semicolon or a comma."""
    return max(DELIMITERS, key=line.count)


def split_cells(line: str) -> list[str]:
    """The cells of a header line."""
    return line.split(delimiter_of(line))


def is_ip_address(text: str) -> bool:
    """Whether a word is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
