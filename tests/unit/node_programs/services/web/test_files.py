"""A user's own files, real ones: where names and links may lead, and what is left when something goes wrong."""

from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import resource
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.services.web import agent, files, files_agent, files_upload
from deepopsctl.node_programs.services.web.files import MissingError, Root
from deepopsctl.node_programs.services.web.files_upload import CutError, Form
from deepopsctl.node_programs.services.web.offer import RefusedError

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
LONG = "x" * (files.PREVIEW - 1)
BOUNDARY = "----WebKitFormBoundary7MA4YWxk"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("private", encoding="utf-8")
    path = tmp_path / "home"
    (path / "data").mkdir(parents=True)
    (path / "notes.txt").write_text("text", encoding="utf-8")
    return path


def root(home: Path) -> Root:
    return Root("home", "Home", str(home))


def inspect(home: Path, *names: str, **wanted: Any) -> dict[str, Any]:
    return files.inspect([root(home)], root(home), names, wanted)


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def shown(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["entries"]]


# --- where one gets to


@pytest.mark.parametrize(
    "names", [("..",), ("data", "..", "..", "secret"), (".",), ("",), ("a/b",), ("a\0b",), ("x",) * 200]
)
@pytest.mark.parametrize("do", [inspect, lambda home, *names: files.remove(root(home), names)])
def test_no_name_leads_out_of_a_root(home: Path, do: Any, names: tuple[str, ...]) -> None:
    with pytest.raises(MissingError, match="no such place"):
        do(home, *names)


def test_a_link_in_the_way_is_not_followed(home: Path) -> None:
    (home / "out").symlink_to(home.parent / "secret")
    (home / "in").symlink_to("data")

    for name in ("out", "in"):
        with pytest.raises(RefusedError, match="is a link to one"):
            inspect(home, name, "key")
        with pytest.raises(RefusedError, match="is a link to one"):
            upload(home, [("x", b"x")], names=(name,))
        with pytest.raises(RefusedError, match="is a link to one"):
            files.remove(root(home), (name, "key"))
    assert (home.parent / "secret/key").exists()


def test_a_link_says_where_it_leads_if_that_is_a_place_of_the_users(home: Path) -> None:
    scratch = Root("scratch", "Scratch", str(home.parent / "scratch"))
    (home.parent / "scratch/run").mkdir(parents=True)
    links = {
        "inside": (home / "data", ["home", "data"]),
        "scratch": (Path(scratch.path), ["scratch"]),
        "run": (Path(scratch.path, "run"), ["scratch", "run"]),
        "outside": (home.parent / "secret", None),
        "beside": (Path(f"{home}-of-another"), None),
        "nowhere": (home / "no", None),
        "circle": (home / "circle", None),
    }
    for name, (target, leads) in links.items():
        (home / name).symlink_to(target)
        answer = files.inspect([root(home), scratch], root(home), (name,), {})
        assert (answer["kind"], answer["leads"]) == ("link", leads), name


def test_of_spaces_only_own_directories_are_roots(home: Path) -> None:
    spaces = [
        {"name": name, "path": str(home.parent / name), "by": by}
        for name, by in (("home", "user"), ("scratch", "user"), ("work", "user"), ("vault", "user"))
    ]
    (home.parent / "scratch/alice").mkdir(parents=True)
    (home.parent / "work").mkdir()
    (home.parent / "work/alice").symlink_to(home.parent / "secret")

    assert [each.key for each in files.roots("alice", str(home), ["def-lab"], spaces)] == ["home", "scratch"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes the directories of groups")
def test_a_groups_directory_is_roots_and_the_groups(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [3001])
    spaces = [{"name": "project", "path": str(home), "by": "group"}]
    for name, uid in (("made-by-root", 0), ("made-by-a-user", 2002)):
        (home / name).mkdir()
        os.chown(home / name, uid, 3001)

    roots = files.roots("alice", str(home), ["made-by-a-user", "made-by-root", "missing"], spaces)

    assert [each.key for each in roots] == ["home", "project:made-by-root"]


# --- what is shown


def test_what_is_no_file_is_named_and_never_opened(home: Path) -> None:
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(home / "socket"))
    (home / "null").symlink_to("/dev/null")

    assert [inspect(home, name)["kind"] for name in ("pipe", "socket", "null")] == ["pipe", "socket", "link"]
    for name in ("pipe", "socket", "null", "data"):
        with pytest.raises(RefusedError, match="not a file that can be read"), opened(home, name):
            pass
    device = Root("home", "Home", "/dev")
    assert files.inspect([device], device, ("null",), {})["kind"] == "device"


@contextmanager
def opened(home: Path, *names: str) -> Iterator[int]:
    with (
        files.parent_of(root(home), names) as (parent, name),
        files.reading(parent, name) as (handle, _),
    ):
        yield handle


def test_a_large_directory_is_shown_in_pages_and_only_the_page_is_asked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(files.MOST_SORTED + 10):
        (home / f"data/{number:05}").touch()
    asked: list[str] = []
    real = files._entry

    def entry(handle: int, name: str) -> dict[str, Any]:
        asked.append(name)
        return real(handle, name)

    monkeypatch.setattr(files, "_entry", entry)

    answer = inspect(home, "data", page=2, order="time")

    assert shown(answer) == [f"{number:05}" for number in range(files.PAGE, 2 * files.PAGE)] == asked
    assert (answer["pages"], answer["count"], answer["order"], answer["can_sort"]) == (11, 2010, "name", False)
    assert shown(inspect(home, "data", page=99)) == [f"{number:05}" for number in range(2000, 2010)]
    assert shown(inspect(home, "data", find="0042")) == ["00042", *(f"0042{number}" for number in range(10))]


def test_no_more_names_are_held_than_a_bound(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcde":
        (home / f"data/{name}").touch()
    monkeypatch.setattr(files, "MOST_NAMES", 3)

    answer = inspect(home, "data")

    assert (answer["count"], answer["more"]) == (3, True)


def test_directories_come_first_and_names_with_a_dot_when_they_are_asked_for(home: Path) -> None:
    (home / ".cache").mkdir()
    (home / "a").write_bytes(b"xx")

    assert (shown(inspect(home)), inspect(home)["hidden"]) == (["data", "a", "notes.txt"], 1)
    assert shown(inspect(home, all=True))[0] == ".cache"
    assert shown(inspect(home, order="size"))[-2:] == ["notes.txt", "a"]


@pytest.mark.parametrize(
    ("data", "preview"),
    [
        (b"", {"as": "text", "text": "", "cut": False}),
        ("grün\n".encode(), {"as": "text", "text": "grün\n", "cut": False}),
        (b"\xff\n", {"as": "text", "text": "\\xff\n", "cut": False}),
        (b"a\0b", {"as": "binary"}),
        (PNG, {"as": "image"}),
        (b"<svg onload='alert(1)'/>", {"as": "text", "text": "<svg onload='alert(1)'/>", "cut": False}),
        (f"{LONG}üy".encode(), {"as": "text", "text": LONG, "cut": True}),
    ],
)  # fmt: skip
def test_a_file_is_shown_by_what_it_has_whatever_its_name_says(home: Path, data: bytes, preview: Any) -> None:
    (home / "page.html.png").write_bytes(data)

    assert inspect(home, "page.html.png")["preview"] == preview


# --- changes


def test_a_rename_takes_no_name_that_is_there(home: Path) -> None:
    (home / "other").write_text("other", encoding="utf-8")
    (home / "link").symlink_to("nowhere")

    for name in ("other", "data", "link"):
        with pytest.raises(RefusedError, match=f"{name}: is already there"):
            files.rename(root(home), ("notes.txt",), name)
    files.rename(root(home), ("notes.txt",), "new name")

    assert (home / "new name").read_text(encoding="utf-8") == "text"
    assert (home / "other").read_text(encoding="utf-8") == "other"


def test_nor_does_it_on_a_file_system_that_cannot_refuse_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def renameat2(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Old())
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EINVAL)
    (home / "link").symlink_to("nowhere")

    with pytest.raises(RefusedError, match="link: is already there"):
        files.rename(root(home), ("notes.txt",), "link")
    files.rename(root(home), ("notes.txt",), "new")
    assert (home / "new").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "a\x1b[31m", "a\u202eb", "a\0", "x" * 256, "\udcff"])
def test_hostile_names_are_not_given(home: Path, name: str) -> None:
    for change in (files.make, lambda place, _names, new: files.rename(place, ("notes.txt",), new)):
        with pytest.raises(RefusedError, match=r"not a name|control characters"):
            change(root(home), (), name)
    with pytest.raises(RefusedError, match=r"not a name|control characters"):
        files_upload._store(0, files.new_name(name), iter(()), replace=False)


def test_what_has_a_hostile_name_can_be_renamed_and_deleted(home: Path) -> None:
    names = [os.fsdecode(each) for each in (b"a\nb", b"\xff\xfe", "a\u202eb".encode(), b"-rf *")]
    for name in names:
        (home / name).touch()

    assert set(names) <= set(shown(inspect(home)))
    files.rename(root(home), (names[0],), "good")
    for name in ("good", *names[1:]):
        files.remove(root(home), (name,))
    assert shown(inspect(home)) == ["data", "notes.txt"]


def test_delete_takes_a_link_and_not_what_it_leads_to_and_no_full_directory(home: Path) -> None:
    (home / "link").symlink_to("data")
    (home / "data/file").touch()

    files.remove(root(home), ("link",))
    with pytest.raises(RefusedError, match="data: is not empty"):
        files.remove(root(home), ("data",))
    with pytest.raises(RefusedError, match="whole directory"):
        files.remove(root(home), ())

    assert (home / "data/file").exists()


# --- uploads


def form(parts: list[tuple[str, bytes]], *, replace: bool = False) -> bytes:
    body = b""
    if replace:
        body += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="replace"\r\n\r\n1\r\n'.encode()
    for name, data in parts:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        body += head.encode("utf-8", "surrogateescape") + b"Content-Type: text/plain\r\n\r\n" + data + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


def upload(
    home: Path, parts: list[tuple[str, bytes]], *, names: tuple[str, ...] = (), replace: bool = False, cut: int = 0,
    step: int = 7,
) -> list[str]:  # fmt: skip
    body = form(parts, replace=replace)
    stream, stored = io.BytesIO(body[: len(body) - cut]), list[str]()
    try:
        files_upload.store(root(home), names, Form(lambda most: stream.read(min(step, most)), BOUNDARY), 0, stored)
    finally:
        assert not [each for each in home.rglob("*") if each.name.startswith(files_upload.PART)]
    return stored


@pytest.mark.parametrize("step", [1, 2, 13, 1 << 16])
def test_what_is_uploaded_is_what_was_sent_however_it_comes(home: Path, step: int) -> None:
    near = f"\r\n--{BOUNDARY[:-1]}\r\n--\r\n".encode()
    parts = [("a", b""), ("b ü.bin", near * 3 + b"\r"), ("c", bytes(range(256)))]

    assert upload(home, parts, names=("data",), step=step) == ["a", "b ü.bin", "c"]

    for name, data in parts:
        assert (home / "data" / name).read_bytes() == data


def test_names_of_an_upload_lead_nowhere(home: Path) -> None:
    sent = [("/etc/passwd", "passwd"), ("../../x", "x"), ("a%22b;c", 'a"b;c'), ("C:\\up\\y", "C:\\up\\y")]

    assert upload(home, [(name, b"1") for name, _ in sent], names=("data",)) == [name for _, name in sent]
    for name in ("..", "a%0Ab"):
        with pytest.raises(RefusedError, match=r"not a name|control characters"):
            upload(home, [(name, b"1")], names=("data",))
    # no file was chosen
    assert upload(home, [("", b"")]) == []


def test_nothing_is_replaced_unless_it_is_asked_for_and_then_its_rights_stay(home: Path) -> None:
    (home / "notes.txt").chmod(0o640)

    with pytest.raises(RefusedError, match=r"notes\.txt: is already there"):
        upload(home, [("notes.txt", b"new")])
    assert (home / "notes.txt").read_bytes() == b"text"

    upload(home, [("notes.txt", b"new")], replace=True)
    assert (home / "notes.txt").read_bytes() == b"new"
    assert stat.S_IMODE((home / "notes.txt").stat().st_mode) == 0o640


def test_a_link_is_neither_replaced_nor_written_through(home: Path) -> None:
    (home / "link").symlink_to(home.parent / "secret/key")
    (home / "dangling").symlink_to(home.parent / "secret/new")

    for name in ("link", "dangling", "data"):
        for replace in (False, True):
            with pytest.raises(RefusedError, match="there"):
                upload(home, [(name, b"taken")], replace=replace)
    assert names_in(home.parent / "secret") == ["key"]
    assert (home.parent / "secret/key").read_text(encoding="utf-8") == "private"


def test_a_name_that_is_made_meanwhile_is_not_replaced(home: Path) -> None:
    def content() -> Iterator[bytes]:
        yield b"mine"
        (home / "late").symlink_to(home.parent / "secret/key")

    with files.directory(root(home), ()) as handle, pytest.raises(RefusedError, match="late: is already there"):
        files_upload._store(handle, "late", content(), replace=False)
    assert (home.parent / "secret/key").read_text(encoding="utf-8") == "private"
    assert names_in(home) == ["data", "late", "notes.txt"]


@pytest.mark.parametrize("cut", [1, 40, 120])
def test_an_upload_that_is_cut_off_leaves_what_was_whole(home: Path, cut: int) -> None:
    with pytest.raises(CutError):
        upload(home, [("one", b"1"), ("two", b"2" * 50)], names=("data",), cut=len(f"--{BOUNDARY}--\r\n") + cut)

    assert names_in(home / "data") == ["one"]


def test_a_file_system_that_takes_no_more_leaves_nothing_half_done(home: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(RefusedError, match="large: is larger than the file system takes"):
            upload(home, [("small", b"1"), ("large", bytes(5000))], names=("data",), step=1 << 16)
        with pytest.raises(RefusedError, match="larger"):
            upload(home, [("notes.txt", bytes(5000))], replace=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert names_in(home / "data") == ["small"]
    assert (home / "notes.txt").read_bytes() == b"text"


@pytest.mark.parametrize(
    ("number", "text"), [(errno.EDQUOT, "your quota is used up"), (errno.ENOSPC, "full"), (errno.EACCES, "permission")]
)
def test_an_error_is_said_in_plain_words(number: int, text: str) -> None:
    with pytest.raises(RefusedError, match=f"large: .*{text}"), files.in_words("large"):
        raise OSError(number, os.strerror(number))


def test_more_than_is_free_is_refused_before_it_is_read(home: Path) -> None:
    def never(_most: int) -> bytes:
        raise AssertionError

    with pytest.raises(RefusedError, match="free"):
        files_upload.store(root(home), (), Form(never, BOUNDARY), 1 << 62, [])


# --- the agent


def asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any], body: bytes = b""
) -> tuple[Any, bytes]:
    """What the program says, and what comes after it."""
    config = home.parent / "web.json"
    config.write_text('{"spaces": []}', encoding="utf-8")
    account = type("Account", (), {"pw_name": "alice", "pw_dir": str(home)})
    monkeypatch.setattr(files_agent, "CONFIG", str(config))
    monkeypatch.setattr(agent, "account_of", lambda *_: account)
    monkeypatch.setattr(agent, "become", lambda _: [])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    outgoing = io.BytesIO()
    line = json.dumps({"user": "alice", **question}).encode() + b"\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(line + body))))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(outgoing))
    files_agent.main()
    head, _, data = outgoing.getvalue().partition(b"\n")
    return json.loads(head), data


@pytest.mark.parametrize(
    ("wanted", "data"),
    [("", b"0123456789"), ("bytes=0-3", b"0123"), ("bytes=7-", b"789"), ("bytes=-2", b"89"), ("bytes=5-99", b"56789"),
     ("bytes=10-", b""), ("bytes=3-2", b"0123456789"), ("bytes=-", b"0123456789"), ("bytes=0-1,3-4", b"0123456789"),
     ("lines=1-2", b"0123456789")],
)  # fmt: skip
def test_a_download_is_the_file_or_one_part_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, data: bytes
) -> None:
    (home / "digits").write_bytes(b"0123456789")
    question = {"ask": "download", "place": ["home", "digits"], "range": wanted}

    head, sent = asked(home, monkeypatch, question)

    assert (sent, head["length"], head["part"]) == (data, len(data), len(data) < 10)
    # it has changed since the first part came
    head, sent = asked(home, monkeypatch, {**question, "if_range": '"another"'})
    assert (sent, head["part"]) == (b"0123456789", False)


def test_only_an_image_is_sent_as_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "a").write_bytes(PNG)
    (home / "b.png").write_bytes(b"<script>alert(1)</script>")

    question = {"ask": "download", "image": True}

    assert asked(home, monkeypatch, {**question, "place": ["home", "a"]})[0]["type"] == "image/png"
    assert "refused" in asked(home, monkeypatch, {**question, "place": ["home", "b.png"]})[0]


def test_the_agent_stores_what_comes_after_its_question(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = form([("a", b"1"), ("notes.txt", b"2")])
    question = {"ask": "upload", "place": ["home"], "length": len(body), "boundary": BOUNDARY}

    head, _ = asked(home, monkeypatch, question, body + b"and more")

    assert head == {"stored": ["a"], "trouble": "notes.txt: is already there: nothing was changed"}


@pytest.mark.parametrize(
    "question",
    [{}, {"ask": "inspect"}, {"ask": "inspect", "place": []}, {"ask": "inspect", "place": ["project:other"]},
     {"ask": "exec", "place": ["home"]}, {"ask": "upload", "place": ["home"], "length": 1, "boundary": "\r\n"},
     {"ask": "download", "place": ["home"]}, {"ask": "remove", "place": ["home"]},
     {"ask": "inspect", "place": ["home"], "page": "many"}],
)  # fmt: skip
def test_what_is_no_question_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, question: Any) -> None:
    head, _ = asked(home, monkeypatch, question)

    assert set(head) & {"refused", "trouble"}
    assert names_in(home) == ["data", "notes.txt"]
