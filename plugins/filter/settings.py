"""Settings by their names of today: a wrapper over deepopsctl.cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.cluster.renamed import is_now, old_names


def settings_renamed(names: Iterable[str]) -> str:
    """'' for the variables of a node; an error where they have a setting by its old name only."""
    if old := old_names(names):
        raise AnsibleFilterError(f"{'; '.join(map(is_now, old))}: rename it in settings.yml")
    return ""


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())
