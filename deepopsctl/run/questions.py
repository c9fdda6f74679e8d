"""Questions to nodes without Ansible: a node that needs nothing costs one ssh command, and no play.

What a node is asked was worked out by Ansible once, from the inventory and all variables: a run keeps the arguments of
its read-only modules, with the digest of everything that they were made from. As long as that stays the same, the same
questions are asked directly (module_utils/node/questions.py). Where an answer is anything but good, or a site reaches
its nodes in a way that only Ansible knows, Ansible asks as it always did.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from deepopsctl.cluster.ssh_login import cheap_exchange, withheld, without_variables
from deepopsctl.cluster.way import Way, one_of_each_kind
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.node_programs import shipping
from deepopsctl.node_programs._shared.archive import argv
from deepopsctl.node_programs._shared.program import RESULT_MARK
from deepopsctl.run import fan_out
from deepopsctl.run.question_program import ABSENT, INSTALL, MARK, START, archive, version
from deepopsctl.run.request import RunRequest, control_dir, default_width
from deepopsctl.text.answers import RequiredFields, items
from deepopsctl.text.printable import printable_tree

Arguments = Mapping[str, Any]
Answer = Mapping[str, Any]
Answers = Mapping[str, Sequence[Answer]]

# the modules and the node program that answer, and the playbooks that ask nothing else
GATE, INFO, DOCTOR, NODE_CLASS = "drift_check", "node_info", "node_doctor", "node_class"
# programs that come with the question, and leave nothing on a node that may have no deploy yet
_FROM_MEMORY = (DOCTOR, NODE_CLASS)
STATUS, JOBS = "operate/cluster/status", "operate/cluster/jobs"
DOCTOR_PLAYBOOK, SLURM_INFO = "operate/cluster/doctor", "operate/nodes/slurm-info"
# seconds for a node that is asked before a deploy, or by the doctor
GATE_S = 60.0
# seconds in which the first controller is asked in a wait, with those that it may wait itself
_SLURM_S = 180.0
# as these playbooks ask the first controller
_JOBS: Arguments = {"components": [], "digests": {}, "slurm": True, "slurm_wait": 0, "slurm_timeout": 30}
_SLURM: Arguments = {**_JOBS, "slurm_wait": 20}
_KINDS: Mapping[tuple[str, ...], str] = {(STATUS,): INFO, (DOCTOR_PLAYBOOK,): DOCTOR}
# variables of a run that no question depends on, or that follow from what the digest covers
_WITHOUT_EFFECT = {"deepops_hold_waiting", "deepops_node_timeout", "deepops_doctor_names"}
_MODULES = {f"deepopsctl.cluster.{name}": name for name in (GATE, INFO, "node_program")}
# what the doctor's program prints at once, and the seconds in which it does: ssh's for a connection, Ansible's for sudo
BEGUN = "DEEPOPSCTL-BEGUN"
_BEGIN_S = 20.0
_SSH_FAILED = 255
_DROPPED = re.compile(r"\Akex_exchange_identification: (?!.*(open failed|timed out))", re.DOTALL)
# of the ten that ssh waits at most, or the five of `status`
_STARVED_S = 1.0
_GIVEN_UP = re.compile("timed out|not responding")
# fewer logins than a sshd lets wait, by default, with room for others
_FEW = 5
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
        if module != GATE:
            if arguments.get("name") == DOCTOR:
                self._add(DOCTOR, node, arguments["input"])
            return
        for entry in arguments.get("run") or ():
            if entry["component"] != arguments["component"]:
                self._add(gate(entry["component"]), node, _gate_arguments(entry), known=True)
        self._add(gate(arguments["component"]), node, _gate_arguments(arguments))
        if arguments.get("status"):
            self._add(INFO, node, arguments["status"])

    def _add(self, question: str, node: str, arguments: Arguments, *, known: bool = False) -> None:
        nodes = self.asked.setdefault(question, {})
        if not (known and node in nodes) and nodes.get(node) != arguments:
            nodes[node] = arguments
            self._new = True


def gate_arguments(raw: Mapping[str, Any]) -> tuple[str, Arguments]:
    """Of an event of a gate, its node, and what that asked of a node that has work; {} for other events."""
    data = raw.get("event_data") or {}
    module = _MODULES.get(str(data.get("task_action")))
    arguments = ((data.get("res") or {}).get("invocation") or {}).get("module_args") or {} if module == GATE else {}
    asked = {name: arguments[name] for name in ("needs", "requires") if arguments.get(name)}
    return str(data.get("host")), asked


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
    """One question to a node: the module or program that answers it, and its arguments."""

    module: str
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

    A deploy needs every node's questions: where one has work, the plays have to know about all of them. It asks about
    its components up to the first that is not known. Of other requests, a node whose questions are not known is asked
    for a sign of life.
    """
    nodes, controller = _nodes(request, cluster), cluster.controllers[0].name
    if request.playbooks == (SLURM_INFO,):
        return {node.name: (Question(INFO, _SLURM),) for node in nodes if node.name == controller}
    if kind := _KINDS.get(request.playbooks):
        asked = memory.asked.get(kind, {})
        questions = {node.name: [Question(kind, asked[node.name])] if node.name in asked else [] for node in nodes}
        return questions if any(questions.values()) else {}
    more = request.playbooks[len(request.components) :]
    if not request.components or request.full or request.tags or more not in ((), (JOBS,)):
        return {}
    every = {name: memory.asked.get(gate(name), {}) for name in request.components}
    gates = dict(takewhile(lambda each: all(node.name in each[1] for node in nodes), every.items()))
    if not gates:
        return {}
    questions = {
        node.name: [
            Question(GATE, {**asked[node.name], "digests": {name: memory.digests[gate(name)]}})
            for name, asked in gates.items()
        ]
        for node in nodes
    }
    if more and questions and gates == every:
        questions.setdefault(controller, []).append(Question(INFO, _JOBS))
    return questions


def components_left(request: RunRequest, asked: Questions, replies: Replies) -> tuple[str, ...]:
    """The components of a deploy from the first on that has work, or is not known: it may change a later answer."""
    if asked.keys() - replies.answers.keys():
        return request.components
    settled = (
        [question.is_settled(answer) for question, answer in zip(each, replies.answers[name], strict=True)]
        for name, each in asked.items()
    )
    # the shortest is that of a node that is asked about no jobs: as many as components are known
    together = [all(answers) for answers in zip(*settled, strict=False)]
    return request.components[len(list(takewhile(bool, together))) :]


def nodes_left(asked: Questions, replies: Replies) -> tuple[str, ...]:
    """The nodes that neither answered nor were found to be silent."""
    return tuple(name for name in asked if name not in replies.answers and name not in replies.silent)


def _nodes(request: RunRequest, cluster: Cluster) -> tuple[Node, ...]:
    """The nodes that can be asked what was worked out from the inventory as it is."""
    hosts = request.directory.hosts
    if request.inventory and request.inventory != hosts.read_text(encoding="utf-8"):
        return ()
    return reachable_nodes(request, cluster)


def reachable_nodes(request: RunRequest, cluster: Cluster) -> tuple[Node, ...]:
    """The nodes of a request that can be asked as Ansible would; none where the site has ways of its own."""
    directory, variables = request.directory, request.user_vars
    if request.ssh_password is not None or request.verbosity:
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


def without_secrets(request: RunRequest, cluster: Cluster) -> RunRequest:
    """The same with a cheaper key exchange, where no password and no connection of a deploy's goes its way."""
    secret = request.become_password is not None or not reachable_nodes(request, cluster)
    return request if secret else replace(request, ssh={**request.ssh, **cheap_exchange()})


@dataclass(frozen=True, slots=True)
class Replies:
    """What nodes answered; of those that are silent, what Ansible would report: the kind of event, and its message."""

    answers: Answers
    silent: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Form:
    """How questions are put: the command, what it reads before and after them, what it prints before its answers.

    A node that says nothing at all for `begin_s` seconds is left to Ansible, which knows why its sudo does not work.
    """

    words: Sequence[str]
    mark: str
    before: bytes = b""
    after: bytes = b""
    begin_s: float = 0

    def data(self, questions: Sequence[Question]) -> bytes:
        """The input of the command."""
        if questions[0].module in _FROM_MEMORY:
            text = json.dumps({**questions[0].arguments, "check_mode": False})
        else:
            text = json.dumps([{"question": each.module, "arguments": each.arguments} for each in questions])
        return self.before + text.encode() + b"\n" + self.after

    def answers(self, sent: fan_out.Answer, questions: Sequence[Question]) -> Sequence[Answer]:
        """The good ones: as many as questions, none of which is a failure; else none at all."""
        try:
            parsed = printable_tree(json.loads(sent.output.rpartition(self.mark.encode())[2]))
        except (ValueError, RecursionError):
            # the second is what a node nests too deeply
            return ()
        parts = [_timed(parsed, sent)] if questions[0].module in _FROM_MEMORY else items(parsed)
        good = [each for each in parts if isinstance(each, Mapping) and "msg" not in each]
        return good if len(good) == len(parts) == len(questions) else ()


def _timed(answer: object, sent: fan_out.Answer) -> object:
    """The answer of a program from memory, with when the node was asked, as the module `node_program` adds it."""
    facts = answer.get("deepops") if isinstance(answer, Mapping) else None
    if not isinstance(facts, Mapping):
        return None
    return {"deepops": {**facts, "call": {"asked": {"before": sent.began, "after": sent.ended}, "sudo": ""}}}


def _standing(content: Path) -> _Form:
    return _Form(["/usr/bin/python3", "-IBc", START, version(content)], MARK)


def _bringing(content: Path) -> _Form:
    """For a node that lacks the program, or has that of another release."""
    return _Form(["/usr/bin/python3", "-IBc", INSTALL + START, version(content)], MARK, after=archive(content))


def _from_memory(name: str) -> _Form:
    """For a program that changes nothing on a node, and may come before the first deploy."""
    python, isolated, option, text, *arguments = argv("_shared.program", shipping.place(name))
    words = [python, isolated, option, f"print({BEGUN!r}, flush=True)\n{text}", *arguments]
    return _Form(words, RESULT_MARK, before=base64.b64encode(shipping.archive(name)) + b"\n", begin_s=_BEGIN_S)


def ask(request: RunRequest, cluster: Cluster, asked: Questions, content: Path, stopped: Callable[[], bool]) -> Replies:
    """Ask nodes their questions at the same time; the program comes to a node that lacks it in a second call."""
    # a node may be asked for no more than a sign of life
    module = next((each[0].module for each in asked.values() if each), "")
    form = _from_memory(module) if module in _FROM_MEMORY else _standing(content)
    sockets = None if "ControlPath" in request.ssh else control_dir(request.directory.path, os.environ)
    user, password = request.user or cluster.access.user, request.become_password or ""
    way = Way(request.directory, cluster, user, request.ssh, sockets, password)
    nodes = [node for node in cluster.nodes if node.name in asked]
    start = without_variables(withheld(map(way.target, one_of_each_kind(nodes)), os.environ))
    answers: dict[str, fan_out.Answer] = {}

    def ask_with(form: _Form, nodes: Iterable[Node], width: int) -> None:
        def call(node: Node) -> fan_out.Call:
            each = asked[node.name]
            command = [*start, *way.command(node, form.words if each else ["true"], as_root=bool(each))]
            data = way.data(form.data(each)) if each else b""
            most = fan_out.MOST_BYTES_OF_SLURM if _is_of_slurm(each) else fan_out.MOST_BYTES
            limit_s = _limit_s(request, cluster, each)
            return fan_out.Call(node.name, command, data, limit_s, most, form.begin_s)

        answers.update(fan_out.ask_all(map(call, nodes), width=width, stopped=stopped))

    width = request.forks or default_width()
    ask_with(form, nodes, width)
    if again := [
        node for node in nodes if (sent := answers.get(node.name)) and (_is_dropped(sent) or _is_starved(sent))
    ]:
        ask_with(form, again, _FEW)
    if absent := [node for node in nodes if node.name in answers and answers[node.name].status == ABSENT]:
        ask_with(_bringing(content), absent, width)
    good = {
        name: answer
        for name, sent in answers.items()
        if asked[name] and sent.status == 0 and (answer := form.answers(sent, asked[name]))
    }
    silent = {
        name: reason
        for name, sent in answers.items()
        if (reason := _silence(sent, _limit_s(request, cluster, asked[name]), form))
    }
    return Replies(good, silent)


def _is_of_slurm(questions: Iterable[Question]) -> bool:
    return any(question.arguments.get("slurm") for question in questions)


def _limit_s(request: RunRequest, cluster: Cluster, questions: Iterable[Question]) -> float:
    """Seconds for one node, as the playbook has them."""
    if request.playbooks == (SLURM_INFO,):
        return _SLURM_S
    limit_s = float(str(request.extra_vars.get("deepops_node_timeout", GATE_S)))
    # Slurm's commands ask a controller that is away for a while, before they ask the next one
    return limit_s * (3 if _is_of_slurm(questions) and cluster.controllers[1:] else 1)


def _is_dropped(sent: fan_out.Answer) -> bool:
    """Whether a sshd hung up before any login: that of a jump host does, where many come at once."""
    return sent.status == _SSH_FAILED and bool(_DROPPED.search(sent.errors))


def _is_starved(sent: fan_out.Answer) -> bool:
    """Whether ssh gave a node up by its own clock, while this machine kept it from running."""
    return sent.status == _SSH_FAILED and sent.starved_s > _STARVED_S and bool(_GIVEN_UP.search(sent.errors))


def _silence(sent: fan_out.Answer, limit_s: float, form: _Form) -> tuple[str, str] | None:
    """What Ansible would report of a node that can't be reached, or has not ended in time; of others, it finds out."""
    if sent.status == _SSH_FAILED:
        return "runner_on_unreachable", f"Failed to connect to the host via ssh: {sent.errors.rstrip()}"
    if sent.late and (not form.begin_s or BEGUN.encode() in sent.output):
        return "runner_on_failed", f"Timed out after {limit_s:g} second(s)."
    return None
