#!/usr/bin/python
"""Put a new Slurm configuration in force on a controller, with the smallest effect that will do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Check, install and apply slurm.conf and the files next to it on a controller
description:
  - The new slurm.conf is parsed by Slurm itself before it replaces the old one.
  - What changed decides what happens, from nothing over C(scontrol reconfigure) to a restart of slurmctld.
    Running jobs survive each of them. What Slurm can't change under the jobs that are there is refused.
  - Check mode says what would happen, and what would be refused, without failing.
  - When slurmctld does not come back with the new configuration, the old one is put back.
  - With O(adopt), it replaces a slurm.conf that deepopsctl did not write, and does nothing where there is none. Only
    slurmctld knows what its lines come to (includes, defaults of its version), so it is asked. Another cluster name,
    state directory, select or switch plugin would lose all jobs; another count of sockets, cores or threads, or a node
    that is left out, would end the jobs there. Each of these is refused. The old files are saved next to the new ones.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  verify:
    description: Only refuse what this configuration would be refused for; change nothing.
    type: bool
    default: false
  adopt:
    description: Only replace a slurm.conf that deepopsctl did not write, under the jobs that run with it.
    type: bool
    default: false
  adopt_unit:
    description:
      - Unit file of a slurmctld that was built from source. With O(adopt) it is set aside, so that the package's
        slurmctld starts, and put back with the old files.
    type: str
    default: ""
  missing_nodes:
    description: Nodes that come into slurm.conf with this deploy, but are not in this text yet; with O(verify).
    type: list
    elements: str
    default: []
  primary:
    description: Whether slurmctld runs here; elsewhere the files are kept ready and the daemon is off.
    type: bool
    default: true
  control:
    description:
      - Command that prints which of several controllers is in control, and succeeds where it is this one. A standby
        that runs is restarted with new files; only the one in control has them checked and rolled back.
      - Empty where there is one controller.
    type: list
    elements: str
    default: []
  first:
    description: Whether this controller takes control where none is; with O(control).
    type: bool
    default: true
  move_state:
    description:
      - Whether a changed StateSaveLocation is followed. slurmctld is stopped, its state copied as Slurm's user, and it
        starts with the copy; jobs continue meanwhile. Otherwise such a change is refused.
    type: bool
    default: false
  waiting_jobs:
    description:
      - What becomes of a configuration that would end waiting jobs, or leave them waiting for ever. It is V(refused);
        or they are V(held) and named, and what would end them is taken out of their request.
      - With V(kept) slurmctld is not asked about them. A restore compares them itself, and has stopped slurmctld.
    type: str
    choices: [refused, held, kept]
    default: refused
  unmet:
    description:
      - What nodes lack for this configuration (filter slurm_unmet). It is refused where that is needed for the first
        time now, and a warning where it was in force already.
    type: list
    elements: dict
    default: []
    suboptions:
      names: {description: The nodes., type: list, elements: str, required: true}
      needed_by: {description: "What needs it, a key of slurm.conf or of cluster.yml.", type: str, required: true}
      problem: {description: What is missing and where., type: str, required: true}
      new: {description: Whether it was not asked for before., type: bool, default: false}
  start_timeout:
    description: Seconds that slurmctld may take to answer after a restart, before the old configuration is put back.
    type: int
    default: 60
  directory: {description: Where slurm.conf lives., type: path, default: /etc/slurm}
  files:
    description:
      - Text of C(slurm.conf), C(gres.conf), C(cgroup.conf) and C(plugstack.conf), by name.
      - >-
        Text of C(job_container.conf), C(topology.conf), C(oci.conf) and C(job_submit.lua); without one, the managed
        file is removed.
    type: dict
    required: true
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Apply the Slurm configuration
  deepopsctl.cluster.slurm_config:
    component: slurm
    step: slurm_config
    files: "{{ slurm_conf_files }}"
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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command as node_command,
    errors as node_errors,
    files as node_files,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    adoption as slurm_adoption,
    apply_config as slurm_apply_config,
    client as slurm_client,
    effects as slurm_effects,
    slurm_output,
    spank as slurm_spank,
    unsafe_changes as slurm_unsafe_changes,
    waiting_jobs as slurm_waiting_jobs,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.apply_config import UNIT
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.effects import Change, Effect

PLUGSTACK = "plugstack.conf"
ALWAYS = ("slurm.conf", "gres.conf", "cgroup.conf", PLUGSTACK)
CONTAINER = "job_container.conf"
# slurmctld does not start without them where slurm.conf calls for their plugins
SCRIPT = "job_submit.lua"
# nothing in slurm.conf calls for it: nodes keep their copy until a reconfigure
BUNDLES = "oci.conf"
OPTIONAL = (CONTAINER, "topology.conf", BUNDLES, SCRIPT)
FOREIGN = (
    "put its text into slurm_conf_job_script in settings.yml, and remove it from the controller: deepopsctl's calls it "
    "first"
)
SPEC = {
    **node_record.STEP,
    "verify": {"type": "bool", "default": False},
    "adopt": {"type": "bool", "default": False},
    "adopt_unit": {"default": ""},
    "missing_nodes": {"type": "list", "elements": "str", "default": []},
    "primary": {"type": "bool", "default": True},
    "control": {"type": "list", "elements": "str", "default": []},
    "first": {"type": "bool", "default": True},
    "move_state": {"type": "bool", "default": False},
    "waiting_jobs": {"choices": ["refused", "held", "kept"], "default": "refused"},
    "unmet": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "names": {"type": "list", "elements": "str", "required": True},
            "needed_by": {"required": True},
            "problem": {"required": True},
            "new": {"type": "bool", "default": False},
        },
    },
    "start_timeout": {"type": "int", "default": 60},
    "directory": {"type": "path", "default": "/etc/slurm"},
    "files": {"type": "dict", "required": True},
}
TAKE_OVER = "`deepopsctl takeover` reads what the running cluster has; then deploy again"
SILENT_HINT = "see that slurmctld runs and answers (scontrol ping), then deploy again"
WAITING_HINT = (
    "let them run first, have their users change them (scontrol update jobid=NUMBER ...), or cancel them; with "
    "--hold-waiting they are held instead, unless their only partition goes, or Slurm can't change them (NUMBER+0)"
)

UNMET = "correct it there, or the setting (slurm_config in settings.yml, the node in cluster.yml); then deploy again"
HUNG = "slurmctld stopped answering when it reloaded its configuration, and was restarted"


def path_of(params: Mapping[str, Any], name: str) -> str:
    """Where a configuration file lives."""
    return os.path.join(params["directory"], name)


def desired_files(params: Mapping[str, Any]) -> dict[str, str]:
    """{path: text} of the desired files."""
    texts = params["files"]
    names = (*ALWAYS, *(name for name in OPTIONAL if texts.get(name)))
    return {path_of(params, name): texts[name] for name in names}


def current_texts(files: Mapping[str, str]) -> dict[str, str]:
    """What is in the files now."""
    return {path: (node_files.read(path) or b"").decode(errors="replace") for path in files}


def required_effect(
    files: Mapping[str, str], current: Mapping[str, str], changes: Sequence[Change]
) -> tuple[Effect, list[str]]:
    """The strongest effect of the changed files, and the keys."""
    if not current[conf_of(files)]:
        return Effect.RESTART_SLURMCTLD, ["(first configuration)"]
    effect, keys = slurm_effects.strongest(changes)
    for path in files:
        if path != conf_of(files) and current[path] != files[path]:
            keys.append(os.path.basename(path))
            if os.path.basename(path) == SCRIPT:
                # slurmctld compares its time with every job that is submitted
                continue
            # slurmctld builds its tables of generic resources at start
            effect = max(effect, Effect.RESTART_SLURMCTLD if path.endswith("gres.conf") else Effect.RECONFIGURE)
    return effect, keys


def conf_of(files: Mapping[str, str]) -> str:
    """The path of slurm.conf among the files."""
    return next(path for path in files if os.path.basename(path) == "slurm.conf")


def key_entries(changes: Sequence[Change]) -> list[dict[str, str]]:
    """The changed keys, each with its old and new value and its policy."""
    return [
        node_changes.entry(
            "key",
            change.key,
            change.action,
            detail=" -> ".join(value for value in (change.old, change.new) if value),
            policy=slurm_effects.POLICIES[change.effect],
        )
        for change in changes
    ]


def note_files(noted: node_changes.Noted, files: Mapping[str, str]) -> None:
    """The files that differ, with the difference."""
    for path, text in files.items():
        before = node_files.read(path)
        if before != text.encode():
            noted.wrote(path, before, text.encode())


def unit_entries(actions: Iterable[Any]) -> list[dict[str, Any]]:
    return [node_changes.entry("unit", UNIT, action) for action in actions if action]


def converge(
    module: AnsibleModule, files: Mapping[str, str], effect: Effect, keys: Sequence[str]
) -> tuple[Any, list[str]]:
    """Make it so, or say what would be done; returns what slurmctld needs, and warnings."""
    if not module.params["primary"]:
        return slurm_apply_config.stand_by(files, module.check_mode), []
    standby = is_standby(module.params)
    needs = slurm_apply_config.would_stand_by(effect) if standby else slurm_apply_config.would_serve(effect)
    if module.check_mode:
        return needs, []
    old = node_files.read(conf_of(files))
    first = old is None
    try:
        if standby:
            slurm_apply_config.stand_ready(files, effect, needs[0], module.params["start_timeout"])
            return needs, []
        if module.params["move_state"]:
            slurm_apply_config.copy_state(node_files.text(conf_of(files)), files[conf_of(files)])
        applied = slurm_apply_config.serve(files, effect, keys, first, module.params["start_timeout"])
        return [applied.action, *needs[1:]], [HUNG] if applied.hung else []
    except slurm_apply_config.NotAcceptedError as error:
        module.fail_json(msg=str(error), hint=error.hint)
        raise
    except OSError:
        # copy_state stopped it, and nothing of the new configuration is there
        if module.params["move_state"] and not standby and not first and node_files.read(conf_of(files)) == old:
            slurm_apply_config.systemctl(["start"], 120)
        raise


def is_standby(params: Mapping[str, Any]) -> bool:
    """Whether another controller is in control, or is the one to take it."""
    if not params["control"]:
        return False
    result = node_command.run(params["control"], 30)
    return not result.ok and (bool(result.output.strip()) or not params["first"])


def refusals(
    module: AnsibleModule, files: Mapping[str, str], current: Mapping[str, str], changes: Sequence[Change]
) -> list[tuple[str, str]]:
    """Why Slurm would not take this, or not without losing jobs: (message, hint) each."""
    problem = slurm_apply_config.syntax_error(files)
    if problem:
        hint = "correct slurm_config in inventory/group_vars/all/settings.yml, or the options in cluster.yml"
        return [(f"slurm.conf is not valid: {problem}", hint)]
    before_packages = module.check_mode or module.params["verify"]
    obstacles = slurm_spank.obstacles(
        installed(), files[path_of(module.params, PLUGSTACK)], before_packages=before_packages
    )
    if obstacles:
        return [("; ".join(obstacles), slurm_spank.HINT)]
    lacking = [entry["problem"] for entry in unmet(module.params, files, current, changes)[0]]
    if lacking:
        return [("; ".join(lacking), UNMET)]
    script = current.get(path_of(module.params, SCRIPT))
    if script and not script.encode().startswith(node_files.MANAGED):
        return [(f"{path_of(module.params, SCRIPT)} is not deepopsctl's", FOREIGN)]
    if not current[conf_of(files)] or not module.params["primary"]:
        return []
    if module.params["move_state"]:
        changes = [change for change in changes if change.key.lower() != slurm_apply_config.STATE]
    return slurm_unsafe_changes.refusals(slurm_unsafe_changes.certain(changes, module.params["missing_nodes"]))


def waiting_jobs(
    params: Mapping[str, Any],
    files: Mapping[str, str],
    current: Mapping[str, str],
    changes: Sequence[Change],
) -> list[slurm_waiting_jobs.Affected]:
    """The waiting jobs that this would end or leave waiting for ever. Raises UnreadableError."""
    conf = conf_of(files)
    asked = current[conf] and params["primary"] and params["waiting_jobs"] != "kept"
    if not (asked and slurm_waiting_jobs.concerned(changes)):
        return []
    old, new = (slurm_waiting_jobs.layout(text) for text in (current[conf], files[conf]))
    return slurm_waiting_jobs.query(old, new.lent(old, params["missing_nodes"]), slurm_client.ask)


def lost_waiting(params: Mapping[str, Any], cases: Sequence[slurm_waiting_jobs.Affected]) -> list[tuple[str, str]]:
    """Why this is refused for waiting jobs: (message, hint) each."""
    lost = [case for case in cases if case.rescue is None or params["waiting_jobs"] != "held"]
    if not lost:
        return []
    return [(f"waiting jobs would end, or wait for ever: {slurm_waiting_jobs.sentence(lost)}", WAITING_HINT)]


def hold(
    module: AnsibleModule,
    cases: Sequence[slurm_waiting_jobs.Affected],
    files: Mapping[str, Any],
    current: Mapping[str, str],
    changes: Sequence[Change],
) -> list[str]:
    """Hold the jobs without what would end them; their names."""
    problems = slurm_waiting_jobs.hold(cases, slurm_client.ask)
    left = [case for case in waiting_jobs(module.params, files, current, changes) if case.ends]
    if left:
        why = "; ".join([slurm_waiting_jobs.sentence(left), *problems])
        message = f"waiting jobs would end, and can't be held: {why}; slurm.conf was not changed"
        module.fail_json(msg=message, hint=WAITING_HINT)
    return [f"held until it is released: job {slurm_waiting_jobs.sentence([case])}" for case in cases]


def unmet(
    params: Mapping[str, Any],
    files: Mapping[str, str],
    current: Mapping[str, str],
    changes: Sequence[Change],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What nodes lack for what is new in this configuration, and for what was in force already."""
    names = {change.key.split()[0].partition("=")[0].lower() for change in changes}
    names |= {os.path.basename(path) for path in files if current[path] != files[path]}
    # of what is not a key of slurm.conf, what it changes
    aliases = {"slurm_plugstack": {PLUGSTACK}, "job_directories": {CONTAINER, "jobcontainertype", "taskprolog"}}
    fresh: list[dict[str, Any]] = []
    known: list[dict[str, Any]] = []
    for entry in params["unmet"]:
        key = entry["needed_by"].lower()
        new = entry["new"] or not current[conf_of(files)] or names & aliases.get(key, {key})
        new = new or changed_nodes(key, params, files, current, changes) & set(entry["names"])
        (fresh if new else known).append(entry)
    return fresh, known


def changed_nodes(
    key: str,
    params: Mapping[str, Any],
    files: Mapping[str, str],
    current: Mapping[str, str],
    changes: Sequence[Change],
) -> set[str]:
    """The nodes that are new, or whose lines change in this respect."""
    on_nodes = [change for change in changes if change.key.startswith("NodeName=")]
    named = {name for change in on_nodes if change.key.lower().split()[1:] in ([], [key]) for name in change.names}
    if key != "gpus":
        return named
    path = path_of(params, "gres.conf")
    before, after = (slurm_effects.definitions(text, "NodeName") for text in (current[path], files[path]))
    return named | {name for name in after if before.get(name) != after[name]}


def installed() -> str:
    """The version of Slurm's commands here."""
    return slurm_client.version()


def differences(params: Mapping[str, Any], files: Mapping[str, str], current: Mapping[str, str]) -> list[Change]:
    """What slurm.conf changes, and whether job directories change."""
    conf, container = conf_of(files), path_of(params, CONTAINER)
    changes = slurm_effects.changes(current[conf], files[conf]) if current[conf] else []
    if current.get(container) and current[container] != files[container]:
        changes.append(slurm_effects.Change(CONTAINER, "old", "new", Effect.DRAIN_FIRST))
    return changes


def obsolete(params: Mapping[str, Any], names: Iterable[str] = OPTIONAL) -> list[str]:
    """The managed files among these that are not wanted any more."""
    paths = [path_of(params, name) for name in names if not params["files"].get(name)]
    return [path for path in paths if (node_files.read(path) or b"").startswith(node_files.MANAGED)]


def remove(noted: node_changes.Noted, paths: Iterable[str]) -> list[dict[str, Any]]:
    """Remove files; what was done."""
    entries = []
    for path in paths:
        node_files.remove(noted, path)
        entries.append(noted.changes[-1])
    return entries


def remove_bundles(noted: node_changes.Noted, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Remove oci.conf before the reconfigure by which nodes hear of it, whatever ends this call in between."""
    paths = obsolete(params, [BUNDLES]) if params["primary"] else []
    if paths and not noted.dry:
        node_record.mark_pending(slurm_apply_config.RECONFIGURE, "configuration")
    return remove(noted, paths)


def adopt(module: AnsibleModule, files: Mapping[str, str]) -> None:
    """Replace a slurm.conf that deepopsctl did not write, and end the module."""
    conf = conf_of(files)
    current = node_files.read(conf)
    if current is None or current.startswith(node_files.MANAGED):
        module.exit_json(changed=False, effect="none", keys=[], changes=[])
    before = current or b""
    differing = slurm_adoption.changed_settings(conf, before, files[conf])
    problems = slurm_adoption.refusals(files[conf]) + list(filter(None, [slurm_apply_config.syntax_error(files)]))
    problems += slurm_spank.obstacles(
        installed(), files[path_of(module.params, PLUGSTACK)], before_packages=module.check_mode
    )
    if problems:
        message = f"jobs would be lost, nothing was changed: {'; '.join(problems)}"
        module.fail_json(msg=message, hint=TAKE_OVER)
    if not module.check_mode:
        try:
            with node_errors.fail_on_error(module.fail_json):
                slurm_adoption.install(files, module.params["adopt_unit"])
        except slurm_apply_config.NotAcceptedError as error:
            module.fail_json(msg=str(error), hint=error.hint)
    changes = [node_changes.entry("file", path, "write", detail="adopted") for path in files]
    changes += key_entries(differing)
    changes.append(node_changes.entry("unit", UNIT, "restart", detail="adopted"))
    diff = {
        "before_header": conf,
        "after_header": conf,
        "before": before.decode(errors="replace"),
        "after": files[conf],
    }
    module.exit_json(changed=True, effect="restart_slurmctld", keys=[], changes=changes, diff=[diff])


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    missing = [name for name in ALWAYS if name not in params["files"]]
    if missing:
        module.fail_json(msg=f"files has no {', '.join(missing)}")
    files = desired_files(params)
    if params["adopt"]:
        adopt(module, files)
    current = current_texts(files)
    dry, conf = module.check_mode or params["verify"], current[conf_of(files)]
    if dry and conf and not conf.encode().startswith(node_files.MANAGED):
        # a person's, with lines that only slurmctld can add up: the task with `adopt` reports what happens to it
        module.exit_json(changed=True, effect="restart_slurmctld", keys=[], changes=[], diff=[])
    differing = differences(params, files, current)
    blocked = refusals(module, files, current, differing)
    try:
        cases = [] if blocked else waiting_jobs(params, files, current, differing)
    except slurm_output.UnreadableError as error:
        cases = []
        blocked = [(f"waiting jobs may end, and Slurm does not say which: {error}", SILENT_HINT)]
    blocked += lost_waiting(params, cases)
    if blocked and not module.check_mode:
        message, hint = blocked[0]
        module.fail_json(msg=f"{message}; nothing was changed", hint=hint)
    if params["verify"]:
        module.exit_json(changed=False, effect="none", keys=[], changes=[])
    effect, keys = required_effect(files, current, differing)
    noted = node_changes.Noted(module.check_mode)
    note_files(noted, files)
    entries = noted.changes + key_entries(differing)
    if params["waiting_jobs"] == "held":
        entries += [node_changes.entry("job", case.job.id, "hold", detail=case.reason) for case in cases]
    held = [] if module.check_mode else hold(module, cases, files, current, differing) if cases else []
    with node_errors.fail_on_error(module.fail_json, "the old configuration is still in force: %s"):
        removed = remove_bundles(noted, params)
        if removed:
            effect, keys = max(effect, Effect.RECONFIGURE), [*keys, BUNDLES]
        effect = slurm_apply_config.with_pending(effect)
        needs, warnings = converge(module, files, effect, keys)
        entries += removed + unit_entries(needs)
    entries += remove(noted, [path for path in obsolete(params) if path not in {entry["name"] for entry in removed}])
    result = {"effect": effect.name.lower(), "keys": keys, "changed": bool(entries), "changes": entries}
    result["diff"] = noted.diffs
    warnings += [entry["problem"] for entry in unmet(params, files, current, differing)[1]]
    if module.check_mode:
        answer = node_changes.refused(blocked)
        module.exit_json(**{**result, **answer, "deepops_warnings": [*answer["deepops_warnings"], *warnings]})
    record = node_record.items(files=files, units={UNIT: params["primary"]})
    node_record.save(params["component"], params["step"], params["digest"], record)
    module.exit_json(deepops_warnings=held + warnings, **result)


if __name__ == "__main__":
    main()
