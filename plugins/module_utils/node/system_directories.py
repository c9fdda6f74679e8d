"""System and shared directories, which a daemon can't own. Runs on nodes, too.

Source: the Filesystem Hierarchy Standard 3.0, and what Debian's packages ship besides.
"""

from __future__ import annotations

import posixpath
import re

_TOP = (
    "afs bin boot data dev etc export gpfs home lib lib32 lib64 libx32 lost+found lustre media mnt net nfs nix opt "
    "proc projects root run sbin scratch selinux snap software srv sys tmp usr var work"
)
_VAR = (
    "account adm backups cache crash db empty games kerberos lib local lock log mail nis opt preserve run snap spool "
    "tmp www yp"
)
_LIB = "apt containers deepopsctl dpkg grafana munge mysql nfs pam private prometheus sudo systemd"
_SPOOL = "anacron at atjobs cron cups lpd mail mqueue postfix rsyslog"
_KNOWN = frozenset({
    "/",
    "/run/lock", "/run/shm", "/run/user", "/run/systemd", "/run/munge",
    *(f"/{name}" for name in _TOP.split()),
    *(f"/var/{name}" for name in _VAR.split()),
    *(f"/var/lib/{name}" for name in _LIB.split()),
    *(f"/var/spool/{name}" for name in _SPOOL.split()),
})  # fmt: skip
# their direct children are system directories, too; in the others a daemon may have a directory
_WITH_CHILDREN = re.compile(r"/(?:etc|usr|usr/local|home|root|boot)/[^/]+|/usr/(?:lib|share|libexec)/[^/]+")
_WHOLE = re.compile(r"/(?:proc|sys|boot|dev(?!/shm/[^/]))(?:/.*)?")
# exceptions: homes of the daemon's user
_OWN = frozenset({"/home/slurm", "/root/slurm", "/usr/slurm", "/usr/local/slurm"})


def is_system_directory(path: str) -> bool:
    """Whether a path, symbolic links aside, is a directory that no daemon may own, restrict or empty."""
    plain = posixpath.normpath("/" + path.strip().lstrip("/"))
    if plain in _OWN:
        return False
    return plain in _KNOWN or bool(_WITH_CHILDREN.fullmatch(plain) or _WHOLE.fullmatch(plain))
