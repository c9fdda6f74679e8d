"""Errors on a node as a module's failure: what happened and what to do, no traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command, files as node_files


class HintedError(Exception):
    """Something on the node refuses; the hint says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def run_or_raise(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command that must succeed; fail_on_error() reports its output where it fails."""
    command.require(argv, env=command.environment(**(environment or {})))


@contextlib.contextmanager
def fail_on_error(fail: Callable[..., Any], words: str = "%s") -> Iterator[None]:
    """Call `fail(message, hint=...)`, a module's fail_json, for what is raised inside; `words` around the message."""
    try:
        yield
    except HintedError as error:
        fail(words % error, hint=error.hint)
    except command.CommandError as error:
        fail(words % error, hint="run it on the node to see more")
    except OSError as error:
        message, hint = node_files.error_text(error)
        fail(words % message, hint=hint)
