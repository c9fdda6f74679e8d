"""What users read at login: the cluster's state, maintenance ahead, and quotas that are nearly used up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.commands.disk_usage.rows import PROJECT, USER, WHOLE, Amount, Row, Usage
from deepopsctl.node_programs.commands.disk_usage.warning import lines
from deepopsctl.node_programs.commands.login_message.cli import hide_licence
from deepopsctl.node_programs.commands.login_message.state import message

NOW = datetime(2026, 11, 25, 14, 5)
PARTITIONS = "gpu*|12/3/1/16|2-00:00:00\ncpu|0/32/0/32|infinite\n"
MAINTENANCE = (
    "ReservationName=upgrade StartTime=2026-12-01T08:00:00 EndTime=2026-12-01T12:00:00 Duration=04:00:00 "
    "Nodes=gpu[01-16] NodeCnt=16 CoreCnt=256 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES "
    "TRES=cpu=256 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)"
)
GIB = 1 << 30
NONE = Amount()


class Slurm:
    """sinfo and scontrol with these answers."""

    def __init__(self, partitions: str, reservations: str = "No reservations in the system", status: int = 0) -> None:
        self.outputs = {"sinfo": partitions, "scontrol": reservations}
        self.status = status

    def __call__(self, argv: Sequence[str]) -> Result:
        return Result(argv[0], self.status, self.outputs[argv[0]], "", 0.1)


def test_partitions_are_a_table() -> None:
    assert message("hpc", NOW, Slurm(PARTITIONS)).splitlines() == [
        "hpc, Wed 25 Nov 14:05",
        "partition  nodes  idle  in use  not available  longest job",
        "gpu*          16     3      12              1   2-00:00:00",
        "cpu           32    32       0              0     infinite",
    ]


def test_maintenance_is_announced_and_other_reservations_are_not() -> None:
    others = "ReservationName=course StartTime=2026-11-26T08:00:00 EndTime=2026-11-26T12:00:00 Nodes=gpu01 Flags=DAILY"
    far = MAINTENANCE.replace("2026-12-01", "2027-02-01")

    assert message("hpc", NOW, Slurm(PARTITIONS, "\n".join((others, far, MAINTENANCE)))).splitlines()[4:] == [
        "Maintenance of gpu[01-16] from Tue 01 Dec 08:00 to 12:00: jobs start if their time limit ends before"
    ]


def test_maintenance_that_is_on_has_its_end() -> None:
    on = MAINTENANCE.replace("StartTime=2026-12-01T08", "StartTime=2026-11-25T08")

    assert message("hpc", NOW, Slurm("", on)).splitlines()[-1] == (
        "Maintenance of gpu[01-16] until Tue 01 Dec 12:00: jobs wait"
    )


def test_without_an_answer_it_says_so() -> None:
    assert message("hpc", NOW, Slurm("", status=1)) == "hpc: Slurm does not answer\n"


def test_nothing_that_a_terminal_obeys_is_written() -> None:
    hostile = Slurm(
        "a\x1b]0;x\x07|1/1/1/3|\x1b[2J\n", MAINTENANCE.replace("gpu[01-16]", "gpu\x1b[31m\x9b").replace("-12-", "-11-")
    )
    text = message("hpc\x1b[1m", datetime(2026, 11, 1, 7), hostile)

    assert "Maintenance" in text
    assert text.replace("\n", "").isprintable()


def test_only_quotas_above_ninety_percent_are_named() -> None:
    def row(kind: str, path: str, space: Amount, files: Amount = NONE, problem: str = "") -> Row:
        return Row("home", path, kind, "ada", "quota", Usage(space, files), problem)

    rows = [
        row(USER, "/home", Amount(95 * GIB, 100 * GIB, 110 * GIB), Amount(990_000, 1_000_000, 1_000_000)),
        row(USER, "/scratch", Amount(90 * GIB, 100 * GIB, 110 * GIB)),
        row(PROJECT, "/project/\x1b[2J", Amount(102 * GIB, None, 100 * GIB)),
        row(USER, "/data", Amount(5 * GIB)),
        row(WHOLE, "/work", Amount(99 * GIB, None, 100 * GIB)),
        row(USER, "/dead", NONE, problem="no answer in 0.5 s"),
    ]

    assert lines(rows) == [
        "Quota of /home: 95 GiB of 100 GiB used (95 %)",
        "Quota of /home: 990k of 1M files (99 %)",
        "Quota of /project/?[2J: 102 GiB of 100 GiB used (102 %)",
    ]


@pytest.mark.parametrize(
    ("text", "left"), [("licence\n", ""), ("licence\nours\n", "licence\nours\n"), ("ours", "ours"), ("", "")]
)
def test_the_distributions_licence_goes_and_a_sites_own_text_stays(tmp_path: Path, text: str, left: str) -> None:
    shown, packaged = tmp_path / "motd", tmp_path / "packaged"
    shown.write_text(text)
    hide_licence(str(shown), str(packaged))
    assert shown.read_text() == text
    packaged.write_text("licence\n")

    hide_licence(str(shown), str(packaged))

    assert shown.read_text() == left
