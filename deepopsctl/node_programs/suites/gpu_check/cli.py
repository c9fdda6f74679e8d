"""The command line of gpucheck: `python -m deepopsctl.node_programs.suites.gpu_check`, or the packed file on a node."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .across import across
from .bounds import markdown
from .burn.memory import MEMORY_SHARE
from .document import UnreadableError, document, read_results
from .evaluation import evaluate
from .measuring import Order, measure_node
from .results import FAIL, SKIP, is_measured, status_of
from .table import lines as table

OK, FAILED, INVALID_INPUT, NOT_FIT, INTERRUPTED = 0, 1, 3, 5, 130
# what the packed file runs
_PACKED_MAIN = "import sys\n\nfrom deepopsctl.node_programs.suites.gpu_check.cli import main\n\nsys.exit(main())\n"
_EPILOG = """\
exit codes: 0 nothing failed, 1 a check failed, 2 usage, 3 a file can't be read, 5 no driver or no GPU to measure

examples:
  python3 -m deepopsctl.node_programs.suites.gpu_check --pack gpucheck.pyz   one file to copy to nodes (Python 3.8)
  python3 gpucheck.pyz --json > gpu01.json                 measure this node
  python3 gpucheck.pyz --evaluate gpu*.json                evaluate nodes together: outliers are listed
  python3 gpucheck.pyz --earlier gpu01.json                measure, and compare with an earlier result
  python3 gpucheck.pyz --burn 3600                         load this node for an hour; Ctrl-C ends it
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except UnreadableError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("stopped: what had been measured is lost\n")
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    if options.bounds:
        _out("\n".join(markdown()))
        return OK
    if options.pack:
        return _pack(options.pack)
    if options.across:
        return across(options.across, options.nccl)
    if options.burn:
        return _burn(options)
    earlier = [result for path in options.earlier for result in read_results(path)]
    if options.evaluate:
        results = [result for path in options.evaluate for result in read_results(path)]
    else:
        results = [measure_node(_order(options), _report_progress)]
    expected = {result["node"]: options.expect for result in results if options.expect}
    checks = evaluate(results, earlier, expected)
    code = exit_code(checks)
    if code == OK and not (options.evaluate or options.inventory or is_measured(results)):
        # busy, hidden, or cut into slices, every one
        code = NOT_FIT
    if options.json:
        report = document(results, checks)
        _out(json.dumps({**report, "ok": report["ok"] and code == OK}, indent=1, ensure_ascii=False))
    else:
        _out("\n".join(table(results, checks, everything=options.all)))
    return code


def _burn(options: argparse.Namespace) -> int:
    from .burn.cli import burn, lines

    report = burn(options, _report_progress)
    # one line: what reads a job's output finds it among anything else
    _out(json.dumps(report, ensure_ascii=False) if options.json else "\n".join(lines(report)))
    return OK if report["ok"] else exit_code(report["checks"]) or NOT_FIT


def exit_code(checks: list[dict[str, str]]) -> int:
    """Nothing measured is not success."""
    return {FAIL: FAILED, SKIP: NOT_FIT}.get(status_of(checks), OK)


def _order(options: argparse.Namespace) -> Order:
    return Order(
        measure=not options.inventory,
        busy_too=options.busy_too,
        cublas=options.cublas,
        nccl=options.nccl,
        timeout_s=options.timeout,
    )


def _pack(path: Path) -> int:
    """gpucheck as one file that any Python from 3.8 on runs: copy it to a node, `python3 gpucheck.pyz`."""
    try:
        # not on a node, where the programs are packed already
        from ...shipping import archive

        path.write_bytes(b"#!/usr/bin/env python3\n" + archive("gpu_check", _PACKED_MAIN))
        path.chmod(0o755)
    except ImportError:
        raise UnreadableError("this is the packed file: copy it") from None
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None
    return OK


def _report_progress(text: str) -> None:
    sys.stderr.write(text + "\n")


def _out(text: str) -> None:
    sys.stdout.write(text + "\n")


def _parser() -> argparse.ArgumentParser:
    parser: Any = argparse.ArgumentParser(
        prog="gpucheck",
        description="Measure the GPUs of this node, check every result, and compare with what the model should give.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print one JSON object (docs/reference/gpucheck.md)")
    add("--all", action="store_true", help="list every check, passed ones too")
    add("--inventory", action="store_true", help="query the driver only, measure nothing: harmless while jobs run")
    add("--busy-too", action="store_true", help="measure GPUs that processes compute on, too: disturbs them")
    add("--cublas", default="", metavar="PATH", help="libcublas.so to measure matrix products with (default: none)")
    add("--nccl", default="", metavar="PATH", help="libnccl.so to measure all-reduce with (default: none)")
    # what validate gpu runs on several nodes at once: alone it would wait for the others
    add("--across", type=int, default=0, help=argparse.SUPPRESS)
    add("--timeout", type=float, default=120.0, metavar="SECONDS", help="the longest for one GPU (default: 120)")
    add("--expect", type=int, default=0, metavar="N", help="fail where a node has not N GPUs (default: any number)")
    add("--burn", type=float, default=0, metavar="SECONDS", help="load GPUs, cores and memory so long, verify it all")
    add("--memory-share", type=float, default=MEMORY_SHARE, metavar="SHARE", help="of the memory, for --burn (0.7)")
    add("--without-gpus", action="store_true", help="--burn loads cores and memory only")
    add(
        "--evaluate",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="evaluate results of --json, measure nothing",
    )
    add("--earlier", nargs="+", type=Path, default=[], metavar="FILE", help="earlier results to compare with")
    add("--bounds", action="store_true", help="print the table of models and their bounds")
    add("--pack", type=Path, metavar="FILE", help="write gpucheck as one file that runs on any node")
    return parser  # type: ignore[no-any-return]  # Any: so that add's overloads need no names
