"""Modules that a site declares: a wrapper over deepopsctl.environment."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

from deepopsctl.environment import modules
from deepopsctl.text.problems import RefusedError


def environment_declared_modules(declared, directory, lines, distributed):
    """Templates, packages, and files of packages: {templates, packages, fetched, archives}."""
    try:
        return modules.declared_modules(declared, directory, lines, distributed)
    except RefusedError as error:
        raise AnsibleFilterError(f"{error.message}: {error.hint}") from error


class FilterModule:
    """Registers the filters."""

    def filters(self):
        """Name -> function."""
        return {"environment_declared_modules": environment_declared_modules}
