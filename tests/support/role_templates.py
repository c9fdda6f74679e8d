"""One template of a role, rendered by Ansible's own lookup.

In a process of its own, which stays: Ansible changes how Python imports.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from functools import cache
from typing import Any

from tests.support.node_modules import COLLECTIONS
from tests.support.paths import ROOT


def render(role: str, template: str, **variables: Any) -> str:
    """The text of a template, with the role's defaults and these variables."""
    process = _started()
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps([role, template, variables]) + "\n")
    process.stdin.flush()
    answer: dict[str, str] = json.loads(process.stdout.readline())
    assert "error" not in answer, answer["error"]
    return answer["text"]


@cache
def _started() -> subprocess.Popen[str]:
    """One for all: to load Ansible takes longer than all else. It ends with its input."""
    argv = [sys.executable, "-W", "ignore", "-m", __name__]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)
    return process


def _serve() -> None:
    for line in sys.stdin:
        try:
            answer = {"text": _render(*json.loads(line))}
        except Exception as error:  # noqa: BLE001 (an assertion of the caller's fails with it)
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _render(role: str, template: str, variables: dict[str, Any]) -> str:
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader, lookup_loader
    from ansible.template import Templar

    init_plugin_loader([str(COLLECTIONS)])
    directory, loader = ROOT / "roles" / role, DataLoader()
    known: dict[str, Any] = {"ansible_search_path": [str(directory)]}
    for path in (directory / "defaults" / "main.yml", directory / "vars" / "main.yml"):
        known |= loader.load_from_file(str(path)) if path.is_file() else {}
    known |= variables
    lookup = lookup_loader.get("ansible.builtin.template", loader=loader, templar=Templar(loader, known))
    return "".join(lookup.run([template], variables=known))


if __name__ == "__main__":
    _serve()
