"""The end of a job's output, read by its user: messages of well-known faults."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import NamedTuple

from ..._shared.slurm_output import clean

_END = 64 << 10


class Sign(NamedTuple):
    """A fault: the line that shows it, what it means, and what to do."""

    key: str
    text: str
    advice: str
    command: str = ""
    line: str = ""


# the first that matches counts: from the cause to what follows from it
_SIGNS: tuple[tuple[str, Sign], ...] = (
    (
        r"Disk quota exceeded",
        Sign(
            "quota",
            "your quota is used up: it could not write a file",
            "delete or move files, or write to scratch",
            "diskusage_report",
        ),
    ),
    (
        r"No space left on device",
        Sign(
            "disk-full",
            "a disk is full: it could not write a file",
            "write to scratch or $SLURM_TMPDIR; /tmp of a node is small",
            "diskusage_report",
        ),
    ),
    (
        r"CUDA out of memory|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|torch\.OutOfMemoryError",
        Sign("gpu-memory", "the memory of its GPU was full", "a smaller batch, or a GPU with more memory"),
    ),
    (
        r"no kernel image is available|CUDA driver version is insufficient|forward compatibility was attempted",
        Sign(
            "cuda-version",
            "its CUDA does not fit this GPU or its driver",
            "use a newer or older build: nvidia-smi shows what the driver supports",
        ),
    ),
    (
        r"uncorrectable ECC error|Xid|GPU has fallen off the bus|cudaErrorECCUncorrectable|unspecified launch failure",
        Sign("gpu-fault", "its GPU failed", "submit it again, and report the node to the administrators"),
    ),
    (
        r"No CUDA GPUs are available|no CUDA-capable device",
        Sign("no-gpu", "it found no GPU", "ask for one with --gpus=1"),
    ),
    (
        r"NCCL (error|WARN.*(timeout|failed))|nccl(System|Internal)Error|Watchdog caught collective operation",
        Sign(
            "nccl",
            "its processes lost each other (NCCL)",
            "run it with NCCL_DEBUG=INFO; often one process ended before: find the first error",
        ),
    ),
    (
        r"std::bad_alloc|MemoryError|Cannot allocate memory|oom[-_ ]kill",
        Sign("memory", "it could not get more memory", "ask for more with --mem"),
    ),
    (
        r"ModuleNotFoundError: No module named|ImportError:",
        Sign(
            "python-module",
            "a Python module is missing, or does not fit",
            "load the modules and activate the environment in the script; avail_wheels shows what there is",
        ),
    ),
    (
        r"The following module\(s\) are unknown|ModuleCmd_Load|Lmod has detected the following error",
        Sign("module-not-found", "a module of its script can't be loaded", "module spider NAME shows what there is"),
    ),
    (
        r"error while loading shared libraries|GLIBC(XX)?_[0-9.]+' not found",
        Sign("library-not-found", "a library of its program is missing", "load the modules that it was built with"),
    ),
    (
        r"couldn't chdir to|can't chdir to",
        Sign(
            "directory-missing",
            "its directory is not there on the node: it ran in /tmp instead",
            "submit it from a directory that all nodes have",
        ),
    ),
    (r"Permission denied", Sign("permission", "it may not read or write a file", "see whose file it is: ls -l")),
    (
        r"command not found",
        Sign(
            "command-not-found",
            "a command of its script was not found",
            "load the module that has it, or write its path",
        ),
    ),
    (
        r"No such file or directory|FileNotFoundError",
        Sign("file-missing", "a file is not there", "see that its path is right on the node, too"),
    ),
    (
        r"slurmstepd: error: .*",
        Sign(
            "slurm-step",
            "Slurm reports a problem of the job",
            "its words are above; ask the administrators if they do not help",
        ),
    ),
)


def read(paths: list[str], directory: str) -> Sign | None:
    """The fault that the end of these files shows; what is not a plain file of the person who asks is not read."""
    for path in dict.fromkeys(paths):
        text = _end(os.path.join(directory, path)) if path else ""
        for pattern, sign in _SIGNS:
            for line in reversed(text.splitlines()):
                if re.search(pattern, line):
                    return sign._replace(line=clean(line.strip()))
    return None


def _end(path: str) -> str:
    with contextlib.suppress(OSError):
        # the opening of a pipe would block until another process writes to it
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as stream:
            status = os.fstat(number)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                stream.seek(max(0, status.st_size - _END))
                return stream.read(_END).decode("utf-8", "replace")
    return ""
