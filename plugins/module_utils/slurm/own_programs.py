"""Programs of deepopsctl's own on nodes: no import and no setting takes one for a site's program. Runs on nodes, too.

Those around jobs call the site's own programs (`slurm_config`). One that called itself would never end.
"""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase

# The programs around jobs, each with its pieces; what node programs are made of.
JOB_PROGRAMS = "/etc/slurm/deepops"
LIBRARY = "/usr/local/lib/deepopsctl"
HEALTH_CHECK = "/usr/local/sbin/deepops-nodecheck"
_DIRECTORIES = (JOB_PROGRAMS, LIBRARY)
_PREFIXES = ("/usr/local/sbin/deepops-", "/usr/local/bin/deepops-")


def is_own(written: str) -> bool:
    """Whether a path, or a pattern for several (glob), leads to a program of deepopsctl's own."""
    # normpath keeps two slashes at the beginning
    path = posixpath.normpath("/" + written.strip().lstrip("/"))
    inside = (_matches(path.split("/")[: directory.count("/") + 1], directory) for directory in _DIRECTORIES)
    return any(inside) or path.startswith(_PREFIXES) or _matches(path.split("/"), HEALTH_CHECK)


def own_among(value: object) -> str:
    """The first of a setting's values (`/a,/b`, a list) that is deepopsctl's own program; '' for none."""
    words = [str(word) for word in value] if isinstance(value, (list, tuple)) else str(value).split(",")
    return next((word.strip() for word in words if word.strip().startswith("/") and is_own(word)), "")


def _matches(parts: list[str], path: str) -> bool:
    wanted = path.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, wanted, parts))
