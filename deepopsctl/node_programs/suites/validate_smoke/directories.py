"""Private directories of jobs: two jobs of one user at once each have their own, removed when the job ends."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ..._shared.checks import PASS, Check
from ..._slurm_jobs import placement, probe, probe_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.probe_jobs import Answers, Data
from ..._slurm_jobs.session import Session
from .context import Context, check, failed, skipped

CHECK = "job-directories"
EXPECTED = "own, mode 700, gone afterwards"


class Pair(NamedTuple):
    """Answers of two jobs that overlapped in time, by node: the second again when the first had ended."""

    first: Answers
    second: Answers


def try_pair(session: Session, label: str, place: Placement, wanted: Mapping[str, Any]) -> Pair:
    """The first job leaves marks; the second checks for them, and again after the first has ended."""
    names = ["directory-a" + label, "directory-b" + label]
    directory, private = str(wanted["directory"]), [str(path) for path in wanted["private"]]
    holding = session.start(
        names[0], place.options(), probe_jobs.argv("directories", session.token, "", directory, *private)
    )
    holding.wait_for(probe.MARK, len(place.nodes), session.queue_timeout)
    lines = probe_jobs.parse(holding.text("out"))
    job = next((str(data[0].get("job", "")) for data in lines.values()), "")
    if not job:
        outcome = session.finish(names[0], holding)
        return Pair(Answers({}, {node: probe_jobs.trouble(outcome) for node in place.nodes}), Answers({}, {}))
    looking = session.start(
        names[1], place.options(), probe_jobs.argv("directories", session.token, job, directory, *private)
    )
    looking.wait_for(probe.MARK, len(place.nodes), session.queue_timeout)
    holding.release()
    first = _answers(place, session.finish(names[0], holding))
    looking.release()
    return Pair(first, _answers(place, session.finish(names[1], looking)))


def _answers(place: Placement, outcome: Any) -> Answers:
    lines = probe_jobs.parse(outcome.out)
    return Answers(lines, {node: probe_jobs.trouble(outcome) for node in place.nodes if node not in lines})


def verify_directories(context: Context) -> list[Check]:
    """The check of every node that answered, where cluster.yml gives jobs private directories."""
    session, wanted, names = context.session, context.inputs.directories, context.names
    nodes, partitions = context.snapshot.nodes, context.snapshot.partitions
    free = [name for name in names if placement.room_for_two(nodes[name])]
    places = placement.place(free, nodes, partitions)
    checks = [skipped(CHECK, name, "busy: no room for two jobs") for name in names if name not in free]
    if not places:
        return checks
    with ThreadPoolExecutor(probe_jobs.WORKERS) as pool:
        pairs = pool.map(lambda job: try_pair(session, str(job[0]), job[1], wanted), enumerate(places))
        for place, pair in zip(places, pairs):
            checks += [evaluate(name, pair, wanted) for name in place.nodes]
    return checks


def evaluate(node: str, pair: Pair, wanted: Mapping[str, Any]) -> Check:
    """What the two jobs found on one node."""
    for answers in pair:
        if node in answers.troubles:
            what = answers.troubles[node]
            return check(CHECK, node, what.status, message=what.message)
    first, second = pair.first.lines.get(node, []), pair.second.lines.get(node, [])
    for line in [*first[:1], *second[:1]]:
        text = problem(line)
        if text:
            return failed(CHECK, node, text, line.get("own", "") or "no SLURM_TMPDIR", EXPECTED)
    if len(second) < 2:
        return skipped(CHECK, node, "the second job ended before it could check what the first left")
    seen = second[0].get("seen", [])
    if seen:
        text = f"a job of the same user sees what another has in {', '.join(seen)}"
        return failed(CHECK, node, text, "shared", EXPECTED)
    left = second[1].get("left", "")
    if left:
        return failed(CHECK, node, f"{left} is still there after its job's end", left, EXPECTED)
    also = [path for path in wanted["private"] if path != first[0].get("own")]
    text = f"{' and '.join(also)} as well" if also else "only $SLURM_TMPDIR: /tmp is the whole node's"
    return check(CHECK, node, PASS, f"own {first[0].get('own')}", EXPECTED, message=text)


def problem(line: Data) -> str:
    """What is wrong with a job's own directory, as the job sees it."""
    own = line.get("own", "")
    if not own:
        return "SLURM_TMPDIR is not set in a job"
    if line.get("error"):
        return f"{own}: {line['error']}"
    if line.get("owner") != line.get("user"):
        return f"{own} belongs to uid {line.get('owner')}"
    return "" if line.get("mode") == "700" else f"{own} has mode {line.get('mode')}"
