"""`deepops-web-files`: a question of JupyterHub's about one user's files; systemd starts one as root for each of them.

One JSON object comes in on a line, and after it what is uploaded; one goes out, and after it what is downloaded. It
becomes the user first, for good: file systems decide what the user may read and write.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from ..._shared import settings
from . import CONFIG, agent, files
from .files import MissingError, Names, Root
from .files_upload import CutError, Form, store
from .offer import RefusedError

Answer = dict[str, Any]
MOST = 1 << 17
BLOCK = 1 << 18
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def main() -> int:
    """Answer what comes in; returns the exit status."""
    # an upload that takes too long leaves nothing behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # a pipe of Python's own would read ahead of us, and be in the way of what comes after the line
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    try:
        answer(json.loads(incoming.readline(MOST)), settings.load(CONFIG), incoming, outgoing)
    except MissingError as error:
        _say(outgoing, {"refused": str(error), "missing": True})
    except RefusedError as error:
        _say(outgoing, {"refused": str(error)})
    except (ValueError, KeyError, TypeError, settings.SettingsError) as error:
        _say(outgoing, {"refused": f"not a question: {type(error).__name__}"})
    except (CutError, BrokenPipeError, ConnectionResetError):
        return 1
    return 0


def _say(outgoing: BinaryIO, what: Answer) -> None:
    outgoing.write(json.dumps(what).encode() + b"\n")
    outgoing.flush()


def answer(question: Answer, config: Answer, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """One answer. Raises RefusedError, CutError."""
    account = agent.account_of(str(question["user"]), int(config.get("least_uid", agent.LEAST_UID)))
    groups = agent.become(account)
    os.umask(0o022)
    known = files.roots(account.pw_name, account.pw_dir, groups, config["spaces"])
    what = question["ask"]
    if what == "roots":
        _say(outgoing, {"roots": [vars(each) for each in known]})
        return
    key, *names = map(str, question["place"])
    root = next((each for each in known if each.key == key), None)
    if root is None:
        raise MissingError("there is no such place")
    if what == "inspect":
        _say(outgoing, {"label": root.label, "path": root.path, **files.inspect(known, root, names, question)})
    elif what == "download":
        _send(root, names, question, outgoing)
    elif what == "upload":
        _take(root, names, question, incoming, outgoing)
    else:
        _CHANGES[what](root, names, str(question.get("name", "")))
        _say(outgoing, {})


def _remove(root: Root, names: Names, _name: str) -> None:
    files.remove(root, names)


_CHANGES: dict[str, Callable[[Root, Names, str], None]] = {
    "make": files.make, "rename": files.rename, "remove": _remove,
}  # fmt: skip


def _take(root: Root, names: Names, question: Answer, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    left = int(question["length"])

    def read(most: int) -> bytes:
        nonlocal left
        data = incoming.read1(min(most, left)) if left else b""  # type: ignore[attr-defined]  # of BufferedReader
        left -= len(data)
        return bytes(data)

    stored: list[str] = []
    try:
        store(root, names, Form(read, str(question["boundary"])), left, stored)
        _say(outgoing, {"stored": stored})
    except RefusedError as error:
        _say(outgoing, {"stored": stored, "trouble": str(error)})


def _send(root: Root, names: Names, question: Answer, outgoing: BinaryIO) -> None:
    with files.parent_of(root, names) as (parent, name), files.reading(parent, name) as (handle, status):
        tag = f'"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'
        head: Answer = {"size": status.st_size, "tag": tag, "start": 0, "length": status.st_size, "part": False}
        if question.get("image"):
            head["type"] = files.image_type(os.pread(handle, 16, 0)) if status.st_size <= files.MOST_IMAGE else ""
            if not head["type"]:
                raise RefusedError("that is not an image which is shown here")
        elif question.get("range") and question.get("if_range") in ("", None, tag):
            head.update(part_of(str(question["range"]), status.st_size))
        _say(outgoing, head)
        at, end = head["start"], head["start"] + head["length"]
        # a file that grows meanwhile is sent as long as it was; of one that shrinks the browser sees that it is cut
        while at < end:
            data = os.pread(handle, min(BLOCK, end - at), at)
            if not data:
                return
            outgoing.write(data)
            at += len(data)
        outgoing.flush()


def part_of(wanted: str, size: int) -> Answer:
    """One range of a file; all of it where the header asks for several, or for what it does not know."""
    match = _RANGE.fullmatch(wanted.strip())
    if not match or not (match[1] or match[2]):
        return {}
    if match[1]:
        start, last = int(match[1]), min(int(match[2] or size), size - 1)
    else:
        start, last = max(0, size - int(match[2])), size - 1
    if start > last:
        return {"length": 0, "part": True, "unsatisfiable": True} if start >= size else {}
    return {"start": start, "length": last - start + 1, "part": True}
