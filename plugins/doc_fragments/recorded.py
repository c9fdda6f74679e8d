"""The options of every module that keeps a record of its step on the node."""

from __future__ import annotations


class ModuleDocFragment:
    """Filled in by the action plugin node_state; module_utils/node/record.py has the arguments."""

    DOCUMENTATION = r"""
options:
  component:
    description: Component that the step belongs to; filled in from C(meta/steps.yml) of the calling role.
    type: str
    required: true
  step:
    description: Name of the step; filled in where C(meta/steps.yml) of the calling role lists a single one.
    type: str
    required: true
  digest:
    description:
      - Hash of the desired state; empty keeps no record. That of the component in C(deepops_digests); where a play has
        no such variable, C(roles).
    type: str
    default: ""
"""
