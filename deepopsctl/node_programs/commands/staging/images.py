"""squashfs images: one file instead of many, mounted in a job by squashfuse without any right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from . import job
from .job import StagingError

SUFFIXES = (".sqsh", ".squashfs", ".sfs")
_MOUNT_TIMEOUT_S = 60
# what a node writes once its images are mounted
_MOUNTED = "stage-in: mounted"


def is_image(name: str) -> bool:
    """Whether it is one by its name."""
    return name.lower().endswith(SUFFIXES)


def place_of(image: str, target: str) -> str:
    """Where an image of this name is unpacked or mounted: DIRECTORY/data for data.sqsh."""
    return os.path.join(target, os.path.splitext(os.path.basename(image))[0])


def unpack_command(image: str, place: str) -> Sequence[str]:
    """What unpacks an image: with the job's own processors."""
    processors = str(len(os.sched_getaffinity(0)))
    return [
        "unsquashfs",
        "-no-progress",
        "-quiet",
        "-no-xattrs",
        "-force",
        "-processors",
        processors,
        "-dest",
        place,
        image,
    ]


def make_new(place: str) -> None:
    """Give what was unpacked the time of now, as tar does: a purge must not take it for old."""
    for directory, names, files in os.walk(place):
        for name in (*names, *files):
            os.utime(os.path.join(directory, name), follow_symlinks=False)


def mount(image: str, place: str) -> None:
    """Mount an image in the background: until the job ends, or the step that calls it."""
    os.makedirs(place, mode=0o700, exist_ok=True)
    if job.run_tool(["squashfuse", image, place]):
        raise StagingError(f"{image}: squashfuse does not mount it (is /dev/fuse there?): leave out --mount")


def hold(images: Sequence[tuple[str, str]]) -> None:
    """Mount images, say so, and stay: a step that has ended has no processes left that could answer."""
    for image, place in images:
        mount(image, place)
    sys.stdout.write(f"{_MOUNTED}\n")
    sys.stdout.flush()
    while any(os.path.ismount(place) for _, place in images):
        time.sleep(60)


def hold_on_each_node(argv: Sequence[str], environment: dict[str, str], nodes: int, log: str) -> None:
    """Start the step that keeps the images mounted on all nodes, and wait until each has them."""
    with open(log, "wb") as stream:
        step = subprocess.Popen(
            list(argv), env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    deadline = time.monotonic() + _MOUNT_TIMEOUT_S
    while time.monotonic() < deadline and step.poll() is None:
        with open(log, encoding="utf-8", errors="replace") as stream_of_text:
            text = stream_of_text.read()
        if text.count(_MOUNTED) >= nodes:
            return
        time.sleep(0.1)
    step.terminate()
    with open(log, encoding="utf-8", errors="replace") as stream_of_text:
        text = stream_of_text.read().strip()
    raise StagingError(f"not mounted on every node: {text or 'no answer'}")
