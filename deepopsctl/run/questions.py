"""Questions to nodes without Ansible: a node that needs nothing costs one ssh command, and no play.

What a node is asked was worked out by Ansible once, from the inventory and all variables: a run keeps the arguments of
its read-only modules, with the digest of everything that they were made from. As long as that stays the same, the same
questions are asked directly (module_utils/node/questions.py). Where an answer is anything but good, or a site reaches
its nodes in a way that only Ansible knows, Ansible asks as it always did.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from deepopsctl.cluster.ssh_login import withheld, without_variables
from deepopsctl.cluster.way import Way, one_of_each_kind
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.run import fan_out
from deepopsctl.run.request import RunRequest, control_dir, default_forks
from deepopsctl.text.answers import RequiredFields
from deepopsctl.text.printable import printable_tree

Arguments = Mapping[str, Any]
Answer = Mapping[str, Any]
Answers = Mapping[str, Sequence[Answer]]

# the modules that answer, and the playbooks that ask nothing else: `status`, and the last one of a plan
GATE, INFO = "drift_check", "node_info"
STATUS, JOBS = "operate/cluster/status", "operate/cluster/jobs"
# seconds for a node that is asked before a deploy
GATE_S = 60.0
# as that playbook asks the first controller
_JOBS: Arguments = {"components": [], "digests": {}, "slurm": True, "slurm_wait": 0, "slurm_timeout": 30}
# variables of a run that no question depends on
_WITHOUT_EFFECT = {"deepops_hold_waiting", "deepops_node_timeout"}
_MODULES = {f"deepopsctl.cluster.{name}": name for name in (GATE, INFO)}
_UTILS = "ansible_collections.deepopsctl.cluster.plugins.module_utils"
_ENTRY = "node.questions"
_MARK = b"DEEPOPSCTL-ANSWER "
_PROGRAMS = "/var/lib/deepopsctl/programs"
_TIME = (2026, 1, 1, 0, 0, 0)
# the program of another release stays for another control machine
_KEPT = 3
_ABSENT = 96
_START = f"""
import sys
sys.path.insert(0, "{_PROGRAMS}/" + sys.argv[1])
try:
    from {_UTILS}.{_ENTRY} import main
except ModuleNotFoundError:
    sys.exit({_ABSENT})
main()
"""
# whole or not at all; the second line of input has the archive, the first is for the program
_INSTALL = f"""
import base64, compileall, io, os, shutil, sys, tempfile, zipfile
asked, data = sys.stdin.buffer.readline(), base64.b64decode(sys.stdin.buffer.readline())
os.makedirs("{_PROGRAMS}", 0o700, exist_ok=True)
new = tempfile.mkdtemp(dir="{_PROGRAMS}")
zipfile.ZipFile(io.BytesIO(data)).extractall(new)
compileall.compile_dir(new, quiet=2)
try:
    os.rename(new, "{_PROGRAMS}/" + sys.argv[1])
except OSError:
    shutil.rmtree(new)
old = sorted((each for each in os.scandir("{_PROGRAMS}")), key=lambda each: -each.stat().st_mtime)
for each in old[{_KEPT}:]:
    shutil.rmtree(each.path, ignore_errors=True)
sys.stdin = io.TextIOWrapper(io.BytesIO(asked))
"""
# of the site's own variables: how a node is reached
_CONNECTION = re.compile(r"^\s*[\"']?ansible_(?!managed)", re.MULTILINE)


@dataclass(slots=True)
class Memory:
    """The arguments of a cluster's questions, by question and node, each for one digest.

    `digests` are those of this run, by question.
    """

    digests: Mapping[str, str]
    asked: dict[str, dict[str, Arguments]] = field(default_factory=dict)
    _new: bool = False

    @classmethod
    def load(cls, path: Path, digests: Mapping[str, str]) -> Memory:
        """What is known for these digests; nothing where the file has others, or is none of ours."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            texts, known = document["arguments"], document["digests"]
            asked = {
                question: {node: texts[number] for node, number in nodes.items()}
                for question, nodes in document["asked"].items()
                if known[question] == digests.get(question)
            }
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            asked = {}
        return cls(digests, asked)

    def save(self, path: Path) -> None:
        """Keep it, if there is anything new; equal arguments of many nodes stand there once."""
        if not self._new:
            return
        numbers: dict[str, int] = {}
        asked = {
            question: {
                node: numbers.setdefault(json.dumps(arguments, sort_keys=True), len(numbers))
                for node, arguments in nodes.items()
            }
            for question, nodes in self.asked.items()
        }
        digests = {question: self.digests.get(question, "") for question in asked}
        document = {"digests": digests, "arguments": list(map(json.loads, numbers)), "asked": asked}
        write_atomic(path, json.dumps(document) + "\n", mode=0o600)

    def note(self, raw: Mapping[str, Any]) -> None:
        """Take the arguments from an event of Ansible's, if it is one of a question."""
        data = raw.get("event_data") or {}
        module = _MODULES.get(str(data.get("task_action")))
        invocation = (data.get("res") or {}).get("invocation") if module else None
        if not isinstance(invocation, Mapping) or raw.get("event") != "runner_on_ok":
            return
        node, arguments = str(data.get("host")), invocation.get("module_args") or {}
        if module == INFO:
            # without components it is a question about jobs, which may be delegated
            if arguments.get("components"):
                self._add(INFO, node, arguments)
            return
        for entry in arguments.get("run") or ():
            if entry["component"] != arguments["component"]:
                self._add(gate(entry["component"]), node, _gate_arguments(entry), known=True)
        self._add(gate(arguments["component"]), node, _gate_arguments(arguments))

    def _add(self, question: str, node: str, arguments: Arguments, *, known: bool = False) -> None:
        nodes = self.asked.setdefault(question, {})
        if not (known and node in nodes) and nodes.get(node) != arguments:
            nodes[node] = arguments
            self._new = True


def gate(component: str) -> str:
    """The question whether a node needs anything of a component."""
    return f"{GATE} {component}"


def _gate_arguments(arguments: Arguments) -> Arguments:
    """Without what is only asked of a node that has work."""
    kept = {"component": arguments["component"], "steps": arguments["steps"]}
    kept["registered"], kept["foreign"] = arguments.get("registered", []), arguments.get("foreign", False)
    return {**kept, "run": [], "needs": {}, "requires": {}}


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a node: the module that answers it, its arguments, and the component in reports."""

    module: str
    component: str
    arguments: Arguments

    def is_settled(self, answer: Answer) -> bool:
        """Whether a play would do nothing on the node: not for it, and not for what an earlier deploy left there."""
        if self.module != GATE:
            return True
        fields = RequiredFields.of(answer)
        try:
            left = set(fields.texts("recorded")) - set(self.arguments["steps"])
            trouble = fields.yes("restore_begun") or fields.texts("unregistered") or fields.part("foreign").values
            return fields.yes("clean") and not left and not trouble
        except ValueError:
            return False


Questions = Mapping[str, Sequence[Question]]


def is_repeatable(request: RunRequest) -> bool:
    """Whether the digest covers all that the questions are made from: a command's own variables are not in it."""
    return request.extra_vars.keys() <= _WITHOUT_EFFECT


def known(request: RunRequest, cluster: Cluster, memory: Memory) -> Questions:
    """What the nodes of a request are asked, by node; empty where Ansible has to work it out, or has work for sure.

    A deploy needs every node's questions: where one has work, the plays have to know about all of them.
    """
    more = request.playbooks[len(request.components) :]
    is_status = request.playbooks == (STATUS,)
    if not is_status and (not request.components or request.full or request.tags or more not in ((), (JOBS,))):
        return {}
    nodes = _nodes(request, cluster)
    if is_status:
        asked = memory.asked.get(INFO, {})
        return {
            node.name: (Question(INFO, request.component or "status", asked[node.name]),)
            for node in nodes
            if node.name in asked
        }
    gates = {name: memory.asked.get(gate(name), {}) for name in request.components}
    if not all(node.name in asked for node in nodes for asked in gates.values()):
        return {}
    questions = {
        node.name: [
            Question(GATE, name, {**asked[node.name], "digests": {name: memory.digests[gate(name)]}})
            for name, asked in gates.items()
        ]
        for node in nodes
    }
    controller = next(node.name for node in cluster.nodes if "controller" in node.roles)
    if more and questions:
        questions.setdefault(controller, []).append(Question(INFO, "jobs", _JOBS))
    return questions


def left_for_ansible(request: RunRequest, cluster: Cluster, asked: Questions, answers: Answers) -> tuple[str, ...]:
    """The nodes that Ansible has to ask: those without an answer; all of them where one has work."""
    wanted = request.limit.split(",") if request.limit else [node.name for node in cluster.nodes]
    left = tuple(name for name in wanted if name not in answers)
    work = not all(
        question.is_settled(answer)
        for name, each in answers.items()
        for question, answer in zip(asked[name], each, strict=True)
    )
    return tuple(wanted) if work or (left and request.components) else left


def _nodes(request: RunRequest, cluster: Cluster) -> tuple[Node, ...]:
    """The nodes of a request that can be asked as Ansible would; none where the site has ways of its own."""
    directory, variables = request.directory, request.user_vars
    if request.ssh_password is not None or request.become_password is not None or request.verbosity:
        return ()
    if request.inventory and request.inventory != directory.hosts.read_text(encoding="utf-8"):
        return ()
    if (directory.path / "ansible.cfg").exists() or any(name.startswith("ANSIBLE_") for name in os.environ):
        return ()
    own = [path for name in ("group_vars", "host_vars") for path in (directory.inventory_dir / name).rglob("*")]
    files = (path for path in (*own, *variables) if isinstance(path, Path) and path.is_file())
    names = (name for values in variables if not isinstance(values, Path) for name in values)
    if any(_CONNECTION.search(text) for text in (*names, *(file.read_text("utf-8", "replace") for file in files))):
        return ()
    wanted = set(filter(None, request.limit.split(",")))
    # a group, or a pattern of Ansible's, is not a node
    is_plain = wanted <= {node.name for node in cluster.nodes}
    return tuple(node for node in cluster.nodes if is_plain and (not wanted or node.name in wanted))


def ask(request: RunRequest, cluster: Cluster, asked: Questions, content: Path, stopped: Callable[[], bool]) -> Answers:
    """Ask nodes their questions at the same time; the answers of those that gave all.

    The program comes to a node that lacks it in a second call.
    """
    limit_s = float(str(request.extra_vars.get("deepops_node_timeout", GATE_S)))
    sockets = None if "ControlPath" in request.ssh else control_dir(request.directory.path, os.environ)
    way = Way(request.directory, cluster, request.user or cluster.access.user, request.ssh, sockets)
    name_there = version(content)
    lines = {
        name: json.dumps([{"question": each.module, "arguments": each.arguments} for each in questions]).encode()
        + b"\n"
        for name, questions in asked.items()
    }
    nodes = [node for node in cluster.nodes if node.name in asked]
    start = without_variables(withheld(map(way.target, one_of_each_kind(nodes)), os.environ))

    def ask_with(text: str, more: bytes, nodes: Iterable[Node]) -> dict[str, fan_out.Answer]:
        words = ["/usr/bin/python3", "-IBc", text, name_there]
        calls = [
            fan_out.Call(node.name, [*start, *way.command(node, words, as_root=True)], lines[node.name] + more)
            for node in nodes
        ]
        return fan_out.ask_all(calls, timeout_s=limit_s, width=request.forks or default_forks(), stopped=stopped)

    answers = ask_with(_START, b"", nodes)
    if absent := [node for node in nodes if node.name in answers and answers[node.name].status == _ABSENT]:
        answers |= ask_with(_INSTALL + _START, archive(content), absent)
    return dict(_read(answers, asked))


def _read(answers: Mapping[str, fan_out.Answer], asked: Questions) -> Iterator[tuple[str, Sequence[Answer]]]:
    """The good ones: as many answers as questions, none of which is a failure."""
    for name, answer in answers.items():
        try:
            parsed = printable_tree(json.loads(answer.output.rpartition(_MARK)[2])) if answer.status == 0 else []
        except (ValueError, RecursionError):
            # the second is what a node nests too deeply
            continue
        if (
            isinstance(parsed, list)
            and len(parsed) == len(asked[name])
            and all(isinstance(each, Mapping) and "msg" not in each for each in parsed)
        ):
            yield name, parsed


def version(content: Path) -> str:
    """The program's hash: of all that its files may be."""
    root, total = content / "plugins" / "module_utils", sha256(_INSTALL.encode())
    for path in sorted(root.rglob("*.py")):
        data = path.read_bytes()
        total.update(f"{path.relative_to(root)}:{len(data)}:".encode() + data)
    return total.hexdigest()


def archive(content: Path) -> bytes:
    """The program for nodes, a line of base64."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as stream:
        for path, text in sorted(_sources(content / "plugins" / "module_utils").items()):
            stream.writestr(zipfile.ZipInfo(f"{_UTILS.replace('.', '/')}/{path}", _TIME), text, zipfile.ZIP_DEFLATED)
    return base64.b64encode(raw.getvalue()) + b"\n"


def _sources(root: Path) -> dict[str, str]:
    """The files that the answers need, by their path below module_utils."""
    texts: dict[str, str] = {}
    missing = {_ENTRY}
    while missing:
        name = missing.pop()
        path = root / f"{name.replace('.', '/')}.py"
        if not path.is_file():
            continue
        texts[path.relative_to(root).as_posix()] = text = path.read_text(encoding="utf-8")
        package = name.rpartition(".")[0]
        missing |= {each for each in _imports(text, package) if f"{each.replace('.', '/')}.py" not in texts}
    return texts


def _imports(text: str, package: str) -> Iterator[str]:
    """Names below module_utils that a file may import: modules, and what may be one."""
    for statement in ast.walk(ast.parse(text)):
        if not isinstance(statement, ast.ImportFrom):
            continue
        module = statement.module or ""
        if statement.level == 1:
            base = f"{package}.{module}".rstrip(".")
        elif module.startswith(_UTILS):
            base = module.removeprefix(_UTILS).lstrip(".")
        else:
            continue
        yield base
        yield from (f"{base}.{alias.name}" for alias in statement.names)
