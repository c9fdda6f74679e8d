"""`stage-in`: archives are unpacked and other files copied into $SLURM_TMPDIR, on every node of the job.

With several nodes the first one reads what is staged, once, and sends it to the others.
"""

from __future__ import annotations

import argparse
import glob
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from . import broadcast, images, job
from .cache import Cache
from .job import StagingError

PROGRAM = "stage-in"
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst", ".tzst")
ZIP = (".zip",)
# how the names of what the first node has sent begin
_SENT = "--sent"
_HOLD = "--hold"
# whether this node has it all in its cache
_FIND, NOT_THERE = "--find", 3


def main(arguments: list[str] | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Run it; returns the exit status."""
    return job.main(_parser(), _stage_all, arguments, variables, _stage_on_each_node)


def _is_everywhere(options: argparse.Namespace, words: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether every node has it in its cache: then nothing is read."""
    if not options.cache:
        return False
    argv, environment = job.step_of_each_node(sys.argv[0], [_FIND, *words], variables)
    # what is wrong is said when it is staged
    return subprocess.run(argv, env=environment, capture_output=True, check=False).returncode == 0


def _stage_on_each_node(options: argparse.Namespace, words: Sequence[str], variables: Mapping[str, str]) -> int:
    sent = (
        "" if options.each or _is_everywhere(options, words, variables) else broadcast.send(options.source, variables)
    )
    words = [*([f"{_SENT}={sent}"] if sent else []), *words]
    status = job.on_each_node(sys.argv[0], words, variables)
    if status == 0 and options.mount:
        argv, environment = job.step_of_each_node(sys.argv[0], [_HOLD, *words], variables)
        log = os.path.join(_target(options, variables), ".stage-in.log")
        images.hold_on_each_node(argv, environment, int(variables["SLURM_JOB_NUM_NODES"]), log)
    return status


def _target(options: argparse.Namespace, variables: Mapping[str, str]) -> str:
    target: str = options.to or job.directory(variables)
    return os.path.abspath(target)


def _stage_all(options: argparse.Namespace, variables: Mapping[str, str]) -> int:
    target = _target(options, variables)
    mounted = [
        (os.path.join(target, os.path.basename(source)), images.place_of(source, target)) for source in options.source
    ]
    if options.mount and not all(map(images.is_image, options.source)):
        raise StagingError(f"only images can be mounted ({' '.join(images.SUFFIXES)}): pack-dataset makes them")
    if options.hold:
        images.hold(mounted)
        return 0
    copy = options.copy or options.mount
    cache = Cache("copied" if copy else "unpacked") if options.cache else None
    if cache and options.find:
        return 0 if all(map(cache.find, options.source)) else NOT_THERE
    job.refuse_same_names(
        [os.path.basename(os.path.abspath(source)) for source in options.source if not _is_unpacked(source, copy=copy)]
    )
    os.makedirs(target, mode=0o700, exist_ok=True)
    for number, source in enumerate(options.source):
        sent = broadcast.received(options.sent, number)
        if cache:
            cache.stage(source, target, variables, partial(_stage, source, copy=copy, sent=sent))
        else:
            _stage(source, target, copy=copy, sent=sent)
        if sent and os.path.exists(sent.path):
            # unpacked, or not needed here
            os.unlink(sent.path)
    if options.mount and not options.this_node:
        for image, place in mounted:
            images.mount(image, place)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Unpack archives and copy other files into the job's own directory, on each of its nodes.",
        epilog=f"Archives: {' '.join((*TAR, *ZIP, *images.SUFFIXES))}",
    )
    parser.add_argument("source", nargs="+", metavar="FILE", help="archive, file or directory")
    parser.add_argument("--to", metavar="DIRECTORY", help="where to (default: $SLURM_TMPDIR)")
    parser.add_argument("--copy", action="store_true", help="copy archives as they are")
    parser.add_argument("--mount", action="store_true", help="copy squashfs images and mount them: data.sqsh at data")
    parser.add_argument("--each", action="store_true", help="every node reads the files itself: nothing is sent")
    parser.add_argument(
        "--cache", action="store_true", help="have the node keep it for your next jobs; $SLURM_TMPDIR has links to it"
    )
    parser.add_argument(_FIND, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(_SENT, default="", help=argparse.SUPPRESS)
    parser.add_argument(_HOLD, action="store_true", help=argparse.SUPPRESS)
    return parser


def _stage(source: str, target: str, *, copy: bool, sent: broadcast.Sent | None) -> None:
    if sent is None:
        os.stat(source)
    status = job.run_tool(command_for(source, target, copy=copy, sent=sent))
    if status:
        raise StagingError(f"{source}: not complete (exit status {status})")
    if images.is_image(source) and not copy:
        images.make_new(images.place_of(source, target))


def _is_unpacked(source: str, *, copy: bool) -> bool:
    return not copy and source.lower().endswith((*TAR, *ZIP, *images.SUFFIXES)) and not os.path.isdir(source)


def command_for(source: str, target: str, *, copy: bool, sent: broadcast.Sent | None = None) -> Sequence[str]:
    """What stages one file. Everything gets the time of now: a purge must not take it for old.

    A link is what it leads to; those in a directory stay links. `sent` is what this node has received of it.
    """
    name, path = os.path.basename(os.path.abspath(source)), sent.path if sent else os.path.abspath(source)
    place, unpacked = os.path.join(target, name), _is_unpacked(source, copy=copy) and not (sent and sent.is_directory)
    if sent and sent.is_directory:
        os.makedirs(place, mode=0o700, exist_ok=True)
        return ["tar", "--extract", "--touch", "--no-same-owner", "--file=" + path, "--directory=" + place]
    if unpacked and images.is_image(name):
        return images.unpack_command(path, images.place_of(name, target))
    if unpacked and name.lower().endswith(ZIP):
        # for unzip the name is a pattern, which another file may match
        archive = os.path.join(os.path.dirname(path), glob.escape(os.path.basename(path)))
        return ["unzip", "-q", "-o", "-DD", archive, "-d", target]
    if unpacked:
        return ["tar", "--extract", "--touch", "--no-same-owner", "--file=" + path, "--directory=" + target]
    if sent:
        return ["mv", "--force", "--no-target-directory", "--", path, place]
    return ["cp", "--recursive", "-H", "--preserve=mode,links", "--", path, target]
