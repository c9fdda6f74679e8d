"""Waiting jobs that a new slurm.conf would end, or leave waiting for ever. The lab asks a real slurmctld."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from tests.support import node_modules as nodeside

fitting, waiting = (nodeside.load(f"slurm.{name}") for name in ("fitting", "waiting_jobs"))

OLD = """\
NodeName=gpu[01-02] CPUs=8 RealMemory=64000 Gres=gpu:a100:4 Feature=ib,big
NodeName=gpu03 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=128000 Gres=gpu:h100:8(S:0-1),shard:16
NodeName=cpu1 CPUs=4 RealMemory=8000
NodeSet=fast Feature=ib
PartitionName=gpu Nodes=gpu[01-03] MaxTime=2-00:00:00 Default=YES
PartitionName=fast Nodes=fast
PartitionName=all Nodes=ALL MaxTime=INFINITE
"""
WIDTHS = (64, 256, 256, 256)


def line(
    job: str = "12", state: str = "PENDING", partitions: str = "gpu", nodes: str = "", count: str = "1",
    cpus: str = "1", memory: str = "100M", gres: str = "N/A", limit: str = "1:00:00", reservation: str = "(null)",
    features: str = "(null)", priority: str = "9", node_cpus: str = "1", excluded: str = "",
) -> str:  # fmt: skip
    """A line of squeue, as 24.11 prints it."""
    number = re.split(r"[+_]", job)[0] + ("5" if "+" in job else "")
    return "|".join((
        job, number, "alice", state, partitions, nodes, excluded, count, cpus, node_cpus, memory, gres, limit,
        reservation, priority, features,
    ))  # fmt: skip


def columns(job: str = "12", whole: str = "N/A", socket: str = "N/A", task: str = "N/A") -> str:
    """The same job in squeue's columns."""
    return "".join(f"{text:<{width}}" for text, width in zip((job, whole, socket, task), WIDTHS, strict=True))


def affected(new: str, queue: str, more: str = "", reservations: dict[str, frozenset[str]] | None = None) -> list[Any]:
    """The jobs of a queue that the new slurm.conf concerns."""
    layouts = waiting.layout(OLD), waiting.layout(new)
    return list(waiting.affected(waiting.jobs(queue, more or columns()), *layouts, reservations or {}))


def without(*pairs: tuple[str, str]) -> str:
    text = OLD
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


GPU03 = next(entry for entry in OLD.splitlines(keepends=True) if entry.startswith("NodeName=gpu03"))
NO_GPU03 = without((GPU03, ""), ("gpu[01-03]", "gpu[01-02]"))


@pytest.mark.parametrize("held", ["0", "9"])
@pytest.mark.parametrize("job", ["12", "12_7", "12_[1-4%2]", "12_[1,3,5,...", "12+1", "12+0"])
def test_a_job_that_names_a_node_which_goes_would_end_held_or_not(job: str, held: str) -> None:
    (case,) = affected(NO_GPU03, line(job, nodes="gpu[02-03]", count="2", priority=held))

    assert (case.job.id, case.job.user, case.ends) == (job, "alice", True)
    assert case.reason == "asks for gpu03, which goes"
    # Slurm 24.11 refuses any change of the first part of a heterogeneous job
    assert case.rescue == (None if job == "12+0" else ("reqnodelist=gpu02",))


def test_a_job_in_a_partition_that_goes_is_rescued_only_where_it_has_another() -> None:
    new = without(("PartitionName=all Nodes=ALL MaxTime=INFINITE\n", ""))

    only, several = affected(new, "\n".join([line("1", partitions="all"), line("2", partitions="gpu,all")]))

    assert only.rescue is None
    assert several.rescue == ("partition=gpu",)
    assert only.reason == "is in partition all, which goes"


@pytest.mark.parametrize(
    ("request_", "more", "words"),
    [
        ({"gres": "gres/gpu:h100:1"}, {}, "gpu:h100"),
        ({"gres": "gres:gpu:h100:1"}, {}, "gpu:h100"),
        ({"gres": "gpu:h100:1"}, {}, "gpu:h100"),
        ({"gres": "gres/gpu:5"}, {}, "gpu:5"),
        ({"gres": "gres/shard:2"}, {}, "shard"),
        ({}, {"whole": "gres/gpu:h100:2"}, "gpu:h100"),
        ({}, {"whole": "gres/gpu=9"}, "gpu:9"),
        ({}, {"task": "gres/gpu:h100=2"}, "gpu:h100"),
        ({}, {"socket": "gres/gpu:h100:2"}, "gpu:h100"),
        ({"count": "3"}, {}, "3 nodes"),
        ({"count": "3-4", "cpus": "3-4"}, {}, "3 nodes"),
        ({"memory": "100G"}, {}, "102400 MB"),
        ({"node_cpus": "16", "cpus": "16"}, {}, "16 CPUs"),
        ({"cpus": "20"}, {}, "20 CPUs"),
    ],
)
def test_a_job_that_only_the_leaving_node_fits_would_wait_for_ever(
    request_: dict[str, str], more: dict[str, str], words: str
) -> None:
    (case,) = affected(NO_GPU03, line(**request_), columns(**more))

    assert not case.ends
    assert case.rescue == ()
    assert words in case.reason


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("ib", False),
        ("big", True),
        ("ib&big", False),
        ("ib,big", False),
        ("ib|big", True),
        ("(ib|big)&big", True),
        ("(ib&big)|ib", False),
        ("[ib|big]", True),
        ("[ib*1&big*1]", True),
        ("ib*2", False),
    ],
)
def test_a_feature_that_goes_is_read_as_slurm_does(expression: str, fits: bool) -> None:
    new = without(("Feature=ib,big", "Features=big"))

    assert bool(affected(new, line(features=expression))) is not fits


def test_a_shorter_partition_concerns_jobs_with_a_longer_limit_of_their_own() -> None:
    new = without(("MaxTime=2-00:00:00", "MaxTime=12:00:00"))
    queue = [line("1", limit="1-00:00:00"), line("2", limit="2-00:00:00"), line("3", limit="10:00:00")]

    assert [case.job.id for case in affected(new, "\n".join(queue))] == ["1"]


def test_a_reservation_that_loses_its_last_node_concerns_its_jobs() -> None:
    reservations = {"class": frozenset(["gpu03"]), "week": frozenset(["gpu02", "gpu03"])}
    queue = "\n".join([line("1", reservation="class"), line("2", reservation="week")])

    ((job, *_),) = affected(NO_GPU03, queue, reservations=reservations)

    assert job.id == "1"


@pytest.mark.parametrize(
    "harmless",
    [
        {},
        {"state": "RUNNING", "nodes": "gpu03"},
        {"partitions": "fast,gpu", "gres": "gres/gpu:a100:4"},
        {"partitions": "fast", "features": "ib", "count": "2"},
        {"excluded": "gpu03"},
        {"gres": "gres/gpu:tpu:1"},
        {"features": "nothing-has-it"},
        {"nodes": "gpu[01-02]", "count": "2"},
        {"partitions": "gone"},
        {"count": "2", "gres": "gres/gpu:a100:4"},
    ],
)
def test_what_still_fits_or_never_did_is_let_be(harmless: dict[str, str]) -> None:
    assert affected(NO_GPU03, line(**harmless)) == []


def test_the_model_is_the_same_without_nodes_and_with_the_text_that_lacks_them() -> None:
    old, new = waiting.layout(OLD), waiting.layout(NO_GPU03)

    assert old.without(["gpu03"])[:2] == new[:2]
    assert new.lent(old, ["gpu03"])[:2] == old[:2]
    assert waiting.layout("").lent(old, list(old.nodes)) == old


def test_what_is_no_line_of_squeue_is_an_error_and_not_an_empty_queue() -> None:
    with pytest.raises(ValueError, match="which is not a job"):
        waiting.jobs("squeue: error: something", "")


def test_a_hold_clears_what_would_end_the_job_and_leaves_an_administrators_hold_alone() -> None:
    commands: list[list[str]] = []

    def ask(command: list[str]) -> Result:
        commands.append(command)
        return Result("scontrol", 0, "", "", 0.1)

    jobs = [line("9_[1-4%2]", nodes="gpu03"), line("10", nodes="gpu03", priority="0"), line("11+1", nodes="gpu03")]

    assert waiting.hold(affected(NO_GPU03, "\n".join(jobs)), ask) == []
    assert [" ".join(command) for command in commands] == [
        "scontrol uhold 9",
        "scontrol update jobid=9 reqnodelist=",
        "scontrol update jobid=10 reqnodelist=",
        "scontrol uhold 11",
        "scontrol update jobid=115 reqnodelist=",
    ]


def test_the_layout_of_a_running_slurmctld_is_that_of_its_slurm_conf() -> None:
    nodes = (
        "NodeName=gpu01 Arch=x86_64 CPUAlloc=0 CPUTot=8 AvailableFeatures=ib,big Gres=gpu:a100:4 RealMemory=64000 \n"
        "NodeName=cpu1 CPUTot=4 AvailableFeatures=(null) Gres=(null) RealMemory=8000 Reason=x [a@2026]"
    )
    partitions = (
        "PartitionName=gpu MaxTime=2-00:00:00 MaxNodes=UNLIMITED Nodes=gpu01\nPartitionName=all Nodes=gpu01,cpu1"
    )

    live, written = fitting.live(nodes, partitions), waiting.layout(OLD)

    assert {name: live.nodes[name] for name in ("gpu01", "cpu1")} == {
        name: written.nodes[name] for name in ("gpu01", "cpu1")
    }
    assert live.members == {"gpu": frozenset(["gpu01"]), "all": frozenset(["gpu01", "cpu1"])}
