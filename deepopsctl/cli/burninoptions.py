"""The options of `deepopsctl validate burnin`, and its end where the run is stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deepopsctl.cli.options import seconds
from deepopsctl.cli.output import say

if TYPE_CHECKING:
    from deepopsctl.burnin import Burnin
    from deepopsctl.invocation import RunRequest
    from deepopsctl.outcome import RunOutcome

F = TypeVar("F", bound=Callable[..., object])
# burnin.SUITE, without importing it: --help answers at once
SUITE = "burnin"
# a shorter load proves nothing; a longer one outlasts what partitions allow
_USUAL, _SHORTEST_S, _LONGEST_S = "10m", 10, 7 * 86_400


def _duration(ctx: click.Context, param: click.Parameter, text: str) -> int:
    found = seconds(ctx, param, text)
    if not _SHORTEST_S <= found <= _LONGEST_S:
        raise click.BadParameter(f"{text}: a burn-in takes 10s to 7d", ctx, param)
    return found


def burnin_options(function: F) -> F:
    """How long, and how much behind other jobs."""
    for option in (
        click.option("--qos", default="", metavar="QOS", help="burnin: run with this QOS, best a preemptible one."),
        click.option("--partition", default="", metavar="NAME", help="burnin: run in this partition."),
        click.option(
            "--duration", default=_USUAL, show_default=True, callback=_duration, metavar="TIME",
            help="burnin: how long each node is loaded (90s, 10m, 2h).",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def wish(ctx: click.Context, wanted: tuple[str, ...], given: Mapping[str, Any]) -> Burnin | None:
    """What the options ask for; None where no burn-in is wanted, and then none of them may be given."""
    from deepopsctl.burnin import Burnin

    if SUITE in wanted:
        return Burnin(given["duration"], given["partition"], given["qos"])
    for name in ("duration", "partition", "qos"):
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is for the burn-in only: deepopsctl validate burnin --{name} ...")
    return None


def leave(outcome: RunOutcome, request: RunRequest, burnin: Burnin | None) -> None:
    """After a run: keep what was measured. After one that was stopped: cancel its jobs, or tell a person how."""
    from deepopsctl.burnin import end, keep_results

    if burnin is None:
        return
    keep_results(outcome)
    if not outcome.stopped:
        return
    say("burn-in: cancelling its jobs")
    if not end(request, burnin):
        say(f"burn-in: its jobs may go on; on a machine with Slurm's tools, as the cluster's user: {burnin.by_hand}")
