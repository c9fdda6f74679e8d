"""What every worker of Ansible needs is loaded before the first of them: else each host-task pays for it again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deepopsctl import supervisor
from tests.localansible import environment

# as the supervisor's child does it, in a process of its own: Ansible stays loaded
ASK = """
import json, sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("supervisor", sys.argv[1])
supervisor = module_from_spec(spec)
spec.loader.exec_module(supervisor)
import ansible.cli.playbook
supervisor._load_plugins()
supervisor._parse_module_utils()
from ansible.executor import module_common
from ansible.plugins import loader
print(json.dumps({
    "filters": sorted(plugin.ansible_name for plugin in loader.filter_loader.all()),
    "loaded": sorted(name for name in sys.modules if name.startswith(("ansible.plugins.", "deepopsctl."))),
    "parsed": module_common._compile_module_ast.cache_info().currsize,
}))
"""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is loaded; called without the guard that keeps a run going when Ansible has moved something."""
    folder: Path = tmp_path_factory.mktemp("warm")
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK, supervisor.__file__],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_our_filters_are_loaded_with_what_they_import(warm: dict[str, Any]) -> None:
    assert any(name.endswith("slurm_node_lines") for name in warm["filters"])
    assert "deepopsctl.slurmconf" in warm["loaded"]


@pytest.mark.parametrize("plugin", ["action.normal", "connection.ssh", "shell.sh", "become.sudo", "lookup.template"])
def test_the_plugins_of_every_task_are_loaded(warm: dict[str, Any], plugin: str) -> None:
    assert f"ansible.plugins.{plugin}" in warm["loaded"]


def test_what_ansible_sends_with_every_module_is_parsed(warm: dict[str, Any]) -> None:
    assert warm["parsed"] > 40
