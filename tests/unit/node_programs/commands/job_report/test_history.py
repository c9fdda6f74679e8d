"""The newest jobs: Slurm is asked about a short time first, and about what a page shows alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deepopsctl.node_programs.commands.job_report import history, records, summary
from deepopsctl.node_programs.commands.job_report.records import DELIMITER


class Accounting:
    """sacct with a job a minute, the newest number the highest, as far back as it is asked."""

    def __init__(self) -> None:
        self.windows: list[str] = []
        self.read: list[int] = []

    def __call__(self, argv: Sequence[str]) -> str:
        window = [word for word in argv if word.startswith("--starttime=")]
        if window:
            self.windows += window
            minutes = 60 * int(window[0].partition("-")[2].split("-")[-1].removesuffix("hours"))
            return "".join(f"{number}{DELIMITER}{1796000000 + 60 * number}\n" for number in range(9000 - minutes, 9000))
        (which,) = (word.partition("=")[2].split(",") for word in argv if word.startswith("--jobs="))
        self.read.append(len(which))
        fields = next(word for word in argv if word.startswith("--format="))
        if fields.endswith("JobName"):
            return ""
        return "".join(DELIMITER.join([job, job, *["1"] * (len(records.FIELDS) - 2)]) + "\n" for job in which)


@pytest.mark.parametrize(("most", "windows"), [(10, 1), (200, 2)])
def test_no_more_is_read_than_is_shown(most: int, windows: int) -> None:
    slurm = Accounting()

    jobs, more = history.newest(slurm, 5, most)

    assert [job.number for job in jobs[:2]] == ["8999", "8998"]
    assert (len(jobs), more) == (most, True)
    assert len(slurm.windows) == windows
    assert slurm.read == [most, most]


def test_accounts_are_asked_for_by_name_and_ones_own_without() -> None:
    asked: list[str] = []

    def slurm(argv: Sequence[str]) -> str:
        asked.append(" ".join(argv))
        return ""

    history.sums(slurm, 1, ["def-a", "def-b"])
    history.sums(slurm, 1)

    assert "--allusers --accounts=def-a,def-b" in asked[0]
    assert "--allusers" not in asked[1]


SEEN = summary.write(summary.Summary(gpus=(summary.GpuUse("g1", "0", 0.25, 1.0, 1.0, 2.0),) * 2)).replace('"', "`")


@pytest.mark.parametrize(
    ("comment", "seen"),
    [(SEEN, 2), ("", 0), ("{`deepopsctl`:2,`gpus`:[]}", 0), ("{`deepopsctl`:1}", 0), (SEEN.replace("0.25", "NaN"), 0)],
)
def test_hours_are_added_up_and_those_that_monitoring_has_seen(comment: str, seen: int) -> None:
    rows = [["alice", "def-a", "3600", "4", "cpu=4,gres/gpu=2,gres/gpu:h100=2", comment]] * 2
    rows.append(["bob", "def-a", "1800", "2", "cpu=2", ""])

    totals = history.sums(lambda _: "".join(DELIMITER.join(row) + "\n" for row in rows), 1)

    assert totals[("def-a", "alice")] == history.Sum(2, 8.0, 4.0, 2.0 * seen, 0.5 * seen)
    assert totals[("def-a", "bob")] == history.Sum(1, 1.0)
    known = summary.read(comment)
    assert len(known.gpus if known else ()) == seen
