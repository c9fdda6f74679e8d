"""Passes a password to ssh: never on a command line, in the environment or in a file.

ssh closes every inherited descriptor above 2 and gives its askpass program nothing but the prompt, so the
password waits in the kernel's buffer of a named pipe inside a private directory (0700). The helper answers one
prompt only, that of the login it was made for: it unlinks the pipe before it reads, and refuses prompts of
other hosts (a jump host on the way) and other questions (a one-time code).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

_HELPER = r"""#!/bin/sh
# gives ssh the answer to one password prompt; see deepopsctl/ssh/askpass.py
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


def _may_execute(directory: Path) -> bool:
    return not os.statvfs(directory).f_flag & os.ST_NOEXEC
