"""Modules that a site declares: a wrapper over deepopsctl.environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from deepopsctl.environment import modules
from deepopsctl.text.problems import RefusedError


def environment_declared_modules(
    declared: Mapping[str, Any], directory: str, lines: Any, distributed: Any
) -> dict[str, Any]:
    """Templates, packages, and files of packages: {templates, packages, fetched, archives}."""
    try:
        return modules.declared_modules(declared, directory, lines, distributed)
    except RefusedError as error:
        raise AnsibleFilterError(f"{error.message}: {error.hint}") from error


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return {"environment_declared_modules": environment_declared_modules}
