"""Reads a password from a file that only its owner can read."""

from __future__ import annotations

import stat
from pathlib import Path

from deepopsctl.errors import InputError


def read_password(file: Path, option: str = "--password-file") -> str:
    """The first line of a file (a pipe is fine, too); refused if others may read it or nothing is in it."""
    try:
        with file.open(encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            mode = file.stat().st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise InputError.single(option, f"{file} can be read by others", f"chmod 600 {file}")
            return first_line(stream.readline(), option)
    except OSError as error:
        message = f"{file}: {(error.strerror or str(error)).lower()}"
        raise InputError.single(option, message, "check the path, or leave the option out to be asked") from error


def first_line(text: str, option: str = "--password-file") -> str:
    """The text without its line end; refused if it is empty."""
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\0" in password:
        raise InputError.single(
            option, "there is no password on the first line", "write only the password into the first line"
        )
    return password
