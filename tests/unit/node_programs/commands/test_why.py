"""`why`, from what a real slurmctld 24.11 and its accounting answered in a lab: tests/data/slurm/why."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.commands.why import cli, limits, output_file
from deepopsctl.node_programs.commands.why.asking import NoJobError, Slurm
from deepopsctl.node_programs.commands.why.changes import Change, sooner
from deepopsctl.node_programs.commands.why.explanation import Explanation, document, explain, render
from deepopsctl.node_programs.commands.why.job import _COLUMNS, Job
from tests.support.paths import ROOT

RECORDS = ROOT / "tests" / "data" / "slurm" / "why"
# the recording, the cause, and what is said of it
RECORDED = [
    ("resources", "resources", "job {first} of ubuntu on gpu01 has 1 CPU, 50M of memory, 2 x a100"),
    ("priority", "priority", "fair share"),
    ("qos-limit", "qos-limit", "a limit of QOS onejob is reached: at most 1 running jobs, of one user at a time"),
    ("association-limit", "association-limit", "a limit of account upper is reached: at most 1 running jobs"),
    ("maintenance", "maintenance", "reservation kept from"),
    ("nodes-out-of-service", "nodes-out-of-service", "gpu01 is idle+drain: Xid 79"),
    ("no-such-nodes", "no-such-nodes", "no node has the feature fast"),
    ("dependency-never-satisfied", "dependency-never-satisfied", "did not end as it requires"),
    ("out-of-memory", "out-of-memory", "more memory than the 60 MiB that it had"),
    ("cancelled-by-other", "cancelled-by-other", "cancelled by root, an administrator"),
    ("gpu-fault", "gpu-fault", "Xid 79: GPU lost"),
]


class Recorded:
    """Slurm's commands with the answers of one recording; another question is an error of the test."""

    def __init__(self, name: str) -> None:
        self.record: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text("utf-8"))
        self.answers = {tuple(argv): (status, output, errors) for argv, status, output, errors in self.record["calls"]}
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, argv: Sequence[str]) -> Result:
        self.asked.append(tuple(argv))
        return Result(argv[0], *self.answers[tuple(argv)], 0.1)

    def explain(self, me: str = "ubuntu") -> Explanation:
        """The answer for a person."""
        return explain(self.record["job"], self, self.record["now"], me)


@pytest.mark.parametrize(("name", "key", "text"), RECORDED)
def test_it_names_the_cause(name: str, key: str, text: str) -> None:
    slurm = Recorded(name)

    answer = slurm.explain()

    causes = {cause.key: cause for cause in answer.causes}
    shown = "\n".join([causes[key].text, *causes[key].details])
    first, _, rest = text.partition("{first}")
    assert first in shown
    assert rest in shown
    assert json.loads(json.dumps(document(answer)))["causes"][0]["key"]


@pytest.mark.parametrize(("name", "_key", "_text"), RECORDED)
def test_it_never_reads_the_queue_and_asks_little(name: str, _key: str, _text: str) -> None:
    slurm = Recorded(name)

    answer = slurm.explain()

    assert answer.calls == len(slurm.asked) <= 18
    # squeue and sprio of one job; sacct of one job, or of those that run on some nodes, or of an account
    for argv in slurm.asked:
        if argv[0] in ("squeue", "sprio"):
            assert any(word.startswith(("--jobs=", "--weights")) for word in argv)
        if argv[0] == "sacct":
            assert any(word.startswith(("--jobs=", "--nodelist=", "--accounts=", "--qos=")) for word in argv)


def test_what_helps_comes_first_with_the_gain_and_the_command() -> None:
    answer = Recorded("maintenance").explain()

    advice = answer.causes[0].advice
    shorter = next(each for each in advice if each.command.startswith(f"scontrol update jobid={answer.job} timelimit="))
    assert (shorter.gain_s or 0) >= 60
    assert [each.start for each in advice] == sorted(each.start or 0 for each in advice)
    assert any("sooner" in line for line in render(answer))


def test_no_change_of_another_users_job_is_tried() -> None:
    slurm = Recorded("maintenance")

    answer = slurm.explain(me="bob")

    assert [argv for argv in slurm.asked if argv[0] == "sbatch"] == []
    assert answer.causes[0].key == "maintenance"


def test_control_characters_of_users_and_administrators_are_not_printed() -> None:
    slurm = Recorded("nodes-out-of-service")
    slurm.answers = {
        argv: (status, output.replace("Xid", "\x1b]0;owned\x07Xid"), errors)
        for argv, (status, output, errors) in slurm.answers.items()
    }

    text = "\n".join(render(slurm.explain()))

    assert "Xid 79" in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_no_text_that_a_user_chooses_is_asked_of_squeue() -> None:
    free = {
        "Name",
        "Command",
        "Comment",
        "WorkDir",
        "StdOut",
        "StdErr",
        "StdIn",
        "system_comment",
        "admin_comment",
        "WCKey",
    }

    assert not free & set(_COLUMNS)


def test_a_job_that_nobody_knows_and_a_dead_slurmctld_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    def unknown(argv: Sequence[str]) -> Result:
        wrong = "slurm_load_jobs error: Invalid job id specified" if argv[0] == "squeue" else ""
        return Result(argv[0], 1 if wrong else 0, "", wrong, 0.1)

    assert cli.main(["4711"], unknown) == 1
    assert "Slurm knows none that you may see" in capsys.readouterr().err

    with pytest.raises(NoJobError, match="does not answer: squeue: Connection refused"):
        explain("4711", lambda argv: Result(argv[0], 1, "", "Connection refused", 0.1), 0, "alice")


@pytest.mark.parametrize(
    ("reason", "field", "tres"),
    [
        ("QOSMaxJobsPerUserLimit", "MaxJobsPU", ""),
        ("MaxJobsPerAccount", "MaxJobsPA", ""),
        ("QOSMaxCpuPerUserLimit", "MaxTRESPU", "cpu"),
        ("QOSGrpGRES", "GrpTRES", "gres/"),
        ("QOSMaxCpuMinutesPerJobLimit", "MaxTRESMinsPJ", "cpu"),
        ("QOSGrpCPURunMinutesLimit", "GrpTRESRunMins", "cpu"),
        ("QOSMaxWallDurationPerJobLimit", "MaxWallPJ", ""),
        ("QOSMinCpuNotSatisfied", "MinTRESPJ", "cpu"),
        ("AssocMaxJobsLimit", "MaxJobs", ""),
        ("AssocGrpMemLimit", "GrpTRES", "mem"),
        ("AssocGrpWallLimit", "GrpWall", ""),
        ("AssocGrpSubmitJobsLimit", "GrpSubmitJobs", ""),
    ],
)
def test_a_limits_word_is_a_field_of_slurm(reason: str, field: str, tres: str) -> None:
    which = limits.limit(reason)

    assert which is not None
    assert (which.field, which.tres) == (field, tres)


@pytest.mark.parametrize("reason", ["Resources", "Priority", "MaxMemPerLimit", "QOSNotAllowed", ""])
def test_other_reasons_are_not_limits(reason: str) -> None:
    assert limits.limit(reason) is None


def test_tries_end_after_a_slow_one() -> None:
    asked = []

    def slow(argv: Sequence[str]) -> Result:
        asked.append(argv)
        return Result(argv[0], 0, "", f"sbatch: Job 1 to start at {2000 - len(asked)} using 1 processors", 9.0)

    job = Job("1", {**dict.fromkeys(_COLUMNS, ""), "UserName": "alice", "NumNodes": "1", "TimeLimit": "1:00:00"})
    many = [Change(f"time {limit}", {"--time": str(limit)}, "") for limit in range(1, 9)]

    sooner(job, Slurm(slow, "alice"), many, None, stuck=False)

    # unchanged, and one change
    assert len(asked) <= 2


def test_only_own_plain_files_are_read(tmp_path: Path) -> None:
    output = tmp_path / "job.out"
    output.write_text("step 1\nOSError: [Errno 122] Disk quota exceeded: '/home/\x1b[31malice/x'\n", "utf-8")
    sign = output_file.read([str(output)], "/")
    assert sign is not None
    assert (sign.key, sign.line) == ("quota", "OSError: [Errno 122] Disk quota exceeded: '/home/?[31malice/x'")

    os.mkfifo(tmp_path / "pipe")
    assert output_file.read([str(tmp_path / "pipe"), str(tmp_path), str(tmp_path / "nothing"), ""], "/") is None


def test_another_users_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("Permission denied", "utf-8")
    assert output_file.read(["secret"], str(tmp_path)) is not None

    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert output_file.read(["secret"], str(tmp_path)) is None
