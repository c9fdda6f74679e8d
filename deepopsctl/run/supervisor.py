"""The process between deepopsctl and ansible-playbook: no process of a run survives it.

Started by its path, it imports nothing of deepopsctl. The lock it takes is inherited by Ansible and its workers: the
next run waits for the last of them. Why: docs/develop/decisions/one-ansible-run.md.

Arguments: LOCK PID_FILE ANSIBLE_ARGUMENT...
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Ansible removes its temporary files when it is interrupted: give it the time for that
GRACE_S = 1.0


class _StopError(Exception):
    """deepopsctl asked for the end, or is gone."""


def main(arguments: list[str]) -> int:
    """Run ansible-playbook below this process and return its exit code."""
    lock, pid_file, *rest = arguments
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    ansible = 0
    try:
        # the parent may have died before the first line of this function
        if os.getppid() != parent:
            return 128 + signal.SIGTERM
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        Path(pid_file).write_text(str(os.getpid()), encoding="ascii")
        ansible = os.fork()
        if ansible == 0:
            _become_ansible(rest)
        return _wait_for(ansible)
    except _StopError:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        _end_all(ansible)
        return 128 + signal.SIGTERM


def _wait_for(ansible: int) -> int:
    """Ansible's exit code. Its orphans (ssh going to the background) end here as well, and want to be reaped."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == ansible:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _become_ansible(arguments: list[str]) -> NoReturn:
    """In the child: ansible-playbook in this interpreter, which saves starting a second one."""
    code: object = 1
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        # with its directory: there Ansible looks for the program that answers ssh's password prompt (-k)
        sys.argv = [sys.executable.rpartition("/")[0] + "/ansible-playbook", *arguments]
        from ansible.cli.playbook import main as ansible_playbook

        ansible_playbook()
        code = 0
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # not sys.exit(): atexit functions and `finally` blocks of the parent are not this process's to run ...
        _run_exit_functions()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _run_exit_functions() -> None:
    """... but Ansible removes its local temporary directory by atexit."""
    import atexit

    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _StopError


def _end_all(ansible: int) -> None:
    if ansible:
        with contextlib.suppress(ProcessLookupError):
            # to Ansible alone: it passes the signal on to its workers
            os.kill(ansible, signal.SIGINT)
    gentle_until = time.monotonic() + GRACE_S
    hard_until = gentle_until + 5
    while time.monotonic() < hard_until:
        _reap()
        left = _descendants(os.getpid())
        if not left:
            return
        if time.monotonic() > gentle_until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants(root: int) -> list[int]:
    """Every process below `root`, except ssh's shared connections: they outlive a run on purpose."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                # the name in brackets may itself hold brackets and spaces
                state, parent = text[text.rindex(")") + 2 :].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    pids, todo = [], [root]
    while todo:
        below = [pid for pid in children.get(todo.pop(), ()) if not _is_shared_connection(pid)]
        pids += below
        todo += below
    return pids


def _is_shared_connection(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes().rstrip(b"\0 ").endswith(b"[mux]")
    return False


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
