#!/usr/bin/python
"""Let one control machine work on a cluster at a time, and none with an older cluster.yml."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_claim
short_description: Claim the cluster for a run, or release it
description:
  - Runs on the first controller, and keeps there who works on the cluster and which cluster.yml was applied last.
  - C(taken) is refused where another control machine is at work, or where this cluster.yml would undo a newer one's
    changes; that is an answer and no failure. In check mode nothing is changed, and what would be refused is shown.
  - C(released) notes which components were deployed.
  - C(shown) claims nothing; a clone that has the cluster.yml applied last is remembered, but in check mode.
options:
  state: {description: What to do., type: str, required: true, choices: [taken, released, shown]}
  claim:
    description: Who asks, with which cluster.yml; C(deepopsctl) fills it in.
    type: dict
    required: true
  components: {description: "C(released): what this run deployed.", type: list, elements: str, default: []}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Claim the cluster for this run
  deepopsctl.cluster.cluster_claim: {state: taken, claim: "{{ deepops_claim }}"}
"""

RETURN = r"""
deepops:
  description:
    - C(claim) with C(state), C(refused) (C(busy), C(outdated) or empty), the C(holder) of the lock, C(warnings), and
      the C(components) that are deployed; C(blocked) in a plan.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import control_claim


def answer(state, refusal=None, warnings=(), components=()):
    result = {
        "state": state,
        "refused": refusal.reason if refusal else "",
        "message": str(refusal) if refusal else "",
        "hint": refusal.hint if refusal else "",
        "holder": refusal.holder if refusal else {},
        "warnings": list(warnings),
        "components": list(components),
    }
    return {"claim": result}


def show(module, claim):
    """Report what would refuse this run, without taking the lock."""
    refusals, warnings = control_claim.inspect(claim)
    result = answer("shown", refusals[0] if refusals else None, warnings, control_claim.components())
    plans = module.params["state"] == "taken" and claim["command"].endswith(" plan")
    if plans:
        result["blocked"] = [
            {"message": str(refusal), "hint": refusal.hint} for refusal in refusals if refusal.reason == "outdated"
        ]
    module.exit_json(changed=False, deepops=result)


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"required": True, "choices": ["taken", "released", "shown"]},
            "claim": {"type": "dict", "required": True},
            "components": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    claim, state = module.params["claim"], module.params["state"]
    try:
        if state == "shown" and not module.check_mode:
            control_claim.note_clone(claim)
        if module.check_mode or state == "shown":
            show(module, claim)
        if state == "released":
            warnings = control_claim.release(claim, module.params["components"])
        else:
            warnings = control_claim.acquire(claim)
    except control_claim.RefusedError as error:
        module.exit_json(changed=False, deepops=answer("refused", error))
    except OSError as error:
        module.fail_json(msg="cannot write %s: %s" % (error.filename, error.strerror), hint="is its disk full?")
    module.exit_json(changed=False, deepops=answer(state, None, warnings))


if __name__ == "__main__":
    main()
