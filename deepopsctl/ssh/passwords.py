"""Passwords for ssh: read from private files, passed on never in a command line, the environment or a file.

ssh closes every inherited descriptor above 2 and gives its askpass program nothing but the prompt, so the
password waits in the kernel's buffer of a named pipe inside a private directory (0700). The helper answers one
prompt only, that of the login it was made for: it unlinks the pipe before it reads, and refuses prompts of
other hosts (a jump host on the way) and other questions (a one-time code).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from deepopsctl.errors import InputError

_HELPER = r"""#!/bin/sh
# gives ssh the answer to one password prompt; see deepopsctl/ssh/passwords.py
case $1 in
  "$DEEPOPSCTL_ASKPASS_FOR's password: ") ;;
  "($DEEPOPSCTL_ASKPASS_FOR) "*[Pp]assword:*) ;;
  [Pp]assword:*) ;;
  *) exit 1 ;;
esac
# read and write: opening alone for reading waits for ever when the writer was killed
[ -p "$DEEPOPSCTL_ASKPASS_PIPE" ] && exec 3<>"$DEEPOPSCTL_ASKPASS_PIPE" && rm -f "$DEEPOPSCTL_ASKPASS_PIPE" || exit 1
timeout 2 head -n 1 <&3
"""


class AskPass:
    """A private directory with the helper, as a context manager; `answer` is for one ssh process."""

    def __init__(self, fallback: Path) -> None:
        parent = None if _may_execute(Path(tempfile.gettempdir())) else fallback
        self.directory = Path(tempfile.mkdtemp(prefix="deepopsctl-", dir=parent))
        self._helper = self.directory / "askpass"
        self._helper.write_text(_HELPER, encoding="utf-8")
        self._helper.chmod(0o700)

    def __enter__(self) -> AskPass:
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def answer(self, password: str, user: str, host: str) -> Iterator[dict[str, str]]:
        """Environment variables with which an ssh process logs in to user@host with this password."""
        with tempfile.TemporaryDirectory(dir=self.directory, ignore_cleanup_errors=True) as private:
            pipe = Path(private) / "pipe"
            os.mkfifo(pipe, 0o600)
            # read and write: opening a pipe for writing alone waits for a reader
            descriptor = os.open(pipe, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                os.write(descriptor, password.encode(errors="surrogateescape") + b"\n")
                yield {
                    "SSH_ASKPASS": str(self._helper),
                    "SSH_ASKPASS_REQUIRE": "force",
                    "DISPLAY": "none",
                    "DEEPOPSCTL_ASKPASS_PIPE": str(pipe),
                    # cut as ssh cuts them in its prompt
                    "DEEPOPSCTL_ASKPASS_FOR": f"{user:.30}@{host:.128}",
                }
            finally:
                os.close(descriptor)


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


def _may_execute(directory: Path) -> bool:
    return not os.statvfs(directory).f_flag & os.ST_NOEXEC
