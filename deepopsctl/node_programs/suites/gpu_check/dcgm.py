"""DCGM's own diagnosis, where its command is on the node: level 1, which loads no GPU and disturbs no job.

Read are both forms of its JSON: that of DCGM 4 (a result for each entity) and of DCGM 3 (one for a list of GPUs).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

from ..._shared import command
from .results import FAIL, PASS, SKIP, WARN, check, worst

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_LIMIT_S = 180
# where deepopsctl has its host engine listen, for root and the group nvidia-dcgm
SOCKET = "/run/nvidia-dcgm/nv-hostengine"
# DCGM error categories that are not hardware faults: to monitor, and settings of the node
_MILD = (1, 5)
_NAMED = 3


def diagnosis() -> dict[str, Any]:
    """DCGM's result: version, number of passed tests, findings; or `problem`. {} if it is not installed."""
    program = shutil.which("dcgmi")
    if not program:
        return {}
    own = ["--host", "unix://" + SOCKET] if os.access(SOCKET, os.W_OK) else []
    argv = [program, "diag", *own, "--run", "1", "--json"]
    result = command.run_merged(argv, _LIMIT_S)
    if result.status in (command.MISSING, command.TIMED_OUT):
        return {"problem": result.failure}
    # its exit code is not zero for failed tests and for other errors
    return read(result.output)


def read(text: str) -> dict[str, Any]:
    """The same from what the command printed."""
    try:
        document, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        root = next(document[name] for name in _ROOTS if name in document)
        tests = [test for part in root["test_categories"] for test in part["tests"]]
        results = [(test["name"], result) for test in tests for result in test.get("results") or ()]
        findings = [finding for name, result in results for finding in _findings(name, result)]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        last = (text.strip().splitlines() or ["no output"])[-1]
        return {"problem": f"dcgmi diag: {last[:200]}"}
    ill = {finding["test"] for finding in findings}
    good = {name for name, result in results if str(result["status"]).lower() == "pass"} - ill
    version = (document.get("metadata") or {}).get("version") or root.get("version") or ""
    return {"version": str(version), "passed": len(good), "findings": findings}


def _findings(test: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    status = str(result["status"]).lower()
    if status not in ("fail", "warn"):
        return
    gpu = result.get("entity_id", result.get("gpu_ids", result.get("gpu_id", "")))
    warnings = result.get("warnings") or [""]
    for one in warnings if isinstance(warnings, list) else [warnings]:
        words = one if isinstance(one, dict) else {"warning": str(one)}
        mild = status == "warn" or words.get("error_severity") in _MILD
        what = str(words.get("warning", "")) or str(result["status"])
        yield {"test": test, "gpu": str(gpu), "status": WARN if mild else FAIL, "what": what}


def diagnosed(result: Any) -> list[dict[str, str]]:
    """The check of a node; none where DCGM is not there."""
    diagnostic, node = result.get("dcgm"), result["node"]
    if not diagnostic:
        return []
    if diagnostic.get("problem"):
        return [check("gpu-dcgm", node, SKIP, message=diagnostic["problem"])]
    findings = diagnostic["findings"]
    if not findings and not diagnostic["passed"]:
        return [check("gpu-dcgm", node, SKIP, message="DCGM skipped all of its tests")]
    status = worst(PASS, *(finding["status"] for finding in findings))
    messages = [f"{one['test']}, GPU {one['gpu']}: {one['what']}" for one in findings]
    more = [f"and {len(messages) - _NAMED} more"] if len(messages) > _NAMED else []
    message = f"{node}: {'; '.join(messages[:_NAMED] + more)}" if messages else ""
    return [check("gpu-dcgm", node, status, diagnostic["passed"], "all", "tests", message)]
