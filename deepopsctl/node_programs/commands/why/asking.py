"""Slurm's answers for one explanation: a question is asked once, and counted. Slurm decides who may see what."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from typing import Callable

from ..._shared import command, slurm_client, slurm_output
from ..._shared.command import Result
from ..job_report import asking as accounting, records

LIMIT_S = 30
# what runs a command; tests have their own
Ask = Callable[[Sequence[str]], Result]


def ask_slurm(argv: Sequence[str]) -> Result:
    """Ask Slurm; times are numbers, whatever the user likes to see."""
    return slurm_client.ask(argv, LIMIT_S, env=command.slurm_environment(SLURM_TIME_FORMAT="%s", TZ="UTC"))


class NoJobError(Exception):
    """There is no such job, or Slurm does not answer: the message says which."""


class Slurm:
    """The questions of one explanation."""

    def __init__(self, ask: Ask = ask_slurm, me: str | None = None) -> None:
        self._ask = ask
        # who asks: the user that this program runs as
        self.me = pwd.getpwuid(os.getuid()).pw_name if me is None else me
        self._answers: dict[tuple[str, ...], Result] = {}

    @property
    def calls(self) -> int:
        """How many commands were started."""
        return len(self._answers)

    @property
    def spent_s(self) -> float:
        """How long they took, all together."""
        return sum(answer.elapsed_s for answer in self._answers.values())

    def result(self, argv: Sequence[str]) -> Result:
        """How a command ended."""
        key = tuple(argv)
        if key not in self._answers:
            self._answers[key] = self._ask(argv)
        return self._answers[key]

    def text(self, argv: Sequence[str]) -> str:
        """What it printed; '' where it was refused: an explanation is then shorter."""
        result = self.result(argv)
        return result.output if result.ok else ""

    def show(self, kind: str, *names: str) -> dict[str, slurm_output.Record]:
        """Records of slurmctld by name: `partition`, `reservation`."""
        key = {"partition": "PartitionName", "reservation": "ReservationName", "node": "NodeName"}[kind]
        return slurm_output.records(self.text(slurm_client.show(kind, *names)), key)

    def sacct(self, fields: Sequence[str], *which: str) -> list[dict[str, str]]:
        """Jobs of the accounting; [] without one. The last field may be a text of a user's."""
        rows = []
        for line in self.text(accounting.sacct(fields, *which)).split("\n"):
            words = line.split(records.DELIMITER, len(fields) - 1)
            if len(words) == len(fields) and records.IS_ID.fullmatch(words[0]):
                rows.append(dict(zip(fields, words)))
        return rows

    def running(self, *which: str) -> list[dict[str, str]]:
        """Jobs that run, by `--nodelist=` or `--accounts=`, as far as Slurm shows them, soonest end first."""
        fields = ("JobID", "User", "Start", "TimelimitRaw", "NodeList", "AllocTRES")
        rows = self.sacct(fields, "--allusers", "--allocations", "--state=RUNNING", *which)
        return sorted(rows, key=lambda row: ends_at(row) or float("inf"))


def ends_at(row: dict[str, str]) -> int | None:
    """When a running job's time limit is over; None for no limit."""
    start, limit = slurm_output.whole(row["Start"]), slurm_output.whole(row["TimelimitRaw"])
    return None if start is None or limit is None else start + 60 * limit
