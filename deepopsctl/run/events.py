"""What happens during a run, as small typed events made from the dicts of Ansible's callback.

Unexpected input gives no event, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import PurePath
from types import MappingProxyType
from typing import cast

from deepopsctl.model.json_objects import ChangeEntry
from deepopsctl.text.answers import items, mapping, mappings, real, text as text_of
from deepopsctl.text.printable import printable, printable_tree


class Status(StrEnum):
    """How a task ended on one host."""

    OK = "ok"
    CHANGED = "changed"
    FAILED = "failed"
    IGNORED = "ignored"
    UNREACHABLE = "unreachable"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Ansible begins; `plays` has how many roles and tasks each of its plays lists, in their order."""

    plays: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlayStarted:
    """A play begins."""

    component: str
    play: str


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task begins, on all its hosts; `at` in seconds since the epoch."""

    component: str
    play: str
    task: str
    at: float


@dataclass(frozen=True, slots=True)
class HostStarted:
    """A task begins on one host."""

    host: str
    task: str


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that changes on one host; `host` is empty where it is a file of the cluster directory itself.

    `diff` is a complete unified diff; only check mode has one. `new` marks a file that did not exist. `same_as` names
    the node that was checked in its place, and has the difference.
    """

    host: str
    component: str
    kind: str
    name: str
    action: str
    detail: str = ""
    policy: str = ""
    diff: str = ""
    new: bool = False
    same_as: str = ""

    @property
    def what(self) -> tuple[str, str, str]:
        """Kind, name and action: nodes with equal ones have the same change."""
        return (self.kind, self.name, self.action)

    def as_object(self) -> ChangeEntry:
        """The JSON object; optional fields only if set."""
        values = {name: getattr(self, name) for name in ChangeEntry.__annotations__}
        kept = {name: value for name, value in values.items() if value or name in ChangeEntry.__required_keys__}
        return cast("ChangeEntry", kept)


@dataclass(frozen=True, slots=True)
class HostResult:
    """A task has ended on one host. `data` is what a module returned under the key `deepops`.

    `left_out` is why a module skipped its work without failing: the run continues, and counts as failed in the end
    unless `optional` says what a cluster does without.
    An ignored failure may have changed something: `changed` is independent of the status.
    """

    host: str
    component: str
    play: str
    task: str
    status: Status
    elapsed_s: float
    at: float = 0.0
    changed: bool = False
    message: str = ""
    hint: str = ""
    left_out: str = ""
    optional: str = ""
    data: tuple[Mapping[str, object], ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """The `--diff` output for one file on one host, as Ansible prints it."""

    host: str
    component: str
    task: str
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning, deprecation or error that belongs to no single task: `kind` is Ansible's word for it."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ModuleMessage:
    """A progress message of a long task."""

    text: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Ansible's own count for one host. `ok` includes `changed`, as in Ansible."""

    ok: int = 0
    changed: int = 0
    failed: int = 0
    unreachable: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class Recap:
    """Ansible's count at the end of a playbook, for all hosts so far."""

    hosts: Mapping[str, Totals] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Output:
    """Lines as Ansible printed them; sent only with -vvv."""

    text: str


Event = (
    RunStarted
    | PlayStarted
    | TaskStarted
    | HostStarted
    | HostResult
    | Difference
    | Notice
    | ModuleMessage
    | Recap
    | Output
)

Raw = Mapping[str, object]

# Long enough for any sentence a module writes, short enough for a terminal and for `runs/`.
MAX_MESSAGE = 2000
CENSORED = "the output is hidden, because the task handles secrets (no_log)"

_ENDED = {
    "runner_on_ok": Status.OK,
    "runner_on_failed": Status.FAILED,
    "runner_on_unreachable": Status.UNREACHABLE,
    "runner_on_skipped": Status.SKIPPED,
}
_NOTICES = {"warning": "warning", "system_warning": "warning", "deprecated": "deprecation", "error": "error"}

# what Ansible puts in front of the message that matters, several layers deep
_WRAPPING = re.compile(
    r"^((Task|Action|Module) failed: |Failed to connect to the host via ssh: |"
    r"Data could not be sent to remote host \"[^\"]*\"\. Make sure this host can be reached over ssh: |"
    # ssh says this of a cluster key that is not there yet: not the reason, only noise before it
    r"no such identity: [^\n]*\n)+"
)
# Ansible's only message when the connection ends while a module runs
_CUT = re.compile(r'^.*Data could not be sent to remote host "([^"]*)"\. Make sure .* over ssh:$')
# ... and when ssh ended before it had sent the whole module; Ansible gives no reason
_UNSENT = re.compile(
    r"^.*Data could not be sent to remote host '([^']*)'\. Make sure this host can be reached over SSH\b.*", re.S
)
# prefix of lines that deepopsctl's action plugins show at once
_MESSAGE_PREFIX = "deepopsctl: "
_BANNER = re.compile(r"\A\s*(TASK|RUNNING HANDLER) \[.*\n")
_PRINTED_CHANGED = re.compile(r"^changed: \[", re.MULTILINE)


def parse(raw: Raw, component: str = "") -> Event | None:
    """The typed event of a raw one, or None for those that are not used. Never raises on unexpected input.

    `component` names the run's only playbook; without it the playbook's file name does.
    """
    event_type, data = text_of(raw.get("event")), mapping(printable_tree(raw.get("event_data")))
    component = component or PurePath(text_of(data.get("playbook"))).stem
    play, task = text_of(data.get("play")), text_of(data.get("task"))
    if event_type in _ENDED:
        return _host_result(raw, data, component, _ENDED[event_type])
    if event_type == "playbook_on_play_start":
        return PlayStarted(component, play)
    if event_type == "playbook_on_task_start":
        return TaskStarted(component, play, task, _time(raw.get("created")))
    if event_type == "runner_on_start":
        return HostStarted(text_of(data.get("host")), task)
    if event_type == "runner_on_file_diff":
        return _difference(raw, data, component)
    if event_type == "playbook_on_stats":
        return _recap(data)
    if event_type == "verbose":
        text = plain(text_of(raw.get("stdout")))
        return ModuleMessage(text[len(_MESSAGE_PREFIX) :]) if text.startswith(_MESSAGE_PREFIX) else None
    if event_type in _NOTICES:
        text = plain(text_of(raw.get("stdout")))
        return Notice(_NOTICES[event_type], text) if text else None
    return None


def plain(text: str) -> str:
    """Terminal output as text: the pseudo-terminal ends lines with CR LF."""
    return printable(text.replace("\r\n", "\n").replace("\r", "")).strip("\n")


def parse_changes(result: Raw, host: str, component: str, task: str, *, changed: bool) -> tuple[Change, ...]:
    """The changes of one task's result; a task that reports no list counts as one change, by its name."""
    if not changed:
        return ()
    if isinstance(result.get("changes"), list):
        return tuple(_changes(mappings(result["changes"]), host, component))
    return (Change(host, component, "task", task.rpartition(" : ")[2], "change"),)


def _difference(raw: Raw, data: Raw, component: str) -> Difference | None:
    # Ansible prints a task's banner together with its first output
    text = plain(_BANNER.sub("", plain(text_of(raw.get("stdout")))))
    return Difference(text_of(data.get("host")), component, text_of(data.get("task")), text) if text else None


def _host_result(raw: Raw, data: Raw, component: str, status: Status) -> HostResult:
    result = mapping(data.get("res"))
    parts = [result, *(item for item in map(mapping, items(result.get("results"))) if item)]
    stopped = status in (Status.FAILED, Status.UNREACHABLE)
    if status is Status.FAILED and data.get("ignore_errors") is True:
        status = Status.IGNORED
    changed = status in (Status.OK, Status.IGNORED) and _changed(raw, result)
    if status is Status.OK and changed:
        status = Status.CHANGED
    faults = [part for part in parts[1:] if _is_fault(part)] or parts[:1]
    host, task = text_of(data.get("host")), text_of(data.get("task"))
    left_out = mapping(result.get("deepops_left_out"))
    hints = [text_of(left_out.get("hint"))] if left_out else [text_of(fault.get("hint")) for fault in faults if stopped]
    return HostResult(
        host=host,
        component=component,
        play=text_of(data.get("play")),
        task=task,
        status=status,
        elapsed_s=round(real(data.get("duration")), 3),
        at=_time(raw.get("created")),
        changed=changed,
        message=_fault_message(faults) if stopped else "",
        hint=next(filter(None, hints), ""),
        left_out=text_of(left_out.get("message")),
        optional=text_of(left_out.get("optional")),
        data=tuple(module_data for part in parts if (module_data := mapping(part.get("deepops")))),
        warnings=tuple(_warnings(parts)),
        changes=parse_changes(result, host, component, task, changed=changed),
    )


def _changed(raw: Raw, result: Raw) -> bool:
    if "censored" in result:
        # runner drops `changed` from a no_log result; the printed line still has it
        return _PRINTED_CHANGED.search(text_of(raw.get("stdout"))) is not None
    return result.get("changed") is True


def _is_fault(item: Raw) -> bool:
    # ansible-core 2.21 no longer sets `failed` for a failed loop item, but it has an exception
    return item.get("failed") is True or item.get("unreachable") is True or "exception" in item


def _fault_message(faults: Sequence[Raw]) -> str:
    """The module's message, with the command's output if it ran one; one line per failed loop item."""
    messages = [_message(fault) for fault in faults]
    if len(set(messages)) > 1:
        text = "\n".join(f"{_item(fault)}{message}" for fault, message in zip(faults, messages, strict=True))
    else:
        # an unreachable host fails for every item
        text = f"{_item(faults[0]) if len(faults) == 1 else ''}{messages[0]}"
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."


def _message(fault: Raw) -> str:
    if "censored" in fault:
        return CENSORED
    error_text = _CUT.sub(
        r"the connection to \1 broke in the middle of the task", plain(text_of(fault.get("msg"))).strip()
    )
    error_text = _UNSENT.sub(r"the connection to \1 ended before the task was sent", error_text)
    message = _WRAPPING.sub("", error_text) or "failed without a message"
    outputs = ("stderr", "module_stderr", "stdout", "module_stdout")
    output = next((text for key in outputs if (text := _last_output_lines(fault, key))), "")
    return f"{message.rstrip('.')}: {output}" if output and output not in message else message


def _item(fault: Raw) -> str:
    label = text_of(fault.get("_ansible_item_label")) or text_of(fault.get("item"))
    return f"{label}: " if label and "censored" not in fault else ""


def _last_output_lines(fault: Raw, key: str) -> str:
    """The last lines of an output, where programs usually print the reason of a failure."""
    lines = [line.rstrip() for line in text_of(fault.get(key)).splitlines() if line.strip()]
    return "\n".join(lines[-8:])


def _warnings(parts: Iterable[Raw]) -> Iterable[str]:
    for part in parts:
        for entry in items(part.get("deepops_warnings")):
            yield text_of(entry)
        for entry in items(part.get("warnings")):
            yield text_of(entry)
        for entry in items(part.get("deprecations")):
            if text := text_of(mapping(entry).get("msg")):
                yield f"deprecated: {text}"


def _recap(data: Raw) -> Recap:
    keys = {"ok": "ok", "changed": "changed", "failures": "failed", "dark": "unreachable", "skipped": "skipped"}
    keys |= {"rescued": "rescued", "ignored": "ignored"}
    hosts: dict[str, dict[str, int]] = {text_of(host): {} for host in mapping(data.get("processed"))}
    for ansible_name, name in keys.items():
        for host, count in mapping(data.get(ansible_name)).items():
            hosts.setdefault(host, {})[name] = int(real(count))
    return Recap({host: Totals(**counts) for host, counts in hosts.items()})


def _time(value: object) -> float:
    try:
        return datetime.fromisoformat(text_of(value)).timestamp()
    except ValueError:
        return 0.0


def _changes(listed: Iterable[Raw], host: str, component: str) -> Iterator[Change]:
    for entry in listed:
        words = {name: text_of(entry.get(name)) for name in ("kind", "name", "action", "detail", "policy", "diff")}
        yield Change("" if entry.get("local") else host, component, **words, new=bool(entry.get("new")))
