"""The documented JSON object of a validation (DESIGN, section 5); a run's folder keeps it as checks.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deepopsctl.checks import Check

SCHEMA = 1


def document(
    *,
    ok: bool,
    run: str,
    checks: Iterable[Check],
    command: str = "validate",
    gpus: Sequence[Mapping[str, object]] = (),
    verdict: str = "",
) -> dict[str, object]:
    """What `deepopsctl validate --json` and `doctor --json` print; `gpus` only where GPUs were measured.

    `verdict` (`interrupted`, `timeout`) is there only where the run ended before all checks were made.
    """
    found: dict[str, object] = {
        "schema": SCHEMA,
        "command": command,
        "ok": ok,
        "run": run,
        "checks": [check.to_dict() for check in checks],
    }
    return {**found, **({"verdict": verdict} if verdict else {}), **({"gpus": list(gpus)} if gpus else {})}
