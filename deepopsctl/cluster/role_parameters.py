"""What playbooks pass to roles (hosts, groups, secrets, computed values): a site's value for it has no effect.

Ansible lets the play win over the inventory. Everything else of a role is a setting by its own name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import yaml

from deepopsctl.text.answers import mapping

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")
# keywords of an entry under `roles:`
_KEYWORDS = frozenset({"role", "name", "when", "tags", "vars", "become", "become_user", "delegate_to", "run_once"})


def role_parameters(content: Path, names: Collection[str]) -> frozenset[str]:
    """Those of `names` that a playbook passes to its role.

    Only playbooks that have one of the names are parsed: all of them take a fifth of a second.
    """
    if not names:
        return frozenset()
    mentioned = re.compile(rf"^ +({'|'.join(map(re.escape, names))}):", re.MULTILINE)
    texts = (path.read_text(encoding="utf-8") for path in (content / "playbooks").rglob("*.yml"))
    documents = (yaml.load(text, Loader=LOADER) for text in texts if mentioned.search(text))  # noqa: S506 - safe loader
    return frozenset(name for document in documents for name, _ in passed(document) if name in names)


def passed(part: object) -> Iterator[tuple[str, object]]:
    """Names and values that the plays and tasks of a playbook pass."""
    if isinstance(part, list):
        for entry in part:
            yield from passed(entry)
    elif isinstance(part, Mapping):
        if "role" in part:
            yield from ((name, value) for name, value in part.items() if name not in _KEYWORDS)
        if "role" in part or any(name in part for name in _INCLUDES):
            yield from mapping(part.get("vars")).items()
        for value in part.values():
            yield from passed(value)
