"""`stage-in`: archives are unpacked and other files copied into $SLURM_TMPDIR, on every node of the job."""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Mapping, Sequence

from . import job
from .job import StagingError

PROGRAM = "stage-in"
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst", ".tzst")
ZIP = (".zip",)


def main(arguments: list[str] | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Run it; returns the exit status."""
    return job.main(_parser(), _stage_all, arguments, variables)


def _stage_all(options: argparse.Namespace, variables: Mapping[str, str]) -> None:
    target = options.to or job.directory(variables)
    copied = [source for source in options.source if command_for(source, target, copy=options.copy)[0] == "cp"]
    job.refuse_same_names([os.path.basename(os.path.abspath(source)) for source in copied])
    os.makedirs(target, mode=0o700, exist_ok=True)
    for source in options.source:
        _stage(source, target, copy=options.copy)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Unpack archives and copy other files into the job's own directory, on each of its nodes.",
        epilog=f"Archives: {' '.join(TAR)} {' '.join(ZIP)}",
    )
    parser.add_argument("source", nargs="+", metavar="FILE", help="archive, file or directory")
    parser.add_argument("--to", metavar="DIRECTORY", help="where to (default: $SLURM_TMPDIR)")
    parser.add_argument("--copy", action="store_true", help="copy archives as they are")
    return parser


def _stage(source: str, target: str, *, copy: bool) -> None:
    os.stat(source)
    status = job.run_tool(command_for(source, target, copy=copy))
    if status:
        raise StagingError(f"{source}: not complete (exit status {status})")


def command_for(source: str, target: str, *, copy: bool) -> Sequence[str]:
    """What stages one file. Everything gets the time of now: a purge must not take it for old.

    A link is what it leads to; those in a directory stay links.
    """
    path, name = os.path.abspath(source), source.lower()
    if not copy and name.endswith(TAR) and not os.path.isdir(path):
        return ["tar", "--extract", "--touch", "--no-same-owner", "--file=" + path, "--directory=" + target]
    if not copy and name.endswith(ZIP) and not os.path.isdir(path):
        # for unzip the name is a pattern, which another file may match
        archive = os.path.join(os.path.dirname(path), glob.escape(os.path.basename(path)))
        return ["unzip", "-q", "-o", "-DD", archive, "-d", target]
    return ["cp", "--recursive", "-H", "--preserve=mode,links", "--", path, target]
