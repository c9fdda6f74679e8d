"""Send one probe to many nodes: a job for all of them, and one for each that gave no answer."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from .._shared.checks import FAIL, SKIP, one_line
from . import probe
from .placement import Placement
from .session import Outcome, Session

# nodes tried alone after a joint job failed: enough to name the failing ones, few enough to end in time
MOST_ALONE = 24
WORKERS = 8
Data = dict[str, Any]
# read here, once: `inspect` finds no source in a packed module while another thread asks for the same
_PROBE = inspect.getsource(probe)


class Trouble(NamedTuple):
    """Why a node gave no answer, and whether that is its fault."""

    status: str
    message: str


class Answers(NamedTuple):
    """Lines of the probe by node (one probe may print several), and the nodes without any."""

    lines: dict[str, list[Data]]
    troubles: dict[str, Trouble]
    stderr: str = ""


def argv(mode: str, *arguments: str) -> list[str]:
    """The command that runs a mode of the probe on a node."""
    return ["/usr/bin/python3", "-c", _PROBE, mode, *arguments]


def parse(out: str) -> dict[str, list[Data]]:
    """The probe's lines in a job's output, by node."""
    lines_by_node: dict[str, list[Data]] = {}
    for line in out.splitlines():
        start = line.find(probe.MARK)
        if start < 0:
            continue
        try:
            data = json.loads(line[start + len(probe.MARK) :])
        except ValueError:
            continue
        lines_by_node.setdefault(str(data.get("node", "")), []).append(data)
    return lines_by_node


def trouble(outcome: Outcome) -> Trouble:
    """What a job that gave no answer means for its node."""
    return Trouble(SKIP if outcome.busy else FAIL, one_line(outcome.why))


def _joint(
    session: Session, what: str, placement: Placement, extra: Sequence[str], probe_argv: Sequence[str]
) -> Answers:
    outcome = session.srun(what, [*placement.options(), *extra], probe_argv)
    lines = {node: data for node, data in parse(outcome.out).items() if node in placement.nodes}
    missing = [node for node in placement.nodes if node not in lines]
    return Answers(lines, {node: trouble(outcome) for node in missing}, outcome.err)


def ask(
    session: Session,
    what: str,
    placements: Iterable[Placement],
    probe_argv: Sequence[str],
    extra: Sequence[str] = (),
    alone: Iterable[Placement] = (),
) -> Answers:
    """Probe all nodes; those in `alone` are in doubt: a silent one would take others of its job with it."""
    with ThreadPoolExecutor(WORKERS) as pool:
        jobs = [(f"{what}{number}", place) for number, place in enumerate([*placements, *alone])]
        first = list(pool.map(lambda job: _joint(session, job[0], job[1], extra, probe_argv), jobs))
        again = [
            Placement(place.partition, [node])
            for (_name, place), answers in zip(jobs, first)
            for node in answers.troubles
            if len(place.nodes) > 1
        ][:MOST_ALONE]
        second = list(
            pool.map(lambda place: _joint(session, what + "-" + place.nodes[0], place, extra, probe_argv), again)
        )
    lines: dict[str, list[Data]] = {}
    troubles: dict[str, Trouble] = {}
    for answers in [*first, *second]:
        lines.update(answers.lines)
        troubles.update(answers.troubles)
    still = {node: what_is for node, what_is in troubles.items() if node not in lines}
    return Answers(lines, still, "\n".join(answers.stderr for answers in [*first, *second]))
