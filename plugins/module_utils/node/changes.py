"""What a module did or would do, for the reports of plan and deploy: `changes` in a module's result."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

HIDDEN = "(secret)\n"


def entry(type_name: str, name: str, action: str, **more: Any) -> dict[str, Any]:
    """One change: `kind` of thing, its name and what happens to it; `detail`, `policy`, `diff` where there are any."""
    change = {"kind": type_name, "name": name, "action": action}
    change.update({key: value for key, value in more.items() if value})
    return change


class Noted:
    """What one call did, or in check mode would do: `changes` for plan and deploy, `diffs` for --diff."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.changes: list[dict[str, Any]] = []
        self.diffs: list[dict[str, Any]] = []

    def did(self, type_name: str, name: str, action: str, **more: Any) -> None:
        """One change: `type_name` as `plan` groups them (package, file, unit ...), `action` a verb in its base form."""
        self.changes.append(entry(type_name, name, action, **more))

    def result(self, **more: Any) -> dict[str, Any]:
        """What the module returns of it."""
        return {"changed": bool(self.changes), "changes": self.changes, "diff": self.diffs, **more}

    def wrote(self, path: str, before: bytes | None, after: bytes) -> None:
        """A file got another content: bytes, and None before where there was no file."""
        texts = [(content or b"").decode(errors="replace") for content in (before, after)]
        self._wrote(path, before is None, texts, unified(*texts))

    def wrote_secret(self, path: str, before: bytes | None) -> None:
        """The same for a secret file: neither content is shown."""
        self._wrote(path, before is None, ["", HIDDEN], HIDDEN)

    def _wrote(self, path: str, new: bool, texts: Sequence[str], difference: str) -> None:
        self.diffs.append({"before": texts[0], "after": texts[1], "before_header": path, "after_header": path})
        # only a plan shows it
        self.did("file", path, "write", **({"diff": difference, "new": new} if self.dry else {}))


def refused(blocked: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """What a module returns in check mode of what it would refuse: (message, hint) each."""
    return {
        "deepops": {"blocked": [{"message": message, "hint": hint} for message, hint in blocked]},
        "deepops_warnings": [f"this would be refused: {message}" for message, _hint in blocked],
    }


def unified(before: str, after: str) -> str:
    """The difference of two texts, without the two lines that would name them."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return "".join(f"{line}\n" for line in list(lines)[2:])
