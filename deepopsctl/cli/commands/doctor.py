"""`deepopsctl doctor`: read-only checks of this machine and of every node."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import ask_passwords, connection_options, json_option, limit_option
from deepopsctl.cli.output import emit_json, info

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.doctor.examine import Examination
    from deepopsctl.model.cluster import Cluster
    from deepopsctl.run.command_line import RunRequest


@click.command()
@limit_option
@connection_options
@json_option
@click.pass_obj
def doctor(settings: Settings, /, *, as_json: bool, **options: Any) -> int:
    """Look for what would go wrong: on this machine, on every node, and between them.

    Nothing is changed, and a node that is down or hangs keeps nobody waiting for long. Works before the first deploy
    and after it. Exit code 1 says that a check failed, 4 that nodes could not be reached, 5 that this
    machine is not fit.
    """
    from deepopsctl.cli.views.checks import show_checks
    from deepopsctl.cli.views.run import failure_lines
    from deepopsctl.doctor.examine import save

    examination = _examine(settings, options)
    save(examination)
    show_checks(examination.facts)
    if examination.outcome is None:
        info("the nodes were not asked: this machine is not fit to")
    else:
        for line in failure_lines(failure for failure in examination.outcome.summary.failures if not failure.host):
            info(line)
    if as_json:
        emit_json(examination.document())
    return int(examination.exit_code)


def _examine(settings: Settings, options: dict[str, Any]) -> Examination:
    """At this machine first; at the nodes where it is fit to."""
    from deepopsctl.cli.execute import run_watched
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import resolve_limit
    from deepopsctl.doctor.check_builders import Declared
    from deepopsctl.doctor.control_host import check_control_host, read_control_facts
    from deepopsctl.doctor.examine import examine, unfit
    from deepopsctl.slurm.hardware import load_hardware

    begin, started = time.monotonic(), datetime.now().astimezone()
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    declared = Declared(cluster, load_hardware(directory.hardware))
    directory.refresh_inventory(cluster)
    limit = resolve_limit(options["limit"] or "", cluster)
    control_checks = check_control_host(read_control_facts(directory, os.environ))
    outcome = None
    if not unfit(control_checks):
        request = _request(settings, directory, cluster, limit.text, options)
        outcome = run_watched(request, limit.hosts, verbosity=settings.verbosity)
    return examine(outcome, control_checks, declared, started, time.monotonic() - begin)


def _request(
    settings: Settings, directory: ClusterDir, cluster: Cluster, limit: str, options: dict[str, Any]
) -> RunRequest:
    from deepopsctl.doctor.examine import COMMAND, names_of
    from deepopsctl.run.command_line import IMPATIENT_SSH, RunRequest

    return RunRequest(
        directory,
        COMMAND,
        component=COMMAND,
        command=COMMAND,
        extra_vars={"deepops_doctor_names": names_of(cluster)},
        limit=limit,
        content=settings.content,
        verbosity=settings.verbosity if settings.verbosity > 2 else 0,
        user=options["user"] or "",
        ssh=IMPATIENT_SSH,
        # a sudo that hangs is a finding, and there is a second look without it
        patience_s=10,
        **ask_passwords(ssh=options["ask_pass"], become=options["ask_become_pass"]),
    )
