"""A cluster directory of "nodes" that are this host, and throw-away playbooks to run on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pexpect

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.secrets import encrypt, new_secrets
from deepopsctl.run.events import Event
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.run.runner import run_playbooks
from tests.support.cluster import wait_until
from tests.support.ports import free_port

_PASSWORD = b"of a test"
SPEC = """\
schema: 1
cluster: {name: site}
nodes:
  - {names: "ctl1", roles: [controller]}
  - {names: "n[1-2]", roles: [compute]}
components: [slurm]
"""

# Hands structured data back, as the modules of the product do
MODULE = """\
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"key": {"no_log": True}, "fail": {"type": "bool", "default": False}, "note": {}})
found = {"deepops": {"checks": [1, 2], "note": module.params["note"]}, "deepops_warnings": ["the disk is old"]}
if module.params["fail"]:
    module.fail_json(msg="the card is broken: %s" % module.params["key"], hint="change the card", **found)
module.exit_json(changed=True, **found)
"""


@dataclass(frozen=True)
class Site:
    directory: ClusterDir
    content: Path

    def write_playbook(self, name: str, text: str) -> None:
        """Put playbooks/<name>.yml there and into site.yml, after those there are."""
        directory = self.content / "playbooks"
        if not (directory / f"{name}.yml").exists():
            with (directory / "site.yml").open("a") as stream:
                stream.write(f"- import_playbook: {name}.yml\n")
        (directory / f"{name}.yml").write_text(text)

    def run(self, tasks: str, watch: Callable[[Event], None] = lambda event: None, **wanted: Any) -> RunOutcome:
        self.write_playbook("slurm", play(tasks))
        return run_playbooks(RunRequest(self.directory, "slurm", content=self.content, **wanted), watch)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command line, as a shell would; under nohup a closed terminal would be ignored."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            ["env", "--default-signal=HUP", sys.executable, *self._line(arguments)],
            stdout=pipe, stderr=pipe, stdin=pipe, text=True, env=self._environment(environment),
        )  # fmt: skip

    def on_a_terminal(self, *arguments: str, **environment: str) -> pexpect.spawn[str]:
        settings = self._environment({"TERM": "xterm", **environment})
        return pexpect.spawn(
            sys.executable, self._line(arguments), env=settings, encoding="utf-8", timeout=300, dimensions=(24, 100)
        )

    def _line(self, arguments: Iterable[str]) -> list[str]:
        return ["-m", "deepopsctl", "-C", str(self.directory.path), *arguments]

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, "DEEPOPSCTL_CONTENT": str(self.content), **more}

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def last_run(self) -> Path:
        return (self.directory.runs / "latest").resolve()

    def summary(self) -> dict[str, Any]:
        summary = json.loads((self.last_run() / "summary.json").read_text())
        assert isinstance(summary, dict)
        return summary

    def wait_for_event(self, task: str) -> None:
        """Until the run that has been started has ended a task on some host."""
        events = self.directory.runs / "latest" / "events.jsonl"
        wait_until(f"{task} has ended", lambda: events.exists() and f'"task": "{task}"' in events.read_text())


def make_site(parent: Path) -> Site:
    """A site in a directory with a blank in its name; node n2 is reached by ssh, where nothing listens."""
    content, path = parent / "content", parent / "my cluster"
    for part in ("playbooks/operate/cluster", "roles", "plugins/modules", "plugins/module_utils", "group_vars/all"):
        (content / part).mkdir(parents=True)
    (content / "plugins" / "modules" / "card.py").write_text(MODULE)
    (content / "group_vars" / "all" / "main.yml").write_text("colour: product\nshape: product\n")
    # these runs claim nothing
    (content / "playbooks" / "operate" / "cluster" / "claim.yml").write_text(play("[]", "deepops_nobody"))
    path.mkdir()
    (path / "cluster.yml").write_text(SPEC)
    directory = ClusterDir.open(path)
    directory.settings.parent.mkdir(parents=True)
    directory.settings.write_text("ansible_connection: local\ncolour: site\n")
    directory.refresh_inventory(directory.cluster())
    directory.vault_password.write_bytes(_PASSWORD)
    directory.vault_password.chmod(0o600)
    directory.secrets.write_text(_secrets())
    return Site(directory, content)


@cache
def _secrets() -> str:
    """The vault of all sites: to load Ansible takes longer than a site."""
    return encrypt(new_secrets(), _PASSWORD)


def make_unreachable(site: Site, host: str) -> None:
    directory = site.directory.inventory_dir / "host_vars"
    directory.mkdir(exist_ok=True)
    text = f"ansible_connection: ssh\nansible_host: 127.0.0.1\nansible_port: {free_port()}\n"
    (directory / f"{host}.yml").write_text(text)


def play(tasks: str, hosts: str = "slurm_cluster") -> str:
    """A play with these tasks, which begin at the margin."""
    indented = "\n".join(f"    {line}" for line in tasks.strip("\n").splitlines())
    return f"- name: Work\n  hosts: {hosts}\n  gather_facts: false\n  tasks:\n{indented}\n"


def processes_with(word: str) -> list[str]:
    return [line for line in _command_lines() if word in line]


def _command_lines() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        try:
            yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
