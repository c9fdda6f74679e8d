"""Names in the code are the field's own terms: who knows Ansible and Slurm reads them without a glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT

# the words that are not used in names, with what is said instead
INSTEAD = {
    "alike": "identical", "anew": "again", "beside": "alongside", "bystanders": "untouched nodes", "crew": "pool",
    "door": "tls proxy", "faces": "host keys", "folder": "directory", "foresee": "estimate, predict",
    "foretell": "predict", "foretold": "predicted", "found": "what it holds: nodes, problems, lines",
    "given": "options, params", "glance": "snapshot", "guests": "connections", "judge": "evaluate",
    "judged": "evaluated, selected", "look": "query, inspect",
    "mend": "fix", "muster": "start", "newcomers": "new nodes", "odd": "unexpected, outlier", "ours": "managed",
    "picture": "snapshot", "proof": "verification", "prove": "verify, test",
    "proven": "tested", "quarrel": "conflict", "said": "output, error text",
    "tell": "report, notify", "told": "reported, notified", "wish": "desired state, request",
}  # fmt: skip
# keys of cluster.yml, and what Grafana calls its folder
KEYS = frozenset({"grafana_dashboard_folder"})
# phrases that readers stumble over, with plain ones; for texts, where INSTEAD is for names
PHRASES = {
    r"(?<!here )\b(is|are|was|were) no (?!longer\b|more\b)": "is not a, is not a valid",
    r"\b(go|goes|going|went) on\b(?! (a|the|each|every) )": "continue",
    r"\b(somebody|someone|whoever)\b": "a user, an administrator, another process",
    # the user and the receiver of that name apart
    r"\b(?-i:[Nn]obody)(?='s|,? (?-i:[a-z])(?!ogroup))": "no user, no one, no process",
    r"\b(is|are) named\b": "is listed, is reported, has the name",
    r"\bof before\b": "previous",
    r"\bwaited for\b": "waits for, waiting for",
    r"\bto be had\b": "available",
}
PAGES = ("*.md", "docs/**/*.md", ".github/**/*.md", ".gitlab/**/*.md", "roles/*/README.md")
# written from the rules of roles/prometheus, and what virtual machines printed
GENERATED_PAGES = ("docs/reference/alerts.md", "docs/reference/test-vm/")
CODE = ("deepopsctl", "plugins", "scripts", "benchmarks", "tests")
# what is not Python, and has none of PHRASES either
PLAIN_FILES = (
    "molecule/**/*.yml",
    "roles/*/*/**/*",
    "playbooks/**/*.yml",
    "group_vars/**/*.yml",
    "inventory/**/*",
    "tests/guards.toml",
)
# a test's name is a sentence, in which these are plain English
IN_SENTENCES = {"found", "given", "look", "ours", "said", "tell", "told"}
# a task's name is an imperative, which an administrator finds by what it does
NO_IMPERATIVE = {"a", "an", "and", "or", "that", "the", "what", "where", "whether", "who", "whom", "without"}
VARIABLE_FILES = ("roles/*/defaults/*.yml", "roles/*/vars/*.yml", "roles/*/meta/*.yml", "group_vars/**/*.yml")
TASK_FILES = sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")])


def is_python(path: Path) -> bool:
    """Modules and scripts, links apart."""
    if path.is_symlink() or not path.is_file() or "__pycache__" in path.parts:
        return False
    return path.suffix == ".py" or (not path.suffix and path.read_bytes().startswith(b"#!/usr/bin/env python3"))


def words_of(name: str) -> set[str]:
    """The words of an identifier, with the singular of those that end in s."""
    words = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", name).lower())
    return {*words, *(word.removesuffix("s") for word in words)}


def names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names that the code itself gives: functions, classes, parameters, variables, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def private_words(text: str) -> list[str]:
    """Each name with a word that is not used, and what is said instead."""
    return [
        f"line {line}: {name} ({word}: {INSTEAD[word]})"
        for line, name in names_in(ast.parse(text))
        for word in sorted(words_of(name) & INSTEAD.keys() - (IN_SENTENCES if name.startswith("test_") else set()))
        if name not in KEYS
    ]


@pytest.mark.parametrize("directory", CODE)
def test_names_are_plain_words(directory: str) -> None:
    files = [path for path in sorted((ROOT / directory).rglob("*")) if is_python(path)]
    faults = {str(path.relative_to(ROOT)): private_words(path.read_text(encoding="utf-8")) for path in files}

    assert {path: names for path, names in faults.items() if names} == {}


def test_functions_have_names_that_say_what_they_do() -> None:
    """Also to grep: `verify_mpi` is in one place. Ansible calls an action's `run`; the one of commands runs any."""
    paths = [
        path
        for directory in ("deepopsctl", "plugins", "scripts", "benchmarks")
        for path in (ROOT / directory).rglob("*")
    ]
    empty = {
        str(path.relative_to(ROOT))
        for path in paths
        if is_python(path) and re.search(r"^ *(async )?def (run|do|go)\(", path.read_text("utf-8"), re.MULTILINE)
    }

    assert {path for path in empty if not path.startswith("plugins/action/")} == {
        "plugins/module_utils/node/command.py"
    }


def keys_in(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from keys_in(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            yield from keys_in(value)


def test_variables_and_options_of_roles_are_plain_words() -> None:
    paths = [path for pattern in VARIABLE_FILES for path in ROOT.glob(pattern)]
    keys = {key for path in paths for key in keys_in(yaml.safe_load(path.read_text(encoding="utf-8")))}

    assert [key for key in sorted(keys - KEYS) if words_of(key) & INSTEAD.keys()] == []
    assert len(keys) > 500


def task_names(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from task_names(item)
    elif isinstance(node, dict):
        if isinstance(node.get("name"), str):
            yield node["name"]
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
            yield from task_names(node.get(key))


def test_tasks_and_plays_are_named_by_what_they_do() -> None:
    names = {name for path in TASK_FILES for name in task_names(yaml.safe_load(path.read_text(encoding="utf-8")))}
    faults = [name for name in names if name.split()[0].lower() in NO_IMPERATIVE or words_of(name) & INSTEAD.keys()]

    assert faults == []
    assert len(names) > 150


def prose(markdown: str) -> str:
    """A page without its blocks and words of code, which quote programs; line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    return re.sub(r"```.*?```|<!--.*?-->|``.*?``|`[^`\n]*`", blank, markdown, flags=re.DOTALL)


def stumbling_blocks(text: str) -> list[str]:
    """Each phrase of a text that is not used, and what is written instead."""
    joined = re.sub(r"\n[ #]*(?=\S)", " ", text)
    return [
        f"{joined[max(0, match.start() - 30) : match.end() + 20]!r} ({better})"
        for phrase, better in PHRASES.items()
        for match in re.finditer(phrase, joined, re.IGNORECASE)
    ]


def test_pages_are_in_plain_phrases() -> None:
    pages = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    names = {path.relative_to(ROOT).as_posix(): path for path in pages if path.name != "CHANGELOG.md"}
    texts = {name: prose(path.read_text(encoding="utf-8")) for name, path in names.items()}
    faults = {name: stumbling_blocks(text) for name, text in texts.items() if not name.startswith(GENERATED_PAGES)}

    assert {name: phrases for name, phrases in faults.items() if phrases} == {}
    assert len(faults) > 80


def source_phrases(path: Path) -> list[str]:
    """What a source's comments and texts have of PHRASES, also where a text continues on the next line."""
    source = path.read_text(encoding="utf-8")
    return stumbling_blocks(re.sub(r"""["']\n +f?["']""", "", source))


@pytest.mark.parametrize("directory", CODE)
def test_code_is_in_plain_phrases(directory: str) -> None:
    files = [path for path in sorted((ROOT / directory).rglob("*")) if is_python(path) and path != Path(__file__)]
    faults = {str(path.relative_to(ROOT)): phrases for path in files if (phrases := source_phrases(path))}

    assert faults == {}
    assert files


def test_what_is_deployed_is_in_plain_phrases() -> None:
    paths = [path for pattern in PLAIN_FILES for path in ROOT.glob(pattern) if path.is_file() and path.suffix != ".pyc"]
    faults = {str(path.relative_to(ROOT)): phrases for path in paths if (phrases := source_phrases(path))}

    assert faults == {}
    assert len(paths) > 300


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("gpu01 is no node of this cluster", False),
        ("there is no node gpu01", True),
        ("it is no longer there", True),
        ("running jobs go\non", False),
        ("what can go on each node", True),
        ("Whoever writes it", False),
        ("`is no directory`: correct it", True),
        ("the nodes are named by", False),
        ("so that nobody reads it", False),
        ("as nobody, in an environment", False),
        ("runuser -u nobody -- env", True),
    ],
)
def test_a_phrase_is_found_outside_of_code(text: str, is_plain: bool) -> None:
    assert (stumbling_blocks(prose(text)) == []) is is_plain


@pytest.mark.parametrize(
    ("code", "is_private"),
    [
        ("found = []", True),
        ("def told(): pass", True),
        ("def test_odd_ones(): pass", True),
        ("def test_what_is_said(): pass", False),
        ("def f(folders): pass", True),
        ("class Wish: pass", True),
        ("self.doors = []", True),
        ("def read(foundation): pass", False),
        ("problems = [x.found]", False),
    ],
)
def test_a_private_word_is_one_that_the_code_itself_uses(code: str, is_private: bool) -> None:
    assert bool(private_words(code)) is is_private
