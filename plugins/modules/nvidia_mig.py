#!/usr/bin/python
"""Cut a node's GPUs into MIG slices as cluster.yml has them, now and whenever the node starts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_mig
short_description: MIG layouts of the GPUs of a node
description:
  - Reads how the GPUs are cut. Where that is not as wanted, it changes them on a node without jobs; else it refuses.
  - Daemons that hold a GPU open are stopped for the time of it, and started again.
  - Installs a unit that cuts the GPUs again whenever the node starts, before slurmd; removes it where no GPU is cut.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  unit: {description: Text of the systemd unit., type: str, required: true}
  gpus:
    description: How each GPU is to be cut; others are left as they are.
    type: list
    elements: dict
    default: []
    suboptions:
      minor: {description: The N of /dev/nvidiaN., type: int, required: true}
      slices:
        description: Profiles in the order to make them; empty for a whole GPU.
        type: list
        elements: str
        default: []
      numbers: {description: Slurm's numbers for slices of a profile., type: dict, default: {}}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Cut the GPUs
  deepopsctl.cluster.nvidia_mig:
    component: nvidia
    step: mig
    digest: "{{ deepops_digests.nvidia }}"
    node: "{{ inventory_hostname }}"
    unit: "{{ lookup('ansible.builtin.template', 'deepopsctl-mig.service.j2') }}"
    gpus: [{minor: 0, slices: [3g.20gb, 2g.10gb], numbers: {}}]
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
layout: {description: "How each GPU is cut now, in words, by its number.", type: dict, returned: always}
deepops:
  description: C(blocked), why it would be refused, each with C(message) and C(hint).
  type: dict
  returned: in check mode
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command,
    errors as node_errors,
    files as node_files,
    record as node_record,
    services as node_services,
    step as node_step,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import (
    facts as nvidia_facts,
    mig as nvidia_mig,
    mig_check as nvidia_mig_check,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import node_jobs as slurm_node_jobs

UNIT = "deepopsctl-mig.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
PROGRAM = "/usr/local/lib/deepopsctl/mig.py"
# GPU instances are numbered from 0, and these are all that there can be
INSTANCES = 15


class Step(node_step.Step):
    """One call; `layouts` are those of the GPUs that are wanted."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.layouts = self.wanted["gpus"]

    @property
    def cuts(self) -> bool:
        """Whether any GPU is to have slices."""
        return any(gpu["slices"] for gpu in self.layouts)


def contents(step: Step) -> dict[str, Any]:
    """What is on the node for its next start, by path."""
    loader: Any = nvidia_mig.__loader__
    program = loader.get_source(nvidia_mig.__name__)
    # the numbers are for Slurm; a wrong guess at them is nothing that a file here should follow
    gpus = [{"minor": gpu["minor"], "slices": gpu["slices"]} for gpu in step.layouts]
    layout = json.dumps({"gpus": gpus}, indent=1, sort_keys=True) + "\n"
    return {PROGRAM: program, nvidia_mig.LAYOUT: layout, UNIT_FILE: step.wanted["unit"]}


def install(step: Step) -> bool:
    """Program, layout and unit; enabled, not started. True where any of them changed."""
    changes = [node_files.ensure(step.noted, path, text.encode()) for path, text in contents(step).items()]
    changed = any(changes)
    if not step.dry:
        if changed:
            systemctl(step, "daemon-reload")
        if node_services.show([UNIT])[UNIT].get("UnitFileState") != "enabled":
            systemctl(step, "enable", "--quiet", UNIT)
    return changed


def uninstall(step: Step) -> None:
    """Nothing of it left on a node whose GPUs are whole."""
    present = [path for path in contents(step) if os.path.exists(path)]
    if UNIT_FILE in present:
        step.noted.did("unit", UNIT, "stop")
        if not step.dry:
            systemctl(step, "disable", "--now", "--quiet", UNIT)
    for path in present:
        node_files.remove(step.noted, path)
    if present and not step.dry:
        systemctl(step, "daemon-reload")


def systemctl(step: Step, *arguments: str) -> None:
    result = command.run_merged(["systemctl", *arguments])
    if not result.ok:
        words = f"systemctl {' '.join(arguments)}: {result.message}"
        step.fail(words, f"see `journalctl -u {UNIT}` on the node")


def query(step: Step) -> Mapping[int, Mapping[str, Any]] | None:
    """The GPUs as they are; None where there is nothing that could be cut."""
    try:
        return nvidia_mig.read()
    except nvidia_mig.NvidiaSmiError as error:
        on_the_bus = nvidia_facts.devices()["gpus"] and not os.path.exists(nvidia_facts.CONTAINER)
        if step.cuts and on_the_bus and not step.dry:
            step.fail(f"nvidia-smi can't say how the GPUs are cut: {error}", "`dmesg | grep -i nvrm` says more")
        for gpu in step.layouts if on_the_bus else []:
            if gpu["slices"]:
                note_change(step, gpu, "now: unknown until the driver runs")
        return None


def note_change(step: Step, gpu: Mapping[str, Any], now: str) -> None:
    step.noted.did("mig", f"GPU {gpu['minor']}: {nvidia_mig.slices_text(gpu['slices'])}", "set", detail=now)


def refuse_busy(step: Step, todo: Sequence[Mapping[str, Any]]) -> None:
    """Nothing is changed under a job."""
    node = step.wanted["node"]
    busy = slurm_node_jobs.why_busy(node)
    if not busy:
        return
    numbers = ", ".join(str(gpu["minor"]) for gpu in todo)
    message = f"the MIG slices of GPU {numbers} on {node} have to change, and {busy}"
    hint = f"drain it (`deepopsctl node drain {node}`), wait until it is empty, deploy again, then resume it"
    if not step.dry:
        step.noted.changes = []
        step.fail(message, hint)
    step.blocked.append((message, hint))


def partition(step: Step, gpus: Mapping[int, Mapping[str, Any]]) -> Mapping[int, Mapping[str, Any]]:
    """Make the GPUs what is wanted, or say which of them refused."""
    problems = nvidia_mig_check.impossible(step.layouts, gpus)
    if problems:
        step.fail(nvidia_mig_check.sentences(problems))
    todo = nvidia_mig.unmet(step.layouts, gpus)
    for gpu in todo:
        note_change(step, gpu, f"now: {nvidia_mig.current_text(gpus[gpu['minor']])}")
    if todo:
        refuse_busy(step, todo)
    # before the GPUs: one that can only be cut when the node starts will be
    changed = install(step) if step.cuts else False
    if step.dry:
        return gpus
    problems = nvidia_mig.apply(step.layouts, gpus)
    now = nvidia_mig.read()
    known = {problem[0] for problem in problems}
    for gpu in nvidia_mig.unmet(step.layouts, now):
        if gpu["minor"] not in known:
            current, wanted = nvidia_mig.current_text(now[gpu["minor"]]), nvidia_mig.slices_text(gpu["slices"])
            sentence = f"is {current}, not {wanted}"
            problems.append((gpu["minor"], sentence, "`nvidia-smi mig -lgi` and `-lci` show it"))
    problems += nvidia_mig_check.misnumbered(step.layouts, now)
    if problems:
        step.fail(nvidia_mig_check.sentences(problems))
    if step.cuts and (changed or node_services.show([UNIT])[UNIT].get("ActiveState") != "active"):
        # it finds nothing to do, which shows that it works at the next start
        systemctl(step, "restart", UNIT)
    return now


def record(step: Step, gpus: Mapping[int, Mapping[str, Any]] | None) -> dict[str, Any]:
    """What the gate compares: the kernel's files say which slices a GPU has."""
    paths = set(contents(step)) if step.cuts and gpus is not None else set()
    for gpu in step.layouts:
        if (gpus or {}).get(gpu["minor"], {}).get("current") is None:
            continue
        directory = f"{nvidia_mig.CAPABILITIES}/gpu{gpu['minor']}/mig"
        paths.update(f"{directory}/gi{number}/access" for number in range(INSTANCES))
        paths.update(nvidia_mig.capability_files(gpu["minor"]))
    return node_record.items(files=sorted(paths), units={UNIT: True} if UNIT_FILE in paths else {})


def arguments() -> dict[str, Any]:
    gpu = {
        "minor": {"type": "int", "required": True},
        "slices": {"type": "list", "elements": "str", "default": []},
        "numbers": {"type": "dict", "default": {}},
    }
    return {
        **node_record.STEP,
        "node": {"required": True},
        "unit": {"required": True},
        "gpus": {"type": "list", "elements": "dict", "default": [], "options": gpu},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    step = Step(module)
    with node_errors.fail_on_error(step.fail):
        try:
            gpus = query(step)
            if gpus is not None:
                gpus = partition(step, gpus)
        except nvidia_mig.NvidiaSmiError as error:
            step.fail(f"nvidia-smi stopped answering: {error}", "`dmesg | grep -i nvrm` says more")
        if not step.cuts:
            uninstall(step)
        step.save_record(record(step, gpus))
    layout = {str(minor): nvidia_mig.current_text(gpu) for minor, gpu in sorted((gpus or {}).items())}
    refusals = node_changes.refused(step.blocked) if module.check_mode else {}
    module.exit_json(**step.noted.result(layout=layout, **refusals))


if __name__ == "__main__":
    main()
