#!/usr/bin/python
"""Put deepopsctl's configuration in the place of a hand-made one, under the jobs that run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_adopt
short_description: Replace a hand-made slurm.conf on a controller whose Slurm was taken over
description:
  - Does nothing where slurm.conf is deepopsctl's already, or missing.
  - What its lines come to, only slurmctld knows (includes, defaults of its version), so it is asked. Another cluster
    name, state directory, select or switch plugin would lose all jobs; another count of sockets, cores or threads, or a
    node that is left out, would end the jobs there. Each of these is refused before anything is touched.
  - The old files are saved next to the new ones, and restored when slurmctld does not start.
options:
  folder: {description: Where slurm.conf lives., type: path, default: /etc/slurm}
  slurm_conf: {description: Text of slurm.conf., type: str, required: true}
  gres_conf: {description: Text of gres.conf., type: str, required: true}
  cgroup_conf: {description: Text of cgroup.conf., type: str, required: true}
  job_container_conf: {description: Text of job_container.conf; empty for no such file., type: str, default: ""}
  topology_conf: {description: Text of topology.conf; empty for no such file., type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Adopt the running Slurm
  deepopsctl.cluster.slurm_adopt:
    slurm_conf: "{{ slurm_conf_text }}"
    gres_conf: "{{ slurm_conf_gres }}"
    cgroup_conf: "{{ slurm_conf_cgroup }}"
"""

RETURN = r"""
actions: {description: What was done., type: list, elements: str, returned: always}
changes: {description: The same as data., type: list, elements: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import slurmtext
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    adoption as slurm_adoption,
    apply_config as slurm_apply_config,
    commands as slurm_commands,
    config_files as slurm_config_files,
    detect as slurm_detect,
    parse as slurm_parse,
    query as slurm_query,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.apply_config import UNIT
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.effects import Effect

SUFFIX = ".before-deepopsctl"
START_TIMEOUT_S = 120
TAKE = "`deepopsctl takeover` reads what the running cluster has; then deploy again"


def refusals(files, conf):
    """Everything that speaks against it."""
    worked, shown = slurm_query.run("scontrol", "show", "config")
    if not worked:
        return ["slurmctld does not answer: %s" % " ".join(shown.split())]
    text = files[conf]
    problems = slurm_adoption.lost_settings(slurmtext.config(shown), text)
    answered, nodes = slurm_query.run(*slurm_query.SHOW_NODES)
    listed, queue = slurm_query.run(*slurm_query.SHOW_JOBS)
    if not (answered and listed):
        return ["slurmctld does not answer: %s" % " ".join((queue if answered else nodes).split())]
    try:
        problems += slurm_adoption.lost_jobs(nodes, queue, text)
    except slurm_parse.UnreadableError as error:
        problems.append(str(error))
    problem = slurm_commands.syntax_error(files)
    return problems + ([problem] if problem else [])


def install(module, files):
    """Write the new files and restart slurmctld; the old ones are back in force where that fails."""
    old = {path: node_files.read(path) for path in files}
    for path, content in old.items():
        if content is not None:
            node_files.write(path + SUFFIX, content, (0, 0), 0o644, [])
    # noted on disk: where this is cut off, the next deploy restarts slurmctld
    slurm_apply_config.install(files, Effect.RESTART_SLURMCTLD)
    error = slurm_apply_config.apply(Effect.RESTART_SLURMCTLD, True, START_TIMEOUT_S).error
    hint = slurm_apply_config.roll_back(old, Effect.RESTART_SLURMCTLD, START_TIMEOUT_S) if error else ""
    slurm_apply_config.clear_pending()
    if error:
        module.fail_json(
            msg="Slurm did not accept the new configuration: %s" % error,
            hint="%s; see `journalctl -u slurmctld` on the controller" % hint,
        )


def main():
    module = AnsibleModule(argument_spec=slurm_config_files.OPTIONS, supports_check_mode=True)
    files = slurm_config_files.files_of(module.params)
    conf = slurm_config_files.path_of(module.params, "slurm")
    current = node_files.read(conf)
    if current is None or current.startswith(slurm_detect.OURS):
        module.exit_json(changed=False, actions=[], changes=[])
    problems = refusals(files, conf)
    if problems:
        module.fail_json(msg="the running jobs would be lost, nothing was changed: %s" % "; ".join(problems), hint=TAKE)
    if not module.check_mode:
        install(module, files)
    changes = [{"kind": "file", "name": path, "action": "write", "detail": "adopted"} for path in files]
    changes.append({"kind": "unit", "name": UNIT, "action": "restart", "detail": "adopted"})
    diff = [
        {"before_header": conf, "after_header": conf, "before": current.decode(errors="replace"), "after": files[conf]}
    ]
    module.exit_json(changed=True, actions=["adopted %s, restarted %s" % (conf, UNIT)], changes=changes, diff=diff)


if __name__ == "__main__":
    main()
