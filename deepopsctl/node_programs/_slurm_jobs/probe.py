"""What a smoke job does on its compute node. Its text is handed to `python3 -c`: standard library, no relative imports.

Each mode prints one line `DEEPOPS {json}`; everything else that a node prints at login is ignored.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import socket
import stat
import subprocess
import sys
import time
from typing import Any

MARK = "DEEPOPS "
MOST_CPUS = 8
MEBIBYTE = 1024 * 1024


def cpu_list(text: str) -> list[int]:
    """`0-2,5` as [0, 1, 2, 5]."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _dash, last = part.partition("-")
        if first:
            cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def node_cpus() -> list[int]:
    """CPUs that the node's own init may use: what confinement is measured against."""
    with open("/proc/1/status") as stream:
        for line in stream:
            if line.startswith("Cpus_allowed_list:"):
                return cpu_list(line.partition(":")[2])
    return []


def try_cpus() -> dict[str, Any]:
    """Try to move to CPUs outside the allocation; EINVAL says that the kernel refused."""
    own = sorted(os.sched_getaffinity(0))
    tried = {}
    for cpu in [cpu for cpu in node_cpus() if cpu not in own][:MOST_CPUS]:
        try:
            os.sched_setaffinity(0, {cpu})
            tried[cpu] = "OK"
        except OSError as error:
            tried[cpu] = errno.errorcode.get(error.errno or 0, str(error.errno))
    os.sched_setaffinity(0, own)
    return {"own": own, "allocated": os.environ.get("SLURM_CPUS_ON_NODE", ""), "others": tried}


def try_gpus(*more: str) -> dict[str, str]:
    """Open every GPU device file: OK, ENXIO (visible, no driver behind it), EPERM (the cgroup), EACCES (file mode)."""
    tried = {}
    for path in sorted({*glob.glob("/dev/nvidia[0-9]*"), *more}):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
            tried[os.path.basename(path)] = "OK"
        except OSError as error:
            tried[os.path.basename(path)] = errno.errorcode.get(error.errno or 0, str(error.errno))
    return tried


def uuids() -> list[str] | None:
    """The GPUs that NVIDIA's driver shows to this job; None where there is no driver to ask."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    count, identifiers = ctypes.c_uint(), []
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        # one that this job may not use is counted by some drivers, but not opened
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
            library.nvmlDeviceGetUUID(handle, text, ctypes.c_uint(len(text)))
            identifiers.append(text.value.decode(errors="replace"))
    return identifiers


def decode(credential: str) -> str:
    """unmunge's status of a credential made on the submit host."""
    if not credential:
        return ""
    try:
        # not _shared.command: a job gets the text of this file alone
        done = subprocess.run(
            ["unmunge"],
            check=False,
            input=credential.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    text = done.stdout.decode(errors="replace")
    status = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("STATUS:")]
    return status[0] if status else text.strip()


def report(data: dict[str, Any]) -> None:
    """One line for the submit host."""
    environment = os.environ
    data["node"] = environment.get("SLURMD_NODENAME", "")
    data["job"] = environment.get("SLURM_JOB_ID", "")
    data["user"] = os.getuid()
    sys.stdout.write(MARK + json.dumps(data) + "\n")
    sys.stdout.flush()


def answer(credential: str) -> None:
    """Mode for every node: where am I, am I confined, does the cluster's key fit."""
    report({"host": socket.gethostname(), "cpus": try_cpus(), "gpus": try_gpus(), "munge": decode(credential)})


def gpu(hold: str, *files: str) -> None:
    """Mode for jobs with a GPU; with `hold` it stays until its input ends, so that two jobs overlap."""
    names = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    report({"gpus": try_gpus(*files), "env": environment, "uuids": uuids()})
    if hold:
        sys.stdin.read()


def own_directory() -> dict[str, Any]:
    """$SLURM_TMPDIR as a job sees it, and whether something can be written there."""
    own = os.environ.get("SLURM_TMPDIR", "")
    try:
        status = os.stat(own)
        return {"own": own, "mode": f"{stat.S_IMODE(status.st_mode):o}", "owner": status.st_uid}
    except OSError as error:
        return {"own": own, "error": error.strerror}


def directories(token: str, other: str, base: str, *private: str) -> None:
    """Mode for two jobs at once: the first leaves marks and holds, `other` is its number for the second.

    The second says which marks it sees, and once more at the end of its input: what the first has left in `base`.
    """
    status = own_directory()
    places = sorted({*private, status["own"]} - {""})
    marks = {place: os.path.join(place, f".deepopsctl-{token}") for place in places}
    if other:
        report(dict(status, seen=[place for place in places if os.path.exists(marks[place])]))
        sys.stdin.read()
        report({"left": left_over(base, other)})
        return
    for place in places:
        try:
            # not through what another user may have put there: some of them are everybody's
            with open(marks[place], "x"):
                pass
        except OSError as error:
            status["error"] = f"{place}: {error.strerror}"
    report(status)
    sys.stdin.read()
    for mark in marks.values():
        # shared directories keep what a job leaves
        if os.path.exists(mark):
            os.unlink(mark)


def left_over(base: str, job: str) -> str:
    """The directory of a job that has ended, '' once it is gone; some seconds are its epilog's."""
    wanted = [os.path.join(base, job), os.path.join(base, os.environ.get("SLURMD_NODENAME", "-"), job)]
    until = time.monotonic() + 15
    while True:
        left = [path for path in wanted if os.path.exists(path)]
        if not left or time.monotonic() > until:
            return left[0] if left else ""
        time.sleep(0.2)


def resident() -> int:
    """This process's memory in MiB, swapped-out parts not counted."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MEBIBYTE


def memory(most: str) -> None:
    """Allocate memory in steps of 10 MiB, reporting how much is held; `end` only if it was not stopped."""
    held = []
    report({"held": 0, "resident": resident(), "end": False})
    for step in range(10, int(most) + 1, 10):
        held.append(b"x" * (10 * MEBIBYTE))
        report({"held": step, "resident": resident(), "end": step + 10 > int(most)})


if __name__ == "__main__":
    MODES: dict[str, Any] = {"answer": answer, "gpu": gpu, "memory": memory, "directories": directories}
    MODES[sys.argv[1]](*sys.argv[2:])
