"""Whether the directory service accepts a password, asked by the library that SSSD itself uses: it has no such command.

Source: ldap.h and ldap_set_option(3) of OpenLDAP 2.4 to 2.6.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_LIBRARIES = ("libldap.so.2", "libldap-2.5.so.0", "libldap_r-2.4.so.2")
_VERSION, _TIMEOUT, _AUTHORITY, _DEMAND, _NEW = 0x11, 0x5005, 0x6002, 0x6006, 0x600F
_VERSION_3, _HARD = 3, 1
_INVALID = 49
_ANSWER_S = 10


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("microseconds", ctypes.c_long))


def refusal(directory: Mapping[str, Any], password: str) -> str:
    """Why no server lets `bind_dn` in with this password; '' where one does."""
    library = _library()
    if library is None:
        return "there is no libldap here: is SSSD installed?"
    answers = []
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as authority:
        authority.write(directory["ca"])
        authority.flush()
        for uri in directory["servers"]:
            code, text = _bind(library, uri, directory["bind_dn"], password, authority.name)
            # another server has the same answer, or an older one
            if code in (0, _INVALID):
                return f"{uri}: {text}" if code else ""
            answers.append(f"{uri}: {text}")
    return "; ".join(answers)


def _library() -> Any:
    for name in _LIBRARIES:
        with suppress(OSError):
            library = ctypes.CDLL(name)
            library.ldap_err2string.restype = ctypes.c_char_p
            return library
    return None


def _bind(library: Any, uri: str, name: str, password: str, authority: str) -> tuple[int, str]:
    """(code, text) of one server."""
    # neither /etc/ldap/ldap.conf nor root's own file has a say
    os.environ["LDAPNOINIT"] = "1"
    handle = ctypes.c_void_p()
    code = library.ldap_initialize(ctypes.byref(handle), uri.encode())
    if not code:
        limit = _Time(_ANSWER_S, 0)
        library.ldap_set_option(handle, _VERSION, ctypes.byref(ctypes.c_int(_VERSION_3)))
        library.ldap_set_option(handle, _TIMEOUT, ctypes.byref(limit))
        library.ldap_set_option(handle, _AUTHORITY, authority.encode())
        library.ldap_set_option(handle, _DEMAND, ctypes.byref(ctypes.c_int(_HARD)))
        library.ldap_set_option(handle, _NEW, ctypes.byref(ctypes.c_int(0)))
        if not uri.startswith("ldaps:"):
            code = library.ldap_start_tls_s(handle, None, None)
        code = code or library.ldap_simple_bind_s(handle, name.encode(), password.encode())
        library.ldap_unbind_ext_s(handle, None, None)
    return code, library.ldap_err2string(code).decode("utf-8", "replace")
