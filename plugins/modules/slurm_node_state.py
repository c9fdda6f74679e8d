#!/usr/bin/python
"""Drain and resume nodes, and reserve new ones, so that no job is lost and none meets an untested node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_state
short_description: Drain, resume, reserve and release nodes in Slurm
description:
  - Runs on the primary controller, with C(become), or with O(local) on the node itself. A node that a person drained or
    set down stays so.
  - C(drained) leaves running jobs to their end. A node that another user drained keeps their reason.
  - C(resumed) ends deepopsctl's own drains. Any other drained node is refused by name, with who and why, and the
    others are resumed.
  - C(reserved) puts nodes, whether they have registered or not, in a reservation for O(user) alone, so that only jobs
    of the validation start there, and forgets that they were away. With O(registered) it waits until they answer.
  - C(released) takes them out of the reservation.
  - C(rebooted) has Slurm drain nodes, and reboot each when its jobs have ended; then it has the state O(next_state).
    Nodes that another user drained, or that Slurm can't reboot, are listed instead.
  - C(out_of_service) drains nodes and takes them out of the reservation; with O(cancel_jobs) their jobs are cancelled.
  - With O(local), C(drained) does nothing where slurmd does not run, waits for the jobs of this node, and fails when
    O(timeout) is over; the node stays drained. C(resumed) ends only a drain for this O(reason), once slurmd has
    registered and its GPUs are those of O(gpus).
options:
  nodes: {description: Names in Slurm., type: list, elements: str, required: true}
  state:
    description: What the nodes become.
    type: str
    required: true
    choices: [drained, resumed, rebooted, reserved, released, out_of_service]
  next_state: {description: What a rebooted node becomes., type: str, choices: [RESUME, DOWN], default: DOWN}
  reason: {description: Why the nodes are drained., type: str, default: ""}
  local: {description: Whether this runs on the only node of O(nodes)., type: bool, default: false}
  refusals: {description: "Why nodes can't be resumed, by name.", type: dict, default: {}}
  user: {description: Whose jobs may use the reservation., type: str, default: root}
  registered: {description: Whether reserved nodes must have registered., type: bool, default: false}
  cancel_jobs: {description: Whether to cancel jobs., type: bool, default: false}
  timeout: {description: "Seconds to wait for nodes, or with O(local) for jobs.", type: int, default: 60}
  gpus: {description: "The node's GPUs as cluster.yml has them (filter nvidia_expected).", type: dict, default: {}}
  component: {description: Component of the step that is recorded., type: str, default: ""}
  step: {description: "Step that C(resumed) records with O(local).", type: str, default: ""}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Drain a node
  deepopsctl.cluster.slurm_node_state: {nodes: [gpu03], state: drained, reason: new fan}

- name: Keep jobs away until the node is tested
  deepopsctl.cluster.slurm_node_state: {nodes: [gpu03], state: reserved, user: ubuntu}

- name: Wait until no job runs on this node
  deepopsctl.cluster.slurm_node_state:
    nodes: ["{{ inventory_hostname }}"]
    state: drained
    reason: new driver
    local: true
    timeout: 3600
"""

RETURN = r"""
deepops:
  description:
    - On the controller, C(slurm) as M(deepopsctl.cluster.node_info) returns it.
    - C(drain), for C(drained) and C(resumed), a list with C(name), C(action) and C(message) for each node.
    - C(reboot), for C(rebooted), such a list.
  type: dict
  returned: without O(local)
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import gpu_check as nvidia_gpu_check
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    node_jobs as slurm_node_jobs,
    node_service as slurm_node_service,
    query as slurm_query,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.node_states import drain_reason

STATES = ["drained", "resumed", "rebooted", "reserved", "released", "out_of_service"]
VERBS = {"drained": "drain", "resumed": "resume"}


def change_local(params: Mapping[str, Any], reason: str, noted: node_changes.Noted) -> None:
    """Drain this node and wait for its jobs, or resume it and record that."""
    (name,) = params["nodes"]
    if params["state"] == "drained":
        if slurm_node_jobs.drain(name, reason, params["timeout"], noted.dry):
            noted.did("node", name, "drain", detail=reason)
        return
    comparison = nvidia_gpu_check.Comparison(params["gpus"], name)
    if slurm_node_jobs.resume(name, reason, comparison.sentence, noted.dry):
        noted.did("node", name, "resume")
    if not noted.dry and params["step"]:
        # the next deploy asks again
        digest = "" if slurm_node_jobs.is_uncertain(name) else params["digest"]
        node_record.save(params["component"], params["step"], digest, node_record.items())


def change(params: Mapping[str, Any], reason: str, dry: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(what the module returns as `deepops`, the changes) on the controller."""
    names, state = params["nodes"], params["state"]
    if state in VERBS:
        decisions, changes = slurm_node_service.drain_or_resume(VERBS[state], names, reason, params["refusals"], dry)
        return {"drain": decisions, "slurm": slurm_query.report(slurm_node_service.DRAIN_PATIENCE_S)}, changes
    if state == "rebooted":
        decisions, changes = slurm_node_service.request_reboot(names, reason, params["next_state"], dry)
        return {"reboot": decisions, "slurm": slurm_query.report(slurm_node_service.DRAIN_PATIENCE_S)}, changes
    if dry:
        return {}, []
    if state == "reserved":
        changes = slurm_node_service.reserve(names, params["user"])
        if params["registered"]:
            changes += slurm_node_service.wait_until_registered(names, params["timeout"])
    elif state == "released":
        changes = slurm_node_service.release(names)
    else:
        changes = slurm_node_service.take_out(names, reason, params["cancel_jobs"])
    return {"slurm": slurm_node_service.require_state()}, changes


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "str", "required": True},
            "state": {"choices": STATES, "required": True},
            "reason": {"default": ""},
            "next_state": {"choices": ["RESUME", "DOWN"], "default": "DOWN"},
            "local": {"type": "bool", "default": False},
            "refusals": {"type": "dict", "default": {}},
            "user": {"default": "root"},
            "registered": {"type": "bool", "default": False},
            "cancel_jobs": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 60},
            "gpus": {"type": "dict", "default": {}},
            "component": {"default": ""},
            "step": {"default": ""},
            "digest": {"default": ""},
        },
        required_if=[
            ("state", "drained", ["reason"]),
            ("state", "rebooted", ["reason"]),
            ("state", "out_of_service", ["reason"]),
        ],
        supports_check_mode=True,
    )
    params, reason = module.params, drain_reason(module.params["reason"])
    noted = node_changes.Noted(module.check_mode)
    with node_errors.fail_on_error(module.fail_json):
        if params["local"]:
            change_local(params, reason, noted)
            module.exit_json(changed=bool(noted.changes), changes=noted.changes)
        answer, changes = change(params, reason, module.check_mode)
    module.exit_json(changed=bool(changes), changes=changes, deepops=answer)


if __name__ == "__main__":
    main()
