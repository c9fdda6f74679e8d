#!/usr/bin/python
"""What a node is now, in one call: its last deploy compared with it, its GPUs, and what Slurm reports."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Query a node's state, its GPUs, and Slurm
description:
  - Read-only. Returns what the options ask for, and never fails for what it reads.
options:
  components:
    description: >-
      Components whose records of the last good deploy are compared with the node, as M(deepopsctl.cluster.drift_check)
      does; each with the steps that should have a record with its one of O(digests).
    type: list
    elements: dict
    default: []
    suboptions:
      component: {description: Its name., type: str, required: true}
      steps: {description: None where the node gets nothing of it., type: list, elements: str, required: true}
  digests: {description: Hash of the desired state of each component., type: dict, default: {}}
  slurm:
    description:
      - Whether to query slurmctld; for the primary controller. Slurm may hide other users' jobs without C(become).
      - A slurmctld that does not answer, or is not installed yet, is an answer and no failure.
    type: bool
    default: false
  slurm_wait: {description: Seconds to repeat the query of a slurmctld that refuses it., type: int, default: 0}
  slurm_timeout: {description: Seconds to wait for a slurmctld that does not answer., type: int, default: 30}
  leaving:
    description: >-
      Nodes that are to leave slurm.conf; with O(slurm), for the waiting jobs that Slurm would end then, or never start.
    type: list
    elements: str
    default: []
  node: {description: "The node's name in Slurm; for O(gpus) and O(driver_files).", type: str, default: ""}
  gpus:
    description:
      - The node's GPUs as cluster.yml has them (filter nvidia_expected), to compare with the driver and slurmd. Where
        there is no driver, as with simulated GPUs, the others are compared.
      - C(slurmd -G) is not called, because it makes sockets and control groups next to those of the running slurmd
        (seen with 24.11). What slurmd has registered is the same.
    type: dict
  driver_files:
    description: Query NVIDIA devices, the driver, and what conflicts with one. These are deepopsctl's own files for it.
    type: dict
    suboptions:
      source: {description: Its apt source; the result has only others., type: path, required: true}
      preferences: {description: Its apt preferences; without them it manages no driver., type: path, required: true}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Query every node
  deepopsctl.cluster.node_info:
    digests: "{{ deepops_digests }}"
    components:
      - {component: slurm, steps: [common, slurmd]}

- name: Query Slurm
  deepopsctl.cluster.node_info: {slurm: true}

- name: Compare the GPUs
  deepopsctl.cluster.node_info:
    gpus: "{{ slurm_nodes | deepopsctl.cluster.nvidia_expected(inventory_hostname) }}"
    node: "{{ inventory_hostname }}"
"""

RETURN = r"""
deepops:
  description:
    - C(node), with the comparison by C(components), C(versions), C(backup) and C(backup_of_monitoring), how the last
      one ended, C(full), file systems without room, C(upgrade), the record of an upgrade of Slurm that is under way,
      and C(restore), whether a restore was begun and has not ended, with O(components).
    - C(slurm), with C(installed), C(controller_up), C(error), C(nodes), C(jobs), C(versions) and C(reserved), the nodes
      that are reserved until they are tested, with O(slurm); and C(waiting), with O(leaving).
  type: dict
  returned: "with O(components) or O(slurm)"
gpu_differences:
  description: What disagrees on the GPUs, with all three values; empty where nothing does.
  type: str
  returned: "with O(gpus)"
nvidia:
  description: The devices and all that the choice of a driver needs.
  type: dict
  returned: "with O(driver_files)"
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    packages_sources as node_package_sources,
    status as node_status,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import (
    facts as nvidia_facts,
    gpu_check as nvidia_gpu_check,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    node_jobs as slurm_node_jobs,
    query as slurm_query,
    waiting_jobs as slurm_waiting_jobs,
)

SLURM_CONF = "/etc/slurm/slurm.conf"


def waiting_for(nodes: Sequence[str]) -> dict[str, Any]:
    """The waiting jobs that end, or wait for ever, without these nodes; or why slurmctld did not say."""
    try:
        with open(SLURM_CONF, encoding="utf-8") as stream:
            old = slurm_waiting_jobs.layout(stream.read())
        cases = slurm_waiting_jobs.query(old, old.without(nodes), slurm_client.ask)
    except (OSError, ValueError) as error:
        return {"controller_up": False, "error": str(error)}
    return {
        "waiting": [
            {"id": case.job.id, "user": case.job.user, "reason": case.reason, "can_be_held": case.rescue is not None}
            for case in cases
        ]
    }


def query_driver(files: Mapping[str, Any], node: str) -> dict[str, Any]:
    """NVIDIA devices, the driver, and what conflicts with one."""
    idle = not slurm_node_jobs.why_busy(node)
    sources = node_package_sources.debian_sources(files["source"])
    return dict(nvidia_facts.facts(files["preferences"], idle), sources=sources)


def main() -> None:
    component = {"component": {"required": True}, "steps": {"type": "list", "elements": "str", "required": True}}
    files = {name: {"type": "path", "required": True} for name in ("source", "preferences")}
    module = AnsibleModule(
        argument_spec={
            "components": {"type": "list", "elements": "dict", "default": [], "options": component},
            "digests": {"type": "dict", "default": {}},
            "slurm": {"type": "bool", "default": False},
            "slurm_wait": {"type": "int", "default": 0},
            "leaving": {"type": "list", "elements": "str", "default": []},
            "slurm_timeout": {"type": "int", "default": slurm_client.ANSWER_S},
            "node": {"default": ""},
            "gpus": {"type": "dict"},
            "driver_files": {"type": "dict", "options": files},
        },
        supports_check_mode=True,
    )
    params = module.params
    answers: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if params["components"]:
        answers["node"] = node_status.report(params["components"], params["digests"])
    if params["slurm"]:
        answers["slurm"] = slurm_query.report(params["slurm_wait"], params["slurm_timeout"])
        if params["leaving"] and answers["slurm"]["controller_up"]:
            answers["slurm"].update(waiting_for(params["leaving"]))
    if answers:
        more["deepops"] = answers
    if params["gpus"] is not None:
        comparison = nvidia_gpu_check.Comparison(params["gpus"], params["node"])
        more.update(gpu_differences=comparison.sentence(), deepops_warnings=comparison.warnings())
    if params["driver_files"]:
        more["nvidia"] = query_driver(params["driver_files"], params["node"])
    module.exit_json(changed=False, **more)


if __name__ == "__main__":
    main()
