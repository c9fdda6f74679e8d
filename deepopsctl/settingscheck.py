"""What a site has set, looked at before a run: files that Ansible could not read, and names that nothing reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import yaml

from deepopsctl.clusterdir import ClusterDir
from deepopsctl.errors import ControlMachineError, InputError, Problem
from deepopsctl.secrets import is_encrypted

# what Ansible takes for variables; `.bak`, `~` and the like it leaves alone
_SUFFIXES = frozenset({"", ".yml", ".yaml", ".json"})
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# nearer than this, a name is a typing error; names further away are the site's own
_NEAR = 0.85
_NAME = re.compile(r"[a-z]\w+")


def require_settings(directory: ClusterDir) -> None:
    """Raise for files of variables that can't be read; Ansible would name neither file nor line."""
    problems = [found for _, found in _looked_at(directory) if isinstance(found, Problem)]
    if problems:
        raise InputError(problems)


def require_vault_password(directory: ClusterDir, environment: Mapping[str, str]) -> None:
    """Raise where nothing opens the secrets; whether a password is the right one is Ansible's to say."""
    named_elsewhere = any(name.startswith("ANSIBLE_VAULT_") for name in environment)
    if named_elsewhere or (directory.path / "ansible.cfg").is_file() or directory.vault_password.is_file():
        return
    if directory.secrets.is_file() and is_encrypted(directory.secrets):
        raise ControlMachineError(
            f"{directory.vault_password} is missing, so the secrets can't be opened",
            "bring back the one that belongs to this cluster, or name it in $ANSIBLE_VAULT_PASSWORD_FILE",
        )


def misspelt_settings(directory: ClusterDir, content: Path) -> tuple[Problem, ...]:
    """Variables that deepopsctl does not know, and whose names are nearly those of one that it does."""
    known = known_names(content)
    found = []
    for where, root in _looked_at(directory):
        for name, line in _names(root):
            near = get_close_matches(name, known, n=1, cutoff=_NEAR) if name not in known else []
            if near:
                text = f"{name} is no setting of deepopsctl"
                found.append(Problem(f"{where}:{line}", text, f"did you mean {near[0]}?"))
    return tuple(found)


def known_names(content: Path) -> frozenset[str]:
    """Every name in the texts that say what can be set: product defaults, and what roles take."""
    texts = [*content.glob("group_vars/all/*.yml"), *content.glob("roles/*/defaults/main.yml")]
    texts += content.glob("roles/*/meta/argument_specs.yml")
    return frozenset(name for path in texts for name in _NAME.findall(path.read_text(encoding="utf-8")) if "_" in name)


def _looked_at(directory: ClusterDir) -> Iterator[tuple[str, yaml.Node | Problem | None]]:
    """Each file's path in the cluster directory, with what is in it or why that can't be told."""
    for path in _files(directory):
        where = str(path.relative_to(directory.path))
        yield where, _variables(path, where)


def _files(directory: ClusterDir) -> Iterator[Path]:
    for folder in ("group_vars", "host_vars"):
        for path in sorted((directory.inventory_dir / folder).rglob("*")):
            if path.is_file() and path.suffix in _SUFFIXES and not path.name.startswith(".") and not is_encrypted(path):
                yield path


def _variables(path: Path, where: str) -> yaml.Node | Problem | None:
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except UnicodeDecodeError:
        return Problem(where, "is no text in UTF-8", "save it as UTF-8")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        hint = "check indentation, quotes and brackets there and above"
        return Problem(place, f"no valid YAML: {error.problem or error.context}", hint)
    except yaml.YAMLError as error:
        return Problem(where, f"no valid YAML: {' '.join(str(error).split())}", "take out what is no text")
    if root is None or isinstance(root, yaml.MappingNode) or (isinstance(root, yaml.ScalarNode) and not root.value):
        return root
    return Problem(where, "holds no variables", "it needs lines of `name: value`")


def _names(root: yaml.Node | Problem | None) -> Iterator[tuple[str, int]]:
    if isinstance(root, yaml.MappingNode):
        for key, _ in root.value:
            yield str(key.value), key.start_mark.line + 1
