"""What Slurm can't do under the jobs that are there: which change asks for which jobs. The lab asks a real squeue."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs._shared.slurm_effects import changes
from tests.support import node_modules as nodeside

unsafe_changes = nodeside.load("slurm.unsafe_changes")

OLD = """\
ClusterName=hpc
SelectType=select/cons_tres
SlurmctldTimeout=120
NodeName=gpu[01-02] CPUs=64 Weight=1
PartitionName=gpu Nodes=gpu[01-02] MaxTime=5
PartitionName=old Nodes=gpu01
"""


class Answers:
    """What squeue said, for any question; the questions are kept."""

    def __init__(self, output: str = "41\n", *, worked: bool = True) -> None:
        self.questions: list[tuple[str, ...]] = []
        self._answer = Result("squeue", 0, output, "", 0.1) if worked else Result("squeue", 1, "", output, 0.1)

    def __call__(self, command: list[str]) -> Result:
        self.questions.append(tuple(command))
        return self._answer


def refused(ask: Answers, old: str, new: str, *not_yet: str) -> list[Any]:
    """What is refused when a piece of the file becomes another."""
    changed = OLD.replace(old, new)
    assert changed != OLD
    return list(unsafe_changes.refusals(unsafe_changes.certain(changes(OLD, changed), not_yet), ask))


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("CPUs=64", "CPUs=32", "--nodelist=gpu[01-02]"),
        ("NodeName=gpu[01-02]", "NodeName=gpu01", "--nodelist=gpu02"),
        ("PartitionName=old Nodes=gpu01\n", "", "--partition=old"),
        ("cons_tres", "linear", ""),
    ],
)
def test_what_would_end_jobs_is_refused_and_names_them(old: str, new: str, question: str) -> None:
    ask = Answers()

    ((message, hint),) = refused(ask, old, new)

    assert message.endswith(": 41")
    assert hint
    assert question in ask.questions[0] or not question


@pytest.mark.parametrize(
    ("old", "new"),
    [("Weight=1", "Weight=2"), ("MaxTime=5", "MaxTime=9"), ("SlurmctldTimeout=120", "SlurmctldTimeout=60")],
)
def test_what_keeps_jobs_asks_nothing(old: str, new: str) -> None:
    ask = Answers()
    assert refused(ask, old, new) == []
    assert ask.questions == []


def test_nodes_that_are_not_there_yet_and_the_name_of_all_state_need_no_question() -> None:
    ask = Answers()
    assert refused(ask, "NodeName=gpu[01-02]", "NodeName=gpu01", "gpu02") == []
    assert refused(ask, "ClusterName=hpc", "ClusterName=other")[0][0] == "changing ClusterName would lose running jobs"
    assert ask.questions == []


def test_without_jobs_nothing_is_refused_and_without_an_answer_all() -> None:
    silent = Answers("Unable to contact slurm controller", worked=False)

    assert refused(Answers(""), "CPUs=64", "CPUs=32") == []
    assert "Unable to contact slurm controller" in refused(silent, "CPUs=64", "CPUs=32")[0][0]


def test_another_job_container_waits_for_the_jobs_that_run_and_for_no_others() -> None:
    ask = Answers()

    ((message, hint),) = refused(ask, "ClusterName=hpc\n", "ClusterName=hpc\nJobContainerType=job_container/tmpfs\n")

    assert message == "changing JobContainerType would break jobs that are running: 41"
    assert "their next steps would fail" in hint
    assert unsafe_changes.HOLDING in ask.questions[0]
    assert refused(Answers(""), "ClusterName=hpc\n", "ClusterName=hpc\nJobContainerType=x\n") == []
