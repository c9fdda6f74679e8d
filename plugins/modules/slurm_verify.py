#!/usr/bin/python
"""Wait until Slurm's daemons run what was deployed, and the nodes are registered."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_verify
short_description: Wait until slurmctld, slurmdbd or slurmd run what was deployed
description:
  - A deploy is finished when the daemons run what was requested, not when the last file is written.
  - O(scope=controller) compares the configuration that slurmctld runs with the one on disk, and the versions that run
    with the installed ones. It asks slurmdbd whether the cluster is registered, and slurmctld for O(nodes). A slurmctld
    that has not registered after a third of O(timeout) reads its configuration again, once. Nodes that a user drained
    or set down stay so. Those that Slurm itself set down because they restarted unannounced serve again once they are
    registered.
  - O(scope=compute) asks the node itself. Does slurmd answer, in the installed version, with the configuration files
    of this deploy, and has slurmctld registered the node? Are the GPUs that the driver finds those of cluster.yml, and
    those that slurmd has registered? If they are not, the node is not returned to service. A slurmd that missed the
    new configuration, hangs, or that slurmctld does not hear is restarted once (jobs continue).
  - O(scope=compute) alone saves a record. What stays wrong is reported, and the record of O(step) is removed, so that
    the next deploy verifies again.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  scope: {description: Which daemons., type: str, choices: [controller, compute], required: true}
  cluster: {description: ClusterName; empty asks slurmdbd nothing., type: str, default: ""}
  nodes: {description: "Nodes that must be registered; with O(scope=compute), this one.", type: list, elements: str,
          default: []}
  controller: {description: Name of the controller for messages., type: str, default: slurmctld}
  version: {description: Version of the slurmctld that runs., type: str, default: ""}
  credential: {description: A munge credential of the controller's., type: str, default: ""}
  files: {description: "sha256 of each file that slurmd must have fetched.", type: dict, default: {}}
  directory: {description: Where slurmd stores them., type: path, default: /run/slurm/conf}
  gpus: {description: "The node's GPUs as cluster.yml has them (filter nvidia_expected).", type: dict, default: {}}
  timeout: {description: Seconds to wait., type: int, default: 60}
  stay_up:
    description: With O(scope=compute), steps whose units have to stay up; as M(deepopsctl.cluster.node_converged).
    type: list
    elements: str
    default: []
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Wait until slurmctld runs what was deployed
  deepopsctl.cluster.slurm_verify:
    scope: controller
    component: slurm
    step: slurm_config
    cluster: hpc
    nodes: [gpu01, gpu02]

- name: Wait until slurmd runs what was deployed
  deepopsctl.cluster.slurm_verify:
    scope: compute
    component: slurm
    step: converged
    nodes: [gpu01]
    controller: ctl1
    files: {slurm.conf: "{{ slurm_conf_files['slurm.conf'] | hash('sha256') }}"}
"""

RETURN = r"""
states: {description: State of each node as slurmctld has it., type: dict, returned: success}
version: {description: Version of the daemon that runs., type: str, returned: success}
credential:
  description: A munge credential for the nodes to decode, with O(scope=controller).
  type: str
  returned: success
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    converged as node_converged,
    errors as node_errors,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import verify_compute, verify_controller
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.readiness import NotReadyError

SCOPES = {"controller": verify_controller.verify, "compute": verify_compute.verify}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "scope": {"choices": list(SCOPES), "required": True},
            "cluster": {"default": ""},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "controller": {"default": "slurmctld"},
            "version": {"default": ""},
            "credential": {"default": "", "no_log": True},
            "files": {"type": "dict", "default": {}},
            "directory": {"type": "path", "default": "/run/slurm/conf"},
            "gpus": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 60},
            "stay_up": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    if module.check_mode:
        module.exit_json(changed=False, states={}, version="", credential="", changes=[])
    try:
        with node_errors.fail_on_error(module.fail_json):
            result = SCOPES[params["scope"]](params)
            node_converged.watch(params["component"], params["stay_up"], params["timeout"])
    except NotReadyError as error:
        node_record.save(params["component"], params["step"], "", {})
        module.fail_json(msg=str(error), hint=error.hint, changed=bool(error.changes), changes=error.changes)
    except node_converged.NotConvergedError as error:
        module.fail_json(msg=str(error), hint=error.hint, changed=bool(result.changes), changes=result.changes)
    module.exit_json(
        changed=bool(result.changes),
        changes=result.changes,
        states=result.states,
        version=result.version,
        credential=result.credential,
        deepops_warnings=result.warnings,
    )


if __name__ == "__main__":
    main()
