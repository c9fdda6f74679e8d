"""Run executables on this node, one after the other, and print what each printed. Needs nothing but Python 3.9.

Its text is also the program of a job: `python3 -c TEXT SECONDS NAME=BASE64...`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

MARK = "DEEPOPS-CHECK "
# bytes of standard output; more than that is a failure
LIMIT = 64 * 1024
# of the error text
ERRORS = 600


def run_executable(content: bytes, seconds: float) -> dict[str, Any]:
    """Run one executable: `rc`, `out`, `err`; `late` where it was ended, and `long` where it printed too much."""
    directory = tempfile.mkdtemp(prefix="deepopsctl-check-")
    try:
        path = os.path.join(directory, "check")
        with open(path, "wb") as stream:
            stream.write(content)
        os.chmod(path, 0o700)
        return _run(path, directory, time.monotonic() + seconds)
    except OSError as error:
        return {"rc": 127, "out": "", "err": f"can't be run: {error.strerror}"}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(path: str, directory: str, until: float) -> dict[str, Any]:
    process = subprocess.Popen(
        [path], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    texts = {"out": b"", "err": b""}
    try:
        late, long = not _read(process, texts, until), len(texts["out"]) > LIMIT
        if not long:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0))
            late = late or process.poll() is None
    finally:
        # it, and what it has started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    out, err = (texts[name].decode(errors="replace") for name in ("out", "err"))
    return {"rc": process.returncode, "out": "" if long else out, "err": err, "late": late, "long": long}


def _read(process: subprocess.Popen[bytes], texts: dict[str, bytes], until: float) -> bool:
    """Collect its output until its end, or until that is too much; False where time is up before."""
    limits = {"out": LIMIT + 1, "err": ERRORS}
    with selectors.DefaultSelector() as selector:
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, name)
        while selector.get_map() and len(texts["out"]) <= LIMIT:
            left = until - time.monotonic()
            if left <= 0:
                return False
            for key, _events in selector.select(left):
                data = os.read(key.fd, LIMIT)
                if not data:
                    selector.unregister(key.fileobj)
                texts[key.data] = (texts[key.data] + data)[: limits[key.data]]
    return True


def main() -> None:
    """Run those of the command line; a line of output each."""
    seconds, *checks = sys.argv[1:]
    for word in checks:
        name, _, content = word.partition("=")
        result = run_executable(base64.b64decode(content), float(seconds))
        answer = {"node": os.environ.get("SLURMD_NODENAME", ""), "name": name, **result}
        sys.stdout.write(f"{MARK}{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
