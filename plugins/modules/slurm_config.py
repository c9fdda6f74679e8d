#!/usr/bin/python
"""Put a new Slurm configuration in force on a controller, with the smallest effect that will do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Check, install and apply slurm.conf, gres.conf and cgroup.conf on a controller
description:
  - The new slurm.conf is parsed by Slurm itself before it replaces the old one.
  - What changed decides what happens, from nothing over C(scontrol reconfigure) to a restart of slurmctld.
    Running jobs survive each of them. What Slurm can't change under the jobs that are there is refused.
  - Check mode says what would happen, and what would be refused, without failing.
  - When slurmctld does not come back with the new configuration, the old one is put back.
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  verify:
    description: Only refuse what this configuration would be refused for; change nothing.
    type: bool
    default: false
  not_yet:
    description: Nodes that come into slurm.conf with this deploy, but are not in this text yet; with O(verify).
    type: list
    elements: str
    default: []
  primary:
    description: Whether slurmctld runs here; elsewhere the files are kept ready and the daemon is off.
    type: bool
    default: true
  start_timeout:
    description: Seconds that slurmctld may take to answer after a restart, before the old configuration is put back.
    type: int
    default: 60
  folder: {description: Where slurm.conf lives., type: path, default: /etc/slurm}
  slurm_conf: {description: Text of slurm.conf., type: str, required: true}
  gres_conf: {description: Text of gres.conf., type: str, required: true}
  cgroup_conf: {description: Text of cgroup.conf., type: str, required: true}
  job_container_conf: {description: Text of job_container.conf; empty for no such file., type: str, default: ""}
  topology_conf: {description: Text of topology.conf; empty takes ours away., type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Put the Slurm configuration in force
  slurm_config:
    component: slurm
    step: slurm_config
    slurm_conf: "{{ slurm_conf_text }}"
    gres_conf: "{{ slurm_gres_conf_text }}"
    cgroup_conf: "{{ slurm_cgroup_conf_text }}"
"""

RETURN = r"""
effect: {description: "none, reconfigure, restart_slurmctld or restart_slurmd.", type: str, returned: always}
keys: {description: Keys that changed., type: list, elements: str, returned: always}
deepops:
  description: C(blocked), why it would be refused, each with C(message) and C(hint).
  type: dict
  returned: in check mode
changes:
  description: What was or would be changed, each key of slurm.conf with its C(policy).
  type: list
  elements: dict
  returned: always
"""

import os
import time

from ansible.module_utils import (
    node_changes,
    node_failure,
    node_files,
    node_record,
    node_units,
    slurm_commands,
    slurm_effects,
    slurm_refusals,
    slurm_running,
)
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slurm_effects import Effect

UNIT = "slurmctld.service"
CONTAINER = "job_container.conf"
RECONFIGURE = "slurmctld.reconfigure"


def current_texts(files):
    """What is in the files now."""
    return {path: (node_files.read(path) or b"").decode(errors="replace") for path in files}


def required_effect(files, current, found):
    """The strongest effect of the changed files, and the keys."""
    if not current[conf_of(files)]:
        return Effect.RESTART_SLURMCTLD, ["(first configuration)"]
    effect = max([change.effect for change in found] or [Effect.NONE])
    keys = list(dict.fromkeys(change.key.split()[0].partition("=")[0] for change in found))
    for path in files:
        if path != conf_of(files) and current[path] != files[path]:
            keys.append(os.path.basename(path))
            # slurmctld builds its tables of generic resources at start
            effect = max(effect, Effect.RESTART_SLURMCTLD if path.endswith("gres.conf") else Effect.RECONFIGURE)
    return effect, keys


def conf_of(files):
    """The path of slurm.conf among the files."""
    return next(path for path in files if os.path.basename(path) == "slurm.conf")


def key_entries(found):
    """The changed keys, each with its old and new value and its policy."""
    return [
        node_changes.entry(
            "key",
            change.key,
            change.action,
            detail=" -> ".join(value for value in (change.old, change.new) if value),
            policy=slurm_effects.POLICIES[change.effect],
        )
        for change in found
    ]


def note_files(noted, files):
    """The files that differ, with the difference."""
    for path, text in files.items():
        before = node_files.read(path)
        if before != text.encode():
            noted.wrote(path, before, text.encode())


def controller_answers(seconds):
    """True once this host's slurmctld answers as primary or backup."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status, output = slurm_commands.run(["scontrol", "ping"], 20)
        if status == 0 and " UP" in output.upper():
            return True
        if node_units.show([UNIT])[UNIT].get("ActiveState") == "failed":
            return False
        time.sleep(0.2)
    return False


def due_action(effect):
    """What slurmctld needs: '' for nothing, reconfigure, restart or start."""
    if node_units.show([UNIT])[UNIT].get("ActiveState") != "active":
        return "start"
    if effect <= Effect.RECONFIGURE:
        return "reconfigure" if effect == Effect.RECONFIGURE else ""
    return "restart"


def apply(effect, first, start_timeout):
    """Make slurmctld use the files on disk. Returns (action, error)."""
    action = due_action(effect)
    if action == "":
        return "", ""
    if action == "reconfigure":
        status, output = slurm_commands.run(["scontrol", "reconfigure"], 120)
        return action, output if status else ""
    slurm_commands.run(["systemctl", "reset-failed", UNIT], 60)
    status, output = slurm_commands.run(["systemctl", "restart", UNIT], 120)
    if status or not controller_answers(start_timeout):
        return "", "slurmctld does not answer: %s\n%s" % (output, node_units.last_words(UNIT))
    if not first:
        # configless slurmds fetch the new files only when they are told to
        slurm_commands.run(["scontrol", "reconfigure"], 120)
    return action, ""


def install(files, effect):
    """Write the files, all or none, after noting on disk what has to follow."""
    prepared = {}
    try:
        for path, content in files.items():
            if node_files.read(path) != content.encode():
                prepared[path] = node_files.prepare(path, content.encode(), (0, 0), 0o644)
        if effect == Effect.RECONFIGURE:
            node_record.mark_pending(RECONFIGURE, "configuration")
        elif effect > Effect.RECONFIGURE:
            node_record.mark_pending(UNIT, "configuration")
        for path, temporary in prepared.items():
            node_files.put_in_place(temporary, path)
    finally:
        for temporary in prepared.values():
            node_files.discard(temporary)


def with_pending(effect):
    """The effect, raised by what an interrupted call left undone."""
    if node_record.is_pending(UNIT):
        return max(effect, Effect.RESTART_SLURMCTLD)
    if node_record.is_pending(RECONFIGURE):
        return max(effect, Effect.RECONFIGURE)
    return effect


def put_back(old, effect, start_timeout):
    """The old configuration, in force again."""
    for path, content in old.items():
        if content is None:
            os.unlink(path)
        else:
            node_files.write(path, content, (0, 0), 0o644, [])
    apply(max(effect, Effect.RECONFIGURE), True, start_timeout)


def clear_pending():
    node_record.clear_pending(UNIT)
    node_record.clear_pending(RECONFIGURE)


def unit_entries(actions):
    return [node_changes.entry("unit", UNIT, action) for action in actions if action]


def stand_by(files, dry):
    """Keep the files ready on a controller that does not serve; returns what slurmctld needs."""
    facts = node_units.show([UNIT])[UNIT]
    serves = facts.get("ActiveState") == "active" or facts.get("UnitFileState") == "enabled"
    if not dry:
        install(files, Effect.NONE)
        if serves:
            slurm_commands.run(["systemctl", "disable", "--now", "--quiet", UNIT], 120)
    return ["stop"] if serves else []


def serve(module, files, effect, keys):
    """Install and apply; fail with the old configuration back in force. Returns what slurmctld needed."""
    old = {path: node_files.read(path) for path in files}
    first = old[conf_of(files)] is None
    if not node_units.is_enabled(node_units.show([UNIT])[UNIT]):
        slurm_commands.run(["systemctl", "enable", "--quiet", UNIT], 60)
    install(files, effect)
    start_timeout = module.params["start_timeout"]
    action, error = apply(effect, first, start_timeout)
    if error:
        hint = "see `journalctl -u slurmctld` on the controller"
        if not first:
            put_back(old, effect, start_timeout)
            hint = "the old configuration is in force again; correct %s and deploy again" % ", ".join(keys)
        clear_pending()
        module.fail_json(msg="Slurm did not accept the new configuration: %s" % error, hint=hint)
    clear_pending()
    return [action]


def would_serve(effect):
    """What slurmctld would need; a unit that does not run yet is enabled with its start."""
    facts = node_units.show([UNIT])[UNIT]
    action = due_action(effect)
    return [action] if action == "start" or node_units.is_enabled(facts) else [action, "enable"]


def converge(module, files, effect, keys):
    """Make it so, or say what would be done; returns what slurmctld needs."""
    if not module.params["primary"]:
        return stand_by(files, module.check_mode)
    needs = would_serve(effect)
    return needs if module.check_mode else serve(module, files, effect, keys) + needs[1:]


def refusals(module, files, current, found):
    """Why Slurm would not take this, or not without losing jobs: (message, hint) each."""
    problem = slurm_commands.syntax_error(files)
    if problem:
        hint = "correct slurm_config in inventory/group_vars/all/settings.yml, or the options in cluster.yml"
        return [("slurm.conf is not valid: %s" % problem, hint)]
    if not current[conf_of(files)] or not module.params["primary"]:
        return []
    return slurm_refusals.of(slurm_refusals.certain(found, module.params["not_yet"]))


def main():
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "verify": {"type": "bool", "default": False},
            "not_yet": {"type": "list", "elements": "str", "default": []},
            "primary": {"type": "bool", "default": True},
            "start_timeout": {"type": "int", "default": 60},
            "folder": {"type": "path", "default": "/etc/slurm"},
            "slurm_conf": {"required": True},
            "gres_conf": {"required": True},
            "cgroup_conf": {"required": True},
            "job_container_conf": {"default": ""},
            "topology_conf": {"default": ""},
        },
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    files = {
        os.path.join(folder, "%s.conf" % name): module.params["%s_conf" % name] for name in ("slurm", "gres", "cgroup")
    }
    container = os.path.join(folder, CONTAINER)
    optional = {
        os.path.join(folder, "%s.conf" % name): module.params["%s_conf" % name]
        for name in ("job_container", "topology")
    }
    files.update({path: text for path, text in optional.items() if text})
    current = current_texts(files)
    conf = conf_of(files)
    dry = module.check_mode or module.params["verify"]
    if dry and current[conf] and not current[conf].encode().startswith(slurm_running.OURS):
        # a person's, with lines that only slurmctld can add up: slurm_adopt says what becomes of it
        module.exit_json(changed=True, effect="restart_slurmctld", keys=[], changes=[], diff=[])
    found = slurm_effects.changes(current[conf], files[conf]) if current[conf] else []
    if current.get(container) and current[container] != files[container]:
        found.append(slurm_effects.Change(CONTAINER, "old", "new", Effect.DRAIN_FIRST))
    blocked = refusals(module, files, current, found)
    if blocked and not module.check_mode:
        message, hint = blocked[0]
        module.fail_json(msg="%s; nothing was changed" % message, hint=hint)
    if module.params["verify"]:
        module.exit_json(changed=False, effect="none", keys=[], changes=[])
    effect, keys = required_effect(files, current, found)
    effect = with_pending(effect)
    noted = node_changes.Noted(module.check_mode)
    note_files(noted, files)
    entries = noted.changes + key_entries(found)
    with node_failure.told(module.fail_json, "the old configuration is still in force: %s"):
        entries += unit_entries(converge(module, files, effect, keys))
    for path in [path for path in optional if path not in files]:
        if (node_files.read(path) or b"").startswith(slurm_running.OURS):
            # nothing reads it any more
            node_files.take_away(noted, path)
            entries.append(noted.changes[-1])
    result = {"effect": effect.name.lower(), "keys": keys, "changed": bool(entries), "changes": entries}
    result["diff"] = noted.diffs
    if module.check_mode:
        result["deepops"] = {"blocked": [{"message": message, "hint": hint} for message, hint in blocked]}
        result["deepops_warnings"] = ["this would be refused: %s" % message for message, _hint in blocked]
        module.exit_json(**result)
    record = node_record.items(files=files, units={UNIT: module.params["primary"]})
    node_record.save(module.params["component"], module.params["step"], module.params["digest"], record)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
