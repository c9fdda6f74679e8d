"""`stage-in`: archives are unpacked and other files copied into $SLURM_TMPDIR, on every node of the job."""

from __future__ import annotations

import argparse
import os
import sys
from typing import List, Mapping, Optional, Sequence

from . import job
from .job import StagingError

PROGRAM = "stage-in"
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst", ".tzst")
ZIP = (".zip",)


def main(arguments: Optional[List[str]] = None, variables: Optional[Mapping[str, str]] = None) -> int:
    """Run it; returns the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    environment = os.environ if variables is None else variables
    options = _parser().parse_args(words)
    try:
        if not options.this_node and job.has_other_nodes(environment):
            return job.on_each_node(sys.argv[0], words, environment)
        target = options.to or job.directory(environment)
        os.makedirs(target, mode=0o700, exist_ok=True)
        for source in options.source:
            _stage(source, target, copy=options.copy)
    except StagingError as error:
        return job.report(PROGRAM, error)
    except OSError as error:
        return job.report(PROGRAM, StagingError(job.words(error)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Unpack archives and copy other files into the job's own directory, on each of its nodes.",
        epilog="Archives: {} {}".format(" ".join(TAR), " ".join(ZIP)),
    )
    parser.add_argument("source", nargs="+", metavar="FILE", help="archive, file or directory")
    parser.add_argument("--to", metavar="DIRECTORY", help="where to (default: $SLURM_TMPDIR)")
    parser.add_argument("--copy", action="store_true", help="copy archives as they are")
    parser.add_argument(job.HERE, action="store_true", help="only on this node")
    return parser


def _stage(source: str, target: str, *, copy: bool) -> None:
    os.stat(source)
    status = job.run(command_for(source, target, copy=copy))
    if status:
        raise StagingError("{}: not complete (exit status {})".format(source, status))


def command_for(source: str, target: str, *, copy: bool) -> Sequence[str]:
    """What stages one file. Everything gets the time of now: a purge must not take it for old."""
    path, name = os.path.abspath(source), source.lower()
    if not copy and name.endswith(TAR) and not os.path.isdir(path):
        return ["tar", "--extract", "--touch", "--no-same-owner", "--file=" + path, "--directory=" + target]
    if not copy and name.endswith(ZIP) and not os.path.isdir(path):
        return ["unzip", "-q", "-o", "-DD", path, "-d", target]
    return ["cp", "--recursive", "--no-dereference", "--preserve=mode,links", "--", path.rstrip("/"), target]
