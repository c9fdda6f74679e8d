"""One read of the shared file system for all nodes of a job: the first one reads, and sbcast sends it to the others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from . import job
from .job import StagingError

# how a node knows what it was: its own path may be on the first node alone
_FILE, _DIRECTORY = ".file", ".directory"


class Sent(NamedTuple):
    """What a node has received for one source."""

    path: str
    is_directory: bool


def send(sources: Sequence[str], variables: Mapping[str, str]) -> str:
    """Send files and directories to each node of the job; how their names begin there, '' where nothing was sent."""
    directory = variables.get("SLURM_TMPDIR", "")
    if not directory:
        # no directory that is there on every node: each reads what it needs
        return ""
    prefix = os.path.join(directory, f".stage-in-{os.getpid()}")
    for number, source in enumerate(sources):
        os.stat(source)
        if os.path.isdir(source):
            with _packed(source, f"{prefix}-{number}.tar") as archive:
                _broadcast(source, archive, f"{prefix}-{number}{_DIRECTORY}")
        elif os.path.isfile(source):
            _broadcast(source, source, f"{prefix}-{number}{_FILE}")
    return prefix


def received(prefix: str, number: int) -> Sent | None:
    """What this node has got for a source; None where it has to read it itself."""
    for suffix in (_FILE, _DIRECTORY) if prefix else ():
        path = f"{prefix}-{number}{suffix}"
        if os.path.exists(path):
            return Sent(path, suffix == _DIRECTORY)
    return None


def _broadcast(source: str, path: str, there: str) -> None:
    status = job.run_tool(["sbcast", "--force", path, there])
    if status:
        raise StagingError(
            f"{source}: not sent to all nodes (sbcast: exit status {status}); with --each every node reads it itself"
        )


@contextlib.contextmanager
def _packed(directory: str, archive: str) -> Iterator[str]:
    try:
        status = job.run_tool(["tar", "--create", "--file=" + archive, "--directory=" + directory, "."])
        if status:
            raise StagingError(f"{directory}: not read completely (exit status {status})")
        yield archive
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(archive)
