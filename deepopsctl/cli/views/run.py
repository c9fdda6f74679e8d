"""One run in a terminal: its first line, its progress, the nodes, what failed and what to do, how it ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import click

from deepopsctl.cli.output import capped, info, note, pasteable, table
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.run.events import Event, Output, Totals
from deepopsctl.run.outcome import Failure, LeftOut, RunOutcome, Verdict, counted
from deepopsctl.run.progress import Progress, title
from deepopsctl.run.request import RunRequest
from deepopsctl.run.workspace import Workspace
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold

# More rows than this say less than a few
MAX_ROWS = 12


_WORDS = {
    Verdict.OK: "done",
    Verdict.FAILED: "failed",
    Verdict.UNREACHABLE: "done, but for nodes that did not answer",
    Verdict.TIMEOUT: "stopped: its time was up",
    Verdict.INTERRUPTED: "stopped on request",
}


_COLORS = {Verdict.OK: "green", Verdict.UNREACHABLE: "yellow"}

Watch = Callable[[Event], None]


def report_lines(outcome: RunOutcome, request: RunRequest) -> Iterator[str]:
    """A table of the nodes, then what failed and what to do, then the verdict; the last line names the run."""
    yield from node_table(outcome.summary.hosts.items())
    for warning in outcome.summary.warnings[:5]:
        yield click.style("warning: ", fg="yellow") + warning
    if (more := len(outcome.summary.warnings) - 5) > 0:
        yield f"warning: and {more} more in summary.json"
    yield from left_out_lines(outcome.summary.left_out)
    yield from failure_lines(outcome.summary.failures)
    if late := outcome.summary.late:
        yield f"slowest node: {late.host}, {late.seconds:.0f} s longer than half of the nodes, most in {late.task}"
    if outcome.stopped:
        yield _undone(outcome)
    if not outcome.ok:
        yield f"log: {shown_path(outcome.run_dir.log)}"
    yield summary_line(outcome, request, _changes(outcome, request))


def summary_line(outcome: RunOutcome, request: RunRequest, what: str, word: str = "") -> str:
    """The last line: how it ended, what was done, the run's id and the command that shows details."""
    shown = click.style(word or _word(outcome), fg=_COLORS.get(outcome.verdict, "red"), bold=True)
    command = f"{request.command} --check" if _is_check(request) else request.command
    return (
        f"{command}: {shown} after {outcome.elapsed_s:.1f} s, {what}; details: "
        f"deepopsctl -C {quote(shown_path(request.directory.path))} runs show {outcome.run_id}"
    )


def _is_check(request: RunRequest) -> bool:
    """Whether it is `deploy --check`: a plan is one anyway."""
    return request.check and request.command == "deploy"


def node_table(hosts: Iterable[tuple[str, Totals]]) -> list[str]:
    """Counts by node; nodes with the same counts share a row."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for host, totals in hosts:
        numbers = (totals.ok, totals.changed, totals.failed, totals.unreachable)
        groups.setdefault(numbers, []).append(host)
    if len(groups) > MAX_ROWS:
        groups = _by_outcome(groups)
    if not groups:
        return []
    rows = [(_short(fold(names)), *(str(number) for number in numbers)) for numbers, names in groups.items()]
    return table(("nodes", "ok", "changed", "failed", "unreachable"), rows, right=range(1, 5))


def failure_lines(failures: Iterable[Failure]) -> Iterator[str]:
    """Every failure once, with all its nodes: node, component, task, message, hint."""
    groups: dict[tuple[str, str, str, str, bool], list[Failure]] = {}
    for failure in failures:
        key = (failure.component, failure.task, failure.anywhere, failure.hint, failure.unreachable)
        groups.setdefault(key, []).append(failure)
    for (component, task, message, hint, unreachable), members in groups.items():
        names = _short(fold(failure.host for failure in members if failure.host)) or "ansible"
        word = click.style("unreachable" if unreachable else "failed", fg="red", bold=True)
        yield f"{word}: {names}" + (f": {title(component, task)}" if task else "")
        yield from (f"    {line}" for line in capped(message if len(members) > 1 else members[0].message).splitlines())
        if hint:
            yield f"    {click.style('hint:', fg='cyan')} {pasteable(hint)}"


def left_out_lines(entries: Iterable[LeftOut]) -> Iterator[str]:
    """Every optional download that failed, once, with all its nodes."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        groups.setdefault((entry.what, entry.message, entry.hint), []).append(entry.host)
    for (what, message, hint), hosts in groups.items():
        yield f"{click.style('left out: ', fg='yellow')}{what} on {_short(fold(hosts))}: {message}"
        if hint:
            yield f"    {click.style('hint:', fg='cyan')} {pasteable(hint)}"


def first_line(request: RunRequest, hosts: tuple[str, ...] | None) -> str:
    """What will run, on which nodes."""
    what = " ".join([request.command, *(request.playbooks if request.command == "deploy" else ())])
    how = " (check: nothing will be changed)" if _is_check(request) else ""
    if hosts is None:
        return f"{what} on the nodes of {request.limit}{how}"
    return f"{what} on {amount(len(hosts), 'node')}: {_short(fold(hosts))}{how}"


def show_next(directory: ClusterDir, *commands: str) -> None:
    """What comes next on a cluster directory that was not deployed yet; later, people know."""
    from deepopsctl.status.cluster import last_runs

    if not last_runs(Workspace(directory.runs)).deploy:
        info(f"next: {', then '.join(f'deepopsctl {command}' for command in commands)}")


def shown_path(path: Path) -> str:
    """A path as it is easiest to copy: relative where that is shorter."""
    try:
        relative = str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
    return relative if relative != "." else "."


@contextmanager
def show_progress(total: int | None, verbosity: int = 0, request: RunRequest | None = None) -> Iterator[Watch]:
    """What to hand to the runner as `on_event`. `total` nodes take part, or None where only Ansible knows.

    On a terminal, a node of `request` is asked what its packages are at, where a task takes long.
    """
    check = request is not None and request.check
    if verbosity > 2:
        yield _ansible_output
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from deepopsctl.cli.views.live import live_view
        from deepopsctl.status.package_progress import package_progress

        inspect = package_progress(request.directory, request.login) if request and not check else None
        with live_view(total, verbosity, check=check, inspect=inspect) as watch:
            yield watch
    else:
        yield plain_lines(note, check=check)


def plain_lines(write: Callable[[str], None], *, check: bool = False) -> Watch:
    """One line for every task that has ended: `[   3.2s] slurm: Install packages: 3 nodes ok, 2 changed`."""
    progress, started = Progress(check), time.monotonic()

    def watch(event: Event) -> None:
        for line in progress.add(event):
            write(f"[{time.monotonic() - started:6.1f}s] {line}")

    return watch


def _word(outcome: RunOutcome) -> str:
    no_node = outcome.verdict is Verdict.UNREACHABLE and len(outcome.summary.unreachable) == len(outcome.summary.hosts)
    return "no node answered" if no_node else _WORDS[outcome.verdict]


def _undone(outcome: RunOutcome) -> str:
    """What a stopped run left undone."""
    if not outcome.at:
        return "nothing was done yet"
    where = f" on {_short(fold(outcome.pending))}" if outcome.pending else ""
    return (
        f"undone: {outcome.at}{where}, and all that comes after it; a program that already runs on a node "
        f"may still end there\nthe same command finishes it"
    )


def _changes(outcome: RunOutcome, request: RunRequest) -> str:
    # `changes` of a check were not made
    changed = sum(1 for totals in outcome.summary.hosts.values() if totals.changed)
    verb = "would change" if request.check else "changed"
    what = counted(outcome.summary.changes)
    nodes = f"{changed} of {amount(len(outcome.summary.hosts), 'node')} {verb}{f' ({what})' if what else ''}"
    return (nodes if changed else "nothing would change" if request.check else "nothing changed") + (
        "; nothing was changed" if _is_check(request) and changed else ""
    )


def _by_outcome(groups: dict[tuple[int, ...], list[str]]) -> dict[tuple[int, ...], list[str]]:
    """Merge rows with the same outcome; the numbers are the largest of each group."""
    merged: dict[tuple[bool, ...], tuple[tuple[int, ...], list[str]]] = {}
    for numbers, names in groups.items():
        outcome = tuple(number > 0 for number in numbers[1:])
        before, others = merged.get(outcome, (numbers, []))
        merged[outcome] = (tuple(max(pair) for pair in zip(before, numbers, strict=True)), others + names)
    return dict(merged.values())


def _short(text: str, width: int = 60) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _ansible_output(event: Event) -> None:
    if isinstance(event, Output):
        note(event.text)
