#!/usr/bin/python
"""Verify on the monitoring host that Prometheus scrapes what it should."""

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_scraped
short_description: Verify that Prometheus scrapes its targets
description:
  - Asks Prometheus which of the wanted targets it scrapes well, and waits for those that it has not asked yet, or not
    since something was restarted. One that it cannot scrape is named with Prometheus' own reason.
options:
  plan:
    description: >-
      Where Prometheus answers, and the targets of nodes that are there, as the filter C(monitoring_scraped_plan) makes
      it.
    type: dict
    required: true
  password: {description: The password of Prometheus., type: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Verify that Prometheus scrapes its targets
  deepopsctl.cluster.monitoring_scraped:
    plan: "{{ deepops_monitoring_watched | deepopsctl.cluster.monitoring_scraped_plan(groups, ['ctl1', 'gpu01']) }}"
    password: "{{ monitoring_web_password }}"
"""

RETURN = r"""
targets: {description: How many there are., type: int, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_monitoring import targets, web


def main():
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "password": {"required": True, "no_log": True},
        },
        supports_check_mode=True,
    )
    plan = module.params["plan"]
    wanted = [targets.Wanted(**target) for target in plan["targets"]]
    if module.check_mode:
        module.exit_json(changed=False, targets=len(wanted))
    prometheus = web.Prometheus(web.Service(plan["prometheus"], plan["user"], module.params["password"]))
    try:
        problems = targets.problems(prometheus, wanted)
    except web.NoAnswer as why:
        module.fail_json(
            msg="Prometheus at %s does not answer: %s" % (plan["prometheus"], why),
            hint="see `journalctl -u prometheus` on this node",
        )
    if problems:
        more = len(problems) - 10
        shown = problems[:10] + (["and %d more" % more] if more > 0 else [])
        module.fail_json(
            msg="Prometheus cannot scrape: %s" % "; ".join(shown),
            hint="see the exporter's unit on the node, and a firewall between it and this node",
        )
    module.exit_json(changed=False, targets=len(wanted))


if __name__ == "__main__":
    main()
