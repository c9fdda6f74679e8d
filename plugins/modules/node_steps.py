#!/usr/bin/python
"""Several steps of a node in one call: each is the work of another module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_steps
short_description: Do several steps of a node in one call
description:
  - Each entry of O(steps) is what a task with that module would do. They are done one after the other, and the first
    that fails ends the call. Each keeps its own record.
  - A call costs the node a login, C(sudo), and a Python that imports Ansible's code, and the control machine a process,
    whatever it does. So steps that follow each other on a node without waiting for another node are one call.
options:
  steps:
    description:
      - The steps in their order. Each has C(module), the name of one of the modules below, C(step) where that keeps a
        record, and C(options) of the module. C(when) leaves out a step where it is false.
      - The modules are M(deepopsctl.cluster.login_access), M(deepopsctl.cluster.node_state),
        M(deepopsctl.cluster.slurm_config), M(deepopsctl.cluster.slurm_node_state) and
        M(deepopsctl.cluster.slurm_verify).
    type: list
    elements: dict
    required: true
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Run slurmd and restrict logins
  deepopsctl.cluster.node_steps:
    steps:
      - module: node_state
        step: slurmd
        options: {packages: [slurmd]}
      - module: login_access
        step: login_access
        options: {restricted: true}
"""

RETURN = r"""
results: {description: "What each module returned, with its C(step).", type: list, elements: dict, returned: always}
changes: {description: What all of them changed., type: list, elements: dict, returned: always}
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible.module_utils import basic
from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    # Ansible packs what a module imports; a call imports the modules of its steps only
    from ansible_collections.deepopsctl.cluster.plugins.module_utils.steps import (  # noqa: F401 (see above)
        login_access,
        node_state,
        slurm_config,
        slurm_node_state,
        slurm_verify,
    )

PACKAGE = "ansible_collections.deepopsctl.cluster.plugins.module_utils.steps"
MODULES = ("login_access", "node_state", "slurm_config", "slurm_node_state", "slurm_verify")
# what is joined: Ansible shows a difference, and deepopsctl the changes of a task
LISTS = ("changes", "diff")


def internal_arguments() -> dict[str, Any]:
    """What Ansible tells every module: check mode, verbosity, the names of its own."""
    arguments: dict[str, Any] = json.loads(basic._ANSIBLE_ARGS or b"{}")["ANSIBLE_MODULE_ARGS"]
    return {name: value for name, value in arguments.items() if name.startswith("_ansible_")}


def result_of(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the module returns. It runs in a process of its own, as no module expects that another ran before it."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.dup2(writing, 1)
        basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
        run_and_exit(name)
    os.close(writing)
    with open(reading, encoding="utf-8", errors="surrogateescape") as stream:
        output = stream.read()
    _pid, status = os.waitpid(child, 0)
    try:
        result: dict[str, Any] = json.loads(output[output.index("{") :])
    except ValueError:
        return {"failed": True, "msg": f"{name} ended ({status}) without a result: {output[-500:]}"}
    return result


def run_and_exit(name: str) -> None:
    """The module's own end is that of the process: nothing that this module has to do at its end is done here."""
    status = 1
    try:
        importlib.import_module(f"{PACKAGE}.{name}").main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except Exception as error:  # noqa: BLE001 (as Ansible does at the end of any module)
        message = f"{name}: {type(error).__name__}: {error}"
        sys.stdout.write(json.dumps({"failed": True, "msg": message, "exception": traceback.format_exc()}))
    finally:
        sys.stdout.flush()
        os._exit(status)


def together(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the steps did as one task's result; Ansible collects warnings of each by itself."""
    joined: dict[str, Any] = {name: [] for name in LISTS}
    for result in results:
        for name in LISTS:
            more = result.get(name) or []
            joined[name] += [more] if isinstance(more, dict) else more
    return {**joined, "changed": any(result.get("changed") for result in results), "results": list(results)}


def main() -> None:
    # what the steps are given may be secret: each module says so of its own options, and notes its call without them
    module = AnsibleModule(
        argument_spec={"steps": {"type": "list", "elements": "dict", "required": True}},
        no_log=True,
        supports_check_mode=True,
    )
    unknown = {str(step.get("module")) for step in module.params["steps"]} - set(MODULES)
    if unknown:
        module.fail_json(msg=f"no step is of the module {', '.join(sorted(unknown))}", invocation={})
    internal, results = internal_arguments(), []
    # once, and not in each process
    for name in dict.fromkeys(step["module"] for step in module.params["steps"]):
        importlib.import_module(f"{PACKAGE}.{name}")
    for step in module.params["steps"]:
        name, options = step["module"], step["options"]
        result = result_of(name, {**options, **internal, "_ansible_module_name": f"deepopsctl.cluster.{name}"})
        for warning in result.pop("warnings", []):
            # a summary, as Ansible sends it to the control machine
            module.warn(warning["event"]["msg"] if isinstance(warning, dict) else warning)
        results.append({"step": options.get("step", ""), **result, "invocation": {}})
        if result.get("failed"):
            module.fail_json(**{**results[-1], **together(results)})
    module.exit_json(**together(results), invocation={})


if __name__ == "__main__":
    main()
