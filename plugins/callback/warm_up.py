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

import ast
import contextlib
import copy
import functools
import gc
import hashlib
import importlib
import marshal
import os
import shutil
import stat
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from ansible import constants
from ansible._internal._templating import _jinja_bits as templating
from ansible.executor import module_common, task_result
from ansible.playbook.role import Role
from ansible.plugins import loader, strategy
from ansible.plugins.callback import CallbackBase
from ansible.plugins.lookup import template as template_lookup
from ansible.release import __version__ as ansible_version
from ansible.utils.display import Display
from ansible.vars import manager
from jinja2 import __version__ as jinja_version, nodes
from jinja2.environment import TemplateExpression
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.tests import TESTS

# releases of ansible-core whose module_common was tested with this; 2.21 has another ModuleDepFinder
TESTED = ("2.19",)

COLLECTION = "deepopsctl.cluster"
ACTIONS = ("normal", "validate_argument_spec", "assert", "set_fact", f"{COLLECTION}.node_state")
# any of them: to find one, Ansible loads all of a collection's filters
FILTER = f"{COLLECTION}.fold_nodes"
NODE_PROGRAM = f"{COLLECTION}.node_program"
PLUGINS = Path(__file__).resolve().parent.parent
# the variable with the directory of packed modules, and of how many contents they are kept there
MODULE_CACHE, KEPT = "DEEPOPSCTL_MODULE_CACHE", 3
# the variable with where root of a node keeps what is compiled, for tests, and where that is
COMPILED = ("DEEPOPSCTL_COMPILED", "/run/deepopsctl/compiled")
# whether deepopsctl has compared all values of a site with the argument specs (deepopsctl/cluster/settings.py)
SETTINGS_COMPARED = "DEEPOPSCTL_SETTINGS_COMPARED"
VALIDATION = "ansible.builtin.validate_argument_spec"
PARSED: set[tuple[str, ...]] = set()
# between two looks of the main process: as often as Ansible looks for results; where a look itself takes long, so many
# times as long, up to the longest
SHORTEST_SLEEP_S, LONGEST_SLEEP_S, REST = 0.005, 0.2, 4
UTILS = ("ansible_collections", *COLLECTION.split("."), "plugins", "module_utils")
OF_COLLECTION = f"ansible_collections.{COLLECTION}.plugins.modules."


class CallbackModule(CallbackBase):
    """Ansible asks for this name; being in `callback_plugins` is enough to be called."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "warm_up"

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.parses = False
        self.packed: PackedModules | None = None
        if not self.get_option("enabled"):
            return
        if os.environ.get(SETTINGS_COMPARED):
            with contextlib.suppress(Exception):
                leave_out_validation(playbook)
        with contextlib.suppress(Exception):
            load_plugins()
        if not tested_with(ansible_version):
            releases = ", ".join(TESTED)
            Display().debug(f"warm_up: parses nothing: ansible-core {ansible_version}, tested with {releases}")
            return
        with contextlib.suppress(Exception):
            self.packed = packed_modules(os.environ.get(MODULE_CACHE, ""))
        with contextlib.suppress(Exception):
            parse_once()
            self.parses = True
            if not (self.packed and self.packed.bring()):
                parse_module_utils()
        with contextlib.suppress(Exception):
            keep_compiled((self.packed.directory if self.packed else Path(constants.DEFAULT_LOCAL_TMP)) / "compiled")
        with contextlib.suppress(Exception):
            sleep_longer()
        with contextlib.suppress(Exception):
            say_nothing_of_itself()
        with contextlib.suppress(Exception):
            skip_without_worker()
        with contextlib.suppress(Exception):
            find_filters_once()
        with contextlib.suppress(Exception):
            read_variables_once()
        with contextlib.suppress(Exception):
            render_variables_once()
        with contextlib.suppress(Exception):
            compile_once_on_nodes()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        if self.parses and not (self.packed and self.packed.has(str(task.action))):
            with contextlib.suppress(Exception):
                parse_imports(str(task.action))
        if task.action == NODE_PROGRAM and self.get_option("enabled"):
            with contextlib.suppress(Exception):
                pack(str(task.args["name"]))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if self.packed:
            with contextlib.suppress(OSError):
                self.packed.keep()


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


def parse_once() -> None:
    """To find what a module imports, Ansible parses some sixty files of its own, the same ones for each module."""
    module_common._compile_module_ast = functools.cache(module_common._compile_module_ast)


def parse_module_utils() -> None:
    """Those that the control machine uses itself are nearly all that are sent to nodes."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.startswith("ansible.module_utils."):
            module_common._compile_module_ast(name, Path(file).read_bytes())


class PackedModules:
    """Modules of the collection as an earlier run has packed them, from the same content by the same Ansible.

    They are loaded as code, so they lie in a directory that no other user can write.
    """

    def __init__(self, directory: Path, local: Path) -> None:
        self.directory, self.local = directory, local

    def bring(self) -> bool:
        """Have Ansible find them; whether there are any."""
        self.local.mkdir(mode=0o700, exist_ok=True)
        known = [path for path in self.directory.iterdir() if path.name.startswith(OF_COLLECTION)]
        for path in known:
            (self.local / path.name).symlink_to(path)
        return bool(known)

    def has(self, action: str) -> bool:
        """Whether the module of an action is among them."""
        return any(self.local.glob(f"{OF_COLLECTION}{action.rpartition('.')[2]}-*"))

    def keep(self) -> None:
        """Add what this run has packed, and remove that of all but a few other releases."""
        for path in self.local.glob(f"{OF_COLLECTION}*-none"):
            if not path.is_symlink():
                part = self.directory / f".{os.getpid()}"
                part.write_bytes(path.read_bytes())
                part.replace(self.directory / path.name)
        others = sorted(self.directory.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in others[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def packed_modules(cache: str) -> PackedModules | None:
    """Those in a directory of this user's; None without one."""
    if not cache:
        return None
    directory = Path(cache) / content_hash()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (directory.parent, directory):
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            return None
    os.utime(directory)
    return PackedModules(directory, Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache")


def content_hash() -> str:
    """All that a packed module is made from, but for Ansible's own files: its release stands for them."""
    total = hashlib.sha256(f"{ansible_version} {jinja_version} {sys.version} {module_common.__file__}".encode())
    for directory in ("modules", "module_utils"):
        for path in sorted((PLUGINS / directory).rglob("*.py")):
            data = path.read_bytes()
            total.update(f"{path.relative_to(PLUGINS)}:{len(data)}:".encode() + data)
    return total.hexdigest()


class Compiled:
    """Compiled templates: Ansible compiles one for each use, a worker those that its parent has compiled already.

    What one worker has compiled, the others and later runs read from a directory that no other user can write.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.known: dict[object, CodeType] = {}

    def code(self, environment: Any, source: str, is_expression: bool) -> CodeType:
        """The code of a template or an expression, by all that it depends on in a run."""
        context = templating._TemplateCompileContext.current(optional=True)
        settings = tuple(getattr(environment, name) for name in templating._TEMPLATE_OVERRIDE_FIELD_NAMES)
        key = (str(source), is_expression, context.escape_backslashes if context else None, settings)
        code = self.known.get(key)
        if code is None:
            path = self.directory / hashlib.sha256(repr(key).encode()).hexdigest()
            code = self.read(path)
            if code is None:
                code = environment.compile(parsed(environment, source) if is_expression else source)
                self.write(path, code)
            self.known[key] = code
        return code

    @staticmethod
    def read(path: Path) -> CodeType | None:
        try:
            code = marshal.loads(path.read_bytes())  # noqa: S302 (from a directory that only this user can write)
        except (OSError, ValueError, EOFError, TypeError):
            return None
        return code if isinstance(code, CodeType) else None

    @staticmethod
    def write(path: Path, code: CodeType) -> None:
        with contextlib.suppress(OSError):
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(marshal.dumps(code))
            part.replace(path)


def parsed(environment: Any, source: str) -> Any:
    """An expression as Jinja's `compile_expression` parses it."""
    parser = Parser(environment, source, state="variable")
    expression = parser.parse_expression()
    if not parser.stream.eos:
        raise SyntaxError(source)
    expression.set_environment(environment)
    return nodes.Template([nodes.Assign(nodes.Name("result", "store"), expression, lineno=1)], lineno=1)


def keep_compiled(directory: Path) -> None:
    """Have Ansible compile a template once a run."""
    directory.mkdir(mode=0o700, exist_ok=True)
    compiled = Compiled(directory)
    environment = templating.AnsibleEnvironment
    from_string, compile_expression = environment.from_string, environment.compile_expression

    def kept_template(self: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not isinstance(source, str):
            return from_string(self, source, *args, **kwargs)
        code = None
        with contextlib.suppress(Exception):
            code = compiled.code(self, source, is_expression=False)
        if code is None:
            # an error in Ansible's own words
            return from_string(self, source)
        return self.template_class.from_code(self, code, self.make_globals(None), None)

    def kept_expression(self: Any, source: str, undefined_to_none: bool = True) -> Any:
        code = None
        with contextlib.suppress(Exception):
            code = compiled.code(self, source, is_expression=True)
        if code is None:
            return compile_expression(self, source, undefined_to_none)
        template = self.template_class.from_code(self, code, self.make_globals(None), None)
        return TemplateExpression(template, undefined_to_none)

    environment.from_string, environment.compile_expression = kept_template, kept_expression
    # its templates add a few variables, and change no value
    template_lookup.deepcopy = copy.copy
    # what a worker has inherited is not garbage
    gc.freeze()
    os.register_at_fork(after_in_child=gc.freeze)


class Rest:
    """The main process's `time.sleep`, of which Ansible wants 10,000 a second while all workers are busy.

    With a hundred nodes one look at all of them takes 10 to 40 ms of CPU, so looking 200 times a second keeps a core
    busy. What was done since the last sleep may also be work for the nodes, which must not wait: the shorter of two
    rounds counts.
    """

    def __init__(self) -> None:
        self._awake_s = self._before_s = 0.0

    def sleep(self, seconds: float) -> None:
        """Sleep for at least so long."""
        used_s = time.process_time() - self._awake_s
        round_s, self._before_s = min(used_s, self._before_s), used_s
        time.sleep(max(seconds, SHORTEST_SLEEP_S, min(REST * round_s, LONGEST_SLEEP_S)))
        self._awake_s = time.process_time()


def sleep_longer() -> None:
    """Ansible's main process looks less often what its workers do."""
    calm = types.ModuleType("time")
    calm.__dict__.update(vars(time), sleep=Rest().sleep)
    # under the name by which a playbook finds it
    free: Any = importlib.import_module("ansible_collections.ansible.builtin.plugins.strategy.free")
    strategy.time = free.time = calm


def say_nothing_of_itself() -> None:
    """A message for Ansible's own developers costs ansible-runner's context of an event, also where none is printed.

    The strategy `free` has three for each node whenever it looks at all of them.
    """
    if not constants.DEFAULT_DEBUG:
        Display.debug = lambda *_args, **_named: None


def skip_without_worker() -> None:
    """A task whose `when` is false needs no process of its own to find that out: half of a deploy's are such."""
    queue = strategy.StrategyBase._queue_task

    def queue_or_skip(self: Any, host: Any, task: Any, task_vars: Any, play_context: Any) -> None:
        result = None
        with contextlib.suppress(Exception):
            # what raises here raises in a worker, too, which says it in Ansible's own words
            result = skipped(task, task_vars)
        if result is None:
            queue(self, host, task, task_vars, play_context)
            return
        self._queued_task_cache[(host.name, task._uuid)] = {
            "host": host,
            "task": task,
            "task_vars": task_vars,
            "play_context": play_context,
        }
        self._tqm.send_callback("v2_runner_on_start", host, task)
        self._final_q.send_task_result(
            task_result._RawTaskResult(host=host, task=task, return_data=result, task_fields=task.dump_attrs())
        )
        self._pending_results += 1

    strategy.StrategyBase._queue_task = queue_or_skip


def skipped(task: Any, variables: Any) -> dict[str, Any] | None:
    """What a worker would return of a task that it skips; None for one that it has to do, or that has a loop."""
    if not task.when or task.loop or task.loop_with or task.no_log or task.delegate_to:
        return None
    reason: dict[str, Any] = {}
    if task._resolve_conditional(task.when, variables, result_context=reason):
        return None
    why = "Conditional result was False"
    return {"changed": False, "skipped": True, "skip_reason": why, "_ansible_no_log": False, **reason}


def find_filters_once() -> None:
    """Ansible lists and loads the files of a collection each time a worker uses one of its filters.

    For Jinja's own, such as `length`, it lists its own files first, for each template that uses one.
    """
    for plugins, own, of_jinja in (
        (loader.filter_loader, filters_of_collection(), FILTERS),
        (loader.test_loader, (), TESTS),
    ):
        plugins.get_with_context = find_once = once_by_name(plugins.get_with_context, dict(own))
        # `==` is a test, too, and no name of a plugin
        for name in filter(str.isidentifier, of_jinja):
            find_once(name)


def once_by_name(find: Callable[..., Any], known: dict[str, Any]) -> Callable[..., Any]:
    """The same search, which looks once for each name."""

    def known_or_not(name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in known:
            result = find(name, *args, **kwargs)
            if args or kwargs:
                return result
            known[name] = result
        return known[name]

    return known_or_not


def filters_of_collection() -> Iterator[tuple[str, Any]]:
    """The collection's filters by their whole names, each as Jinja2Loader would find it."""
    filters = loader.filter_loader
    for path in sorted((PLUGINS / "filter").glob("*.py")):
        file = super(type(filters), filters).get_with_context(f"{COLLECTION}.{path.stem}")
        for name, function in file.object.filters().items():
            whole = f"{COLLECTION}.{name}"
            plugin, context = filters._plugin_wrapper_type(function), copy.copy(file.plugin_load_context)
            filters._update_object(obj=plugin, name=whole, path=file.object._original_path, resolved=whole)
            context._resolved_fqcn = plugin.ansible_name
            yield whole, loader.get_with_context_result(plugin, context)


def read_variables_once() -> None:
    """For each host-task Ansible merges all files of variables, copies all facts and looks for its role's directory.

    Its main process does so, of which there is one for all nodes.
    """
    plugin = type(loader.vars_loader.get("host_group_vars"))
    read = plugin.get_vars
    known: dict[object, Any] = {}

    def known_or_read(self: Any, files: Any, path: str, entities: Any, cache: bool = True) -> Any:
        key = (
            path,
            *((each.base_type, each.name) for each in (entities if isinstance(entities, list) else [entities])),
        )
        if key not in known or not cache:
            known[key] = read(self, files, path, entities, cache)
        return known[key]

    plugin.get_vars = known_or_read
    manager.namespace_facts = facts_as_they_are
    real = functools.cache(os.path.realpath)
    Role.get_role_path = lambda self: real(self._role_path)


def facts_as_they_are(facts: dict[str, Any]) -> dict[str, Any]:
    """What `ansible_facts` has, by names without `ansible_`; Ansible copies all of it."""
    return {
        "ansible_facts": {
            name if name == "ansible_local" else name.removeprefix("ansible_"): value for name, value in facts.items()
        }
    }


def render_variables_once() -> None:
    """A variable that several others are made of is rendered once for a template, not once for each of them.

    Ansible prepares all variables again for each variable that is a template itself, and what one of them has rendered
    the next does not know. Here they share it until the outermost template is done.
    """
    prepare = templating._flatten_and_lazify_vars
    lazy = templating._AnsibleLazyTemplateMixin._try_create

    def shared(mapping: Any) -> Iterator[Any]:
        context = templating.TemplateContext.current(optional=True)
        if context is None or context.stop_on_template or mapping is not context.templar.available_variables:
            yield from prepare(mapping)
            return
        while context._parent_ctx and context._parent_ctx.templar is context.templar:
            context = context._parent_ctx
        known, prepared = vars(context).get("prepared", (None, None))
        if known is not mapping:
            prepared = lazy(mapping)
            context.prepared = mapping, prepared
        yield prepared

    templating._flatten_and_lazify_vars = shared


def compile_once_on_nodes() -> None:
    """A module call brings files that Python would compile each time; root of the node keeps them compiled."""
    tree = ast.parse((PLUGINS / "plugin_utils" / "compiled.py").read_text(encoding="utf-8"))
    # Ansible's own begins with the import of annotations, which must be the first
    tree.body = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    directory = os.environ.get(*COMPILED)
    module_common._ANSIBALLZ_CODE += f"\n\n{ast.unparse(tree)}\n\nkeep_compiled({directory!r})\n"


def leave_out_validation(playbook: Any) -> None:
    """Take out the tasks that compare a role's options with its argument specs, on each node and before each role."""
    for play in playbook.get_plays():
        for blocks in (*(role._task_blocks for role in play.roles), play.pre_tasks, play.tasks, play.post_tasks):
            without_validation(blocks)


def without_validation(blocks: list[Any]) -> None:
    """Take Ansible's own task out of these blocks, and of those in them: a role that a task imports is one."""
    for block in blocks:
        inner = getattr(block, "block", [])
        without_validation(inner)
        inner[:] = [task for task in inner if getattr(task, "action", "") != VALIDATION]


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
