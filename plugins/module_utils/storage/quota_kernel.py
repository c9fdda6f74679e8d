"""Quotas of one file system, asked and set by quotactl(2): one interface for ext4 and XFS.

Not by setquota, repquota and xfs_quota: a plan has to say what a file system can't do before their packages are there.
Numbers are those of linux/quota.h and linux/dqblk_xfs.h, which are part of the kernel's stable interface.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import os
import struct

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

State = collections.namedtuple("State", "counted enforced grace")
OFF = State(False, False, (0, 0))


class Kernel:
    """The quotas of one type on one device."""

    def __init__(self, device, point, quota_type):
        self._device = os.fsencode(device)
        self._point = os.fsencode(point)
        self._type = _TYPES[quota_type]
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _call(self, command, number, address):
        word = (command << 8) | self._type
        # the interface has it signed
        word = word - (1 << 32) if word >= 1 << 31 else word
        if self._libc.quotactl(ctypes.c_int(word), self._device, ctypes.c_int(_signed(number)), address):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fsdecode(self._device))

    def state(self):
        """Whether space is counted, whether limits hold, and the graces in seconds (space, files)."""
        answer = ctypes.create_string_buffer(_QSTAT_SIZE)
        answer[0] = _QSTAT_VERSION
        try:
            self._call(_Q_XGETQSTAT, 0, answer)
        except OSError as error:
            # a file system without quotas, or a kernel without them
            if error.errno in (errno.ENOSYS, errno.ESRCH, errno.EINVAL, errno.EOPNOTSUPP):
                return OFF
            raise
        return parse_state(answer.raw, self._type)

    def enforce(self):
        """Let limits hold where space is counted already (ext4)."""
        self._call(_Q_QUOTAON, _VFS_V1, self._point)

    def limits(self, number):
        """[soft KiB, hard KiB, soft files, hard files] of one user or project."""
        answer = ctypes.create_string_buffer(_DQBLK.size)
        try:
            self._call(_Q_GETQUOTA, number, answer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH):
                return [0, 0, 0, 0]
            raise
        return parse_limits(answer.raw)

    def numbers(self):
        """All users or projects that use something or have limits."""
        numbers, number = [], 0
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

    def set_limits(self, number, limits):
        """The reverse of limits(); what is used stays as it is."""
        soft, hard, files_soft, files = limits
        self._call(_Q_SETQUOTA, number, _DQBLK.pack(hard, soft, 0, files, files_soft, 0, 0, 0, _LIMITS))

    def set_grace(self, seconds):
        """How long a soft limit may be exceeded."""
        self._call(_Q_SETINFO, 0, _DQINFO.pack(seconds, seconds, 0, _BGRACE | _IGRACE))


def parse_state(raw, quota_type):
    """A struct fs_quota_stat."""
    (flags,) = _FLAGS.unpack_from(raw, _FLAGS_AT)
    graces = _GRACES.unpack_from(raw, _GRACES_AT)
    return State(bool(flags & _COUNTED[quota_type]), bool(flags & _ENFORCED[quota_type]), graces)


def parse_limits(raw):
    """A struct if_dqblk."""
    hard, soft, _, files, files_soft = _DQBLK.unpack(raw[: _DQBLK.size])[:5]
    return [soft, hard, files_soft, files]


def _signed(number):
    return number - (1 << 32) if number >= 1 << 31 else number
