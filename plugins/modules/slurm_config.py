#!/usr/bin/python
"""Put a new Slurm configuration in force on a controller, with the smallest effect that will do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Check, install and apply slurm.conf, gres.conf and cgroup.conf on a controller
description:
  - The new slurm.conf is parsed by Slurm itself before it replaces the old one.
  - Nodes on which jobs run are not taken out of the configuration, Slurm would kill those jobs.
  - What changed decides what happens, from nothing over C(scontrol reconfigure) to a restart of slurmctld.
    Running jobs survive each of them. Changes that would lose jobs are refused.
  - When slurmctld does not come back with the new configuration, the old one is put back.
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  primary:
    description: Whether slurmctld runs here; elsewhere the files are kept ready and the daemon is off.
    type: bool
    default: true
  folder: {description: Where slurm.conf lives., type: path, default: /etc/slurm}
  slurm_conf: {description: Text of slurm.conf., type: str, required: true}
  gres_conf: {description: Text of gres.conf., type: str, required: true}
  cgroup_conf: {description: Text of cgroup.conf., type: str, required: true}
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
"""

import os
import re
import shutil
import subprocess
import tempfile
import time

from ansible.module_utils import node_files, node_record, node_units
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slurm_effects import Effect, effect_of

UNIT = "slurmctld.service"
RECONFIGURE = "slurmctld.reconfigure"


def run(argv, environment=None, seconds=60):
    """(exit status, combined output) of a command."""
    try:
        result = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            env=dict(os.environ, **(environment or {})),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "no answer within %d s" % seconds
    except OSError as error:
        return 127, str(error)
    return result.returncode, result.stdout.strip()


def syntax_error(files):
    """What Slurm's own parser says about the new files; '' when they are good."""
    if not shutil.which("scontrol"):
        return ""
    folder = tempfile.mkdtemp(prefix="deepopsctl-slurm-")
    try:
        for path, content in files.items():
            with open(os.path.join(folder, os.path.basename(path)), "w") as stream:
                stream.write(content)
        # parses the whole file, needs no daemon and touches none
        candidate = os.path.join(folder, "slurm.conf")
        status, output = run(["scontrol", "show", "hostnames", "x"], {"SLURM_CONF": candidate})
        return output.replace(folder, "(new)") if status else ""
    finally:
        shutil.rmtree(folder)


def required_effect(files, folder):
    """The strongest effect of the changed files, and the keys."""
    current = {path: (node_files.read(path) or b"").decode(errors="replace") for path in files}
    conf = os.path.join(folder, "slurm.conf")
    effect, keys = effect_of(current[conf], files[conf])
    if not current[conf]:
        return Effect.RESTART_SLURMCTLD, ["(first configuration)"]
    others = [path for path in files if path != conf and current[path] != files[path]]
    for path in others:
        keys.append(os.path.basename(path))
        # slurmctld builds its tables of generic resources at start
        least = Effect.RESTART_SLURMCTLD if path.endswith("gres.conf") else Effect.RECONFIGURE
        effect = max(effect, least)
    return effect, keys


def hostnames(conf):
    """All nodes of a slurm.conf's NodeName lines."""
    expressions = re.findall(r"^NodeName=(\S+)", conf, re.MULTILINE | re.IGNORECASE)
    if not expressions:
        return set()
    status, output = run(["scontrol", "show", "hostnames", ",".join(expressions)])
    return set(output.split()) if status == 0 else set()


def jobs_on_removed_nodes(old, new):
    """(nodes, job ids) that the new slurm.conf would drop with jobs on them."""
    removed = sorted(hostnames(old) - hostnames(new)) if old and shutil.which("squeue") else []
    if not removed:
        return [], []
    nodes = ",".join(removed)
    status, output = run(["squeue", "--noheader", "--format=%A", "--states=R,CG,S", "--nodelist", nodes])
    return removed, sorted(set(output.split())) if status == 0 else []


def controller_answers(seconds):
    """True once this host's slurmctld answers as primary or backup."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status, output = run(["scontrol", "ping"], seconds=20)
        if status == 0 and " UP" in output.upper():
            return True
        if node_units.show([UNIT])[UNIT].get("ActiveState") == "failed":
            return False
        time.sleep(0.2)
    return False


def apply(effect, first):
    """Make slurmctld use the files on disk. Returns (action, error)."""
    active = node_units.show([UNIT])[UNIT].get("ActiveState") == "active"
    if active and effect == Effect.NONE:
        return "", ""
    if active and effect == Effect.RECONFIGURE:
        status, output = run(["scontrol", "reconfigure"], seconds=120)
        return "reconfigured Slurm", output if status else ""
    run(["systemctl", "reset-failed", UNIT])
    status, output = run(["systemctl", "restart", UNIT], seconds=120)
    if status or not controller_answers(60):
        return "", "slurmctld does not answer: %s\n%s" % (output, node_units.last_words(UNIT))
    if not first:
        # configless slurmds fetch the new files only when they are told to
        run(["scontrol", "reconfigure"], seconds=120)
    return "%s slurmctld.service" % ("restarted" if active else "started"), ""


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


def put_back(old, effect):
    """The old configuration, in force again."""
    for path, content in old.items():
        if content is None:
            os.unlink(path)
        else:
            node_files.write(path, content, (0, 0), 0o644, [])
    apply(max(effect, Effect.RECONFIGURE), first=True)


def clear_pending():
    node_record.clear_pending(UNIT)
    node_record.clear_pending(RECONFIGURE)


def file_diffs(files):
    return [
        {
            "before": (node_files.read(path) or b"").decode(errors="replace"),
            "after": content,
            "before_header": path,
            "after_header": path,
        }
        for path, content in files.items()
        if node_files.read(path) != content.encode()
    ]


def stand_by(files):
    """Keep the files ready on a controller that does not serve."""
    diffs = file_diffs(files)
    install(files, Effect.NONE)
    actions = ["wrote %s" % diff["after_header"] for diff in diffs]
    facts = node_units.show([UNIT])[UNIT]
    if facts.get("ActiveState") == "active" or facts.get("UnitFileState") == "enabled":
        run(["systemctl", "disable", "--now", "--quiet", UNIT], seconds=120)
        actions.append("stopped and disabled %s" % UNIT)
    return actions, diffs


def converge(module, files, effect, keys):
    """Install and apply; fail with the old configuration back in force."""
    if not module.params["primary"]:
        return stand_by(files)
    old = {path: node_files.read(path) for path in files}
    first = old[os.path.join(module.params["folder"], "slurm.conf")] is None
    enabled = node_units.is_enabled(node_units.show([UNIT])[UNIT])
    if not enabled:
        run(["systemctl", "enable", "--quiet", UNIT])
    diffs = file_diffs(files)
    install(files, effect)
    action, error = apply(effect, first)
    if error:
        hint = "see `journalctl -u slurmctld` on the controller"
        if not first:
            put_back(old, effect)
            hint = "the old configuration is in force again; correct %s and deploy again" % ", ".join(keys)
        clear_pending()
        module.fail_json(msg="Slurm did not accept the new configuration: %s" % error, hint=hint)
    clear_pending()
    actions = ["wrote %s" % diff["after_header"] for diff in diffs] + ([action] if action else [])
    return actions + ([] if enabled else ["enabled %s" % UNIT]), diffs


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "step": {"required": True},
            "digest": {"default": ""},
            "primary": {"type": "bool", "default": True},
            "folder": {"type": "path", "default": "/etc/slurm"},
            "slurm_conf": {"required": True},
            "gres_conf": {"required": True},
            "cgroup_conf": {"required": True},
        },
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    files = {
        os.path.join(folder, "%s.conf" % name): module.params["%s_conf" % name] for name in ("slurm", "gres", "cgroup")
    }
    problem = syntax_error(files)
    if problem:
        module.fail_json(
            msg="slurm.conf is not valid, nothing was changed: %s" % problem,
            hint="correct slurm_config in inventory/group_vars/all/settings.yml, or the options in cluster.yml",
        )
    effect, keys = required_effect(files, folder)
    if effect == Effect.REFUSED:
        module.fail_json(
            msg="changing %s would lose running jobs, nothing was changed" % ", ".join(keys),
            hint="put the old value back; moving a live cluster's name or state is not supported",
        )
    conf = os.path.join(folder, "slurm.conf")
    removed, jobs = jobs_on_removed_nodes((node_files.read(conf) or b"").decode(errors="replace"), files[conf])
    if jobs:
        module.fail_json(
            msg="taking %s out of slurm.conf would kill jobs %s, nothing was changed"
            % (", ".join(removed), ", ".join(jobs)),
            hint="drain them and wait (scontrol update nodename=%s state=drain reason=removal), then deploy again"
            % ",".join(removed),
        )
    effect = with_pending(effect)
    if module.check_mode:
        diffs = file_diffs(files)
        module.exit_json(changed=bool(diffs), effect=effect.name.lower(), keys=keys, actions=[], diff=diffs)
    try:
        actions, diffs = converge(module, files, effect, keys)
    except OSError as error:
        message, hint = node_files.trouble(error)
        module.fail_json(msg="the old configuration is still in force: %s" % message, hint=hint)
    items = {"packages": {}, "directories": {}, "units": {UNIT: module.params["primary"]}}
    items["files"] = {path: node_record.file_facts(path) for path in files}
    node_record.save(module.params["component"], module.params["step"], module.params["digest"], items)
    module.exit_json(changed=bool(actions), effect=effect.name.lower(), keys=keys, actions=actions, diff=diffs)


if __name__ == "__main__":
    main()
