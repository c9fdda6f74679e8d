"""The page of all messages: every error text in the source, with what to do; for scripts/reference-pages."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

# what holds an error text: an error, a problem, an entry in a list of problems, the end of a module
CLASSES = re.compile(r"_?[A-Z]\w*(Error|Failure|Problem|Refused)|AnsibleActionFail")
FUNCTIONS = re.compile(r"single|fail_json|not_ready|_?refused?|_?problem|_?error|_unknown|_wrong|_?warn(ing)?")
OTHER = re.compile(r"Exit|BadParameter|UsageError|ClickException")
LONGEST, SHORTEST = 400, 3
# sections of the page by the directory of the source: the first that fits
AREAS = {
    "deepopsctl/cluster": "cluster.yml, settings and the cluster directory",
    "deepopsctl/text": "cluster.yml, settings and the cluster directory",
    "deepopsctl/imports": "Imports of node lists",
    "deepopsctl/ssh": "SSH",
    "deepopsctl/run": "Deploys and plans",
    "deepopsctl/nodes": "Adding, removing, draining and rebooting nodes",
    "deepopsctl/lifecycle": "Packages, upgrades, backup and restore",
    "deepopsctl/takeover": "Taking over a running Slurm",
    "deepopsctl/environment": "People and their environment",
    "deepopsctl/policy": "Accounts and QOS",
    "deepopsctl/slurm": "Slurm",
    "deepopsctl/storage": "Storage",
    "deepopsctl/gpus": "GPUs",
    "deepopsctl/monitoring": "Monitoring",
    "deepopsctl/lab": "Labs",
    "deepopsctl/node_programs/commands": "Commands of users on nodes",
    "deepopsctl/node_programs/suites": "Validation",
    "deepopsctl/validation": "Validation",
    "deepopsctl/node_programs": "Programs on nodes",
    "plugins/module_utils/slurm": "Slurm on nodes",
    "plugins/module_utils/storage": "Storage on nodes",
    "plugins/module_utils/nvidia": "GPUs on nodes",
    "plugins": "Tasks on nodes",
    "roles": "Tasks on nodes",
    "playbooks": "Tasks on nodes",
}
ELSE = "The command line"
INTRO = """\
# I see this message

Every error text of deepopsctl, with what to do. Search the page for a part of the message without names and numbers: \
`…` stands for what differs. Checks of [doctor](doctor.md), [validate smoke](validate-smoke.md) and \
[gpucheck](gpucheck.md) have pages of their own, and so have [alerts](alerts.md).
"""


def words_of(node: ast.expr | None, constants: Mapping[str, ast.expr]) -> str:
    """The text of an expression, `…` for what is not known; '' where it is none."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(words_of(value, constants) for value in values)
        case ast.FormattedValue():
            return "…"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return words_of(left, constants) + words_of(right, constants)
        case ast.BinOp(left=left, op=ast.Mod()):
            return re.sub(r"%[srd]", "…", words_of(left, constants))
        case ast.IfExp(body=body, orelse=orelse):
            return words_of(body, constants) or words_of(orelse, constants)
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return re.sub(r"\{\w*\}", "…", words_of(value, constants))
        case ast.Name(id=name) if name in constants:
            return words_of(constants[name], {})
    return "…" if node is not None else ""


def in_python(path: Path) -> Iterator[tuple[str, str]]:
    """Each message of a file with its hint."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        is_list = name == "add" and "problems" in getattr(owner, "attr", getattr(owner, "id", ""))
        if not (CLASSES.fullmatch(name) or FUNCTIONS.fullmatch(name) or OTHER.search(name) or is_list):
            continue
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        texts = list(node.args)
        # the place comes first in these
        if name in ("single", "Problem") or is_list:
            texts = texts[1:]
        # what has no text is a place or a number
        known = [words for words in (words_of(text, constants) for text in texts) if is_message(words)]
        message = words_of(named.get("message") or named.get("msg"), constants) or "".join(known[:1])
        yield message, words_of(named.get("hint"), constants) or "".join(known[1:2])


def in_tasks(path: Path) -> Iterator[tuple[str, str]]:
    """The texts with which tasks of Ansible fail."""

    def below(item: object) -> Iterator[str]:
        if isinstance(item, dict):
            for key, value in item.items():
                if key in ("fail_msg", "msg") and isinstance(value, str):
                    yield value
                else:
                    yield from below(value)
        elif isinstance(item, list):
            for value in item:
                yield from below(value)

    for text in below(yaml.safe_load(path.read_text(encoding="utf-8"))):
        yield re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "…", text, flags=re.DOTALL), ""


def tidy(text: str) -> str:
    """A message as it stands in a table."""
    text = re.sub(r"(…[\s,;:]*)+…", "…", " ".join(text.split()))
    text = text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"
    parts = [part.replace("|", "\\|") for part in text.split("`")]
    # outside of code
    parts[::2] = [re.sub(r"([<>*\[\]]|\b_|_\b)", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def is_message(text: str) -> bool:
    """Not a name, and not a text that comes from elsewhere as a whole."""
    return len(re.findall(r"[a-z]{2,}", text.replace("…", " "), re.IGNORECASE)) >= SHORTEST


def area_of(path: str) -> str:
    """The section of a file's messages."""
    return next((area for start, area in AREAS.items() if path.startswith(f"{start}/")), ELSE)


def messages(root: Path) -> Mapping[str, Mapping[str, str]]:
    """The hint of each message, by section."""
    texts_by_area: defaultdict[str, dict[str, str]] = defaultdict(dict)
    files = [(path, in_python) for top in ("deepopsctl", "plugins") for path in sorted((root / top).rglob("*.py"))]
    files += [(path, in_tasks) for path in sorted(root.glob("roles/*/tasks/*.yml"))]
    files += [(path, in_tasks) for path in sorted(root.glob("playbooks/**/*.yml"))]
    for path, reader in files:
        for message, hint in reader(path):
            if is_message(message):
                section = texts_by_area[area_of(path.relative_to(root).as_posix())]
                text = tidy(message)
                section[text] = section.get(text) or (tidy(hint) if is_message(hint) else "")
    return texts_by_area


def messages_page(root: Path) -> str:
    """The page."""
    texts_by_area = messages(root)
    parts = [INTRO]
    for area in dict.fromkeys((ELSE, *AREAS.values())):
        rows = sorted(texts_by_area[area].items(), key=lambda row: re.sub(r"\W", "", row[0]).lower())
        parts.append(f"\n## {area}\n\n| Message | What to do |\n|---|---|\n")
        parts += [f"| {message} | {hint} |\n" for message, hint in rows]
    return "".join(parts)
