"""Slurm's commands: a time limit for each, no shell, and no more output than this program is willing to hold."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import time
from typing import IO, Dict, List, Sequence, Tuple

from . import records

# 100,000 jobs are 20 MiB
OUTPUT_LIMIT = 128 << 20
_MESSAGE_LIMIT = 300


class AskingError(Exception):
    """A command failed, took too long or printed too much: one sentence."""


def ask(command: Sequence[str], limit_s: float) -> str:
    """Output of a command; it and its children have ended when this returns."""
    argv, environment, mark = marked(command)
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**_environment(), **environment},
            start_new_session=True,
        )
    except OSError as error:
        raise AskingError(f"{command[0]}: {error.strerror}") from error
    try:
        out, err = _read(process, command[0], limit_s)
    finally:
        _end(process)
    if process.returncode != 0:
        error_lines = err.decode("utf-8", "replace").strip().splitlines()
        raise AskingError(
            f"{command[0]}: {(error_lines or [f'exit status {process.returncode}'])[-1][:_MESSAGE_LIMIT]}"
        )
    return records.unmarked(out.decode("utf-8", "replace"), mark)


def marked(command: Sequence[str]) -> Tuple[List[str], Dict[str, str], str]:
    """The arguments, environment and mark of a question for records.

    Without AccountingStorageEnforce an account is whatever a user typed, separators too: with a mark behind them that
    others can't forge them. squeue gets it from the environment, as arguments are readable by all users; in its
    sinfo prints nothing is a user's.
    """
    mark = secrets.token_hex(8)
    argv = [
        word.replace(records.FIELD, records.FIELD + mark).replace(records.RECORD, records.RECORD + mark)
        for word in command
    ]
    if argv[0] != "squeue" or "-O" not in argv:
        return argv, {}, mark if argv != list(command) else ""
    place = argv.index("-O")
    return argv[:place] + argv[place + 2 :], {"SQUEUE_FORMAT2": argv[place + 1]}, mark


def _read(process: subprocess.Popen[bytes], name: str, limit_s: float) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + limit_s
    chunks: Dict[str, List[bytes]] = {"out": [], "err": []}
    size = 0
    with selectors.DefaultSelector() as waiting:
        for stream_name, stream in (("out", process.stdout), ("err", process.stderr)):
            waiting.register(_opened(stream), selectors.EVENT_READ, stream_name)
        while waiting.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise AskingError(f"{name}: no answer in {limit_s:g} s")
            for key, _ in waiting.select(left):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    waiting.unregister(key.fileobj)
                size += len(chunk)
                chunks[key.data].append(chunk)
            if size > OUTPUT_LIMIT:
                raise AskingError(f"{name}: printed more than {OUTPUT_LIMIT >> 20} MiB")
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise AskingError(f"{name}: no end in {limit_s:g} s") from error
    return b"".join(chunks["out"]), b"".join(chunks["err"])


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise AskingError("no pipe to a command")
    return stream


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # a process that the kernel does not let go is not waited for: the round has failed by then
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _environment() -> Dict[str, str]:
    """None of a site's SQUEUE_FORMAT or SINFO_ALL; times as seconds since 1970, and arrays with all their tasks."""
    return {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
    }
