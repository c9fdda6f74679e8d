"""One call of a module that manages a step of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    ownership as node_ownership,
    record as node_record,
)

if TYPE_CHECKING:
    # a node has none of it outside a module: questions.py runs without
    from ansible.module_utils.basic import AnsibleModule


class Step:
    """One call of a module: what is wanted, what was done, and what the record will say."""

    def __init__(self, module: AnsibleModule, wanted: dict[str, Any] | None = None) -> None:
        self.module = module
        self.wanted = module.params if wanted is None else wanted
        self.actions: list[str] = []
        self.noted = node_changes.Noted(module.check_mode)
        self.record = node_record.items()
        # what an earlier call of this step has installed
        self.owned = node_ownership.load(self.wanted["component"], self.wanted["step"])
        # what check mode would refuse: (message, hint) each
        self.blocked: list[tuple[str, ...]] = []

    @property
    def dry(self) -> bool:
        """Whether this is check mode: nothing may be changed."""
        return self.noted.dry

    def did(self, sentence: str, type_name: str, name: str, action: str, **more: Any) -> None:
        """Report a change, as a sentence for `actions` and as an entry for `changes`."""
        self.actions.append(sentence)
        self.noted.did(type_name, name, action, **more)

    def fail(self, message: str, hint: str = "") -> None:
        """End the module with what went wrong and what to do; what was changed until then is reported."""
        changes = self.noted.changes
        self.module.fail_json(msg=message, hint=hint, actions=self.actions, changes=changes, changed=bool(changes))

    def save_owned(self) -> None:
        """Remember what is managed: before it is installed, so that an interrupted run loses nothing."""
        if not self.dry:
            node_ownership.save(self.wanted["component"], self.wanted["step"], self.owned)

    def save_record(self, record: Mapping[str, Any] | None = None) -> None:
        """Remember that the step is done, and what it left on the node."""
        if not self.dry:
            items = self.record if record is None else record
            node_record.save(self.wanted["component"], self.wanted["step"], self.wanted["digest"], items)
