#!/usr/bin/python
"""Reservations of Slurm for the maintenance that cluster.yml declares."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_maintenance
short_description: Reserve nodes for declared maintenance
description:
  - Creates and changes reservations with the flags C(MAINT) and C(IGNORE_JOBS) for root, and removes those that an
    earlier call created and that are no longer declared. Other reservations are left alone.
  - One that is over is not created again. The start of one that is on stays as it is.
options:
  maintenance:
    description: Each with C(name), C(start) (local time of the controller), C(minutes), C(nodes) and C(repeat).
    type: list
    elements: dict
    default: []
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Reserve nodes for maintenance
  deepopsctl.cluster.slurm_maintenance:
    maintenance:
      - {name: upgrade, start: "2026-12-01T08:00:00", minutes: 240, nodes: "gpu[01-16]"}
"""

RETURN = r"""
changes: {description: "What was done: kind, name, action, detail.", type: list, elements: dict, returned: always}
"""

import json
import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    maintenance as slurm_maintenance,
    query as slurm_query,
    slurm_output,
)

# the names that earlier calls created: only those are ever removed
OWNED = os.path.join(node_record.STATE, "slurm_maintenance.json")


def read_owned() -> list[str]:
    try:
        with open(OWNED) as stream:
            return list(json.load(stream))
    except (OSError, ValueError):
        return []


def save_owned(names: set[str]) -> None:
    if sorted(names) != read_owned():
        node_record.write_atomically(OWNED, json.dumps(sorted(names)).encode())


def answers() -> bool:
    return slurm_client.ask(slurm_client.PING).ok


def present() -> dict[str, Any]:
    """Slurm's reservations by name."""
    shown = slurm_client.ask(slurm_client.RESERVATIONS)
    if not shown.ok:
        raise node_errors.HintedError(f"scontrol show reservation: {slurm_query.sentence(shown)}", "is slurmctld up?")
    return slurm_output.records(shown.output, "ReservationName")


def apply(commands: Sequence[tuple[list[str], str, str, str]]) -> None:
    """All of them: one that Slurm refuses must not leave the nodes of another without a reservation."""
    refused = []
    for argv, name, _action, _detail in commands:
        done = slurm_client.ask(slurm_client.scontrol(*argv))
        if not done.ok:
            refused.append(f"maintenance {name}: {slurm_query.sentence(done)}")
    if refused:
        raise node_errors.HintedError("; ".join(refused), "see `scontrol show reservation`")


def main() -> None:
    module = AnsibleModule(
        argument_spec={"maintenance": {"type": "list", "elements": "dict", "default": []}}, supports_check_mode=True
    )
    declared, owned = module.params["maintenance"], read_owned()
    if not declared and not owned:
        module.exit_json(changed=False, changes=[])
    with node_errors.fail_on_error(module.fail_json):
        # before the first deploy there is no Slurm to ask
        reservations = {} if module.check_mode and not answers() else present()
        now = datetime.now().replace(microsecond=0)
        commands = slurm_maintenance.commands(declared, reservations, owned, now)
        if not module.check_mode:
            # those of an interrupted call are managed, too
            save_owned({*owned, *(entry["name"] for entry in declared)})
            apply(commands)
            save_owned({entry["name"] for entry in declared})
    changes = [node_changes.entry("reservation", name, action, detail=detail) for _, name, action, detail in commands]
    module.exit_json(changed=bool(changes), changes=changes)


if __name__ == "__main__":
    main()
