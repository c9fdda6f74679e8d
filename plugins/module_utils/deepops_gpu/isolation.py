"""As many jobs with one GPU as a node has GPUs, all at once: each gets its own, and can open no other."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import (
    across,
    confinement,
    gpus,
    placement,
    probe,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.across import Data, Trouble
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.placement import Placement
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.session import Session
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.slurmtext import Record
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.verdict import (
    FAIL,
    PASS,
    WARN,
    Verdict,
    failed,
    skipped,
    verdict,
)

NAMES = ("gpu-allocation", "gpu-isolation", "gpu-visible")
SLICED = "cut into MIG slices: jobs share a GPU's device file, and each sees its slice only"
NO_DRIVER = "no NVIDIA driver here that could be asked"


class Told(NamedTuple):
    """What jobs on one node said: without a GPU, and those with one, which held it at the same time."""

    without: Data
    ones: List[Data]
    trouble: Optional[Trouble] = None


def ask(session: Session, place: Placement, count: int, files: Sequence[str]) -> Told:
    """Run the jobs on one node: first without a GPU, then `count` at once with one each."""
    node = place.nodes[0]
    outcome = session.srun("none-" + node, place.options(), across.argv("gpu", "", *files))
    without = across.parse(outcome.out).get(node)
    if not without:
        return Told({}, [], across.trouble(outcome))
    names = ["one{}-{}".format(number, node) for number in range(count)]
    holding = {name: session.start(name, place.options(gpus=1), across.argv("gpu", "hold", *files)) for name in names}
    for running in holding.values():
        running.wait_for(probe.MARK, 1, session.queue_timeout)
    for running in holding.values():
        running.release()
    outcomes = [session.finish(name, running) for name, running in holding.items()]
    told = [(outcome, across.parse(outcome.out).get(node)) for outcome in outcomes]
    troubled = [across.trouble(outcome) for outcome, lines in told if not lines]
    return Told(without[0], [lines[0] for _, lines in told if lines], troubled[0] if troubled else None)


def room(node: Record) -> int:
    """How many jobs with one GPU and one core fit on a node now."""
    threads = max(int(node.get("ThreadsPerCore", "1") or 1), 1)
    cores = (int(node.get("CPUTot", "0")) - int(node.get("CPUAlloc", "0"))) // threads
    return min(placement.free_gpus(node), cores)


def judge(node: str, told: Told, wanted: int, confined: bool, sliced: bool) -> List[Verdict]:
    """The three checks of one node."""
    if told.trouble:
        what = told.trouble
        return [verdict(name, node, what.status, message=what.message) for name in NAMES]
    return [
        assignment(node, told.ones, wanted),
        _confinement(node, told, confined, sliced),
        visible(node, told, confined, sliced),
    ]


def assignment(node: str, ones: Sequence[Data], wanted: int) -> Verdict:
    """Each job was told of one GPU, and no two of the same."""
    name, expected = NAMES[0], "{} different GPUs".format(wanted) if wanted > 1 else "1 GPU"
    told = [str(data.get("env", {}).get("CUDA_VISIBLE_DEVICES", "")) for data in ones]
    if not all(told):
        return failed(name, node, "CUDA_VISIBLE_DEVICES is not set in a job with a GPU", "not set", expected)
    got = [gpus.device(data) for data in ones]
    measured = "GPU " + ", ".join(sorted(got))
    if any("," in text for text in got + told):
        text = "a job with --gpus-per-node=1 got CUDA_VISIBLE_DEVICES={}".format(" and ".join(told))
        return failed(name, node, text, measured, expected)
    twice = sorted({text for text in got if got.count(text) > 1})
    if twice:
        text = "jobs at the same time got the same GPU: {}".format(", ".join(twice))
        return failed(name, node, text, measured, expected)
    return verdict(name, node, PASS, measured, expected, message="{} jobs at once".format(len(ones)))


def _confinement(node: str, told: Told, confined: bool, sliced: bool) -> Verdict:
    """What each job could open, its own and the others'; the first that is wrong counts."""
    if not confined or sliced:
        return skipped(NAMES[1], node, SLICED if confined else confinement.NOT_CONFIGURED)
    found = [confinement.gpus(node, one["gpus"], told.without["gpus"]) for one in told.ones]
    worst = min(found, key=lambda check: (FAIL, WARN, PASS).index(check["status"]))
    # the smoke suite makes the same check of one job
    return dict(worst, name=NAMES[1])


def visible(node: str, told: Told, confined: bool, sliced: bool) -> Verdict:
    """NVIDIA's driver shows each job exactly one GPU, a different one to each, and none to a job without."""
    name, expected = NAMES[2], "1 GPU each, none without"
    if not confined or sliced:
        return skipped(name, node, SLICED if confined else confinement.NOT_CONFIGURED)
    seen: Dict[str, List[str]] = {}
    for number, data in enumerate([told.without, *told.ones]):
        if data.get("uuids") is None:
            # without a GPU of its own a job may be shown no driver at all
            if number:
                return skipped(name, node, NO_DRIVER)
            continue
        seen["job {}".format(number) if number else "the job without GPUs"] = list(data["uuids"])
    measured = ", ".join(str(len(uuids)) for uuids in seen.values()) + " GPUs"
    for who, uuids in seen.items():
        most = 1 if who.startswith("job") else 0
        if len(uuids) != most:
            text = "{} sees {} GPUs by NVML: {}".format(who, len(uuids), ", ".join(uuids) or "none")
            return failed(name, node, text, measured, expected)
    listed = [uuid for uuids in seen.values() for uuid in uuids]
    twice = sorted({uuid for uuid in listed if listed.count(uuid) > 1})
    if twice:
        return failed(name, node, "two jobs see the same GPU: {}".format(", ".join(twice)), measured, expected)
    return verdict(name, node, PASS, measured, expected, message="{} UUIDs, each in one job".format(len(listed)))


def not_tried(node: str, reason: str) -> List[Verdict]:
    """The checks of a node where no job could run."""
    return [skipped(name, node, reason) for name in NAMES]
