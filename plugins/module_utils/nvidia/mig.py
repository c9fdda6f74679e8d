"""Cut NVIDIA GPUs into MIG slices, and back: read what is there, change what differs, read again.

Ansible's module and the node's boot run this same file: it needs nothing but Python 3.8 and nvidia-smi. Run as a
program it makes the GPUs what LAYOUT says.

Sources: NVIDIA's MIG user guide (mode, instances, clients that hold a GPU, device nodes), nvidia-smi(1), and published
output of `nvidia-smi mig -lgi` and `-lci`.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

LAYOUT = "/etc/deepopsctl/mig.json"
PROC = "/proc"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
PERSISTENCE = "nvidia-persistenced.service"
# what holds a GPU open, and is asked to let go of it; those that ask DCGM come before it
CLIENTS = (
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "deepops-gpumetrics.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "nvsm.service",
)
# | GPU, name, profile's id, instance's id, where it is |
_GPU_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+\d+:\d+\s+\|$", re.MULTILINE)
# | GPU, GPU instance's id, name, profile's id, instance's id, where it is (not in the oldest drivers) |
_COMPUTE_INSTANCE = re.compile(r"^\|\s+(\d+)\s+(\d+)\s+MIG (\S+)\s+\d+\s+\d+\s+(?:\d+:\d+\s+)?\|$", re.MULTILINE)
_NONE = re.compile(r"No MIG-enabled devices found|No (GPU|compute) instances found", re.IGNORECASE)
RESET_REFUSED = "MIG mode %s waits for a reset of the GPU, which was refused: %s"


class NvidiaSmiError(Exception):
    """nvidia-smi is missing or gives no usable output; the message is its output."""


def run_command(argv: Sequence[str], seconds: float = 180) -> tuple[bool, str]:
    """(worked, combined output). Defined here: at boot no other file of deepopsctl is there."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
            env=dict(os.environ, LC_ALL="C"),
        )
    except subprocess.TimeoutExpired:
        return False, f"{' '.join(argv)}: no answer within {seconds} s"
    except OSError as error:
        return False, f"{argv[0]}: {error.strerror}"
    return done.returncode == 0, done.stdout.strip()


def has_steps() -> bool:
    """Whether a step of a job is here. With cgroup v2, `slurmstepd infinity` always is: it holds the place of all."""
    return any(_is_step(path) for path in glob.glob(PROC + "/[0-9]*"))


def _is_step(process: str) -> bool:
    try:
        with open(process + "/comm") as comm:
            named = comm.read().startswith("slurmstepd")
        # before its command line: that of a user's process lies in its memory, maybe in a file that never answers
        if not named or not _is_roots_own(process):
            return False
        with open(process + "/cmdline") as cmdline:
            return cmdline.read().split("\0")[1:2] != ["infinity"]
    except OSError:
        # it has ended
        return False


def _is_roots_own(process: str) -> bool:
    """Whether no user started it: one may call itself as it likes, and be a program that has root's rights (sudo)."""
    with open(process + "/status") as status:
        real = re.search(r"^Uid:\s*0\s", status.read(), re.MULTILINE)
    return bool(real) and not os.stat(process + "/exe").st_mode & stat.S_ISUID


def one_line(text: str) -> str:
    """A program's output on one line."""
    return " ".join(text.split())


# --- what is there ---


def gpus_in(xml: str) -> dict[int, dict[str, Any]]:
    """{minor: {address, name, index, current, pending, slices}} from `nvidia-smi -q -x`; no slices yet."""
    gpus = {}
    # the order is that of the indexes in all other lists
    for index, element in enumerate(ElementTree.fromstring(xml).findall("gpu")):  # noqa: S314 - root's own tool wrote it
        current, pending = (element.findtext(f"mig_mode/{when}_mig", "N/A") for when in ("current", "pending"))
        minor = element.findtext("minor_number", "")
        gpus[int(minor) if minor.isdigit() else index] = {
            "address": element.get("id", ""),
            "name": element.findtext("product_name", "GPU"),
            "index": index,
            "current": _mode(current),
            "pending": _mode(pending),
            "slices": [],
        }
    return gpus


def _mode(word: str) -> bool | None:
    """True, False, or None for a GPU without MIG."""
    return {"Enabled": True, "Disabled": False}.get(word)


def slices_in(gpu_instances: str, compute_instances: str) -> dict[int, list[list[Any]]]:
    """{index of the GPU: [[profile, its number, profiles of its compute instances]]} from `mig -lgi` and `mig -lci`."""
    parts: dict[tuple[int, int], list[str]] = {}
    for index, number, profile in _COMPUTE_INSTANCE.findall(compute_instances):
        parts.setdefault((int(index), int(number)), []).append(profile)
    slices: dict[int, list[list[Any]]] = {}
    for index, profile, number in _GPU_INSTANCE.findall(gpu_instances):
        key = (int(index), int(number))
        slices.setdefault(key[0], []).append([profile, key[1], parts.get(key, [])])
    return slices


def read() -> dict[int, dict[str, Any]]:
    """The GPUs as they are now, as gpus_in() has them, with their slices; raises SilentError."""
    worked, shown = run_command(["nvidia-smi", "-q", "-x"])
    try:
        gpus = gpus_in(shown) if worked else {}
    except ElementTree.ParseError:
        worked = False
    if not worked:
        raise NvidiaSmiError(one_line(shown)[:300])
    if any(gpu["current"] for gpu in gpus.values()):
        slices = slices_in(_listed("-lgi"), _listed("-lci"))
        for gpu in gpus.values():
            gpu["slices"] = slices.get(gpu["index"], [])
    return gpus


def _listed(option: str) -> str:
    worked, shown = run_command(["nvidia-smi", "mig", option])
    # that there are none is an error for some versions
    if _NONE.search(shown):
        return ""
    if not worked or "|" not in shown:
        raise NvidiaSmiError(f"nvidia-smi mig {option}: {one_line(shown)[:300]}")
    return shown


def names(gpu: Mapping[str, Any]) -> list[str]:
    """A GPU's slices by profile; one that is not a single compute instance has a name that no request has."""
    return [
        profile
        if [_base_profile(name) for name in parts] == [_base_profile(profile)]
        else f"{profile} ({_parts_text(parts)})"
        for profile, _, parts in gpu["slices"]
    ]


def _base_profile(profile: str) -> str:
    """Without `+me`, as the compute instance of such a slice is called; one that is a part begins with `1c.`."""
    return re.split("[+-]", profile)[0]


def _parts_text(parts: Sequence[str]) -> str:
    return f"in parts: {', '.join(parts)}" if parts else "without a compute instance"


def slices_text(slices: Sequence[str], whole: str = "whole") -> str:
    """`3g.20gb + 2 x 1g.5gb`; large ones first."""
    counts = Counter(slices)
    shown = sorted(counts, key=lambda name: (-int(re.split(r"\D", name)[0] or 0), name))
    return " + ".join(f"{counts[name]} x {name}" if counts[name] > 1 else name for name in shown) or whole


def current_text(gpu: Mapping[str, Any]) -> str:
    """How a GPU is cut now, in words."""
    now = slices_text(names(gpu), "in MIG mode, without slices" if gpu["current"] else "whole")
    waits = " (MIG mode waits for a reset)" if gpu["pending"] != gpu["current"] else ""
    return now + waits


# --- what is wanted ---


def unmet(wanted: Sequence[Mapping[str, Any]], gpus: Mapping[int, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The requests that are not met; missing GPUs are left out."""
    return [request for request in wanted if request["minor"] in gpus and not is_met(request, gpus[request["minor"]])]


def is_met(request: Mapping[str, Any], gpu: Mapping[str, Any]) -> bool:
    """Whether a GPU has the slices of the request, now and after a reset. True for one that has no MIG."""
    if gpu["current"] is None:
        return True
    modes = (gpu["current"], gpu["pending"]) == (bool(request["slices"]),) * 2
    return modes and Counter(names(gpu)) == Counter(request["slices"])


# --- changing it ---


def apply(
    wanted: Sequence[Mapping[str, Any]], gpus: Mapping[int, Mapping[str, Any]], wait: bool = True
) -> list[tuple[int, str, str]]:
    """Make GPUs what is wanted; [(GPU, message, hint)] of those that refused. `wait` false only at boot."""
    todo = unmet(wanted, gpus)
    if not todo:
        make_device_files(wanted)
        return []
    modes = any(gpus[request["minor"]]["current"] != bool(request["slices"]) for request in todo)
    stopped = _stop(CLIENTS + ((PERSISTENCE,) if modes else ()))
    try:
        refused = {request["minor"]: _clear(request, gpus[request["minor"]]) for request in todo}
        # slices do not outlive the last client of a GPU without persistence
        _start([name for name in stopped if name == PERSISTENCE], wait=True)
        for request in todo:
            if request["slices"] and not refused[request["minor"]]:
                refused[request["minor"]] = _cut(request, gpus[request["minor"]])
        make_device_files(wanted)
    finally:
        _start(stopped[::-1], wait)
    return [(minor,) + refusal for minor, refusal in refused.items() if refusal]


def _clear(request: Mapping[str, Any], gpu: Mapping[str, Any]) -> tuple[str, str] | None:
    """A GPU without slices and in the right mode; the (message, hint) of what kept it from that, or None."""
    smi = ["nvidia-smi", "mig", "-i", gpu["address"]]
    steps = [smi + ["-dci"]] if any(parts for _, _, parts in gpu["slices"]) else []
    steps += [smi + ["-dgi"]] if gpu["slices"] else []
    for step in steps:
        worked, output = run_command(step)
        if not worked:
            return one_line(output), "see what uses it: `fuser -v /dev/nvidia*`"
    return _switch(gpu, bool(request["slices"]))


def _switch(gpu: Mapping[str, Any], mode: bool) -> tuple[str, str] | None:
    if (gpu["current"], gpu["pending"]) == (mode, mode):
        return None
    _worked, output = run_command(["nvidia-smi", "-i", gpu["address"], "-mig", "1" if mode else "0"])
    if _mode_of(gpu) == (mode, mode):
        return None
    # its exit status is 0, too, where the mode waits for a reset
    _worked, reset = run_command(["nvidia-smi", "-i", gpu["address"], "--gpu-reset"])
    now = _mode_of(gpu)
    if now == (mode, mode):
        return None
    if now[1] == mode:
        hint = "reboot the drained node: the GPU is cut when it starts; then deploy again"
        return RESET_REFUSED % ("on" if mode else "off", one_line(reset)), hint
    return one_line(output), "see what uses it: `fuser -v /dev/nvidia*`"


def _mode_of(gpu: Mapping[str, Any]) -> tuple[bool | None, ...]:
    query = ["--query-gpu=mig.mode.current,mig.mode.pending", "--format=csv,noheader"]
    worked, shown = run_command(["nvidia-smi", "-i", gpu["address"]] + query)
    return tuple(_mode(word.strip()) for word in shown.split(",")) if worked else (None, None)


def _cut(request: Mapping[str, Any], gpu: Mapping[str, Any]) -> tuple[str, str] | None:
    worked, output = run_command(["nvidia-smi", "mig", "-i", gpu["address"], "-cgi", ",".join(request["slices"]), "-C"])
    if worked:
        return None
    refusals = [line for line in output.splitlines() if not line.startswith("Successfully")]
    return one_line(
        " ".join(refusals)
    ), "its slices must be profiles that `nvidia-smi mig -lgip` lists, and fit together"


def make_device_files(wanted: Sequence[Mapping[str, Any]]) -> None:
    """Slurm looks for a slice's files before any program could make the driver create them."""
    paths = [path for request in wanted if request["slices"] for path in capability_files(request["minor"])]
    if paths and shutil.which("nvidia-modprobe"):
        run_command(["nvidia-modprobe"] + [word for path in paths for word in ("-f", path)])


def capability_files(minor: int) -> list[str]:
    """The kernel's files for the slices that a GPU has."""
    directory = f"{CAPABILITIES}/gpu{minor}/mig"
    return sorted(glob.glob(directory + "/gi*/access") + glob.glob(directory + "/gi*/ci*/access"))


def _stop(units: Sequence[str]) -> list[str]:
    """Those that ran; stopped now."""
    running = [name for name in units if run_command(["systemctl", "is-active", "--quiet", name])[0]]
    for name in running:
        run_command(["systemctl", "stop", name])
    return running


def _start(units: Sequence[str], wait: bool) -> None:
    for name in units:
        # at boot a unit may wait for the very one that asks for it
        run_command(["systemctl", "start"] + ([] if wait else ["--no-block"]) + [name])


def boot(wanted: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Apply the layout when the node boots: (exit status, lines of output)."""
    try:
        gpus = read()
        if unmet(wanted, gpus) and has_steps():
            return 1, [f"jobs run here, and the GPUs are not as {LAYOUT} has them: drain the node first"]
        lines = [f"GPU {minor}: {why} ({hint})" for minor, why, hint in apply(wanted, gpus, wait=False)]
        now = read()
    except NvidiaSmiError as error:
        return 1, [f"nvidia-smi can't say how the GPUs are cut: {error}"]
    lines += [f"GPU {minor}: {current_text(gpu)}" for minor, gpu in sorted(now.items())]
    missing = [request["minor"] for request in wanted if request["slices"] and request["minor"] not in now]
    lines += [f"GPU {minor}: nvidia-smi does not list it" for minor in missing]
    return (1 if missing or unmet(wanted, now) else 0), lines


if __name__ == "__main__":
    with open(LAYOUT) as stream:
        status, lines = boot(json.load(stream)["gpus"])
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.exit(status)
