"""Build environments on a node, with wheels that were fetched here where the wheelhouse lacks them."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Mapping
from typing import Any

import ansible_collections.deepopsctl.cluster.plugins.plugin_utils.package  # noqa: F401 (what comes next needs it)
from ansible.errors import AnsibleActionFail
from ansible_collections.deepopsctl.cluster.plugins.action import node_program

from deepopsctl.environment.environments import fetch_locked
from deepopsctl.environment.wheels import Target, Wheel
from deepopsctl.errors import DeepOpsError
from deepopsctl.gpus.wheels import cache_directory

ARGUMENTS = {
    "directory": {"type": "path", "required": True},
    "wheelhouse": {"type": "path", "required": True},
    "environments": {"type": "list", "elements": "dict", "required": True},
    "fetch": {"type": "bool", "default": False},
    "build": {"type": "bool", "default": True},
}
Result = dict[str, Any]
# bytes of a wheel that is copied alone; all smaller ones come as one archive, as each copy is a round trip
LARGE = 16 * 2**20


class ActionModule(node_program.ActionModule):
    """The node is asked first; one that has everything costs one call."""

    TRANSFERS_FILES = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> Result:
        result: Result = super(node_program.ActionModule, self).run(tmp, task_vars)
        _, params = self.validate_argument_spec(ARGUMENTS)
        self._name = "environments"
        asked = self._ask("missing", params)
        if asked.get("failed") or not asked["absent"]:
            return {**result, "changed": False, "changes": [], **asked}
        if self._task.check_mode:
            changes = [_change(name) for name in asked["absent"]] if params["build"] else []
            return {**result, "changed": bool(changes or (params["fetch"] and asked["missing"])), "changes": changes}
        if asked["missing"] and params["fetch"]:
            failure = self._bring(asked["missing"], params)
            if failure:
                return {**result, **failure}
        elif asked["missing"]:
            raise AnsibleActionFail(_lacking(params["wheelhouse"], asked["missing"]))
        if not params["build"]:
            return {**result, "changed": bool(asked["missing"]), "changes": []}
        done = self._ask("install", params)
        changes = [_change(each["name"], each["packages"]) for each in done.pop("built", [])]
        return {**result, "changed": bool(changes), "changes": changes, **done}

    def _ask(self, phase: str, params: Mapping[str, Any], **more: Any) -> Result:
        request = {key: params[key] for key in ("directory", "wheelhouse", "environments")}
        return self._call({**request, "phase": phase, "check_mode": self._task.check_mode, **more})

    def _bring(self, missing: Mapping[str, str], params: Mapping[str, Any]) -> Result:
        """Fetch wheels, copy and save them; what failed, or nothing."""
        directory = self._make_tmp_path()
        try:
            fetched = self._fetched(missing, params["environments"])
            small = {file: path for file, path in fetched.items() if os.path.getsize(path) < LARGE}
            large = {file: path for file, path in fetched.items() if file not in small}
            arrived = {self._copy(path, directory, file): missing[file] for file, path in large.items()}
            archives = {}
            if small:
                with tempfile.NamedTemporaryFile() as file:
                    _pack(small, file.name)
                    path = self._copy(file.name, directory, "wheels.tar")
                archives[path] = {name: missing[name] for name in small}
            done = self._ask("store", params, arrived=arrived, archives=archives)
        except DeepOpsError as error:
            raise AnsibleActionFail("; ".join(filter(None, (error.message, error.hint)))) from error
        finally:
            self._remove_tmp_path(directory)
        return done if done.get("failed") else {}

    def _copy(self, path: str, directory: str, name: str) -> str:
        """A file's path on the node, in its temporary directory."""
        return str(self._transfer_file(path, self._connection._shell.join_path(directory, name)))

    @staticmethod
    def _fetched(missing: Mapping[str, str], environments: list[dict[str, Any]]) -> dict[str, str]:
        cache, fetched = cache_directory(os.environ), {}
        for each in environments:
            wheels = {**each["installer"], **each["wheels"]}
            wanted = [Wheel(file, sha256) for file, sha256 in wheels.items() if file in missing and file not in fetched]
            target = Target(each["python"], each["machine"], int(each["glibc"]))
            fetched.update({file: str(path) for file, path in fetch_locked(wanted, target, cache).items()})
        return fetched


def _pack(files: Mapping[str, str], path: str) -> None:
    """Write an archive of files, {name: path}. Wheels are compressed already."""
    with tarfile.open(path, "w") as archive:
        for name, source in files.items():
            archive.add(source, name)


def _change(name: str, packages: int = 0) -> dict[str, Any]:
    detail = {"detail": f"{packages} packages"} if packages else {}
    return {"kind": "environment", "name": name, "action": "build", **detail}


def _lacking(wheelhouse: str, missing: Mapping[str, str]) -> str:
    first, *others = sorted(missing)
    more = f" and {len(others)} more" if others else ""
    return (
        f"{wheelhouse} has no {first}{more}: is it mounted here? A deploy without --limit fills it, from the node of "
        "environment_software_host"
    )
