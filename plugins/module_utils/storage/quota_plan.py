"""Which limits a file system has to get, and whether it can have any. Decides; changes nothing."""

from __future__ import annotations

import collections
import os
import re

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.errors import HintedError
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import quota_kernel

TYPES = ("ext4", "xfs")
NO_LIMITS = [0, 0, 0, 0]
# accounts of people, as adduser gives them numbers
FIRST_UID, LAST_UID = 1000, 59999
# what XFS gives whoever has no limits of his own stands at this number
XFS_DEFAULT = 0

_FSTAB_LINE = re.compile(r"(?P<before>\s*[^#\s]\S*\s+(?P<point>\S+)\s+\S+\s+)(?P<options>\S+)(?P<after>.*)")

FileSystem = collections.namedtuple("FileSystem", "point device type")


def file_system_of(path, table):
    """The file system that a directory is on, by the kernel's table of mounts (the text of /proc/self/mountinfo)."""
    real = os.path.realpath(path)
    innermost = None
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        point, rest = _unescaped(left.split(" ")[4]), right.split(" ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # of two mounts on one point the later one is on top
        if inside and (innermost is None or len(point) >= len(innermost.point)):
            innermost = FileSystem(point, _unescaped(rest[1]), rest[0])
    return innermost


def _unescaped(text):
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text


def check(where, quota_type, state):
    """Raises HintedError where the file system can't have these quotas; True where they only have to be enforced."""
    if where.type not in TYPES:
        words = "%s is on %s (%s), which has no quotas that deepopsctl knows" % (where.point, where.device, where.type)
        raise HintedError(words, "serve it from XFS or ext4, or leave `quota` out")
    if state.counted and state.enforced:
        return False
    if state.counted and where.type == "ext4":
        return True
    raise HintedError(
        "%s (%s on %s) counts no space by %s" % (where.point, where.type, where.device, quota_type),
        _how_to_enable(where, quota_type),
    )


def _how_to_enable(where, quota_type):
    option = option_of(quota_type)
    if where.type == "xfs":
        first = "XFS applies it when it is mounted again, a remount is not enough"
        steps = (
            "put %s into its mount options (/etc/fstab, or options: of its entry) and, with nobody on it, `umount %s`"
            % (
                option,
                where.point,
            )
        )
        return "%s: %s and mount it again; for / it is the kernel's rootflags=%s" % (first, steps, option)
    features = "quota" if quota_type == quota_kernel.USER else "quota,project"
    return (
        "with nobody on it: `umount %s`, `tune2fs -O %s -Q %s %s`, put %s into its mount options, and mount it again; "
        "a kernel without quota_v2 can't" % (where.point, features, option, where.device, option)
    )


def option_of(quota_type):
    """The mount option by which limits hold from boot on."""
    return "usrquota" if quota_type == quota_kernel.USER else "prjquota"


def fstab_with(text, point, option):
    """/etc/fstab with an option for a mount point; None where it does not stand there, the same where it has it."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        words = _FSTAB_LINE.fullmatch(line)
        if not words or _unescaped(words["point"]) != point:
            continue
        if option not in words["options"].split(","):
            lines[index] = "%s%s,%s%s" % (words["before"], words["options"], option, words["after"])
        return "\n".join(lines)
    return None


def wanted_limits(export, fstype, accounts, present, limited):
    """{number: limits} that have to hold; `present` are numbers the file system knows, `limited` those set before.

    `accounts` is {name: uid} of this machine. Raises HintedError for a user that it does not know.
    """
    if export["kind"] == quota_kernel.PROJECT:
        limits = {project["id"]: project["limits"] for project in export["projects"]}
        # a former project has no limits
        limits.update({number: NO_LIMITS for number in limited if number not in limits})
        return limits
    named = _named(export["users"], accounts)
    if fstype == "xfs":
        # to have none of his own is to have the default
        limits = dict.fromkeys(limited, NO_LIMITS)
        limits[XFS_DEFAULT] = export["default"]
    else:
        people = [uid for uid in (*accounts.values(), *present) if FIRST_UID <= uid <= LAST_UID]
        limits = dict.fromkeys(limited, NO_LIMITS)
        limits.update(dict.fromkeys(people, export["default"]) if any(export["default"]) else {})
    limits.update(named)
    return limits


def _named(users, accounts):
    unknown = sorted(name for name in users if name not in accounts and not name.isdigit())
    if unknown:
        hint = "make the accounts first (or give their numbers), or take them out of cluster.yml"
        raise HintedError("no account here: %s" % " ".join(unknown), hint)
    return {accounts[name] if name in accounts else int(name): limits for name, limits in users.items()}


def to_set(wanted, read):
    """{number: limits} that differ from read(number)."""
    return {number: limits for number, limits in sorted(wanted.items()) if list(read(number)) != list(limits)}
