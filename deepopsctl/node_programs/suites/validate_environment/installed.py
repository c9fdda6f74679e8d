"""Whether all that the deploy has installed for users is there as it was: files, packages, units, directories."""

from __future__ import annotations

from collections.abc import Sequence

from ..._shared import identities
from ..._shared.checks import FAIL, PASS, Check
from .checks import check

INSTALLED = "environment-installed"


def verify_installed(node: str, differences: Sequence[str]) -> list[Check]:
    """One check, from what the records of the last good deploy say compared with the node (node_info)."""
    if not differences:
        return [check(INSTALLED, node, PASS, "as deployed", "as deployed")]
    measured = f"{len(differences)} differences"
    return [check(INSTALLED, node, FAIL, measured, "as deployed", message=identities.first_few(differences))]
