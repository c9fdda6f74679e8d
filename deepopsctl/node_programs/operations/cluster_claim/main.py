"""Claim the cluster for a run, release it, or show what would refuse a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._shared import deployed
from . import claim
from .claim import Claim, RefusedError


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a `claim` of the control machine; `state` says what it is for.

    * `taken`: this run works on the cluster. Refused where another control machine is at work, or where this
      cluster.yml would undo a newer one's changes: an answer, and no failure.
    * `released`: the run has ended, and deployed `components`.
    * `shown`: nothing is claimed. A clone that has the cluster.yml applied last is remembered.

    In check mode nothing is changed, and what would be refused is shown.
    """
    wanted: Claim = request["claim"]
    state, dry = request["state"], request["check_mode"]
    try:
        if state == "shown" and not dry:
            claim.note_clone(wanted)
        if dry or state == "shown":
            return {"deepops": _shown(wanted, state)}
        if state == "released":
            warnings = claim.release(wanted, request.get("components", []))
        else:
            warnings = claim.acquire(wanted)
    except RefusedError as error:
        return {"deepops": {"claim": _answer("refused", error)}}
    except OSError as error:
        words = f"cannot write {error.filename}: {error.strerror}"
        return {"failed": True, "msg": words, "hint": "is its disk full?"}
    return {"deepops": {"claim": _answer(state, None, warnings)}}


def _shown(wanted: Claim, state: str) -> dict[str, Any]:
    """What would refuse this run, without taking the lock; a plan names what a deploy would be blocked by."""
    refusals, warnings = claim.inspect(wanted)
    known = deployed.components(deployed.STATE)
    answer = {"claim": _answer("shown", refusals[0] if refusals else None, warnings, known)}
    if state != "taken" or not wanted["command"].endswith(" plan"):
        return answer
    outdated = [refusal for refusal in refusals if refusal.reason == "outdated"]
    return {**answer, "blocked": [{"message": str(refusal), "hint": refusal.hint} for refusal in outdated]}


def _answer(
    state: str,
    refusal: RefusedError | None = None,
    warnings: Sequence[str] = (),
    components: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "state": state,
        "refused": refusal.reason if refusal else "",
        "message": str(refusal) if refusal else "",
        "hint": refusal.hint if refusal else "",
        "holder": refusal.holder if refusal else {},
        "warnings": list(warnings),
        "components": list(components),
    }
