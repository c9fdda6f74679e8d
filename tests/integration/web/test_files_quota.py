"""Uploads into a real file system whose quota for the user is used up: btrfs, of which each kernel here has quotas."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.web import files, files_upload
from deepopsctl.node_programs.services.web.files import Root
from deepopsctl.node_programs.services.web.files_upload import Form
from deepopsctl.node_programs.services.web.offer import RefusedError
from tests.support.btrfs import mounted

ALICE = 60010
QUOTA = "4M"
MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home with a quota, in a file system that has room."""
    with mounted(tmp_path) as path:
        alice = path / "alice"
        for command in (f"quota enable {path}", f"subvolume create {alice}", f"qgroup limit {QUOTA} {alice}"):
            subprocess.run(["btrfs", *command.split()], check=True, capture_output=True)
        os.chown(alice, ALICE, ALICE)
        yield alice


def as_alice(do: Callable[[], object]) -> str:
    """What is refused to her; '' for nothing."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.setgroups([])
            os.setresgid(ALICE, ALICE, ALICE)
            os.setresuid(ALICE, ALICE, ALICE)
            try:
                do()
            except RefusedError as error:
                os.write(send, str(error).encode())
            os._exit(0)
        os._exit(1)
    os.close(send)
    with os.fdopen(receive, encoding="utf-8") as stream:
        refused = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return refused


def uploading(home: Path, name: str, size: int) -> Callable[[], object]:
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    form = io.BytesIO(head + os.urandom(size) + b"\r\n--x--\r\n")
    return lambda: files_upload.store(Root("home", "Home", str(home)), (), Form(form.read, "x"), size, [])


def test_a_quota_that_is_used_up_is_said_and_leaves_nothing(home: Path) -> None:
    assert as_alice(uploading(home, "small", MIB)) == ""

    refused = as_alice(uploading(home, "large", 8 * MIB))

    assert refused.startswith("large: your quota is used up, and nothing was stored: delete files")
    assert [each.name for each in home.iterdir()] == ["small"]
    # who is at the limit can make room there
    assert as_alice(lambda: files.remove(Root("home", "Home", str(home)), ("small",))) == ""
    os.sync()
    assert as_alice(uploading(home, "other", MIB)) == ""
