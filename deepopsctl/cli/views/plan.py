"""How a plan looks: nodes with the same changes together, files with their differences, keys with their policies."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from shutil import get_terminal_size

import click

from deepopsctl.cli.output import filled, pasteable
from deepopsctl.cli.views.run import failure_lines, left_out_lines
from deepopsctl.run.events import Change
from deepopsctl.run.outcome import counted
from deepopsctl.run.plan import Group, Plan
from deepopsctl.text.node_sets import fold

# Without --diff: a difference longer than this is cut, and new files are only named.
MAX_DIFF_LINES = 16
# Without --diff: so many new files of one directory are shown as one line.
MANY_NEW_FILES = 4
# so many of deepopsctl's own programs are too, also where they are not new
OWN_PROGRAMS = "/usr/local/lib/deepopsctl/"
_MARGIN = 15
# characters before the first different one of a long line
_CONTEXT = 20
_SECTIONS = {
    "package": "packages",
    "hostname": "hostname",
    "directory": "directories",
    "file": "files",
    "key": "slurm.conf",
    "mount": "mounts",
    "unit": "services",
    "database": "database",
    "login": "database",
    "account": "accounts",
    "user": "accounts",
    "association": "accounts",
    "qos": "accounts",
}
_SIGNS = {
    "install": "+",
    "create": "+",
    "add": "+",
    "start": "+",
    "enable": "+",
    "mount": "+",
    "remove": "-",
    "stop": "-",
}
_COLOURS = {"+": "green", "-": "red", "~": "yellow"}
_POLICIES = {"reconfigure": "", "drain first": "red", "unsupported": "red"}


@dataclass(frozen=True, slots=True)
class _Layout:
    """Number of columns, and whether differences are shown in full."""

    width: int
    whole: bool


def plan_lines(plan: Plan, *, whole: bool, record: str) -> Iterator[str]:
    """The plan for a person: a summary if there are several groups, the details; the last line is the verdict."""
    layout = _Layout(max(60, min(get_terminal_size((100, 24)).columns, 120)) - _MARGIN, whole)
    yield from _summary(plan)
    for group in plan.groups:
        yield click.style(f"{group.component} {group.where}", bold=True) + _how_many(group)
        for title, changes in _sections(group.changes):
            yield from _section(title, changes, group, layout)
        yield ""
    # 0 where the output goes into a pipe or a file
    room = get_terminal_size((0, 0)).columns
    yield from (filled(line, room) for line in _remarks(plan))
    if plan.changes:
        yield f"whole differences: {record}"
    colour = "red" if plan.blocked else "green" if not plan.changes and not plan.unknown else "yellow"
    yield filled("plan: " + click.style(plan.verdict, fg=colour, bold=True), room)


def _remarks(plan: Plan) -> Iterator[str]:
    """What is not a change: nodes that were not checked, what blocks a deploy, warnings, jobs."""
    for checked, names in plan.same_as.items():
        many = f" ({len(names)} nodes)" if len(names) > 1 else ""
        yield f"not checked one by one (--every-node): {fold(names)}{many}, by what they report the same as {checked}"
    for entry in plan.blocked:
        yield _styled("blocked: ", "red") + (f"{entry.host}: " if entry.host else "") + entry.message
        if entry.hint:
            yield _styled("hint: ", "cyan") + pasteable(entry.hint)
    for warning in plan.outcome.summary.warnings:
        if "this would be refused: " not in warning:
            yield _styled("warning: ", "yellow") + warning
    yield from left_out_lines(plan.outcome.summary.left_out)
    yield from failure_lines(failure for failure in plan.outcome.summary.failures if failure.unreachable)
    if plan.jobs_line:
        yield f"jobs: {plan.jobs_line}"


def _summary(plan: Plan) -> Iterator[str]:
    """What changes where in a line for each group, where there are several."""
    if len(plan.groups) < 2:
        return
    yield "plan: " + click.style(plan.verdict, fg="red" if plan.blocked else "yellow", bold=True)
    for group in plan.groups:
        yield f"  {group.component} {group.where}{_how_many(group)}: {counted(group.changes)}"
    yield ""


def _how_many(group: Group) -> str:
    return f" ({len(group.hosts)} nodes)" if len(group.hosts) > 1 else ""


def _sections(changes: Iterable[Change]) -> list[tuple[str, list[Change]]]:
    sections: dict[str, list[Change]] = {}
    for change in changes:
        sections.setdefault(_SECTIONS.get(change.kind, change.kind), []).append(change)
    order = list(dict.fromkeys(_SECTIONS.values()))
    return sorted(sections.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))


def _section(title: str, changes: Sequence[Change], group: Group, layout: _Layout) -> Iterator[str]:
    lines = _VIEWS.get(title, _others)(changes, group, layout)
    for number, line in enumerate(lines):
        yield f"  {title if number == 0 else '':<{_MARGIN - 2}}{line}".rstrip()


def _packages(changes: Sequence[Change], group: Group, layout: _Layout) -> Iterator[str]:
    del group
    for sign in ("+", "~", "-"):
        those = [change for change in changes if _signed(change) == sign]
        names = ", ".join(f"{change.name} {change.detail}".strip().replace(" ", "\0") for change in those)
        for number, line in enumerate(
            textwrap.wrap(names, layout.width - 2, break_long_words=False, break_on_hyphens=False)
        ):
            yield (_sign(sign) if number == 0 else " ") + " " + line.replace("\0", " ")


def _files(changes: Sequence[Change], group: Group, layout: _Layout) -> Iterator[str]:
    own = [] if layout.whole else [change for change in changes if change.name.startswith(OWN_PROGRAMS)]
    if len(own) >= MANY_NEW_FILES:
        yield from _own_programs(own, group, layout)
        changes = [change for change in changes if change not in own]
    new_files: dict[str, list[Change]] = {} if layout.whole else _new_by_directory(changes)
    for change in changes:
        directory = change.name.rpartition("/")[0]
        members = new_files.get(directory, [])
        if members and change is members[0]:
            count = sum(_count(group.variants[member.what][0].splitlines()) for member in members)
            yield from _noted(f"{_sign('+')} {directory}/", [f"{len(members)} new files, {count} lines"], layout)
        if change in members:
            continue
        diffs = group.variants[change.what]
        lines = diffs[0].splitlines()
        secret = lines == ["(secret)"]
        notes = ["secret: not shown"] if secret else [] if not change.new else [f"new, {_lines(lines)}"]
        notes += [change.detail] if change.detail else []
        yield from _noted(f"{_sign('+' if change.new else _signed(change))} {change.name}", notes, layout)
        if not secret and (layout.whole or not change.new):
            for line in _diff(lines, layout):
                yield f"    {line}"
            if len(diffs) > 1:
                others = "nodes differ in their" if len(group.hosts) > 2 else "node differs in its"
                yield f"    ({group.hosts[0]}'s; the other {others} own way)"


def _own_programs(changes: Sequence[Change], group: Group, layout: _Layout) -> Iterator[str]:
    """What deepopsctl installs of itself: an administrator reads its release notes, not its modules."""
    names = dict.fromkeys(change.name.removeprefix(OWN_PROGRAMS).partition("/")[0] for change in changes)
    lines = sum(_count(group.variants[change.what][0].splitlines()) for change in changes)
    new = all(change.new for change in changes)
    size = f"{len(changes)} {'new ' if new else ''}files" + (f", {lines} lines" if new else "")
    yield from _noted(f"{_sign('+' if new else '~')} {OWN_PROGRAMS}", ["deepopsctl's own programs", size], layout)
    listed = textwrap.wrap(", ".join(names), layout.width - 4, break_long_words=False, break_on_hyphens=False)
    yield from (f"    {line}" for line in listed)


def _noted(line: str, notes: Sequence[str], layout: _Layout) -> Iterator[str]:
    """A line with its notes, which come below it where they do not fit."""
    note = _note(notes)
    if len(click.unstyle(line + note)) <= layout.width or layout.whole:
        yield line + note
    else:
        yield line
        yield f"  {note}"


def _new_by_directory(changes: Sequence[Change]) -> dict[str, list[Change]]:
    """New files without details, by directory; only directories with many of them."""
    files: dict[str, list[Change]] = {}
    for change in changes:
        if change.new and not change.detail and change.diff.strip() != "(secret)":
            files.setdefault(change.name.rpartition("/")[0], []).append(change)
    return {directory: members for directory, members in files.items() if len(members) >= MANY_NEW_FILES}


def _diff(lines: Sequence[str], layout: _Layout) -> Iterator[str]:
    shown = lines if layout.whole or len(lines) <= MAX_DIFF_LINES + 2 else lines[:MAX_DIFF_LINES]
    partners = _partners(lines)
    for number, text in enumerate(shown):
        line = text if layout.whole else _cut(text, partners.get(number, ""), layout.width - 4)
        yield click.style(line, fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    if len(shown) < len(lines):
        yield f"... {_lines(lines[len(shown) :])} more (--diff shows them)"


def _partners(lines: Sequence[str]) -> dict[int, str]:
    """Of each changed line the one that it replaces, or is replaced by: the same place in the block next to it."""
    blocks = [(sign, list(block)) for sign, block in groupby(range(len(lines)), lambda number: lines[number][:1])]
    partners: dict[int, str] = {}
    for (sign, removed), (next_sign, added) in pairwise(blocks):
        if (sign, next_sign) == ("-", "+"):
            for old, new in zip(removed, added, strict=False):
                partners |= {old: lines[new], new: lines[old]}
    return partners


def _cut(line: str, partner: str, room: int) -> str:
    """A line that fits: without the beginning that it shares with its partner, and without its end."""
    if len(line) <= room:
        return line
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(line[1:], partner[1:], strict=False)))
    begin = max(shared - _CONTEXT, 0)
    text = f"{line[:1]}...{line[1 + begin :]}" if begin > len("...") else line
    return text if len(text) <= room else f"{text[: room - 3]}..."


def _keys(changes: Sequence[Change], group: Group, layout: _Layout) -> Iterator[str]:
    del group
    name_width = max(len(change.name) for change in changes)
    policy_width = max(len(change.policy) for change in changes)
    room = layout.width - 2 - name_width - 2 - policy_width - 2
    for change in changes:
        policy = _styled(change.policy.ljust(policy_width), _POLICIES.get(change.policy, "yellow"))
        # values are never cut: a list of plugins means all of its names
        first, *more = textwrap.wrap(change.detail, max(room, 24), break_on_hyphens=False) or [""]
        yield f"{_sign(_signed(change))} {change.name:<{name_width}}  {policy}  {first}".rstrip()
        yield from (f"{'':<{2 + name_width + 2 + policy_width + 2}}{line}" for line in more)


def _others(changes: Sequence[Change], group: Group, layout: _Layout) -> Iterator[str]:
    del layout
    name_width = max(len(_name(change, group)) for change in changes)
    for change in changes:
        text = f"{_name(change, group):<{name_width}}  {change.action}{_note([change.detail] if change.detail else [])}"
        yield f"{_sign(_signed(change))} {text}"


_VIEWS: dict[str, Callable[[Sequence[Change], Group, _Layout], Iterator[str]]] = {
    "packages": _packages,
    "files": _files,
    "slurm.conf": _keys,
}


def _name(change: Change, group: Group) -> str:
    return group.names if change.kind == "hostname" else change.name


def _signed(change: Change) -> str:
    return _SIGNS.get(change.action, "~")


def _sign(sign: str) -> str:
    return click.style(sign, fg=_COLOURS[sign])


def _note(notes: Sequence[str]) -> str:
    return f"  {click.style('; '.join(notes), dim=True)}" if notes else ""


def _lines(lines: Sequence[str]) -> str:
    return f"{_count(lines)} line{'' if _count(lines) == 1 else 's'}"


def _count(lines: Sequence[str]) -> int:
    # a new file's difference begins with one line that counts the others
    return len(lines) - (1 if lines and lines[0].startswith("@@ -0,0") else 0)


def _styled(text: str, colour: str) -> str:
    return click.style(text, fg=colour, bold=True if colour == "red" else None) if colour else text
