"""Whether a password is right and its account open, by PAM: the directory's users and the node's own."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

SERVICE = "deepops-web"
_SUCCESS, _CONVERSATION_ERROR = 0, 19
_ECHO_OFF = 1


class _Message(ctypes.Structure):
    _fields_ = (("style", ctypes.c_int), ("text", ctypes.c_char_p))


class _Reply(ctypes.Structure):
    _fields_ = (("text", ctypes.c_void_p), ("code", ctypes.c_int))


_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.POINTER(_Message)), ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)  # fmt: skip


class _Conversation(ctypes.Structure):
    _fields_ = (("function", _FUNCTION), ("data", ctypes.c_void_p))


def opens(user: str, password: str | None, address: str, service: str = SERVICE) -> bool:
    """Whether the user may log in; without a password only the account is looked at."""
    library = ctypes.CDLL(ctypes.util.find_library("pam") or "libpam.so.0")
    libc = ctypes.CDLL(None)
    libc.calloc.restype, libc.strdup.restype = ctypes.c_void_p, ctypes.c_void_p
    secret = (password or "").encode()

    def answer(count: int, messages: Any, replies: Any, _data: Any) -> int:
        """PAM frees what it gets: it is libc's."""
        block = libc.calloc(count, ctypes.sizeof(_Reply))
        if not block:
            return _CONVERSATION_ERROR
        array = ctypes.cast(block, ctypes.POINTER(_Reply))
        for place in range(count):
            if messages[place].contents.style == _ECHO_OFF:
                array[place].text = libc.strdup(secret)
        replies[0] = block
        return _SUCCESS

    conversation, handle = _Conversation(_FUNCTION(answer), None), ctypes.c_void_p()
    started = library.pam_start(service.encode(), user.encode(), ctypes.byref(conversation), ctypes.byref(handle))
    if started != _SUCCESS:
        return False
    status = _SUCCESS
    try:
        # PAM_RHOST
        library.pam_set_item(handle, 4, address.encode())
        if password is not None:
            # PAM_DISALLOW_NULL_AUTHTOK
            status = library.pam_authenticate(handle, 1)
        if status == _SUCCESS:
            status = library.pam_acct_mgmt(handle, 0)
    finally:
        library.pam_end(handle, status)
    return status == _SUCCESS
