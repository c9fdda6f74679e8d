"""One run of Ansible, from the request to the outcome. The only module that uses ansible_runner."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from types import FrameType, TracebackType
from typing import Any, BinaryIO

from deepopsctl import __version__
from deepopsctl.certificates.validity import period_of, today
from deepopsctl.cluster.settings import are_compared, require_settings, require_vault_password
from deepopsctl.cluster.ssh_login import Target, withheld
from deepopsctl.cluster.way import one_of_each_kind
from deepopsctl.content import content_dir, playbook
from deepopsctl.errors import ControlMachineError, DeepOpsError
from deepopsctl.model.cluster import Cluster
from deepopsctl.node_programs._shared.waiting import wait_until
from deepopsctl.run import claim as claims, node_classes, questions, supervisor
from deepopsctl.run.desired_state import MEMORY, DesiredState, read_inputs, resolve_desired_state, save_desired_state
from deepopsctl.run.events import (
    Event,
    HostResult,
    ModuleMessage,
    Notice,
    Output,
    RunStarted,
    Status,
    TaskStarted,
    parse,
    plain,
)
from deepopsctl.run.lock import Holder, ansible_lock, cluster_lock
from deepopsctl.run.node_classes import Classes
from deepopsctl.run.outcome import Problem, RunOutcome, RunSummary, Tally, Verdict
from deepopsctl.run.progress import BLOCKED, Progress
from deepopsctl.run.questions import Memory
from deepopsctl.run.request import (
    PlaybookTracker,
    RunRequest,
    arguments,
    control_dir,
    environment,
    join,
    parts_of_plays,
    write_inputs,
)
from deepopsctl.run.workspace import RunDir, Workspace, private_file
from deepopsctl.text.node_sets import fold

log = logging.getLogger(__name__)

# Seconds that a stopped run may take to release the cluster.
RELEASE_S = 30.0
# Seconds between checks for Ctrl-C and timeout: runner's own 5 s are noticeable.
POLL_INTERVAL_S = 0.2
# The node's shell chooses: Ansible can't answer the prompt of sudo-rs (Ubuntu 26.04, ansible/ansible#85837), next to
# which the classic sudo is there as sudo.ws. Where it is not, the word is not a command: its name is the error.
SUDO_THAT_ASKS = (
    "$(command -v sudo.ws || { sudo --version 2>&1 | grep -q sudo-rs && ! sudo -n true 2>/dev/null"
    " && echo sudo-rs-with-a-password; } || echo sudo)"
)
ERROR_LINES = 20
# What a report says of a question without Ansible: play and task, of some as their playbooks have them.
QUESTION = ("Compare the nodes with their last good deploy", "Ask the node")
QUESTIONS = {questions.DOCTOR_PLAYBOOK: ("Check the nodes", "Query every node's state")}

Watch = Callable[[Event], None]

# The supervisor needs about a second; after this time runner's own SIGKILL ends it
PATIENCE_S = 8.0

# ssh supports SSH_ASKPASS_REQUIRE since this version
ASKPASS_SINCE = (8, 4)


def run_playbooks(request: RunRequest, on_event: Watch) -> RunOutcome:
    """Run playbooks on a cluster under its lock; `on_event` gets every event as it happens."""
    _require_all(request)
    with cluster_lock(request.directory.runs, f"deepopsctl {request.command}"):
        outcome = _locked_run(request, on_event)
        refusal = _refusal(outcome)
        if refusal and claims.died_here(refusal.holder):
            on_event(
                ModuleMessage("the run that holds the cluster died on this machine: trying again without its lock")
            )
            dead = {**request.claim, "dead": [refusal.holder.get("token")]}
            outcome = _locked_run(replace(request, claim=dead), on_event)
            refusal = _refusal(outcome)
        if refusal:
            refusal.raise_if_refused()
        return outcome


def run_readonly(request: RunRequest, on_event: Watch | None = None) -> RunOutcome:
    """Run a read-only playbook, also while another run has the lock; leaves no run directory."""
    _require_all(request)
    with tempfile.TemporaryDirectory(prefix="deepopsctl-") as scratch:
        run_dir = RunDir(Path(scratch))
        try:
            return _Run(request, run_dir, on_event or (lambda _: None), run_dir.path / "ansible.lock").execute()
        finally:
            _remove_empty_control_dir(request)


def ask(request: RunRequest) -> RunOutcome:
    """Run a read-only playbook for a command that continues from its answer.

    Raises KeyboardInterrupt where the query was cut short: the command ends as well.
    """
    outcome = run_readonly(request)
    if outcome.stopped:
        raise KeyboardInterrupt
    return outcome


class Interrupts:
    """Handles the signals during a run and restores the handlers: runner itself would not restore them."""

    def __init__(self, timeout: float = 0) -> None:
        self.reason: Verdict | None = None
        self._deadline = time.monotonic() + timeout if timeout else None
        self._before: dict[int, Any] = {}
        self._ended = False

    def __enter__(self) -> Interrupts:
        # only the main thread may set handlers; in other threads the caller stops the run
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # nohup's stays ignored
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end_if_wanted(self, pid_file: Path) -> bool:
        """End Ansible if there is a reason to; runner asks this several times a second."""
        if not self.reason and self._deadline is not None and time.monotonic() > self._deadline:
            self.reason = Verdict.TIMEOUT
        if self.reason and not self._ended:
            self._ended = True
            _end(pid_file)
        return self.reason is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.reason = self.reason or Verdict.INTERRUPTED


def require_ssh() -> None:
    """Refuse to begin without an ssh client."""
    if shutil.which("ssh") is None:
        raise ControlMachineError(
            "this machine has no ssh client",
            "install openssh-client (Debian, Ubuntu) or openssh-clients (RHEL, Rocky)",
        )


def password_mechanism() -> str:
    """Ansible's name of the way to pass a login password to the ssh of this machine."""
    version = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    return mechanism_for(version, has_sshpass=shutil.which("sshpass") is not None)


def mechanism_for(version: str, *, has_sshpass: bool) -> str:
    """The same from the output of `ssh -V`; an older ssh without sshpass is an error."""
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) >= ASKPASS_SINCE:
        return "ssh_askpass"
    if not has_sshpass:
        raise ControlMachineError(f"the ssh of this machine ({match[0]}) needs sshpass for -k", "install sshpass")
    return "sshpass"


def _locked_run(request: RunRequest, on_event: Watch) -> RunOutcome:
    run_dir = Workspace(request.directory.runs).new_run(request.command, request.keep_runs)
    ansible_run = _Run(request, run_dir, on_event, ansible_lock(request.directory.runs))
    try:
        return ansible_run.execute()
    finally:
        # variables, limit, environment: removed with the run
        shutil.rmtree(run_dir.private, ignore_errors=True)
        if ansible_run.holds:
            _release(request, ansible_run.seen)
        _remove_empty_control_dir(request)


def _refusal(outcome: RunOutcome) -> claims.Answer | None:
    """The first controller's answer if it refused the run."""
    answers = (claims.parse_answer(result.data) for result in outcome.summary.results)
    return next((answer for answer in answers if answer and answer.state == "refused"), None)


def _release(request: RunRequest, components: Iterable[str]) -> None:
    """Release the cluster if the run itself did not; an unreachable controller's lock is found stale later."""
    done = [name for name in request.components if name in components]
    variables = {"deepops_claim_state": "released", "deepops_claim_components": done}
    again = replace(
        request, playbook=claims.PLAYBOOK, more=(), limit="", tags="", extra_vars=variables, timeout=RELEASE_S,
        command="release", verbosity=0,
    )  # fmt: skip
    with suppress(DeepOpsError):
        run_readonly(again)


def _require_all(request: RunRequest) -> None:
    """Raise for errors that Ansible would report without the file name."""
    require_ssh()
    require_settings(request.directory, request.content or content_dir())
    require_vault_password(request.directory, os.environ)


def _destinations(request: RunRequest) -> list[Target]:
    """A node of each kind, as Ansible's ssh has it."""
    if not request.directory.spec.is_file():
        return []
    cluster = request.directory.cluster()
    nodes = one_of_each_kind(cluster.nodes)
    return [Target(node.name, node.address or node.name, cluster.access.user) for node in nodes]


def _remove_empty_control_dir(request: RunRequest) -> None:
    with suppress(OSError):
        # works only if empty: open connections stay for the next run
        control_dir(request.directory.path, os.environ).rmdir()


@dataclass(slots=True)
class _Run:
    request: RunRequest
    run_dir: RunDir
    on_event: Watch
    lock: Path
    tally: Tally = field(default_factory=Tally)
    progress: Progress = field(default_factory=Progress)
    tracker: PlaybookTracker = field(default_factory=PlaybookTracker)
    # output outside any task; bounded, because -vvv prints much
    loose_output: deque[str] = field(default_factory=lambda: deque(maxlen=500))
    _desired: DesiredState | None = None
    _memory: Memory = field(default_factory=lambda: Memory({}))
    _classes: Classes = field(default_factory=Classes)
    _blocked: tuple[Problem, ...] = ()
    # the arguments of each node's gate
    _gates: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    # components of which a node has had a task
    seen: set[str] = field(default_factory=set)
    _claim_state: str = ""
    _controller: str = ""
    _events: BinaryIO | None = None
    _log: BinaryIO | None = None

    def execute(self) -> RunOutcome:
        started = time.monotonic()
        if self.request.directory.spec.is_file():
            self.request = self.request.for_nodes(self.request.directory.cluster())
        request, run_dir = self.request, self.run_dir
        content = request.content or content_dir()
        run_dir.private.mkdir(mode=0o700)
        run_dir.write(run_dir.request, self._request_object())
        # a playbook that is not there ends a run before a node is asked
        self._playbooks(content)
        variables = self._variables(content)
        with (
            Interrupts(request.timeout) as interrupts,
            private_file(run_dir.events) as self._events,
            private_file(run_dir.log) as self._log,
        ):
            if self._is_answered(content, interrupts):
                return_code = 0
            else:
                # without the components that the answers have settled
                variables["deepops_components"] = list(self.request.components)
                variables["deepops_same_as"] = self._classes.variable()
                write_inputs(self.request, variables, content, run_dir.private)
                playbooks = join(*self._playbooks(content), run_dir.private)
                self._take(RunStarted(tuple(parts_of_plays(playbooks))))
                return_code = self._call_ansible(
                    arguments(self.request, playbooks, run_dir.private), content, interrupts
                )
                self._verify_classes(content, interrupts)
        progress, stopped = self.progress, interrupts.reason
        self._note_unknown()
        outcome = RunOutcome(
            run_dir,
            request.command,
            self._summary(return_code, stopped),
            round(time.monotonic() - started, 2),
            return_code,
            stopped,
            at=progress.title if stopped else "",
            pending=progress.unfinished if stopped else (),
            same=self._classes.result(self._blocked),
        )
        run_dir.write(run_dir.summary, outcome.as_object())
        if self._remembers:
            with suppress(OSError):
                self._memory.save(self._memory_file)
        if self._desired and request.deploys and not request.check:
            # for any outcome: a node stores the digest only for the steps that succeeded there
            save_desired_state(self._desired, request.directory.hardware, self._last_state)
            if self._claim_state in ("taken", "released") or (outcome.ok and not request.limit):
                claims.record_applied(request.directory)
        return outcome

    def _playbooks(self, content: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """The request's playbooks; and those of them that are joined."""
        every, together = (
            tuple(playbook(name, content) for name in self._with_release(names))
            for names in (self.request.playbooks, self.request.together)
        )
        return every, together

    @property
    def holds(self) -> bool:
        """Whether the cluster was claimed and not released."""
        return self._claim_state == "taken"

    @property
    def _changes_nodes(self) -> bool:
        return self.request.deploys and not self.request.check

    def _with_release(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The playbooks, with the release of the cluster after the components."""
        if not self._changes_nodes:
            return names
        end = names.index(self.request.components[-1]) + 1
        return (*names[:end], claims.PLAYBOOK, *names[end:])

    @property
    def _last_state(self) -> Path:
        return self.request.directory.runs / MEMORY

    @property
    def _remembers(self) -> bool:
        return self.request.directory.spec.is_file() and questions.is_repeatable(self.request)

    @property
    def _memory_file(self) -> Path:
        return self.request.directory.runs / "questions.json"

    def _is_answered(self, content: Path, interrupts: Interrupts) -> bool:
        """Ask the nodes without Ansible what it asked before; whether nothing is left for Ansible."""
        request = self.request
        if not self._remembers:
            return False
        self._memory = Memory.load(self._memory_file, self._digests())
        cluster = request.directory.cluster()
        pid_file = self.run_dir.private / "supervisor.pid"

        def stopped() -> bool:
            return interrupts.end_if_wanted(pid_file)

        if self._forms_classes(cluster, content, stopped):
            return interrupts.reason is not None or not self.request.limit
        request = self.request
        asked = questions.known(request, cluster, self._memory)
        if not asked:
            return False
        if not request.components:
            self._take(self._question_begins())
        replies = questions.ask(request, cluster, asked, content, stopped)
        if interrupts.reason:
            return True
        if request.components:
            left = questions.components_left(request, asked, replies)
            if left == request.components:
                return False
            self._take(self._question_begins())
            self._report(replies)
            # what comes after the components stays
            names = (*left, *request.playbooks[len(request.components) :])
            self.request = replace(request, playbook=names[0], more=names[1:]) if left else request
            return not left
        self._report(replies)
        silent = questions.nodes_left(asked, replies)
        self.request = replace(request, limit=",".join(silent))
        return not silent

    def _forms_classes(self, cluster: Cluster, content: Path, stopped: Callable[[], bool]) -> bool:
        """Ask nodes without a deploy which of them are the same; whether Ansible has to check one of each."""
        request = self.request
        declared = node_classes.candidates(request, cluster) if request.by_class and request.check else {}
        if not declared:
            return False
        self._take(self._question_begins())
        self._classes = classes = node_classes.ask(request, cluster, declared, content, stopped)
        for problem in classes.blocked:
            self.on_event(ModuleMessage(f"{BLOCKED}{fold(problem.nodes)}: {problem.message}"))
        for text in classes.others:
            self.on_event(ModuleMessage(text))
        self._warn(classes.warnings)
        self._report(questions.Replies({}, classes.silent))
        if not classes.like and not classes.silent:
            return False
        self.request = replace(request, limit=",".join(node_classes.left(request, cluster, classes)))
        return bool(classes.like) or not self.request.limit

    def _verify_classes(self, content: Path, interrupts: Interrupts) -> None:
        """Ask the nodes that Ansible did not check what a deploy would refuse there."""
        classes, cluster = self._classes, self.request.directory.cluster()
        if not classes.like or interrupts.reason:
            return
        changes = self.tally.summary().changes
        urls = {name: node_classes.added_sources(changes, name) for name in set(classes.like.values())}
        pid_file = self.run_dir.private / "supervisor.pid"
        self._take(self._question_begins())
        blocked, warnings, replies = node_classes.verify(
            replace(self.request, limit=""), cluster, classes, self._gates, urls, content,
            lambda: interrupts.end_if_wanted(pid_file),
        )  # fmt: skip
        self._warn(warnings)
        self._report(questions.Replies(dict.fromkeys(replies.answers, ()), replies.silent))
        self._blocked = blocked

    def _warn(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.tally.add(Notice("warning", f"{fold(problem.nodes)}: {problem.message}"))

    def _question_begins(self) -> TaskStarted:
        component = self.request.component or PurePath(self.request.playbook).name
        return TaskStarted(component, *QUESTIONS.get(self.request.playbook, QUESTION), time.time())

    def _report(self, replies: questions.Replies) -> None:
        """The replies as events, as if one task had ended on each node."""
        begun = self._question_begins()
        for node, each in replies.answers.items():
            data = tuple(answer["deepops"] for answer in each if isinstance(answer.get("deepops"), Mapping))
            self._take(HostResult(node, begun.component, begun.play, begun.task, Status.OK, 0.0, begun.at, data=data))
        for node, (kind, message) in replies.silent.items():
            fault = {"host": node, "play": begun.play, "task": begun.task, "res": {"msg": message}}
            if event := parse({"event": kind, "event_data": fault}, begun.component):
                self._take(event)

    def _summary(self, return_code: int, stopped: Verdict | None) -> RunSummary:
        summary = self.tally.summary()
        if stopped or return_code == 0 or summary.failed:
            return summary
        # Ansible failed outside any task; its code 4 is explained by unreachable hosts alone
        text = _errors(self.loose_output)
        if not text and not summary.unreachable:
            text = "\n".join([*list(self.loose_output)[-8:], f"ansible-playbook ended with code {return_code}"])
        return self.tally.summary(text)

    def _variables(self, content: Path) -> dict[str, object]:
        request = self.request
        user_vars = [str(v) if isinstance(v, Path) else v for v in request.user_vars]
        files = [path.read_text(encoding="utf-8") for path in request.user_vars if isinstance(path, Path)]
        # a certificate belongs to a period: a deploy in a later period renews it
        period = period_of(today())
        # a file with any name: that of the directory service's authority
        people = request.directory.cluster().people if request.directory.people.exists() else None
        named = [request.directory.path / people.directory.ca] if people and people.directory else []
        authority = [path.read_text(encoding="utf-8") for path in named if path.is_file()]
        inputs = read_inputs(content, request.directory.path, [user_vars, files, period, *authority])
        self._desired = resolve_desired_state(inputs, content, request.directory.hardware, self._last_state)
        return {
            **request.extra_vars,
            # not --user: it loses against the inventory's ansible_user
            **({"ansible_user": request.user} if request.user else {}),
            "deepops_cluster_dir": str(request.directory.path),
            "deepops_run_id": self.run_dir.id,
            "deepops_digests": dict(self._desired.components),
            "deepops_full": request.full,
            **({"deepops_claim": self._claim()} if request.deploys or request.playbook == claims.PLAYBOOK else {}),
        }

    def _digests(self) -> dict[str, str]:
        """What the answer to each question depends on."""
        desired = self._desired
        components = {questions.gate(name): digest for name, digest in desired.components.items()} if desired else {}
        return {**dict.fromkeys((questions.INFO, questions.DOCTOR), desired.digest if desired else ""), **components}

    def _claim(self) -> dict[str, object]:
        request = self.request
        variables = claims.claim(request.directory, request.directory.cluster(), request.command, request.claim)
        self._controller = str(variables["controller"])
        return variables

    def _note_claim(self, event: HostResult) -> None:
        """Add warnings about other control machines; a plan lists an older cluster.yml itself."""
        for answer in filter(None, map(claims.parse_answer, event.data)):
            self._claim_state = answer.state
            texts = list(answer.warnings)
            if answer.state == "shown" and answer.refused and not event.data[0].get("blocked"):
                texts.append(f"{answer.message}; {answer.hint}")
            for text in texts:
                self.tally.add(Notice("warning", text))
        if event.task == claims.TASK and event.status is Status.IGNORED:
            self._warn_claim_unknown()

    def _note_unknown(self) -> None:
        if self._changes_nodes and not self._claim_state and self._controller in self.tally.summary().unreachable:
            self._warn_claim_unknown()

    def _warn_claim_unknown(self) -> None:
        text = f"{self._controller} could not be asked whether another control machine works on this cluster"
        self.tally.add(Notice("warning", text))

    def _request_object(self) -> dict[str, object]:
        """The stored request, without variables: they may be secrets."""
        request, me = self.request, Holder.me(self.request.command)
        return {
            "schema": 1, "command": request.command, "run": self.run_dir.id, "playbooks": list(request.playbooks),
            "limit": request.limit, "tags": request.tags, "check": request.check, "full": request.full,
            "started": me.since, "pid": me.pid, "user": me.user, "host": me.host, "version": __version__,
        }  # fmt: skip

    def _call_ansible(self, ansible: list[str], content: Path, interrupts: Interrupts) -> int:
        from ansible_runner import Runner, RunnerConfig

        private = self.run_dir.private
        # Runner.run() instead of interface.run(): that one writes variables and passwords to env/*, and files it
        # finds there override its arguments. The directory is new for every run anyway.
        config = RunnerConfig(
            private_data_dir=str(private / "runner"),
            ident="run",
            playbook=ansible[-1],
            envvars=self._environment(content),
            passwords=_prompts(self.request),
            quiet=True,
            fact_cache_type="memory",
        )
        config.prepare()
        # set here, because prepare() ignores the `settings` argument without a settings file
        config.pexpect_timeout = POLL_INTERVAL_S
        config.suppress_output_file = True
        config.cwd = str(private)
        pid_file = private / "supervisor.pid"
        # -P: the directory of supervisor.py has modules named like the standard library's
        config.command = [
            sys.executable, "-P", supervisor.__file__, str(self.lock), str(pid_file),
            *ansible,
        ]  # fmt: skip
        runner = Runner(
            config,
            event_handler=self._on_raw_event,
            cancel_callback=lambda: interrupts.end_if_wanted(pid_file),
            status_handler=self._on_status,
        )
        _, return_code = runner.run()
        return int(return_code)

    def _environment(self, content: Path) -> dict[str, str]:
        request = self.request
        variables = environment(
            request.directory, content, self.run_dir.private, os.environ, request.ssh, request.patience_s
        )
        if not request.user_vars and are_compared(request.directory, content):
            variables["DEEPOPSCTL_SETTINGS_COMPARED"] = "1"
        variables.update(dict.fromkeys(withheld(_destinations(request), os.environ), ""))
        if request.ssh_password is not None:
            variables["ANSIBLE_SSH_PASSWORD_MECHANISM"] = password_mechanism()
        if request.become_password is not None:
            variables["ANSIBLE_BECOME_EXE"] = SUDO_THAT_ASKS
        return variables

    def _on_status(self, status: Mapping[str, Any], runner_config: Any) -> None:
        """Remove runner's `command` file at once: it has the whole environment in it."""
        if status.get("status") == "running":
            Path(runner_config.artifact_dir, "command").unlink(missing_ok=True)

    def _on_raw_event(self, raw: Mapping[str, Any]) -> bool:
        """Process one event; False prevents runner from writing a file for it."""
        try:
            self._handle(raw)
        except Exception:
            # an exception in here would end the run in the middle of a task
            log.exception("event not understood")
        return False

    def _handle(self, raw: Mapping[str, Any]) -> None:
        text = plain(str(raw.get("stdout") or ""))
        if text:
            _append(self._log, text)
        if text and self.request.verbosity:
            self.on_event(Output(text))
        if self.tracker.update(raw):
            return
        event = parse(raw, self.request.component or self.tracker.playbook_of(raw))
        if text and raw.get("event") in ("verbose", "error"):
            self.loose_output.append(text)
        if event is None:
            return
        self._memory.note(raw)
        node, asked = questions.gate_arguments(raw)
        if asked:
            self._gates[node] = {**self._gates.get(node, {}), **asked}
        self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, HostResult):
            event = claims.result_of_node(event)
        self.tally.add(event)
        self.progress.add(event)
        if isinstance(event, HostResult):
            self.seen.add(event.component)
            self._note_claim(event)
        if isinstance(event, HostResult):
            _append(self._events, json.dumps(_line(event), ensure_ascii=False))
        try:
            self.on_event(event)
        except Exception:
            log.exception("event not shown")


def _append(file: BinaryIO | None, line: str) -> None:
    """Add a line to a file of the run; on a full disk it is lost at worst, and never the event's result."""
    if file:
        with suppress(OSError):
            file.write(line.encode() + b"\n")
            file.flush()


def _line(event: HostResult) -> dict[str, object]:
    entry: dict[str, object] = {
        "host": event.host, "play": event.play, "task": event.task, "component": event.component,
        "status": str(event.status), "changed": event.changed, "elapsed_s": event.elapsed_s, "at": round(event.at, 3),
    }  # fmt: skip
    if event.message:
        entry["message"] = event.message
    return entry


def _errors(loose_output: Iterable[str]) -> str:
    """Ansible's output outside any task, from its first error on: a playbook or inventory it can't use."""
    lines = "\n".join(loose_output).splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith("[ERROR]")), None)
    return "\n".join(lines[first : first + ERROR_LINES]).removeprefix("[ERROR]: ") if first is not None else ""


def _prompts(request: RunRequest) -> dict[str, str]:
    """Answers to Ansible's own prompts, given on its terminal.

    The safest way: an argument shows in `ps`, a password file is on a disk until it is removed
    and stays there after a kill -9, an environment is inherited by every child. Runner compiles the keys as patterns.
    """
    answers = {}
    if request.ssh_password is not None:
        answers[r"^SSH password:\s*?$"] = request.ssh_password
    if request.become_password is not None:
        answers[r"^BECOME password.*:\s*?$"] = request.become_password
    return answers


def _end(pid_file: Path) -> None:
    """Ask the supervisor to end everything below it, and wait until it has."""
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        return
    wait_until(lambda: _has_ended(pid), PATIENCE_S, 0.02)


def _has_ended(pid: int) -> bool:
    try:
        # it stays a zombie, for runner to read its exit code
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
