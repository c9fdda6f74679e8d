"""Run playbooks for a command, show its progress, and report how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepopsctl.cli.main import Settings
from deepopsctl.cli.output import emit_json, info, show_warning
from deepopsctl.cli.passwords import ask_login
from deepopsctl.cli.views.run import first_line, report_lines, show_progress
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.settings import misspelt_settings
from deepopsctl.cluster.spelling import misspelt_values
from deepopsctl.cluster.ssh_login import Login
from deepopsctl.content import content_dir
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest


def run_request(
    settings: Settings,
    directory: ClusterDir,
    options: Mapping[str, Any],
    playbooks: tuple[str, ...],
    login: Login | None = None,
    **fields: Any,
) -> RunRequest:
    """A run of these playbooks with the options that commands share.

    Without a login that was asked for before, asks for the passwords of -k and -K.
    """
    login = login or ask_login(options)
    shared: dict[str, Any] = {
        "content": settings.content,
        # Ansible's own output replaces the progress
        "verbosity": settings.verbosity if settings.verbosity > 2 else 0,
        "forks": options.get("forks") or 0,
        "full": options.get("full", False),
        "user": login.user,
        "ssh_password": login.password,
        "become_password": login.sudo_password,
    }
    return RunRequest(directory, playbooks[0], more=playbooks[1:], **(shared | fields))


def run_and_report(request: RunRequest, hosts: tuple[str, ...] | None, *, verbosity: int, as_json: bool) -> int:
    """Run, show, report; the exit code."""
    outcome = run_watched(request, hosts, verbosity=verbosity)
    for line in report_lines(outcome, request):
        info(line)
    # last: Ctrl-C before it ends the command with an object of its own
    if as_json:
        emit_json(outcome.as_object())
    return int(outcome.exit_code)


def run_watched(request: RunRequest, hosts: tuple[str, ...] | None, *, verbosity: int) -> RunOutcome:
    """Say what will run on how many nodes, run it, and show it as it continues."""
    from deepopsctl.cli.variables import names_in
    from deepopsctl.run.runner import run_playbooks
    from deepopsctl.run.setting_scope import without_component

    if request.deploys or request.command == "doctor":
        names, content = (
            [name for mine in request.user_vars for name in names_in(mine)],
            request.content or content_dir(),
        )
        unused = without_component(request.directory, content, request.components)
        for problem in (*misspelt_settings(request.directory, content, names), *unused):
            show_warning(problem)
        for problem in misspelt_values(request.directory.cluster()):
            show_warning(problem)
    info(first_line(request, hosts))
    with show_progress(len(hosts) if hosts is not None else None, verbosity, request) as watch:
        return run_playbooks(request, watch)
