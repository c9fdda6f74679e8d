"""Settings by their names of today: a wrapper over deepopsctl.cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ansible.errors import AnsibleFilterError

from deepopsctl.cluster.renamed import is_now, old_names


def settings_renamed(names: Iterable[str]) -> str:
    """'' for the variables of a node; an error where they have a setting by its old name only."""
    if old := old_names(names):
        raise AnsibleFilterError(f"{'; '.join(map(is_now, old))}: rename it in settings.yml")
    return ""


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[[Iterable[str]], str]]:
        """Name -> function."""
        return {"settings_renamed": settings_renamed}
