"""Evaluate NVML's data about a GPU: errors, links, clocks, power, temperature. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

from .bounds import figures_of
from .results import FAIL, PASS, SKIP, WARN, check, target_of, who

Gpu = Any  # one entry of `gpus` in the result: plain JSON
Outcome = Any  # (status, measured, expected, unit, what is wrong and what to do)

BRAKES = ("hardware slowdown", "thermal (hardware)", "power brake")
SOFT = ("thermal (software)", "sync boost", "application clocks")
_HOT_MARGIN = 5


def health(node: str, gpu: Gpu) -> Iterator[dict[str, str]]:
    """Every check of one GPU that needs no measurement."""
    where = target_of(node, gpu)
    if gpu.get("error"):
        yield check("gpu-opens", where, FAIL, "no", "yes", message=f"{who(node, gpu)}: {gpu['error']}")
        return
    yield check("gpu-opens", where, PASS, "yes", "yes")
    for name, evaluate in _EVALUATORS.items():
        status, measured, expected, unit, message = evaluate(gpu)
        text = f"{who(node, gpu)}: {message}" if message and status in (WARN, FAIL) else message
        yield check(name, where, status, measured, expected, unit, text)


def _unknown(what: str) -> Outcome:
    return SKIP, "", "", "", "this GPU or driver does not report " + what


def _ecc(gpu: Gpu) -> Outcome:
    ecc = gpu.get("ecc")
    if not ecc:
        return _unknown("about ECC")
    if not ecc["mode"]["now"]:
        return WARN, "off", "on", "", "ECC is off: memory errors go unseen; nvidia-smi -e 1, then reboot"
    if None in (ecc["uncorrected"], ecc["corrected"]):
        return _unknown("its ECC errors")
    measured = f"{ecc['uncorrected']} uncorrected, {ecc['corrected']} corrected"
    expected = "0 uncorrected"
    if ecc["uncorrected"]:
        return (
            FAIL,
            measured,
            expected,
            "",
            "uncorrected memory errors since the driver was loaded: reset or replace it",
        )
    return PASS, measured, expected, "", ""


def _rows(gpu: Gpu) -> Outcome:
    rows = gpu.get("rows")
    if not rows:
        if gpu.get("retirement_pending"):
            return WARN, "pages wait", "none wait", "", "memory pages wait for retirement: reboot when it is idle"
        if gpu.get("retirement_pending") is False:
            return PASS, "none wait", "none wait", "", ""
        return _unknown("about remapped rows")
    measured = f"{rows['corrected'] + rows['uncorrected']} remapped"
    if rows["failed"]:
        return FAIL, measured + ", failed", "no failure", "", "a row could not be remapped: the card has to be replaced"
    if rows["pending"]:
        return WARN, measured + ", pending", "none pending", "", "rows wait to be remapped: reset it when it is idle"
    return PASS, measured, "none pending, no failure", "", ""


def _pcie(gpu: Gpu) -> Outcome:
    # the link of an idle GPU is slow on purpose: what was seen under load counts
    pcie, load = gpu.get("pcie") or {}, gpu.get("load") or {}
    best = (pcie.get("max_generation"), pcie.get("max_width"))
    if None in best:
        return _unknown("its PCIe link")
    width = load.get("width") or pcie.get("width")
    generation = load.get("generation")
    measured = f"gen {generation or '?'} x{width}"
    expected = f"gen {best[0]} x{best[1]}"
    if width is not None and width < best[1]:
        return FAIL, measured, expected, "", "the link runs with too few lanes: reseat card, riser and cable"
    if generation is None:
        return SKIP, measured, expected, "", "an idle link is slow on purpose: the generation shows under load only"
    if generation < best[0]:
        return FAIL, measured, expected, "", "the link stays slow under load: reseat card and riser, look into the BIOS"
    if pcie.get("gpu_generation") and best[0] < pcie["gpu_generation"]:
        able = pcie["gpu_generation"]
        text = f"the GPU can do generation {able}: the slot, the riser or the BIOS holds it back"
        return WARN, measured, f"gen {able}", "", text
    return PASS, measured, expected, "", ""


def _clocks(gpu: Gpu) -> Outcome:
    load = gpu.get("load") or {}
    if not load.get("samples") or load.get("sm") is None:
        return SKIP, "", "", "", "clocks say something under load only, and nothing was measured"
    measured, best = load["sm"], (gpu.get("clocks") or {}).get("max_sm")
    expected = "" if best is None else f"up to {best}"
    braked = [reason for reason in load["slowdowns"] if reason in BRAKES]
    soft = [reason for reason in load["slowdowns"] if reason in SOFT]
    if braked:
        text = f"slowed down by the hardware under load ({', '.join(braked)}): look at cooling and power supply"
        return FAIL, measured, expected, "MHz", text
    if soft:
        return WARN, measured, expected, "MHz", "held back under load: " + ", ".join(soft)
    return PASS, measured, expected, "MHz", ", ".join(load["slowdowns"])


def _power(gpu: Gpu) -> Outcome:
    power = gpu.get("power") or {}
    limit, default = power.get("limit"), power.get("default_limit")
    if limit is None or default is None:
        return _unknown("its power limit")
    if limit < default:
        return (
            WARN,
            limit,
            default,
            "W",
            f"its power limit is below the factory's: nvidia-smi -pl {default:.0f}",
        )
    return PASS, limit, default, "W", ""


def _temperature(gpu: Gpu) -> Outcome:
    known = gpu.get("temperature") or {}
    seen = [value for value in (known.get("now"), (gpu.get("load") or {}).get("temperature")) if value is not None]
    limit = known.get("gpu_max") or known.get("slowdown")
    if not seen:
        return _unknown("its temperature")
    if limit is None:
        return SKIP, max(seen), "", "°C", "the driver does not report where it slows down"
    expected = f"below {limit}"
    if max(seen) >= limit:
        return FAIL, max(seen), expected, "°C", "too hot, it slows down: fans, dust, the air at the inlet"
    if max(seen) > limit - _HOT_MARGIN:
        return WARN, max(seen), expected, "°C", "close to where it slows down"
    return PASS, max(seen), expected, "°C", ""


def _persistence(gpu: Gpu) -> Outcome:
    on = gpu.get("persistence")
    if on is None:
        return _unknown("its persistence mode")
    if not on:
        return (
            WARN,
            "off",
            "on",
            "",
            "every job's start waits for the driver: systemctl enable --now nvidia-persistenced",
        )
    return PASS, "on", "on", "", ""


def _mig(gpu: Gpu) -> Outcome:
    mig = gpu.get("mig")
    if not mig:
        return SKIP, "", "", "", "this GPU has no MIG"
    now, later = ("on" if mig[key] else "off" for key in ("now", "after_reboot"))
    if now != later:
        return WARN, now, later, "", "MIG changes at the next reset: nvidia-smi --gpu-reset when it is idle"
    return PASS, now, later, "", ""


def _nvlink(gpu: Gpu) -> Outcome:
    links = gpu.get("nvlinks")
    if not links:
        return SKIP, "", "", "", "this GPU has no NVLink"
    measured, expected = sum(links), len(links)
    figures = figures_of(gpu.get("name") or "")
    if not any(links) and figures and not figures.nvlink:
        return SKIP, measured, "", "links up", "no bridge on this card"
    if not any(links):
        text = "no NVLink is up: right for one GPU in a virtual machine, else fabric manager does not run"
        return WARN, measured, expected, "links up", text
    if not all(links):
        down = ", ".join(str(number) for number, up in enumerate(links) if not up)
        return WARN, measured, expected, "links up", f"down: link {down}; right for some bridges, else a fault"
    return PASS, measured, expected, "links up", ""


def _fabric(gpu: Gpu) -> Outcome:
    state = gpu.get("fabric")
    if not state or state["state"] == "not supported":
        return SKIP, "", "", "", "no NVSwitch fabric that the driver knows of"
    if state["state"] != "completed":
        return FAIL, state["state"], "completed", "", "no CUDA program can start: systemctl status nvidia-fabricmanager"
    if state["status"]:
        text = f"the fabric took the GPU with error {state['status']}: journalctl -u nvidia-fabricmanager"
        return FAIL, f"error {state['status']}", "completed", "", text
    faults = ", ".join(state["faults"])
    if faults:
        return (
            FAIL,
            faults,
            "completed",
            "",
            f"the fabric has trouble ({faults}): journalctl -u nvidia-fabricmanager",
        )
    return PASS, "completed", "completed", "", ""


_EVALUATORS: dict[str, Callable[[Gpu], Outcome]] = {
    "gpu-ecc": _ecc,
    "gpu-rows": _rows,
    "gpu-pcie": _pcie,
    "gpu-clocks": _clocks,
    "gpu-power": _power,
    "gpu-temperature": _temperature,
    "gpu-persistence": _persistence,
    "gpu-mig": _mig,
    "gpu-nvlink": _nvlink,
    "gpu-fabric": _fabric,
}
