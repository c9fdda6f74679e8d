"""Loads once what every worker of Ansible would load for itself: one is forked for each host-task.

It is more than half of what Ansible costs on the control machine. Nothing depends on it: without it every worker loads
for itself. Parsing module utilities once replaces a private function of ansible-core, so that is done only with the
releases that it was tested with.
"""

from __future__ import annotations

DOCUMENTATION = """
name: warm_up
type: aggregate
short_description: Plugins and module utilities, loaded once a run
description: Prints nothing and reads no results. It works before the first worker is forked.
options:
  enabled:
    description: Whether anything is loaded in advance.
    type: bool
    default: true
    env: [{name: DEEPOPSCTL_WARM_UP}]
    ini: [{section: callback_warm_up, key: enabled}]
"""

import contextlib
import functools
import sys
from pathlib import Path
from typing import Any

from ansible.executor import module_common
from ansible.plugins import loader
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__ as ansible_version
from ansible.utils.display import Display

# releases of ansible-core whose module_common was tested with this; 2.21 has another ModuleDepFinder
TESTED = ("2.19",)

COLLECTION = "deepopsctl.cluster"
ACTIONS = ("normal", "validate_argument_spec", "assert", "group_by", "set_fact", f"{COLLECTION}.node_state")
# any of them: to find one, Ansible loads all of a collection's filters
FILTER = f"{COLLECTION}.fold_nodes"
NODE_PROGRAM = f"{COLLECTION}.node_program"
PLUGINS = Path(__file__).resolve().parent.parent
PARSED: set[tuple[str, ...]] = set()
UTILS = ("ansible_collections", *COLLECTION.split("."), "plugins", "module_utils")


class CallbackModule(CallbackBase):
    """Ansible asks for this name; being in `callback_plugins` is enough to be called."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "warm_up"

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.parses = False
        if not self.get_option("enabled"):
            return
        with contextlib.suppress(Exception):
            load_plugins()
        if not tested_with(ansible_version):
            releases = ", ".join(TESTED)
            Display().debug(f"warm_up: parses nothing: ansible-core {ansible_version}, tested with {releases}")
            return
        with contextlib.suppress(Exception):
            parse_module_utils()
            self.parses = True

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        if self.parses:
            with contextlib.suppress(Exception):
                parse_imports(str(task.action))
        if task.action == NODE_PROGRAM and self.get_option("enabled"):
            with contextlib.suppress(Exception):
                pack(str(task.args["name"]))


def tested_with(version: str) -> bool:
    """Whether this release of ansible-core is one of those that the replaced function was tested with."""
    return ".".join(version.split(".")[:2]) in TESTED


def load_plugins() -> None:
    """Filters and tests with all that they import, and what nearly every task uses."""
    for jinja in (loader.filter_loader, loader.test_loader):
        list(jinja.all())
    loader.filter_loader.get(FILTER)
    for plugins, names in (
        (loader.action_loader, ACTIONS),
        (loader.connection_loader, ("ssh",)),
        (loader.shell_loader, ("sh",)),
        (loader.become_loader, ("sudo",)),
        (loader.lookup_loader, ("template",)),
    ):
        for name in names:
            plugins.get(name, class_only=True)


def parse_module_utils() -> None:
    """To find what a module imports, Ansible parses some sixty files of its own, the same ones for each module."""
    # those that the control machine uses itself are nearly all that are sent to nodes
    parse = functools.cache(module_common._compile_module_ast)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.startswith("ansible.module_utils."):
            parse(name, Path(file).read_bytes())
    module_common._compile_module_ast = parse


def pack(program: str) -> None:
    """Pack a node program once, not once a node."""
    from deepopsctl.node_programs import shipping

    loader.action_loader.get(NODE_PROGRAM, class_only=True)
    shipping.archive(program)


@functools.cache
def parse_imports(action: str) -> None:
    """Parse what a module of the collection imports from it; each file once a run, and none that no task needs."""
    collection, _, name = action.rpartition(".")
    module = PLUGINS / "modules" / f"{name}.py"
    if collection != COLLECTION or not module.is_file():
        return
    tree = module_common._compile_module_ast(name, module.read_bytes())
    parse_submodules(module_common.ModuleDepFinder(f"ansible_collections.{COLLECTION}.plugins.modules.{name}", tree))


def parse_submodules(finder: Any) -> None:
    """Parse the files of module_utils that a source imports, and what these import."""
    for parts in finder.submodules:
        if parts[: len(UTILS)] != UTILS or parts in PARSED:
            continue
        PARSED.add(parts)
        path = PLUGINS.joinpath("module_utils", *parts[len(UTILS) :])
        # a name from a module, not a module
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            path = path.parent
        package = path.is_dir()
        file = path / "__init__.py" if package else path.with_suffix(".py")
        name = ".".join((*UTILS, *path.relative_to(PLUGINS / "module_utils").parts))
        tree = module_common._compile_module_ast(name, file.read_bytes())
        parse_submodules(module_common.ModuleDepFinder(name, tree, package))
