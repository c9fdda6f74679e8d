"""Fill in what every call of a module that keeps a record on the node would have to say, and render its templates.

The module of the same name, and those that meta/runtime.yml sends here, get

* `component` and `step` from `meta/steps.yml` of the role that calls (a role with several steps says which one it is),
* `digest` from the variable `deepops_digests`; a play of a site that uses single roles has none, and gets `roles`,
* `files` with what `templates` render to: here, as ansible.builtin.template does, so that the node is called once,
* packages, directories, files, templates and units of `parts`, one after the other.

What a call says itself is taken as it is.
"""

from __future__ import annotations

import functools
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template

STEPS_FILE = "meta/steps.yml"
# lists of a part that are those of all parts together
OF_A_PART = ("packages", "directories", "files", "templates")
# the digest of records where no deploy gives one: not that of any desired state
DIGEST_OF_ROLES = "roles"


class ActionModule(ActionBase):
    """One call of the module on the node, as if there were no action plugin."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        return {**result, **self._execute_module(module_args=self.arguments(task_vars), task_vars=task_vars)}

    def arguments(self, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the module: what the task leaves out is filled in, and its templates are files."""
        return self.filled(with_step(self._task, self._task.args, self._templar, task_vars), task_vars)

    def filled(self, arguments: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their parts joined, and their templates as files."""
        arguments = with_parts(arguments)
        files = [self._render(template, task_vars) for template in arguments.pop("templates", None) or []]
        if not files:
            return arguments
        return {**arguments, "files": [*(arguments.get("files") or []), *files]}

    def _render(self, options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """An entry of `files` for one of `templates`."""
        entry = dict(options)
        try:
            source, path = entry.pop("src"), entry.pop("dest")
        except KeyError as error:
            raise AnsibleActionFail(f"an entry of `templates` has no {error}: {sorted(entry)}") from error
        # as ansible.builtin.template does it: the lookup of that name copies all variables in depth, for each template
        file = self._find_needle("templates", source)
        template = trust_as_template(self._loader.get_text_file_contents(file))
        variables = {"ansible_managed": "Ansible managed", **task_vars, **entry.pop("vars", {})}
        templar = self._templar.copy_with_new_env(searchpath=[str(Path(file).parent)], available_variables=variables)
        text = str(templar.template(template, escape_backslashes=False))
        if entry.pop("secret", False):
            return {"path": path, "secret_base64": b64encode(text.encode()).decode(), **entry}
        return {"path": path, "block" if entry.pop("block", False) else "content": text, **entry}


def with_step(task: Any, own: Mapping[str, Any], templar: Any, task_vars: Mapping[str, Any]) -> dict[str, Any]:
    """A task's own arguments with `component`, `step` and `digest`; its own values win."""
    arguments = {**(names_of(task._role._role_path) if task._role else {}), **own}
    digests = templar.template(task_vars["deepops_digests"]) if "deepops_digests" in task_vars else None
    digest = DIGEST_OF_ROLES if digests is None else str(digests.get(arguments.get("component"), ""))
    return {"digest": digest, **arguments}


def with_parts(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with what their parts are made of; a unit restarts for its part's files, or for what it names."""
    if "parts" not in arguments:
        return arguments
    *others, parts = (arguments.get(name) or [] for name in (*OF_A_PART, "parts"))
    joined = {
        name: [*own, *(each for part in parts for each in part.get(name) or [])]
        for name, own in zip(OF_A_PART, others, strict=True)
    }
    units = [*(arguments.get("units") or []), *(unit for part in parts for unit in _units(part))]
    return {
        **{name: value for name, value in arguments.items() if name != "parts"},
        **joined,
        "packages": list(dict.fromkeys(joined["packages"])),
        # several parts may bring the same program
        "files": list({file["path"]: file for file in joined["files"]}.values()),
        "units": units,
        # the packages must not start them before their files are there
        "hold_units": [unit["name"] for unit in units],
    }


def _units(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    files = [file["path"] for file in part.get("files") or []]
    restart_on = [*files, *(each["dest"] for each in part.get("templates") or []), *(part.get("restart_on") or [])]
    yield from ({"restart_on": restart_on, **unit} for unit in part.get("units") or [])


@functools.cache
def names_of(role: str) -> dict[str, str]:
    """`component`, and `step` where there is only one, of a role's directory."""
    path = Path(role) / STEPS_FILE
    if not path.is_file():
        return {}
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    steps = written["steps"]
    return {"component": written["component"], **({"step": steps[0]} if len(steps) == 1 else {})}
