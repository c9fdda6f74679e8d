"""What can't be fetched is left out: a module ends well without it, and the run reports it."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_errors,
    record as node_record,
)

# arguments of a module whose source may be optional
OPTIONAL = {"optional": {"default": ""}, "needed_by": {"type": "list", "elements": "str", "default": []}}


def leave_out(module: AnsibleModule, error: node_errors.HintedError, *steps: tuple[str, str]) -> None:
    """End a module whose source can't be used. The run continues without it, and ends with a failure all the same.

    Not where the module's `optional` says what it is for: a cluster does without that, so the run ends well, with a
    warning, and the node remembers what is left out with its `steps` ((component, step)) and those in `needed_by`.
    """
    optional = module.params.get("optional", "")
    for component, step in steps:
        if optional:
            node_record.leave_out(component, step, optional, str(error), module.params["needed_by"])
        else:
            node_record.save(component, step, "", {})
    module.warn(str(error))
    left_out = {"message": str(error), "hint": error.hint, "optional": optional}
    module.exit_json(changed=False, changes=[], deepops_left_out=left_out)
