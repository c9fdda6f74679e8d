"""The errors of deepopsctl, with exit codes and hints."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes, the same for every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INVALID_INPUT = 3
    UNREACHABLE = 4
    CONTROL_MACHINE = 5
    TIMEOUT = 124
    INTERRUPTED = 130


# the disk, or a user's quota, is full
FULL = (errno.ENOSPC, errno.EDQUOT)


class DeepOpsError(Exception):
    """An error for the user: what and where (message), and what to do (hint)."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, hint: str = "", exit_code: ExitCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem of an input: where it is (`cluster.yml:14`), what is wrong, what to do."""

    where: str
    message: str
    hint: str = ""


class InputError(DeepOpsError):
    """A node list, cluster.yml or variable is wrong; carries all problems, not just the first."""

    exit_code = ExitCode.INVALID_INPUT

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(f"{first.where}: {first.message}", first.hint)

    @classmethod
    def single(cls, where: str, message: str, hint: str = "") -> InputError:
        """An InputError with exactly one problem."""
        return cls([Problem(where, message, hint)])


class UnreachableError(DeepOpsError):
    """Nodes did not answer; what could be done without them was done."""

    exit_code = ExitCode.UNREACHABLE


class ControlMachineError(DeepOpsError):
    """The control machine lacks something deepopsctl needs; the hint names what to install."""

    exit_code = ExitCode.CONTROL_MACHINE


class RunTimeoutError(DeepOpsError):
    """A run took longer than it was allowed to."""

    exit_code = ExitCode.TIMEOUT


class InterruptedRunError(DeepOpsError):
    """The user stopped the run (Ctrl-C or SIGTERM)."""

    exit_code = ExitCode.INTERRUPTED
