"""Run a command: for modules, suites and node programs. The standard library and Python 3.8 are enough."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# statuses of commands that did not end by themselves, as a shell has them
TIMED_OUT, TOO_LONG, MISSING = 124, 125, 127
# squeue prints 20 MiB for 100,000 jobs
OUTPUT_LIMIT = 128 << 20
MESSAGE_LIMIT = 300
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# a user's or a site's own SQUEUE_FORMAT, SBATCH_PARTITION ... would change what Slurm's tools print and ask for
_SLURM_PREFIXES = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_")
_SLURM_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")


class Result(NamedTuple):
    """How a command ended, and what it printed."""

    program: str
    status: int
    output: str
    errors: str
    elapsed_s: float

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.status == 0

    @property
    def message(self) -> str:
        """Its error text, or its output where it printed none."""
        return self.errors.strip() or self.output.strip()

    @property
    def failure(self) -> str:
        """Why it failed, in one line: `scontrol: Connection refused`."""
        text = " ".join(self.message.split())[:MESSAGE_LIMIT] or f"exits {self.status}"
        return text if self.status == MISSING else f"{self.program}: {text}"


class CommandError(Exception):
    """A command that must succeed has failed: the command and the end of its output."""


class _StoppedError(Exception):
    """The command was ended by us."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def environment(**extra: str) -> dict[str, str]:
    """This process's environment with messages in English, and the system's programs in the path."""
    path = os.environ.get("PATH", "")
    return {**os.environ, "LC_ALL": "C.UTF-8", "PATH": path + ":" + PATH if path else PATH, **extra}


def slurm_environment(**extra: str) -> dict[str, str]:
    """The same without variables that steer Slurm's tools."""
    variables = environment().items()
    kept = {key: value for key, value in variables if key in _SLURM_KEPT or not key.startswith(_SLURM_PREFIXES)}
    return {**kept, **extra}


def run(
    argv: Sequence[str],
    limit_s: float | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    undecodable: str = "replace",
) -> Result:
    """Run a command for at most `limit_s` seconds; never raises for what it does.

    `env` is its whole environment, environment() by default. Its children end with it where it takes too long.
    """
    return _run(argv, limit_s, stdin, env, undecodable, subprocess.PIPE)


def run_merged(
    argv: Sequence[str], limit_s: float | None = None, stdin: str = "", env: Mapping[str, str] | None = None
) -> Result:
    """The same with its error text among its output, in the order in which it was printed."""
    return _run(argv, limit_s, stdin, env, "replace", subprocess.STDOUT)


def require(
    argv: Sequence[str], limit_s: float | None = None, stdin: str = "", env: Mapping[str, str] | None = None
) -> str:
    """Output of a command that must succeed. Raises CommandError."""
    result = run_merged(argv, limit_s, stdin, env)
    if not result.ok:
        raise CommandError(f"{' '.join(argv)}: {result.message[-600:] or f'exits {result.status}'}")
    return result.output


def _run(
    argv: Sequence[str],
    limit_s: float | None,
    stdin: str,
    env: Mapping[str, str] | None,
    undecodable: str,
    stderr: int,
) -> Result:
    started = time.monotonic()
    source = _as_file(stdin) if stdin else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment() if env is None else env,
            start_new_session=True,
        )
    except FileNotFoundError:
        return Result(argv[0], MISSING, "", argv[0] + " is not installed", time.monotonic() - started)
    except OSError as error:
        return Result(argv[0], MISSING, "", f"{argv[0]}: {error.strerror}", time.monotonic() - started)
    finally:
        if stdin:
            os.close(source)
    try:
        output, errors = (each.decode("utf-8", undecodable) for each in _read(process, limit_s))
    except _StoppedError as stopped:
        return Result(argv[0], stopped.status, "", str(stopped), time.monotonic() - started)
    finally:
        _end(process)
    return Result(argv[0], process.returncode, output, errors, time.monotonic() - started)


def _as_file(text: str) -> int:
    """A file in memory: it may be a password, and may be longer than a pipe takes at once."""
    handle = os.memfd_create("stdin")
    with open(os.dup(handle), "wb") as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _read(process: subprocess.Popen[bytes], limit_s: float | None) -> tuple[bytes, bytes]:
    deadline = None if limit_s is None else time.monotonic() + limit_s
    too_late = f"no answer within {limit_s or 0:g} s"
    # without a pipe of its own for errors, these are among the output
    chunks: dict[Any, list[bytes]] = {process.stdout: [], process.stderr: []}
    size = 0
    with selectors.DefaultSelector() as waiting:
        for stream in chunks:
            if stream is not None:
                waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise _StoppedError(TIMED_OUT, too_late)
            for key, _ in waiting.select(left):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    waiting.unregister(key.fileobj)
                size += len(chunk)
                chunks[key.fileobj].append(chunk)
            if size > OUTPUT_LIMIT:
                raise _StoppedError(TOO_LONG, f"printed more than {OUTPUT_LIMIT >> 20} MiB")
    try:
        process.wait(None if deadline is None else max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise _StoppedError(TIMED_OUT, too_late) from error
    return b"".join(chunks[process.stdout]), b"".join(chunks[process.stderr])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        # not yet collected: the number of its group can't be another's
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # no waiting for one that the kernel does not let go
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
