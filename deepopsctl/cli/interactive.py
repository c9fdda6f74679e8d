"""Console of a command that consists of several runs: steps, questions, runs, report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import click

from deepopsctl.checks.check import totals
from deepopsctl.cli.execute import run_request
from deepopsctl.cli.main import Settings
from deepopsctl.cli.output import emit_json, info, show_problem, table
from deepopsctl.cli.passwords import Passwords, read_passwords, terminable
from deepopsctl.cli.views.run import failure_lines, node_table, show_progress, shown_path
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import Login
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.nodes.workflow import PATIENCE_S, Report
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.ssh.results import SetupResult

_STEP = "cyan"
R = TypeVar("R")


def confirm_protected(question: str, cluster: Cluster, confirmed: str) -> None:
    """Ask for the name of a protected cluster, unless --confirm gave it; others are not asked for."""
    if not cluster.protected:
        return
    if not confirmed:
        need_terminal(question, f"--confirm {cluster.name}")
        confirmed = click.prompt(f"{question} it is protected; its name", err=True)
    if confirmed != cluster.name:
        raise click.UsageError(f"{confirmed!r} is not the name of this cluster, which is protected: nothing was done")


def need_terminal(question: str, option: str) -> None:
    """Refuse to ask where there is no terminal."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} there is no terminal to ask on: give {option}")


@dataclass(slots=True)
class Console:
    """Shows and asks on stderr."""

    directory: ClusterDir
    passwords: Passwords
    verbosity: int
    yes: bool
    identity: Path | None = None
    own_keys: bool = True
    confirmed: str = ""
    user: str = ""

    def info(self, text: str) -> None:
        """Print a line; one that is not indented begins a step."""
        info(text if text.startswith(" ") else click.style("==> ", fg=_STEP, bold=True) + text)

    def confirm(self, question: str, cluster: Cluster) -> None:
        """Ask, unless --yes said so already; a protected cluster's name is asked for in any case."""
        if cluster.protected:
            confirm_protected(question, cluster, self.confirmed)
        elif not self.yes:
            need_terminal(question, "--yes")
            click.confirm(question, abort=True, err=True)

    def perform(self, request: RunRequest, hosts: tuple[str, ...]) -> RunOutcome:
        """Run with progress; failures are shown at once."""
        from deepopsctl.run.runner import run_playbooks

        with show_progress(len(hosts), self.verbosity, request) as watch:
            outcome = run_playbooks(request, watch)
        for line in failure_lines(outcome.summary.failures):
            info(line)
        return outcome

    def set_up_ssh(self, cluster: Cluster, nodes: tuple[Node, ...], accept: frozenset[str]) -> SetupResult:
        """`ssh setup` of these nodes, with its table."""
        from deepopsctl.ssh.results import HEADER, table_rows
        from deepopsctl.ssh.setup import SetupRequest, run_setup

        as_user = replace(cluster, access=replace(cluster.access, user=self.user or cluster.access.user))
        request = SetupRequest(
            self.directory, as_user, nodes, self.passwords.login, self.passwords.ask if nodes else None,
            self.own_keys, self.identity, self.passwords.sudo, accept, patience_s=PATIENCE_S,
        )  # fmt: skip
        if nodes:
            self.info(f"ssh: log in to {', '.join(node.name for node in nodes)}")
        result = run_setup(request, lambda _: None)
        for line in table(HEADER, table_rows(result), indent=2)[1:]:
            info(f"  {line}")
        for warning in result.warnings:
            info(click.style("warning: ", fg="yellow") + warning)
        return result

    @contextmanager
    def attentive(self) -> Iterator[None]:
        """Handle SIGTERM as Ctrl-C, so that changes can be undone."""
        with terminable():
            yield


def open_console(
    settings: Settings, command: str, options: Mapping[str, Any]
) -> tuple[Console, ClusterDir, RunRequest]:
    """The console, the cluster directory and what all runs of a command have in common."""
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    directory.refresh_secrets()
    user = options.get("user") or ""
    file, ask = options.get("password_file"), bool(options.get("ask_pass"))
    shown = user or cluster.access.user or "your own user"
    passwords = read_passwords(shown, file, ask_pass=ask, ask_become_pass=options["ask_become_pass"])
    # with --password-file, -k is of the first login to a new node, which gets the cluster's key
    every_login = ask and "password_file" not in options
    login = Login(user, passwords.login if every_login else None, passwords.sudo)
    base = run_request(settings, directory, {}, ("",), login, command=command)
    console = Console(
        directory, passwords, settings.verbosity, options["yes"], options.get("identity"),
        not (ask or file is not None), options.get("confirm") or "", user,
    )  # fmt: skip
    return console, directory, base


def run_workflow(
    work: Callable[[ClusterDir, R, RunRequest, Console], Report],
    request: R,
    base: RunRequest,
    console: Console,
    *,
    as_json: bool,
) -> int:
    """Run a command of several runs, and show its report; returns the exit code."""
    with console.attentive():
        report = work(console.directory, request, base, console)
    return _show_report(report, console.directory, as_json=as_json)


def _show_report(report: Report, directory: ClusterDir, *, as_json: bool) -> int:
    """Show the visited nodes, the failures and the summary."""
    for line in node_table(report.hosts.items()):
        info(line)
    for warning in dict.fromkeys(report.warnings):
        info(click.style("warning: ", fg="yellow") + warning)
    if report.checks:
        info(f"validation: {totals(report.checks).sentence()}")
    if report.stopped:
        show_problem(report.stopped.message, report.stopped.hint)
    good = report.exit_code is ExitCode.OK
    word = click.style("done" if good else "not finished" if report.stopped else "done, with failures",
                       fg="green" if good else "red", bold=True)  # fmt: skip
    first = report.outcomes[0].run_id if report.outcomes else ""
    runs = f"; details: deepopsctl -C {quote(shown_path(directory.path))} runs show {first}"
    closing = f": {report.closing}" if report.closing else ""
    info(f"{report.command}: {word} after {report.elapsed_s:.1f} s{closing}{runs if first else ''}")
    if as_json:
        emit_json(report.as_object())
    return int(report.exit_code)
