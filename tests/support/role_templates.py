"""One template of a role, rendered by Ansible's own lookup in this process."""

from __future__ import annotations

from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader, lookup_loader
from ansible.template import Templar

from tests.support.paths import ROOT


def render(role: str, template: str, **variables: Any) -> str:
    """The text of a template, with the role's defaults and these variables."""
    init_plugin_loader([])
    directory, loader = ROOT / "roles" / role, DataLoader()
    known = {"ansible_search_path": [str(directory)]}
    for path in (directory / "defaults" / "main.yml", directory / "vars" / "main.yml"):
        known |= loader.load_from_file(str(path))
    known |= variables
    lookup = lookup_loader.get("ansible.builtin.template", loader=loader, templar=Templar(loader, known))
    # a plain str: Ansible's own notes where it came from
    return "".join(lookup.run([template], variables=known))
