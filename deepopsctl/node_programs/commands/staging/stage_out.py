"""`stage-out`: results are copied from $SLURM_TMPDIR to $SCRATCH, and have their names only when they are complete."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Callable

from . import job
from .job import StagingError
from .stage_in import TAR

PROGRAM = "stage-out"
# with the job's number: jobs that write to one directory at once must not mix their results
_UNFINISHED = ".stage-out-{}-{}-{}"


def main(arguments: list[str] | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Run it; returns the exit status."""
    return job.main(_parser(), _stage_all, arguments, variables)


def _stage_all(options: argparse.Namespace, variables: Mapping[str, str]) -> None:
    # for tar, what is before a colon would be another host
    target = os.path.abspath(_target(options.to, variables))
    if options.this_node:
        # each node has results of its own
        target = os.path.join(target, os.uname().nodename.partition(".")[0])
    results = [_split(os.path.join(job.directory(variables), path)) for path in options.result]
    job.refuse_same_names([name for _, name in results])
    if options.pack:
        _refuse_lone_links([os.path.join(*each) for each in results])
    os.makedirs(target, mode=0o700, exist_ok=True)
    if options.pack:
        _place(target, options.pack, variables, partial(_pack, results))
    else:
        for directory, name in results:
            _place(target, name, variables, partial(_copy, os.path.join(directory, name)))
    sys.stdout.write(f"results are in {target}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Copy results of a job to scratch. With several nodes each has a directory of its name there.",
    )
    parser.add_argument(
        "result", nargs="+", metavar="FILE", help="file or directory; a relative name is in $SLURM_TMPDIR"
    )
    parser.add_argument("--to", metavar="DIRECTORY", help="where to (default: $SCRATCH/JOBID)")
    parser.add_argument("--pack", metavar="NAME", type=_archive, help="as one archive, such as results.tar.zst")
    return parser


def _archive(name: str) -> str:
    if not name.endswith(TAR) or "/" in name:
        raise argparse.ArgumentTypeError(f"name a file that ends with one of {' '.join(TAR)}")
    return name


def _target(to: str | None, variables: Mapping[str, str]) -> str:
    if to:
        return to
    if not variables.get("SCRATCH"):
        raise StagingError("SCRATCH is not set: name a directory with --to")
    return os.path.join(variables["SCRATCH"], variables.get("SLURM_JOB_ID", ""))


def _split(path: str) -> tuple[str, str]:
    os.stat(path)
    directory, name = os.path.split(os.path.abspath(path))
    return directory, name


def _place(target: str, name: str, variables: Mapping[str, str], write: Callable[[str], None]) -> None:
    """Write under another name, then rename; what has the name is replaced, and lost only after that."""
    own, final = variables.get("SLURM_JOB_ID", ""), os.path.join(target, name)
    new, old = (os.path.join(target, _UNFINISHED.format(word, own, name)) for word in ("new", "old"))
    _take_up(target, name, own)
    write(new)
    if os.path.lexists(final) and (os.path.isdir(new) or (os.path.isdir(final) and not os.path.islink(final))):
        # a directory can't be replaced, nor replace anything, in one step
        os.rename(final, old)
    os.rename(new, final)
    _remove(old)


def _take_up(target: str, name: str, own: str) -> None:
    """What calls that were cut off have left: of this job, and of jobs that have ended."""
    final, user = os.path.join(target, name), os.geteuid()
    for entry in os.listdir(target):
        left = re.fullmatch(_UNFINISHED.format("(new|old)", "([0-9]*)", re.escape(name)), entry)
        path = os.path.join(target, entry)
        if not left or os.lstat(path).st_uid != user or (left[2] != own and job.may_run(left[2])):
            continue
        if left[1] == "old" and not os.path.lexists(final):
            # cut off between the two renames
            os.rename(path, final)
        _remove(path)


def _copy(path: str, new: str) -> None:
    # no owner and no group: in a project's directory new files belong to the project; a link is what it
    # leads to, which is gone after the job
    _check(path, job.run_tool(["cp", "--recursive", "-H", "--preserve=mode,links,timestamps", "--", path, new]))


def _refuse_lone_links(paths: Sequence[str]) -> None:
    """An archive has links as they are: what a named one leads to has to be named, too."""
    packed = [os.path.realpath(path) for path in paths if not os.path.islink(path)]
    for path in paths:
        there = os.path.realpath(path)
        if os.path.islink(path) and not any(there == each or there.startswith(each + "/") for each in packed):
            raise StagingError(f"{path}: a link, and what it leads to is gone after the job: name that")


def _pack(results: Sequence[tuple[str, str]], new: str) -> None:
    files = [word for directory, name in results for word in ("--directory=" + directory, "./" + name)]
    _check(new, job.run_tool(["tar", "--create", "--auto-compress", "--file=" + new, *files]))


def _check(path: str, status: int) -> None:
    if status:
        raise StagingError(f"{path}: not copied (exit status {status})")


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        # directories that are read-only in the job are so here
        _open_up(path)
        for top, names, _ in os.walk(path):
            for name in names:
                _open_up(os.path.join(top, name))
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _open_up(directory: str) -> None:
    # one of another member of the project stays as it is
    if not os.path.islink(directory) and os.stat(directory).st_uid == os.geteuid():
        os.chmod(directory, 0o700)
