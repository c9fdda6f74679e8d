"""`deepopsctl doctor`: read-only checks of this machine and of every node."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import connection_options, json_option, limit_option
from deepopsctl.cli.output import emit_json, info

if TYPE_CHECKING:
    from deepopsctl.doctor.examine import Examination


@click.command()
@limit_option
@connection_options
@json_option
@click.pass_obj
def doctor(settings: Settings, /, *, as_json: bool, **options: Any) -> int:
    """Check this machine, every node, and the network between them for problems.

    Read-only. Nodes that are down or hang time out after seconds. Works before and after the first deploy.
    Exit codes: 1 a check failed, 4 nodes could not be reached, 5 this machine lacks what a run needs.
    """
    from deepopsctl.cli.views.checks import show_checks
    from deepopsctl.cli.views.run import failure_lines, show_next
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.doctor.examine import save

    examination = _examine(settings, options)
    save(examination)
    show_checks(examination.facts)
    if examination.outcome is None:
        info("nodes were not checked: fix the failed checks of this machine first")
    else:
        for line in failure_lines(failure for failure in examination.outcome.summary.failures if not failure.host):
            info(line)
    if not examination.exit_code:
        show_next(ClusterDir.open(settings.directory), "plan", "deploy")
    if as_json:
        emit_json(examination.document())
    return int(examination.exit_code)


def _examine(settings: Settings, options: dict[str, Any]) -> Examination:
    """Check this machine first, then the nodes if it can run Ansible."""
    from deepopsctl.cli.execute import run_request, run_watched
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import resolve_limit
    from deepopsctl.doctor.check_builders import Declared
    from deepopsctl.doctor.control_host import check_control_host, read_control_facts
    from deepopsctl.doctor.examine import COMMAND, SUDO_S, examine, late_hosts, names_of, second_request, unfit
    from deepopsctl.run.late import merged
    from deepopsctl.run.questions import DOCTOR_PLAYBOOK, without_secrets
    from deepopsctl.run.request import IMPATIENT_SSH, default_width
    from deepopsctl.run.runner import run_readonly
    from deepopsctl.slurm.hardware import load_hardware
    from deepopsctl.text.node_sets import fold

    begin, started = time.monotonic(), datetime.now().astimezone()
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    declared = Declared(cluster, load_hardware(directory.hardware))
    directory.refresh_inventory(cluster)
    limit = resolve_limit(options["limit"] or "", cluster)
    control_checks = check_control_host(read_control_facts(directory, os.environ))
    outcome = None
    if not unfit(control_checks):
        request = run_request(
            settings,
            directory,
            options,
            (DOCTOR_PLAYBOOK,),
            component=COMMAND,
            command=COMMAND,
            extra_vars={"deepops_doctor_names": names_of(cluster)},
            limit=limit.text,
            ssh=IMPATIENT_SSH,
            # each opens a connection of its own, also where Ansible asks
            forks=default_width(),
            patience_s=SUDO_S,
        )
        request = without_secrets(request, cluster)
        outcome = run_watched(request, limit.hosts, verbosity=settings.verbosity)
        if not outcome.stopped and (late := late_hosts(outcome.summary)):
            info(f"asking late nodes again, with more time: {fold(late)}")
            outcome = merged(outcome, run_readonly(second_request(request, late)))
    return examine(outcome, control_checks, declared, started, time.monotonic() - begin)
