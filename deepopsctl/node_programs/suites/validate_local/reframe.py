"""A site's ReFrame suites: run by ReFrame on a submit host as the connecting user, its jobs through Slurm."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._shared.hostlist import fold
from ..._slurm_jobs.snapshot import read_snapshot
from .evaluation import SUITE, check, failed, skipped

CHECK = "reframe"
_STATUSES = {"pass": PASS, "fail": FAIL, "abort": FAIL}
_ENDING_S = 30.0
# what a site may bring instead: the configuration that ReFrame reads
SETTINGS = "settings.py"
# the first argument is the module of an environment with reframe-hpc, '' for a reframe that is in PATH
_STEP = """\
if [ -n "$0" ]; then module load "$0" || exit 1; fi
command -v reframe >/dev/null || { echo "reframe is not installed" >&2; exit 127; }
exec reframe "$@"
"""
_CONFIGURATION = """\
import os

modules = {{"modules_system": "lmod"}} if os.environ.get("LMOD_CMD") else {{}}
site_configuration = {{
    "systems": [{{"name": "cluster", "hostnames": [".*"], **modules, "partitions": {partitions}}}],
    "environments": [{{"name": "builtin", "cc": "gcc", "cxx": "g++", "ftn": "gfortran"}}],
}}
"""


def run_suites(request: Mapping[str, Any]) -> dict[str, Any]:
    """All suites, {path: base64}, as checks and rates."""
    snapshot = read_snapshot()
    if not snapshot.answered:
        return {"checks": [failed(CHECK, request["cluster"], snapshot.silence)]}
    up = [name for name, entry in snapshot.partitions.items() if entry.get("State") == "UP"]
    place = os.path.expanduser(request["directory"] or "~")
    try:
        directory = tempfile.mkdtemp(prefix="deepopsctl-reframe-", dir=place)
    except OSError as error:
        return {"checks": [failed(CHECK, request["cluster"], f"{place}: {error.strerror}")]}
    try:
        write_files(directory, request["checks"], configuration(up, request["reservation"]))
        problem = _run(directory, str(request["module"]), float(request["run_timeout"]))
        return evaluate(_report(directory), problem, request["cluster"], float(request["share"]))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def configuration(partitions: Sequence[str], reservation: str) -> str:
    """ReFrame's: each partition of Slurm, with the system's compilers."""
    reserved = [f"--reservation={reservation}"] if reservation else []
    entries = [
        {
            "name": name, "scheduler": "squeue", "launcher": "srun", "environs": ["builtin"],
            "access": [f"--partition={name}", *reserved],
        }
        for name in partitions
    ]  # fmt: skip
    return _CONFIGURATION.format(partitions=json.dumps(entries))


def write_files(directory: str, files: Mapping[str, str], configured: str) -> None:
    """The suites in suites/, and the configuration unless they have one."""
    for path, content in {SETTINGS: base64.b64encode(configured.encode()).decode(), **files}.items():
        target = os.path.join(directory, "suites", path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as stream:
            stream.write(base64.b64decode(content))
    # not among the suites, which ReFrame loads all
    os.rename(os.path.join(directory, "suites", SETTINGS), os.path.join(directory, SETTINGS))


def _run(directory: str, module: str, seconds: float) -> str:
    """Run ReFrame; '' or what it says of itself. At the end of its time it cancels its jobs."""
    argv = [
        "-C", os.path.join(directory, SETTINGS), "-c", os.path.join(directory, "suites"), "-R", "-r",
        "--prefix", directory, "--report-file", os.path.join(directory, "report.json"), "--nocolor",
    ]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-lc", _STEP, module, *argv],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    late = ""
    try:
        output, _errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        late = f"ReFrame did not end within {seconds:.0f} s"
        for number, patience in ((signal.SIGINT, _ENDING_S), (signal.SIGKILL, None)):
            os.killpg(process.pid, number)
            try:
                output, _errors = process.communicate(timeout=patience)
                break
            except subprocess.TimeoutExpired:
                continue
    lines = output.decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if "error" in line.lower() or "not installed" in line]
    return late or one_line((errors or lines or ["no output"])[-1])


def _report(directory: str) -> dict[str, Any]:
    try:
        with open(os.path.join(directory, "report.json"), encoding="utf-8") as stream:
            report = json.load(stream)
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def evaluate(report: Mapping[str, Any], problem: str, cluster: str, share: float) -> dict[str, Any]:
    """A check of each test case, and of each figure that it measured."""
    runs = report.get("runs") or [{}]
    cases = [case for case in runs[-1].get("testcases") or [] if isinstance(case, dict)]
    if not cases:
        if "not installed" in problem:
            text = "ReFrame is not installed: environments: {reframe: {packages: [reframe-hpc]}}"
            return {"checks": [skipped(CHECK, cluster, text)]}
        return {"checks": [failed(CHECK, cluster, problem, "no result", "a report of ReFrame's")]}
    return {
        "checks": [_check(case) for case in cases],
        "rates": [rate for case in cases for rate in _rates(case, share)],
    }


def name_of(case: Mapping[str, Any]) -> str:
    """The name of its check: `HelloTest %x=2` is hello-test-x-2."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", str(case.get("display_name") or case.get("name")))
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60]


def target_of(case: Mapping[str, Any]) -> str:
    """The nodes of its job; the partition for one that had none."""
    nodes = [str(node) for node in case.get("job_nodelist") or []]
    return fold(nodes) if nodes else str(case.get("partition"))


def _check(case: Mapping[str, Any]) -> Check:
    result = str(case.get("result"))
    reason = one_line(str(case.get("fail_reason") or ""))
    text = reason or f"{case.get('descr') or case.get('name')} in the partition {case.get('partition')}"
    return check(name_of(case), target_of(case), _STATUSES.get(result, SKIP), result, "pass", message=text)


def _rates(case: Mapping[str, Any], share: float) -> Iterator[dict[str, Any]]:
    """Its figures, which deepopsctl compares with earlier runs; of one with an upper bound alone less is better."""
    if case.get("result") != "pass":
        return
    for key, entry in dict(case.get("perfvalues") or {}).items():
        if isinstance(entry, (list, tuple)) and len(entry) >= 5:
            value, _reference, lower, upper, unit = entry[:5]
            name = f"{name_of(case)}-{str(key).rpartition(':')[2].replace('_', '-')}"
            yield {
                "suite": SUITE, "name": name, "target": target_of(case), "kind": f"{case.get('partition')}",
                "value": value, "unit": str(unit or "")[:20], "share": share,
                "low": lower is None and upper is not None,
            }  # fmt: skip
