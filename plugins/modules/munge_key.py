#!/usr/bin/python
"""Replace a node's munge key in two steps, so that all nodes can change theirs within a second of each other."""

from __future__ import annotations

DOCUMENTATION = r"""
module: munge_key
short_description: Stage a new munge key, put it in force, and try whether the nodes understand each other
description:
  - C(stage) writes the new key next to the active one. What can fail (a full disk, no munge) fails here, where nothing
    has changed.
  - C(swap) activates it and restarts munged; the previous key is saved next to it. It can be repeated after an
    interruption.
  - C(sign) makes a credential and C(verify) decodes one that another node made.
  - What C(stage) and C(swap) leave next to the key is removed by the next deploy.
options:
  action: {description: What to do., type: str, choices: [stage, swap, sign, verify], required: true}
  key: {description: "The new key in base64; for C(stage) and C(swap).", type: str, default: ""}
  credential: {description: What C(sign) returned on another node., type: str, default: ""}
  signer: {description: That node., type: str, default: ""}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Stage the new munge key
  deepopsctl.cluster.munge_key: {action: stage, key: "{{ munge_key_next }}"}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
credential: {description: A credential that only root can decode and Slurm accepts nowhere., type: str, returned: sign}
"""

import base64

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import readiness as slurm_readiness
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.detect import MUNGE_KEY

UNIT = "munge.service"
NEXT = MUNGE_KEY + ".deepopsctl-next"
PREVIOUS = MUNGE_KEY + ".deepopsctl-previous"
# how long a munged that was restarted may take to answer
ANSWER_S = 30


def write(path: str, content: bytes, ids: tuple[int, int] | None) -> None:
    node_files.write(path, content, ids, 0o400, [])


def stage(module: AnsibleModule, noted: node_changes.Noted, key: bytes, ids: tuple[int, int] | None) -> None:
    """Write the new key next to the old one, where munge works with the old one."""
    if not node_services.is_active(node_services.show([UNIT])[UNIT]):
        module.fail_json(
            msg="munge does not run", hint="`deepopsctl deploy slurm` starts it; see `journalctl -u munge`"
        )
    if node_files.read(MUNGE_KEY) != key and node_files.differs(NEXT, key, ids, 0o400):
        noted.wrote_secret(NEXT, node_files.read(NEXT))
        if not noted.dry:
            write(NEXT, key, ids)


def swap(module: AnsibleModule, noted: node_changes.Noted, key: bytes, ids: tuple[int, int] | None) -> None:
    """The new key in force, also where an earlier call was cut off anywhere."""
    before = node_files.read(MUNGE_KEY)
    if before != key:
        noted.wrote_secret(MUNGE_KEY, before)
        if not noted.dry:
            if before:
                write(PREVIOUS, before, ids)
            # a kill right after the change must not leave munged with the old key for good
            node_record.mark_pending(UNIT, MUNGE_KEY)
            write(MUNGE_KEY, key, ids)
    if not noted.changes and not node_record.is_pending(UNIT):
        return
    noted.did("unit", UNIT, "restart")
    if not noted.dry:
        restart(module)
        node_record.clear_pending(UNIT)


def restart(module: AnsibleModule) -> None:
    """munged with the key that is on disk, tried by itself."""
    failed, output = slurm_readiness.run_merged(["systemctl", "restart", UNIT], seconds=90)
    if not failed:
        pipe = ["sh", "-c", "munge --no-input | unmunge --no-output"]
        failed, output = wait_until(
            lambda: slurm_readiness.run_merged(pipe), ANSWER_S, 0.2, lambda answer: not answer[0]
        )
    if not failed:
        return
    words = slurm_readiness.last_line(output)
    module.fail_json(msg=f"munge does not work with the new key: {words}", hint="see `journalctl -u munge` there")


def verify(module: AnsibleModule, credential: str, signer: str) -> None:
    _status, output = slurm_readiness.run_merged(["unmunge"], text=credential)
    wrong = slurm_readiness.credential_sentence(output, signer)
    if wrong:
        module.fail_json(msg=wrong, hint="see `journalctl -u munge` there")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "action": {"choices": ["stage", "swap", "sign", "verify"], "required": True},
            "key": {"default": "", "no_log": True},
            "credential": {"default": "", "no_log": True},
            "signer": {"default": ""},
        },
        required_if=[("action", "stage", ["key"]), ("action", "swap", ["key"]), ("action", "verify", ["credential"])],
        supports_check_mode=True,
    )
    action, noted = module.params["action"], node_changes.Noted(module.check_mode)
    if action == "sign":
        module.exit_json(changed=False, changes=[], credential=slurm_readiness.credential())
    if action == "verify":
        verify(module, module.params["credential"], module.params["signer"])
        module.exit_json(changed=False, changes=[])
    ids = node_files.owner_ids("munge", "munge")
    if ids is None:
        module.fail_json(msg="munge is not installed", hint="`deepopsctl deploy slurm` first")
    key = base64.b64decode("".join(module.params["key"].split()))
    with node_errors.fail_on_error(module.fail_json):
        (stage if action == "stage" else swap)(module, noted, key, ids)
    module.exit_json(**noted.result())


if __name__ == "__main__":
    main()
