"""What runs on the nodes, imported here by the name it has there: `ansible.module_utils.node_files` and so on."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ansible import module_utils

ROOT = Path(__file__).resolve().parent.parent
MODULE_UTILS = ROOT / "plugins" / "module_utils"


def load(name: str) -> Any:
    """The module `plugins/module_utils/<name>.py`; untyped, as Ansible's own are."""
    if str(MODULE_UTILS) not in module_utils.__path__:
        module_utils.__path__.append(str(MODULE_UTILS))
    return import_module(f"ansible.module_utils.{name}")
