"""A suite as Ansible's module: its arguments, check mode, and how it ends."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Mapping

from ansible.module_utils.basic import AnsibleModule

from . import command

Parameters = Dict[str, Any]
# of every suite that sends jobs
JOBS: Mapping[str, Mapping[str, Any]] = {
    "queue_timeout": {"type": "int", "default": 20},
    "reservation": {"type": "str", "default": ""},
}


def run_suite_module(spec: Mapping[str, Mapping[str, Any]], suite: Callable[[Parameters], Dict[str, Any]]) -> None:
    """Try what `tried` tries; it gets the arguments, and returns what the reports read: `checks`, and more of its own.

    A check that fails is no failure of the module.
    """
    module = AnsibleModule(argument_spec={**JOBS, **spec}, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=False, deepops={"checks": []}, elapsed_s=0.0, msg="check mode: nothing is tried")
    started = time.monotonic()
    command.use_reservation(module.params["reservation"])
    result = suite(module.params)
    module.exit_json(changed=False, deepops=result, elapsed_s=round(time.monotonic() - started, 1))
