"""What playbooks pass to roles: a value for it in a site's files has no effect, as Ansible lets the play win."""

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
# a variable, and filters that leave it what it is
_VARIABLE = re.compile(r"\{\{ (\w+)(?: \| (?:bool|int|float|string|default\([^{}]*\)))? \}\}|\{\{ (\w+) or '' \}\}")
# computed from cluster.yml and secrets, never set by a site
_COMPUTED = "deepops_"
_NOT_A_SITES = frozenset({
    "environment_easybuild_release", "monitoring_host", "monitoring_secrets", "slurm_compute_hosts",
    "slurm_controller_hosts", "slurm_dbd_host", "slurm_dbd_hosts",
})  # fmt: skip


def role_parameters(content: Path, names: Collection[str]) -> Mapping[str, str]:
    """Those of `names` that a playbook passes to its role -> the setting that works in its place, '' if there is none.

    Only playbooks that have one of the names are parsed: all of them take a fifth of a second.
    """
    if not names:
        return {}
    mentioned = re.compile(rf"^ +({'|'.join(map(re.escape, names))}):", re.MULTILINE)
    values: dict[str, set[str]] = {}
    for path in sorted((content / "playbooks").rglob("*.yml")):
        text = path.read_text(encoding="utf-8")
        if mentioned.search(text):
            document = yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe loader
            for name, value in _passed(document):
                values.setdefault(name, set()).add(_setting(value))
    product = "\n".join(path.read_text(encoding="utf-8") for path in (content / "group_vars" / "all").glob("*.yml"))
    settings = {name: next(iter(each)) if len(each) == 1 else "" for name, each in values.items() if name in names}
    return {
        name: setting if re.search(rf"^{setting}:", product, re.MULTILINE) else "" for name, setting in settings.items()
    }


def _passed(part: object) -> Iterator[tuple[str, object]]:
    """Names and values that the plays and tasks of a playbook pass."""
    if isinstance(part, list):
        for entry in part:
            yield from _passed(entry)
    elif isinstance(part, Mapping):
        if "role" in part:
            yield from ((name, value) for name, value in part.items() if name not in _KEYWORDS)
        if "role" in part or any(name in part for name in _INCLUDES):
            yield from mapping(part.get("vars")).items()
        for value in part.values():
            yield from _passed(value)


def _setting(value: object) -> str:
    match = _VARIABLE.fullmatch(str(value).strip())
    name = next(filter(None, match.groups())) if match else ""
    return "" if name.startswith(_COMPUTED) or name in _NOT_A_SITES else name
