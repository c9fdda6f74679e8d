"""Run a program of deepopsctl/node_programs on a node: it is packed here, and runs there from memory."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from shlex import join
from typing import Any

import ansible_collections.deepopsctl.cluster.plugins.plugin_utils.package  # noqa: F401 (what comes next needs it)
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from deepopsctl.node_programs import shipping
from deepopsctl.node_programs._shared.archive import argv
from deepopsctl.node_programs._shared.program import RESULT_MARK

ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "input": {"type": "dict", "default": {}},
    "clock": {"type": "bool", "default": False},
    "patience": {"type": "float", "default": 0.0},
    "sudo_optional": {"type": "bool", "default": False},
}
# the runner shows lines that begin so
SHOWN = "deepopsctl: "
RETRY_S = 2.0
Result = dict[str, Any]


class ActionModule(ActionBase):
    """Everything is done here: plugins/modules/node_program.py has the documentation only."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        _, params = self.validate_argument_spec(ARGUMENTS)
        self._name, self._shown = params["name"], ""
        request = {**params["input"], "check_mode": self._task.check_mode}
        answer = self._call_without_sudo(request) if params["sudo_optional"] else self._first(request, params)
        while "again" in answer:
            answer = self._next(request, answer["again"], params["patience"])
        if params["sudo_optional"]:
            # as modules return it: `doctor` asks the same again, without Ansible
            answer["invocation"] = {"module_args": {"name": self._name, "input": params["input"]}}
        if params["clock"] and not answer.get("failed"):
            answer["clock"] = self._read_clock()
        return {**result, "changed": False, **answer}

    def _call(self, request: Result) -> Result:
        """Run the program once. Raises AnsibleConnectionFailure where the node does not answer."""
        data = b64encode(shipping.archive(self._name)) + b"\n" + json.dumps(request).encode() + b"\n"
        environment = self._compute_environment_string()
        words = f"{environment} {join(argv('_shared.program', shipping.place(self._name)))}".strip()
        return parse(self._name, self._low_level_execute_command(words, in_data=data))

    def _first(self, request: Result, params: Result) -> Result:
        until = time.monotonic() + params["patience"]
        while True:
            try:
                return self._call(request)
            except AnsibleConnectionFailure:
                if time.monotonic() > until:
                    raise
            time.sleep(RETRY_S)

    def _next(self, request: Result, again: Result, patience_s: float) -> Result:
        """The program's next call, which it asked for; repeated where it fails, too, as it has work under way.

        A program whose work has failed returns that as `final`.
        """
        if again["progress"] != self._shown:
            self._shown = again["progress"]
            Display().display(SHOWN + self._shown)
        until = time.monotonic() + patience_s
        pause = again["after_s"]
        while True:
            time.sleep(pause)
            pause, problem = RETRY_S, ""
            try:
                answer = self._call({**request, **again["input"]})
            except AnsibleConnectionFailure as error:
                problem = str(error)
            else:
                if not answer.get("failed") or answer.get("final"):
                    return answer
                problem = answer["msg"]
            if time.monotonic() > until:
                raise AnsibleConnectionFailure(f"{again['lost']} ({problem})")

    def _call_without_sudo(self, request: Result) -> Result:
        """With sudo, or without it where the node's sudo does not work; says so, and when the node was asked."""
        error_text = ""
        try:
            answer = self._timed(request)
        except AnsibleError as error:
            # a sudo that hangs is Ansible's connection failure too, and the node is there all the same
            if isinstance(error, AnsibleConnectionFailure) and "privilege escalation" not in str(error):
                raise
            answer, error_text = {"failed": True, "msg": str(error)}, str(error)
        if answer.get("failed") and self._connection.become:
            error_text = error_text or answer["msg"]
            self._connection.set_become_plugin(None)
            answer = self._timed(request)
        if "deepops" in answer:
            answer["deepops"]["call"]["sudo"] = error_text
        return answer

    def _timed(self, request: Result) -> Result:
        before = time.time()
        answer = self._call(request)
        if "deepops" in answer:
            answer["deepops"]["call"] = {"asked": {"before": before, "after": time.time()}}
        return answer

    def _read_clock(self) -> Result:
        """The node's clock between two moments here; the connection is open now, so they are close together."""
        before = time.time()
        answer = self._low_level_execute_command("date +%s.%N", sudoable=False)
        return {"before": before, "remote": answer.get("stdout", "").strip(), "after": time.time()}


def parse(name: str, answer: Result) -> Result:
    """The program's result, or what went wrong instead."""
    _before, mark, text = answer["stdout"].partition(RESULT_MARK)
    if answer["rc"] == 0 and mark:
        try:
            result = json.JSONDecoder().raw_decode(text)[0]
        except ValueError:
            result = None
        if isinstance(result, dict):
            return result
    output = {"rc": answer["rc"], "module_stdout": answer["stdout"], "module_stderr": answer["stderr"]}
    lines = [line.strip() for line in f"{answer['stdout']}\n{answer['stderr']}".splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if answer["rc"] == 0:
        return {
            "failed": True,
            "msg": f"the node program {name} printed no result: {last or 'nothing at all'}",
            **output,
        }
    return {"failed": True, "msg": last or f"the node program {name} exits {answer['rc']}", **output}
