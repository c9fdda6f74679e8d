"""Directories as projects (ext4, XFS): each file below carries the project's number, and new ones inherit it.

Not by `chattr -R` or xfs_quota: users own what is in there, and those follow a link that replaces a file meanwhile.
"""

from __future__ import annotations

import array
import fcntl
import os
import stat

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.errors import HintedError

MARKER = "deepopsctl"
# FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR and struct fsxattr of linux/fs.h
_GET, _SET = 0x801C581F, 0x401C5820
_SIZE, _FLAGS, _PROJECT = 28, 0, 12
_INHERIT = 0x200
# far below what Python and the limit of open files allow
DEEPEST = 200
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def of_handle(handle):
    """(number, whether new files inherit it) of an open file or directory."""
    values = array.array("B", bytes(_SIZE))
    fcntl.ioctl(handle, _GET, values)
    return _word(values, _PROJECT), bool(_word(values, _FLAGS) & _INHERIT)


def set_project(handle, number, inherit):
    """Give it a number; True where it had another."""
    values = array.array("B", bytes(_SIZE))
    fcntl.ioctl(handle, _GET, values)
    flags = _word(values, _FLAGS)
    after = (flags | _INHERIT) if inherit else flags
    if (_word(values, _PROJECT), flags) == (number, after):
        return False
    values[_PROJECT : _PROJECT + 4] = array.array("B", number.to_bytes(4, "little"))
    values[_FLAGS : _FLAGS + 4] = array.array("B", after.to_bytes(4, "little"))
    fcntl.ioctl(handle, _SET, values)
    return True


def _word(values, start):
    return int.from_bytes(values[start : start + 4].tobytes(), "little")


def has(path, number):
    """Whether a directory is that project already; its own mark is put on last, so then all below is."""
    handle = os.open(path, _OPEN | os.O_DIRECTORY)
    try:
        return of_handle(handle) == (number, True)
    finally:
        os.close(handle)


def assign(path, number):
    """Assign a directory and all below it to a project; how many changed. Follows no link, enters no mount."""
    handle = os.open(path, _OPEN | os.O_DIRECTORY)
    try:
        changed = _below(handle, os.fstat(handle).st_dev, number, DEEPEST)
        return changed + set_project(handle, number, inherit=True)
    finally:
        os.close(handle)


def _below(handle, device, number, deeper):
    changed = 0
    with os.scandir(handle) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            # links and special files take no space that matters, and to open them does things
            if status.st_dev == device and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                changed += _entry(entry.name, handle, device, number, deeper)
    return changed


def _entry(name, within, device, number, deeper):
    try:
        handle = os.open(name, _OPEN, dir_fd=within)
    except OSError:
        # gone, or a link by now
        return 0
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISDIR(mode):
            return set_project(handle, number, inherit=False) if stat.S_ISREG(mode) else 0
        if not deeper:
            raise HintedError("a directory more than %d levels deep" % DEEPEST, "let its owner look at it")
        below = _below(handle, device, number, deeper - 1)
        return below + set_project(handle, number, inherit=True)
    finally:
        os.close(handle)


def tables(projects):
    """(lines for /etc/projects, lines for /etc/projid): what tools call the numbers by."""
    ordered = sorted(projects, key=lambda project: project["name"])
    directories = ["%d:%s" % (project["id"], project["path"]) for project in ordered]
    return directories, ["%s:%d" % (project["name"], project["id"]) for project in ordered]


def with_lines(current, lines):
    """A table with our lines between markers, all others as they were; without lines the block goes."""
    text = (current or b"").decode("utf-8", "surrogateescape").split("\n")
    begin, end = "# BEGIN %s" % MARKER, "# END %s" % MARKER
    if begin in text and end in text[text.index(begin) :]:
        first = text.index(begin)
        text[first : text.index(end, first) + 1] = []
    if lines:
        while text and not text[-1]:
            text.pop()
        text += [begin, *lines, end, ""]
    return "\n".join(text).encode("utf-8", "surrogateescape")


def conflicts(projid, projects):
    """Names or numbers that the tables use for another project already."""
    lines = with_lines(projid, []).decode("utf-8", "surrogateescape").splitlines()
    others = [line.partition(":")[::2] for line in lines if ":" in line and not line.startswith("#")]
    return sorted(
        "%s:%s" % (name, number)
        for name, number in ((name.strip(), number.strip()) for name, number in others)
        for project in projects
        if (name == project["name"]) != (number == str(project["id"]))
    )
