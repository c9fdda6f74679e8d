"""Quotas of one file system, asked and set by quotactl(2): one interface for ext4 and XFS.

Not by setquota, repquota and xfs_quota: docs/develop/decisions/standard-library-on-nodes.md.
Directories become projects by ioctl(2): each file below carries the project's number, and new ones inherit it. Not by
`chattr -R` or xfs_quota: users own what is in there, and those follow a link that replaces a file meanwhile.
Numbers are those of linux/quota.h, linux/dqblk_xfs.h and linux/fs.h, which are part of the kernel's stable interface.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.errors import HintedError

USER, PROJECT = "user", "project"
_TYPES = {USER: 0, PROJECT: 2}
_Q_QUOTAON, _Q_SETINFO, _Q_GETQUOTA, _Q_SETQUOTA, _Q_GETNEXTQUOTA = 0x800002, 0x800006, 0x800007, 0x800008, 0x800009
_Q_XGETQSTAT = 0x5805
# the format of hidden quota files; ext4 does not read it
_VFS_V1 = 4
_LIMITS = 1 | 4
_BGRACE, _IGRACE = 1, 2
_DQBLK = struct.Struct("=8QI4x")
_NEXTDQBLK = struct.Struct("=8QII")
_DQINFO = struct.Struct("=2Q2I")
_FLAGS = struct.Struct("=H")
_GRACES = struct.Struct("=2i")
# of a struct fs_quota_stat
_FLAGS_AT, _GRACES_AT, _QSTAT_SIZE = 2, 60, 80
_QSTAT_VERSION = 1
_COUNTED = {0: 1, 2: 16}
_ENFORCED = {0: 2, 2: 32}

# FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR and struct fsxattr of linux/fs.h
_GET_XATTR, _SET_XATTR = 0x801C581F, 0x401C5820
_XATTR_SIZE, _FLAGS_FIELD, _PROJECT = 28, 0, 12
_INHERIT = 0x200
# far below what Python and the limit of open files allow
DEEPEST = 200
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class State(NamedTuple):
    """Whether space is counted, whether limits hold, and the graces in seconds (space, files)."""

    counted: bool
    enforced: bool
    grace: tuple[int, int]


OFF = State(False, False, (0, 0))


class Kernel:
    """The quotas of one type on one device."""

    def __init__(self, device: str, point: str, quota_type: str) -> None:
        self._device = os.fsencode(device)
        self._point = os.fsencode(point)
        self._type = _TYPES[quota_type]
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _call(self, command: int, number: int, address: Any) -> None:
        word = (command << 8) | self._type
        # the interface has it signed
        word = word - (1 << 32) if word >= 1 << 31 else word
        if self._libc.quotactl(ctypes.c_int(word), self._device, ctypes.c_int(_signed(number)), address):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fsdecode(self._device))

    def state(self) -> State:
        """As the kernel has it now."""
        answer = ctypes.create_string_buffer(_QSTAT_SIZE)
        answer[0] = bytes([_QSTAT_VERSION])
        try:
            self._call(_Q_XGETQSTAT, 0, answer)
        except OSError as error:
            # a file system without quotas, or a kernel without them
            if error.errno in (errno.ENOSYS, errno.ESRCH, errno.EINVAL, errno.EOPNOTSUPP):
                return OFF
            raise
        return parse_state(answer.raw, self._type)

    def enforce(self) -> None:
        """Let limits hold where space is counted already (ext4)."""
        self._call(_Q_QUOTAON, _VFS_V1, self._point)

    def limits(self, number: int) -> list[int]:
        """[soft KiB, hard KiB, soft files, hard files] of one user or project."""
        answer = ctypes.create_string_buffer(_DQBLK.size)
        try:
            self._call(_Q_GETQUOTA, number, answer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH):
                return [0, 0, 0, 0]
            raise
        return parse_limits(answer.raw)

    def numbers(self) -> list[int]:
        """All users or projects that use something or have limits."""
        numbers: list[int] = []
        number = 0
        while True:
            answer = ctypes.create_string_buffer(_NEXTDQBLK.size)
            try:
                self._call(_Q_GETNEXTQUOTA, number, answer)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ESRCH):
                    return numbers
                raise
            number = _NEXTDQBLK.unpack(answer.raw)[9]
            numbers.append(number)
            if number == 2**32 - 1:
                return numbers
            number += 1

    def set_limits(self, number: int, limits: Sequence[int]) -> None:
        """The reverse of limits(); what is used stays as it is."""
        soft, hard, files_soft, files = limits
        self._call(_Q_SETQUOTA, number, _DQBLK.pack(hard, soft, 0, files, files_soft, 0, 0, 0, _LIMITS))

    def set_grace(self, seconds: int) -> None:
        """How long a soft limit may be exceeded."""
        self._call(_Q_SETINFO, 0, _DQINFO.pack(seconds, seconds, 0, _BGRACE | _IGRACE))


def parse_state(raw: bytes, quota_type: int) -> State:
    """A struct fs_quota_stat."""
    (flags,) = _FLAGS.unpack_from(raw, _FLAGS_AT)
    graces = _GRACES.unpack_from(raw, _GRACES_AT)
    return State(bool(flags & _COUNTED[quota_type]), bool(flags & _ENFORCED[quota_type]), graces)


def parse_limits(raw: bytes) -> list[int]:
    """A struct if_dqblk."""
    hard, soft, _, files, files_soft = _DQBLK.unpack(raw[: _DQBLK.size])[:5]
    return [soft, hard, files_soft, files]


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def of_handle(handle: int) -> tuple[int, bool]:
    """(number, whether new files inherit it) of an open file or directory."""
    values = array.array("B", bytes(_XATTR_SIZE))
    fcntl.ioctl(handle, _GET_XATTR, values)
    return _word(values, _PROJECT), bool(_word(values, _FLAGS_FIELD) & _INHERIT)


def set_project(handle: int, number: int, inherit: bool) -> bool:
    """Give it a number; True where it had another."""
    values = array.array("B", bytes(_XATTR_SIZE))
    fcntl.ioctl(handle, _GET_XATTR, values)
    flags = _word(values, _FLAGS_FIELD)
    after = (flags | _INHERIT) if inherit else flags
    if (_word(values, _PROJECT), flags) == (number, after):
        return False
    values[_PROJECT : _PROJECT + 4] = array.array("B", number.to_bytes(4, "little"))
    values[_FLAGS_FIELD : _FLAGS_FIELD + 4] = array.array("B", after.to_bytes(4, "little"))
    fcntl.ioctl(handle, _SET_XATTR, values)
    return True


def _word(values: array.array[int], start: int) -> int:
    return int.from_bytes(values[start : start + 4].tobytes(), "little")


def has_project(path: str, number: int) -> bool:
    """Whether a directory is that project already; its own mark is put on last, so then all below is."""
    handle = os.open(path, _OPEN | os.O_DIRECTORY)
    try:
        return of_handle(handle) == (number, True)
    finally:
        os.close(handle)


def assign_project(path: str, number: int) -> int:
    """Assign a directory and all below it to a project; how many changed. Follows no link, enters no mount."""
    handle = os.open(path, _OPEN | os.O_DIRECTORY)
    try:
        changed = _below(handle, os.fstat(handle).st_dev, number, DEEPEST)
        return changed + set_project(handle, number, inherit=True)
    finally:
        os.close(handle)


def _below(handle: int, device: int, number: int, deeper: int) -> int:
    changed = 0
    with os.scandir(handle) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            # links and special files take no space that matters, and to open them does things
            if status.st_dev == device and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                changed += _entry(entry.name, handle, device, number, deeper)
    return changed


def _entry(name: str, within: int, device: int, number: int, deeper: int) -> int:
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
            raise HintedError(f"it has a directory more than {DEEPEST} levels deep", "let its owner look at it")
        below = _below(handle, device, number, deeper - 1)
        return below + set_project(handle, number, inherit=True)
    finally:
        os.close(handle)
