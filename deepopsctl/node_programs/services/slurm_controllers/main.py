"""Test whether controllers share a directory, in three calls on each of them: write, read, remove."""

from __future__ import annotations

from typing import Any

from . import shared


def main(request: dict[str, Any]) -> dict[str, Any]:
    """One of the calls; `word` is what `write` has left for the others."""
    if request["check_mode"]:
        return {}
    try:
        if request["phase"] == "write":
            return {"word": shared.write(request)}
        if request["phase"] == "read":
            shared.read(request)
    except shared.NotSharedError as error:
        shared.remove(request)
        return {"failed": True, "msg": f"{error}; nothing was changed", "hint": error.hint}
    if request["phase"] == "remove":
        shared.remove(request)
    return {}
