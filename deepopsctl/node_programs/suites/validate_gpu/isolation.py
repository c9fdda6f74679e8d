"""As many jobs with one GPU as a node has GPUs, all at once: each gets its own, and can open no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..._shared.checks import FAIL, PASS, WARN, Check
from ..._shared.slurm_output import Record
from ..._slurm_jobs import confinement, placement, probe, probe_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.probe_jobs import Data, Trouble
from ..._slurm_jobs.session import Session
from .inputs import SUITE, check, failed, skipped

NAMES = ("gpu-allocation", "gpu-isolation", "gpu-visible")
SLICED = "cut into MIG slices: jobs share a GPU's device file, and each sees its slice only"
NO_DRIVER = "no NVIDIA driver here that could be asked"


class JobAnswers(NamedTuple):
    """Answers of the jobs on one node: without a GPU, and those with one, which held it at the same time."""

    without: Data
    ones: list[Data]
    trouble: Trouble | None = None


def ask(session: Session, place: Placement, count: int, files: Sequence[str]) -> JobAnswers:
    """Run the jobs on one node: first without a GPU, then `count` at once with one each."""
    node = place.nodes[0]
    outcome = session.srun("none-" + node, place.options(), probe_jobs.argv("gpu", "", *files))
    without = probe_jobs.parse(outcome.out).get(node)
    if not without:
        return JobAnswers({}, [], probe_jobs.trouble(outcome))
    names = [f"one{number}-{node}" for number in range(count)]
    holding = {
        name: session.start(name, place.options(gpus=1), probe_jobs.argv("gpu", "hold", *files)) for name in names
    }
    for running in holding.values():
        running.wait_for(probe.MARK, 1, session.queue_timeout)
    for running in holding.values():
        running.release()
    outcomes = [session.finish(name, running) for name, running in holding.items()]
    answers = [(outcome, probe_jobs.parse(outcome.out).get(node)) for outcome in outcomes]
    troubled = [probe_jobs.trouble(outcome) for outcome, lines in answers if not lines]
    return JobAnswers(without[0], [lines[0] for _, lines in answers if lines], troubled[0] if troubled else None)


def room(node: Record) -> int:
    """How many jobs with one GPU and one core fit on a node now."""
    threads = max(int(node.get("ThreadsPerCore", "1") or 1), 1)
    cores = (int(node.get("CPUTot", "0")) - int(node.get("CPUAlloc", "0"))) // threads
    return max(min(placement.free_gpus(node), cores), 0)


def evaluate(node: str, answers: JobAnswers, wanted: int, *, confined: bool, sliced: bool) -> list[Check]:
    """The three checks of one node."""
    if answers.trouble:
        what = answers.trouble
        return [check(name, node, what.status, message=what.message) for name in NAMES]
    return [
        assignment(node, answers.ones, wanted),
        _confinement(node, answers, confined=confined, sliced=sliced),
        visible(node, answers, confined=confined, sliced=sliced),
    ]


def assignment(node: str, ones: Sequence[Data], wanted: int) -> Check:
    """Each job sees one GPU, and no two see the same."""
    name, expected = NAMES[0], f"{wanted} different GPUs" if wanted > 1 else "1 GPU"
    visible_devices = [str(data.get("env", {}).get("CUDA_VISIBLE_DEVICES", "")) for data in ones]
    if not all(visible_devices):
        return failed(name, node, "CUDA_VISIBLE_DEVICES is not set in a job with a GPU", "not set", expected)
    got = [confinement.device(data) for data in ones]
    measured = "GPU " + ", ".join(sorted(got))
    if any("," in text for text in got + visible_devices):
        text = f"a job with --gpus-per-node=1 got CUDA_VISIBLE_DEVICES={' and '.join(visible_devices)}"
        return failed(name, node, text, measured, expected)
    twice = sorted({text for text in got if got.count(text) > 1})
    if twice:
        text = f"jobs at the same time got the same GPU: {', '.join(twice)}"
        return failed(name, node, text, measured, expected)
    message = f"{len(ones)} jobs at once" if len(ones) > 1 else ""
    return check(name, node, PASS, measured, expected, message=message)


def _confinement(node: str, answers: JobAnswers, *, confined: bool, sliced: bool) -> Check:
    """What each job could open, its own and the others'; the first that is wrong counts."""
    if not confined or sliced:
        return skipped(NAMES[1], node, SLICED if confined else confinement.NOT_CONFIGURED)
    results = [confinement.gpus(SUITE, NAMES[1], node, one["gpus"], answers.without["gpus"]) for one in answers.ones]
    return min(results, key=lambda check: (FAIL, WARN, PASS).index(check["status"]))


def visible(node: str, answers: JobAnswers, *, confined: bool, sliced: bool) -> Check:
    """NVIDIA's driver shows each job exactly one GPU, a different one to each, and none to a job without."""
    name, expected = NAMES[2], "1 GPU each, none without"
    if not confined or sliced:
        return skipped(name, node, SLICED if confined else confinement.NOT_CONFIGURED)
    seen: dict[str, list[str]] = {}
    for number, data in enumerate([answers.without, *answers.ones]):
        if data.get("uuids") is None:
            # without a GPU of its own a job may be shown no driver at all
            if number:
                return skipped(name, node, NO_DRIVER)
            continue
        seen[f"job {number}" if number else "the job without GPUs"] = list(data["uuids"])
    measured = ", ".join(str(len(uuids)) for uuids in seen.values()) + " GPUs"
    for who, uuids in seen.items():
        most = 1 if who.startswith("job") else 0
        if len(uuids) != most:
            text = f"{who} sees {len(uuids)} GPUs by NVML: {', '.join(uuids) or 'none'}"
            return failed(name, node, text, measured, expected)
    listed = [uuid for uuids in seen.values() for uuid in uuids]
    twice = sorted({uuid for uuid in listed if listed.count(uuid) > 1})
    if twice:
        return failed(name, node, f"two jobs see the same GPU: {', '.join(twice)}", measured, expected)
    return check(name, node, PASS, expected, expected, message=f"{len(listed)} UUIDs, each in one job")


def not_tried(node: str, reason: str) -> list[Check]:
    """The checks of a node where no job could run."""
    return [skipped(name, node, reason) for name in NAMES]
