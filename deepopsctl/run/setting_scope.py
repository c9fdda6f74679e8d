"""Which components a variable of the site's can change: found by the names that playbooks, roles and variables use.

A setting of one component must not make all of them look at all nodes. What is not known changes every component.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from pathlib import Path

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.renamed import RENAMED
from deepopsctl.cluster.settings import active_settings, known_names
from deepopsctl.content import components
from deepopsctl.errors import Problem

Blocks = Mapping[str, bytes]

_WORD = re.compile(rb"[A-Za-z_]\w*")
_QUOTED = re.compile(rb"[\"']([A-Za-z_]\w*)[\"']")
_KEY = re.compile(rb"([A-Za-z_]\w*)[ \t]*:(?:\s|$)")
_ROLE = re.compile(rb"\b(?:role|name): +(?:deepopsctl\.cluster\.)?(\w+)")
_COMPONENT = re.compile(rb"^component: (\w+)", re.MULTILINE)
_PLAYBOOK = re.compile(rb"import_playbook: +([\w/-]+\.yml)")
# what else a run asks in the same call: it changes no answer
_NOT_FOLLOWED = frozenset({b"deepops_gate_run", b"__deepops_run", b"deepops_steps", b"deepops_status_question"})


def blocks(text: bytes) -> Blocks | None:
    """The top-level keys of a plain YAML mapping, each with its lines but for comments between keys.

    None for what is anything else: encrypted, a list, JSON, keys in quotes.
    """
    texts: dict[str, list[bytes]] = {}
    lines: list[bytes] = []
    for line in text.splitlines():
        if line[:1] in (b" ", b"\t") or (line[:1] == b"-" and line[:3] != b"---" and texts):
            lines.append(line)
        elif not line.strip() or line[:1] == b"#" or line.rstrip() in (b"---", b"..."):
            continue
        elif key := _KEY.match(line):
            # a second value of a name wins, and is read with the first
            lines = texts.setdefault(key[1].decode(), [])
            lines.append(line)
        else:
            return None
    return {name: b"\n".join(block) for name, block in texts.items()}


class Scopes:
    """What of the content uses which names."""

    def __init__(self, content: Path, site: Iterable[Blocks]) -> None:
        """`site` are the site's own variables: one may be used in another."""
        self._used = {name: _words_of_component(content, name) for name in components(content)}
        # looked up by name in Python, where no playbook says so
        plugins = (path for kind in ("action", "filter") for path in (content / "plugins" / kind).glob("*.py"))
        self._looked_up = frozenset(word for path in plugins for word in _QUOTED.findall(path.read_bytes()))
        self._users: dict[bytes, set[bytes]] = defaultdict(set)
        files = [*content.glob("group_vars/**/*.yml"), *content.glob("roles/*/defaults/*.yml")]
        files += content.glob("roles/*/vars/*.yml")
        defaults = (blocks(path.read_bytes()) or {} for path in files)
        for each in (*defaults, *site):
            for name, block in each.items():
                for word in set(_WORD.findall(block)) - {name.encode()}:
                    self._users[word].add(name.encode())

    def users(self, name: str) -> frozenset[str]:
        """The components whose playbooks and roles name a variable, or one that is made of it."""
        return self._users_of(self._follow(RENAMED.get(name, name).encode()))

    def of(self, name: str) -> frozenset[str] | None:
        """The components that a variable can change; None where that is not known."""
        names = self._follow(RENAMED.get(name, name).encode())
        using = self._users_of(names)
        # Ansible's own reach all nodes
        is_known = using and not name.startswith("ansible_") and not names & self._looked_up
        return using if is_known else None

    def _users_of(self, names: Set[bytes]) -> frozenset[str]:
        return frozenset(component for component, words in self._used.items() if names & words)

    def _follow(self, name: bytes) -> set[bytes]:
        """The name, and those of all variables that are made of it."""
        seen: set[bytes] = set()
        waiting = {name}
        while waiting:
            each = waiting.pop()
            seen.add(each)
            waiting |= self._users[each] - seen - _NOT_FOLLOWED
        return seen


def without_component(directory: ClusterDir, content: Path, named: Collection[str] = ()) -> Iterator[Problem]:
    """Settings that only components use which this cluster does not deploy; `named` are deployed by name now."""
    listed = directory.cluster().components
    active = [] if listed is None else [*active_settings(directory)]
    if not active or listed is None:
        return
    known, scopes = known_names(content), Scopes(content, ())
    for name, where in active:
        users = (_of_its_role(name, content) or scopes.users(name)) if name in known else frozenset()
        if users and users.isdisjoint({*listed, *named}):
            owner = next(component for component in components(content) if component in users)
            what = f"{name} has no effect: it is a setting of {owner}, which `components:` of cluster.yml does not list"
            yield Problem(where, what, f"add {owner} to `components:`, or remove the setting")


def _of_its_role(name: str, content: Path) -> frozenset[str]:
    """The component of the role that a setting bears the name of; empty where there is none."""
    files = {path.parts[-3]: path for path in content.glob("roles/*/meta/steps.yml")}
    role = max((each for each in files if f"{name}_".startswith(f"{each}_")), key=len, default="")
    component = _COMPONENT.search(files[role].read_bytes()) if role else None
    return frozenset({component[1].decode()}) if component else frozenset()


def _words_of_component(content: Path, name: str) -> frozenset[bytes]:
    """All words of a component's playbook and of the roles that it uses."""
    words: set[bytes] = set()
    roles: set[bytes] = set()
    waiting = [content / "playbooks" / f"{name}.yml"]
    while waiting:
        text = waiting.pop().read_bytes()
        words |= set(_WORD.findall(text))
        waiting += [content / "playbooks" / path.decode() for path in _PLAYBOOK.findall(text)]
        for role in set(_ROLE.findall(text)) - roles:
            directory = content / "roles" / role.decode()
            if directory.is_dir():
                roles.add(role)
                waiting += _files(directory)
    return frozenset(words)


def _files(role: Path) -> Iterator[Path]:
    parts = (path for path in role.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return (path for path in parts if path.relative_to(role).parts[0] not in ("molecule", "README.md"))
