"""One template of a role, rendered by Ansible's own lookup.

In a process of its own: Ansible changes how Python imports.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.support.node_modules import COLLECTIONS
from tests.support.paths import ROOT


def render(role: str, template: str, **variables: Any) -> str:
    """The text of a template, with the role's defaults and these variables."""
    asked = json.dumps([role, template, variables])
    argv = [sys.executable, "-W", "ignore", "-m", __name__]
    done = subprocess.run(argv, cwd=ROOT, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _render(role: str, template: str, variables: dict[str, Any]) -> str:
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader, lookup_loader
    from ansible.template import Templar

    init_plugin_loader([str(COLLECTIONS)])
    directory, loader = ROOT / "roles" / role, DataLoader()
    known: dict[str, Any] = {"ansible_search_path": [str(directory)]}
    for path in (directory / "defaults" / "main.yml", directory / "vars" / "main.yml"):
        known |= loader.load_from_file(str(path))
    known |= variables
    lookup = lookup_loader.get("ansible.builtin.template", loader=loader, templar=Templar(loader, known))
    return "".join(lookup.run([template], variables=known))


if __name__ == "__main__":
    sys.stdout.write(_render(*json.load(sys.stdin)))
