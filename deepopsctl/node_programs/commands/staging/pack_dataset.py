"""`pack-dataset`: a directory of many small files becomes one squashfs image, which `stage-in` unpacks or mounts."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping

from . import images, job
from .job import StagingError

PROGRAM = "pack-dataset"
# a login node is not only there for this
_PROCESSORS_OUTSIDE = 2


def main(arguments: list[str] | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Run it; returns the exit status."""
    return job.run_here(_parser(), _pack, arguments, variables)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Pack a directory into one squashfs image, which jobs unpack or mount by stage-in.",
    )
    parser.add_argument("directory", metavar="DIRECTORY", help="what is packed; it stays as it is")
    parser.add_argument(
        "image", nargs="?", metavar="IMAGE", help="the file (default: DIRECTORY.sqsh, in this directory)"
    )
    parser.add_argument(
        "--compression",
        choices=("zstd", "lz4", "none"),
        default="zstd",
        help="none for JPEG and the like (default: zstd)",
    )
    parser.add_argument("--force", action="store_true", help="replace an image that is there")
    return parser


def _pack(options: argparse.Namespace, variables: Mapping[str, str]) -> None:
    source = os.path.abspath(options.directory)
    if not os.path.isdir(source):
        raise StagingError(f"{options.directory} is not a directory")
    image = os.path.abspath(options.image or f"{os.path.basename(source)}{images.SUFFIXES[0]}")
    if not images.is_image(image):
        raise StagingError(f"{image}: its name has to end with {' or '.join(images.SUFFIXES)}")
    if os.path.lexists(image) and not options.force:
        raise StagingError(f"{image} exists: --force replaces it")
    if image.startswith(f"{source}/"):
        raise StagingError(f"{image} is in the directory that is packed: name another place")
    # complete, or not there under this name
    unfinished = os.path.join(os.path.dirname(image), f".{os.path.basename(image)}.{os.getpid()}")
    try:
        status = job.run_tool(_command(source, unfinished, options.compression, variables))
        if status:
            raise StagingError(f"{source}: not packed (exit status {status})")
        os.rename(unfinished, image)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)
    files = sum(len(names) for _, _, names in os.walk(source))
    sys.stdout.write(f"{image}: {files} files, {os.stat(image).st_size / (1 << 20):.1f} MiB\n")


def _command(source: str, image: str, compression: str, variables: Mapping[str, str]) -> list[str]:
    processors = len(os.sched_getaffinity(0))
    if not variables.get("SLURM_JOB_ID"):
        processors = min(processors, _PROCESSORS_OUTSIDE)
    compressed = ["-noI", "-noD", "-noF", "-noX"] if compression == "none" else ["-comp", compression]
    # blocks of 1 MiB: fewer requests to a shared file system where the image is mounted from there
    return ["mksquashfs", source, image, *compressed, "-b", "1M", "-no-xattrs", "-no-progress", "-quiet", "-noappend",
            "-processors", str(processors)]  # fmt: skip
