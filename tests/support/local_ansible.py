"""Real ansible-core on this host: plays given as data, with the product's own plugins and roles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.node_modules import MODULE_UTILS
from tests.support.paths import ROOT

# Works wherever this Python does, whatever is on PATH.
ANSIBLE_PLAYBOOK = (sys.executable, "-m", "ansible", "playbook")


@dataclass(frozen=True)
class TaskResult:
    """What a task came to on one host, as a callback sees it: no_log values are censored already."""

    task: str
    host: str
    status: str
    data: Mapping[str, Any]

    @property
    def changed(self) -> bool:
        """Whether the task reports a change."""
        return bool(self.data.get("changed"))


@dataclass(frozen=True)
class Played:
    """A finished ansible-playbook."""

    status: int
    output: str
    results: tuple[TaskResult, ...]

    def result(self, task: str) -> TaskResult:
        """The one result of a task."""
        (match,) = (result for result in self.results if result.task == task)
        return match

    def on(self, host: str) -> Played:
        """The part of one host; the status is that of all."""
        return replace(self, results=tuple(result for result in self.results if result.host == host))


def environment(directory: Path, content: Path = ROOT) -> dict[str, str]:
    """Ansible's settings, as deepopsctl sets them; nothing is read from or written to the user's home."""
    config = directory / "ansible.cfg"
    config.write_text("[defaults]\n", encoding="utf-8")
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "DEEPOPS"))},
        "ANSIBLE_CALLBACKS_ENABLED": "results",
        "ANSIBLE_CALLBACK_PLUGINS": f"{content / 'plugins' / 'callback'}:{ROOT / 'tests' / 'callback'}",
        "ANSIBLE_COLLECTIONS_PATH": str(collections(directory / "product", content)),
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_HOME": str(directory / "home"),
        "ANSIBLE_INJECT_FACT_VARS": "False",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_REMOTE_TEMP": str(directory / "remote"),
        "ANSIBLE_ROLES_PATH": str(content / "roles"),
        "DEEPOPSCTL_COMPILED": str(directory / "compiled"),
        "DEEPOPS_TEST_RESULTS": str(directory / "results.jsonl"),
        "LC_ALL": "C.UTF-8",
    }


def collections(directory: Path, content: Path) -> Path:
    """A directory that has the content as the collection deepopsctl.cluster."""
    link = directory / "ansible_collections" / "deepopsctl" / "cluster"
    if not link.exists():
        link.parent.mkdir(parents=True)
        link.symlink_to(content)
    return directory


def inventory(directory: Path, hosts: Mapping[str, Mapping[str, object]]) -> Path:
    """An inventory whose hosts are all this host, with the product's group_vars."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    path = directory / "hosts.yml"
    path.write_text(json.dumps({"all": {"hosts": dict(hosts), "vars": local}}), encoding="utf-8")
    (directory / "group_vars").symlink_to(ROOT / "group_vars")
    return path


def play(
    directory: Path,
    plays: Sequence[Mapping[str, object]],
    hosts: Mapping[str, Mapping[str, object]],
    *options: str,
    settings: Mapping[str, str] | None = None,
    seconds: int = 300,
) -> Played:
    """Run plays; `directory` is empty and gets all that Ansible writes."""
    playbook = directory / "playbook.yml"
    playbook.write_text(json.dumps(plays), encoding="utf-8")
    done = subprocess.run(
        [*ANSIBLE_PLAYBOOK, "-i", str(inventory(directory, hosts)), *options, str(playbook)],
        cwd=directory,
        env={**environment(directory), **(settings or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    results = directory / "results.jsonl"
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return Played(done.returncode, done.stdout, tuple(TaskResult(**json.loads(line)) for line in lines))


def collections_with_record_in(directory: Path, state: Path, variable: str = "") -> Path:
    """The collection with a copy of module_utils whose one difference is where the node's record is stored.

    With the name of an environment variable each value of it has a record of its own there.
    """
    content = directory / "content"
    copied = content / "plugins" / "module_utils"
    shutil.copytree(MODULE_UTILS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("action", "filter", "modules", "plugin_utils"):
        (content / "plugins" / part).symlink_to(MODULE_UTILS.with_name(part))
    module = copied / "node" / "record.py"
    text = module.read_text(encoding="utf-8")
    assert text.count('"/var/lib/deepopsctl"') == 1
    where = f"{str(state)!r}" + (f' + "/" + os.environ[{variable!r}]' if variable else "")
    module.write_text(text.replace('"/var/lib/deepopsctl"', where), encoding="utf-8")
    return collections(directory / "own", content)
