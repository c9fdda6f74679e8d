"""Evaluate a node's results under load. Pure.

Every check but `burn-completed` may fail before the end; none of them passes where the load ended before its time.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Iterator

from ..health import BRAKES, SOFT
from ..results import FAIL, PASS, SKIP, WARN, check, gpu_count, target_of, who

Result = Any  # one node's result: plain JSON
Gpu = Any  # one entry of its `gpus`
Checks = Iterator["dict[str, str]"]

SUITE = "burnin"
# of the first tenth: what the last tenth of the time may fall to
GPU_WARN, GPU_FAIL, CPU_WARN = 0.90, 0.70, 0.85
# of the median of the others in the node
ODD_GPU, ODD_CORE = 0.90, 0.75
# a shorter load heats nothing through: its rates are shown, not compared
LEAST_S = 120.0
_NO_COUNTER = "no counter of this kind can be read here"


def evaluate_burn(result: Result, expected: int = 0) -> list[dict[str, str]]:
    """Every check of one node; `expected` is how many GPUs it is known to have."""
    return _final(result, [*_node(result), *_gpus(result, expected)])


def kernel_log(result: Result, log: Any) -> dict[str, str]:
    """The check of the kernel log alone, for a log that the load itself could not read."""
    (entry,) = _final(result, [_kernel_log(result["node"], log)])
    return entry


def _final(result: Result, checks: list[dict[str, str]]) -> list[dict[str, str]]:
    if result["ended"]:
        # correct results for part of the time do not count for the rest
        for entry in checks:
            if entry["status"] == PASS:
                entry.update(status=SKIP, message=early(result))
    return [{**entry, "suite": SUITE} for entry in checks]


def early(result: Result) -> str:
    """How far it came."""
    return f"ended after {result['ran_s']:.0f} of {result['asked_s']:.0f} s: {result['ended']}"


def _node(result: Result) -> Checks:
    node = result["node"]
    ran, asked = f"{result['ran_s']:.0f}", f"{result['asked_s']:.0f}"
    yield check(
        "burn-completed",
        node,
        SKIP if result["ended"] else PASS,
        ran,
        asked,
        "s",
        early(result) if result["ended"] else "",
    )
    yield _cpu(node, result["cpu"])
    yield _memory(node, result["memory"])
    yield _cpu_rate(node, result)
    yield _cpu_heat(node, result)
    yield _hardware(node, result["counters"])
    yield _kernel_log(node, result["kernel_log"])


def _cpu(node: str, cpu: Any) -> dict[str, str]:
    measured = f"{cpu['cores']} cores, {cpu['rounds']} rounds"
    return _answers("burn-cpu", node, cpu["faults"], cpu["rounds"], measured)


def _memory(node: str, memory: Any) -> dict[str, str]:
    measured = f"{memory['mib']} MiB, {memory['verified_mib']} MiB verified"
    return _answers("burn-memory", node, memory["faults"], memory["verified_mib"], measured)


def _answers(name: str, node: str, faults: list[Any], done: int, measured: str) -> dict[str, str]:
    """All answers are correct; without an answer there is no result."""
    expected = "right answers only"
    if faults:
        cores = ", ".join(str(fault["core"]) for fault in faults)
        text = f"{node} core {cores}: {faults[0]['message']}"
        wrong = any(fault["status"] == "wrong" for fault in faults)
        return check(name, node, FAIL, "wrong answers" if wrong else "no answer", expected, message=text)
    if not done:
        return check(name, node, SKIP, message="nothing was verified: too short, or no memory to spare")
    return check(name, node, PASS, measured, expected)


def _cpu_rate(node: str, result: Result) -> dict[str, str]:
    name, rates = "burn-cpu-rate", [rate for rate in result["cpu"]["rates"] if rate.get("median")]
    if not rates:
        return check(name, node, SKIP, message="no core finished a round")
    first, last = (median(rate[key] for rate in rates) for key in ("first", "last"))
    share, middle = last / first, median(rate["median"] for rate in rates)
    measured, expected = f"{share:.0%}", f"at least {CPU_WARN:.0%} of the beginning"
    if result["asked_s"] < LEAST_S:
        return check(name, node, SKIP, measured, message=_too_short(result))
    slow_cores = [str(rate["core"]) for rate in rates if rate["median"] < ODD_CORE * middle]
    if slow_cores:
        text = f"{node}: cores {', '.join(slow_cores)} are more than {1 - ODD_CORE:.0%} slower than the others"
        return check(name, node, WARN, measured, expected, message=text)
    if share < CPU_WARN:
        text = f"{node}: the cores became slower under load: heat, or a power limit"
        return check(name, node, WARN, measured, expected, message=text)
    return check(name, node, PASS, measured, expected)


def _too_short(result: Result) -> str:
    return f"{result['asked_s']:.0f} s are too short to say whether it slows down: {LEAST_S:.0f} s are needed"


def _cpu_heat(node: str, result: Result) -> dict[str, str]:
    name, counted, heat = "burn-cpu-heat", result["counters"], result["cpu_temperature"]
    known = [value for value in (counted["throttled"], counted["thermal_interrupts"]) if value is not None]
    measured = f"{heat:.0f}" if heat is not None else ""
    if any(known):
        text = f"{node}: the processors were throttled {max(known)} times for heat: fans, dust, the air at the inlet"
        return check(name, node, WARN, measured, "never throttled", "°C", text)
    if counted["throttled"] is None:
        return check(name, node, SKIP, measured, unit="°C" if measured else "", message=_NO_COUNTER)
    return check(name, node, PASS, measured or "never throttled", "never throttled", "°C" if measured else "")


_ERRORS = (
    ("memory_uncorrected", FAIL, "uncorrected memory errors (EDAC): find the DIMM and replace it"),
    ("machine_checks", FAIL, "machine checks: processor, memory or board is ill, see `journalctl -k`"),
    ("pcie_uncorrected", FAIL, "uncorrected PCIe errors: reseat cards and risers"),
    ("memory_corrected", WARN, "corrected memory errors (EDAC): a DIMM grows weak"),
    ("pcie_corrected", WARN, "corrected PCIe errors: a link is marginal, reseat cards and risers"),
)


def _hardware(node: str, counted: dict[str, int | None]) -> dict[str, str]:
    name, expected = "burn-hardware", "no new errors"
    problems = [(status, f"{counted[key]} {text}") for key, status, text in _ERRORS if counted[key]]
    known = [key for key, _, _ in _ERRORS if counted[key] is not None]
    if problems:
        status = FAIL if any(status == FAIL for status, _ in problems) else WARN
        text = "; ".join(text for _, text in problems)
        return check(name, node, status, "new errors", expected, message=f"{node}: {text}")
    if not known:
        return check(name, node, SKIP, message="no error counter (EDAC, machine checks, PCIe) can be read here")
    return check(name, node, PASS, "none in " + ", ".join(known), expected)


def _kernel_log(node: str, log: Any) -> dict[str, str]:
    name = "burn-kernel-log"
    if log.get("obstacle"):
        return check(name, node, SKIP, message=log["obstacle"])
    if log["lines"]:
        text = f"{node}: {'; '.join(log['lines'])}"
        return check(name, node, FAIL, f"{len(log['lines'])} lines", "no hardware trouble", message=text)
    return check(name, node, PASS, "quiet", "no hardware trouble")


def _gpus(result: Result, expected: int) -> Checks:
    node, gpus = result["node"], result["gpus"]
    if result.get("simulated"):
        yield check("burn-gpu", node, SKIP, message=result["simulated"])
        return
    if result.get("problem"):
        status = FAIL if expected else SKIP
        yield check("burn-gpu", node, status, "no GPU", gpu_count(expected), message=result["problem"])
        return
    if expected and len(gpus) != expected:
        text = f"{node} should have {gpu_count(expected)}, and has {len(gpus)}"
        yield check("burn-gpu", node, FAIL, gpu_count(len(gpus)), gpu_count(expected), message=text)
    for gpu in gpus:
        yield from _gpu(result, gpu)


def _gpu(result: Result, gpu: Gpu) -> Checks:
    node, where = result["node"], target_of(result["node"], gpu)
    if gpu.get("error"):
        yield check(
            "burn-gpu",
            where,
            FAIL,
            "can't be opened",
            "right results",
            message=f"{who(node, gpu)}: {gpu['error']}",
        )
        return
    burn = gpu["burn"]
    if burn["status"] == "skip":
        yield check("burn-gpu", where, SKIP, message=burn["message"])
        return
    lost = burn["watched"].get("lost", "")
    if burn["status"] != "measured" or lost:
        words = {"wrong": "wrong results", "error": "no result", "measured": "lost"}[burn["status"]]
        text = f"{who(node, gpu)}: {'; '.join(filter(None, (burn['message'], lost)))}"
        yield check("burn-gpu", where, FAIL, words, "right results", message=text)
    elif not burn["rates"]:
        yield check("burn-gpu", where, SKIP, message="nothing was measured: too short")
        return
    else:
        yield check("burn-gpu", where, PASS, f"{burn['verified_mib']} MiB verified", "right results")
    yield _gpu_rate(result, gpu)
    yield _gpu_heat(node, gpu)
    yield _gpu_errors(node, gpu)


def _gpu_rate(result: Result, gpu: Gpu) -> dict[str, str]:
    """The slowest part decides: last tenth against the first, then the GPU against the others of its model."""
    name, node, where = "burn-gpu-rate", result["node"], target_of(result["node"], gpu)
    rates = gpu["burn"]["rates"]
    if not rates:
        return check(name, where, SKIP, message="nothing was measured")
    test = min(rates, key=lambda key: rates[key]["last"] / rates[key]["first"])
    share = rates[test]["last"] / rates[test]["first"]
    measured = f"{share:.0%}"
    expected = f"at least {GPU_WARN:.0%} of the beginning"
    if result["asked_s"] < LEAST_S:
        return check(name, where, SKIP, measured, message=_too_short(result))
    if share < GPU_WARN:
        first, last = rates[test]["first"], rates[test]["last"]
        text = f"{who(node, gpu)}: {test} went from {first:.4g} to {last:.4g}: it slows down as it heats up"
        return check(name, where, FAIL if share < GPU_FAIL else WARN, measured, expected, message=text)
    slow_tests = _behind(result["gpus"], gpu)
    if slow_tests:
        return check(name, where, WARN, measured, expected, message=f"{who(node, gpu)}: {slow_tests}")
    shown = ", ".join(f"{key} {rate['median']:.4g} (lowest {rate['min']:.4g})" for key, rate in rates.items())
    return check(name, where, PASS, measured, expected, message=shown)


def _behind(gpus: list[Gpu], gpu: Gpu) -> str:
    """Where a GPU is behind the others of its model in this node."""
    for test, rate in gpu["burn"]["rates"].items():
        others = [
            other["burn"]["rates"][test]["median"]
            for other in gpus
            if other is not gpu
            and other.get("name") == gpu.get("name")
            and test in other.get("burn", {}).get("rates", {})
        ]
        if others and rate["median"] < ODD_GPU * median(others):
            usual = median(others)
            less = f"{1 - rate['median'] / usual:.0%} below the others of this node ({usual:.4g})"
            return f"{test} {rate['median']:.4g}, {less}: an outlier"
    return ""


def _gpu_heat(node: str, gpu: Gpu) -> dict[str, str]:
    name, where, watched = "burn-gpu-heat", target_of(node, gpu), gpu["burn"]["watched"]
    known = gpu.get("temperature") or {}
    limit, heat = known.get("gpu_max") or known.get("slowdown"), watched["temperature"]
    measured, expected = "" if heat is None else str(heat), "" if limit is None else f"below {limit}"
    held = [f"{reason} ({share:.0%} of the time)" for reason, share in watched["slowdowns"].items()]
    if any(reason in BRAKES for reason in watched["slowdowns"]):
        text = f"{who(node, gpu)}: slowed down by the hardware: {', '.join(held)}"
        return check(name, where, FAIL, measured, expected, "°C", text)
    if heat is not None and limit is not None and heat >= limit:
        return check(name, where, FAIL, measured, expected, "°C", f"{who(node, gpu)}: too hot")
    if any(reason in SOFT for reason in watched["slowdowns"]):
        text = f"{who(node, gpu)}: held back: {', '.join(held)}"
        return check(name, where, WARN, measured, expected, "°C", text)
    if heat is None:
        return check(name, where, SKIP, message="the driver does not report its temperature")
    return check(name, where, PASS, measured, expected, "°C", ", ".join(held))


def _gpu_errors(node: str, gpu: Gpu) -> dict[str, str]:
    name, where, grown = "burn-gpu-errors", target_of(node, gpu), gpu["burn"]["watched"]["errors"]
    counters = {key: value for key, value in grown.items() if value is not None}
    measured = ", ".join(f"{value} {key}" for key, value in counters.items())
    if grown.get("uncorrected") or grown.get("remapped"):
        text = f"{who(node, gpu)}: memory errors under load ({measured}): reset it, test again, then replace it"
        return check(name, where, FAIL, measured, "no new errors", message=text)
    if grown.get("corrected"):
        text = f"{who(node, gpu)}: corrected memory errors under load ({measured})"
        return check(name, where, WARN, measured, "no new errors", message=text)
    if not counters:
        return check(name, where, SKIP, message="this GPU or driver does not report memory errors")
    return check(name, where, PASS, measured, "no new errors")
