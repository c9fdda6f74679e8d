"""What a node runs to build: the inputs come in, the result goes out, nothing stays."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from deepopsctl.errors import DeepOpsError
from deepopsctl.lifecycle.build_host import script_of, unpack
from tests.support.files import write_program


def ran(place: Path, command: str, *, with_jobs: bool = False) -> subprocess.CompletedProcess[bytes]:
    """The script with this in place of mmdebstrap, and an input `orig`."""
    # this machine may run labs
    programs = write_program(place.parent / "bin" / "pgrep", "true" if with_jobs else "false").parent
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w") as archive:
        entry = tarfile.TarInfo("orig")
        entry.size = 6
        archive.addfile(entry, io.BytesIO(b"source"))
    script = script_of(place, lambda inputs, result: ("sh", "-c", command, str(inputs), str(result)))
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", script], input=sent.getvalue(), capture_output=True, check=False, env=environment
    )


def test_only_the_result_is_returned_and_nothing_stays(tmp_path: Path) -> None:
    place = tmp_path / "it's here"

    done = ran(place, 'echo compiling; cat "$0/orig" > "$1/hello.deb"')

    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive.getmembers() if entry.isfile()}
        assert {name: file and file.read() for name, file in files.items()} == {"./hello.deb": b"source"}
    assert done.stderr == b"compiling\n"
    assert not place.exists()


@pytest.mark.parametrize("command", ["exit 3", "kill -TERM $PPID; sleep 1"])
def test_a_build_that_fails_or_is_ended_leaves_nothing(tmp_path: Path, command: str) -> None:
    assert ran(tmp_path / "place", command).returncode != 0
    assert not (tmp_path / "place").exists()


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"") -> io.BytesIO:
    """An archive with one member."""
    returned = io.BytesIO()
    with tarfile.open(fileobj=returned, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.size = kind, "/etc/passwd" if kind != tarfile.REGTYPE else "", len(content)
        archive.addfile(entry, io.BytesIO(content))
    returned.seek(0)
    return returned


def test_what_a_node_returns_is_in_the_directory(tmp_path: Path) -> None:
    unpack(member("./out/slurmd.deb", content=b"package"), tmp_path)

    assert (tmp_path / "out" / "slurmd.deb").read_bytes() == b"package"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../out", tarfile.REGTYPE),
        ("/tmp/../out", tarfile.REGTYPE),
        ("out", tarfile.SYMTYPE),
        ("out", tarfile.LNKTYPE),
        ("out", tarfile.FIFOTYPE),
    ],
)
def test_nothing_that_a_node_returns_leaves_the_directory(tmp_path: Path, name: str, kind: bytes) -> None:
    with pytest.raises(DeepOpsError, match="returned no result"):
        unpack(member(name, kind), tmp_path / "result")

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_built_where_users_are(tmp_path: Path) -> None:
    done = ran(tmp_path / "place", "touch built", with_jobs=True)

    assert (done.returncode, b"jobs of users run here" in done.stderr) == (1, True)
    assert not (tmp_path / "place").exists()


def test_the_root_of_a_build_is_where_nobody_else_enters(tmp_path: Path) -> None:
    done = ran(tmp_path / "place", 'echo "$TMPDIR"; stat --format=%a "$(dirname "$TMPDIR")"')

    assert done.stderr.decode().split() == [str(tmp_path / "place" / "tmp"), "700"]


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()

    assert ran(tmp_path / "place", "true").returncode != 0
    assert (tmp_path / "place").exists()
