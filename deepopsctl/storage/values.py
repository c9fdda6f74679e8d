"""Values of storage entries: where something may be mounted, sizes, numbers of files and times."""

from __future__ import annotations

import re

from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError

# Nothing is mounted over or below these: the system, and the state of the cluster's daemons.
TREES = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys",
    "/usr/bin", "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share",
    "/var/cache/apt", "/var/lib/apt", "/var/lib/deepopsctl", "/var/lib/dpkg", "/var/lib/munge", "/var/lib/mysql",
    "/var/lib/nfs", "/var/lib/slurm", "/var/lib/systemd", "/var/run", "/var/spool/slurm", "/var/spool/slurmctld",
    "/var/spool/slurmd",
)  # fmt: skip
# Below these there is room, but they themselves belong to the system.
SYSTEM_DIRECTORIES = ("/", "/usr", "/var", "/var/cache", "/var/lib", "/var/log", "/var/spool")

# What stands in a unit file as it is: no blanks, quotes or specifiers.
_PATH = re.compile(r"/[A-Za-z0-9._/+@:=-]*")
_HINT = "use a directory of its own: /home, /scratch, /data/project"

KIB = 1024
_SIZE = re.compile(r"([1-9][0-9]{0,5})([KMGTP])(?:i?B)?")
_COUNT = re.compile(r"([1-9][0-9]{0,11})([kM]?)")
_TIME = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_SIZES = {"K": KIB, "M": KIB**2, "G": KIB**3, "T": KIB**4, "P": KIB**5}
_COUNTS = {"": 1, "k": 1000, "M": 1_000_000}
_TIMES = {"h": 3600, "d": 86400, "w": 7 * 86400}


def check_path(text: str) -> str:
    """A mount point: absolute, in its shortest form, and nothing that the system needs."""
    _check_form(text)
    tree = next((tree for tree in TREES if text == tree or text.startswith(f"{tree}/")), "")
    if text in SYSTEM_DIRECTORIES or tree:
        raise RefusedError(f"{shorten(text)} belongs to the system", _HINT)
    return text


def check_exported(text: str) -> str:
    """A directory that is exported to other nodes."""
    return check_path(text)


def is_below(inner: str, outer: str) -> bool:
    """Whether one path is inside the other."""
    return inner.startswith(f"{outer.rstrip('/')}/")


def parse_size(text: str) -> int:
    """`50G` -> bytes, by powers of 1024 as quota tools count."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise RefusedError(f"{shorten(text)!r} is not a valid size", "write 500M, 50G or 2T")
    return int(match[1]) * _SIZES[match[2]]


def parse_count(text: str) -> int:
    """`500k` -> 500000."""
    match = _COUNT.fullmatch(text)
    if not match:
        raise RefusedError(f"{shorten(text)!r} is not a number of files", "write 100000, 500k or 2M")
    return int(match[1]) * _COUNTS[match[2]]


def parse_time(text: str) -> int:
    """`60d` -> seconds."""
    match = _TIME.fullmatch(text)
    if not match:
        raise RefusedError(f"{shorten(text)!r} is not a valid time", "write 12h, 60d or 8w")
    return int(match[1]) * _TIMES[match[2]]


def _check_form(text: str) -> None:
    if not text.startswith("/"):
        raise RefusedError(f"{shorten(text)!r} is not an absolute path", "let it begin with /")
    if not _PATH.fullmatch(text):
        raise RefusedError(f"{shorten(text)!r} can't be used as a path", "use letters, digits and . _ - + @ : =")
    parts = text[1:].split("/")
    if text != "/" and ("" in parts or "." in parts or ".." in parts):
        raise RefusedError(f"{shorten(text)} is not in its shortest form", "leave out //, . and .. and the last /")
