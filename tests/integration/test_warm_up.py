"""What every worker of Ansible needs is loaded before the first of them: else each host-task pays for it again."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.local_ansible import environment, play
from tests.support.paths import ROOT

WARM_UP = ROOT / "plugins" / "callback" / "warm_up.py"
# in a process of its own: Ansible stays loaded
ASK = """
import json, sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("warm_up", sys.argv[1])
warm_up = module_from_spec(spec)
spec.loader.exec_module(warm_up)
import ansible.cli.playbook
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
warm_up.load_plugins()
warm_up.parse_once()
warm_up.parse_module_utils()
from ansible.executor import module_common
before = module_common._compile_module_ast.cache_info().currsize
warm_up.parse_imports("deepopsctl.cluster.drift_check")
gate = module_common._compile_module_ast.cache_info().currsize - before
print(json.dumps({
    "loaded": sorted(name for name in sys.modules if name.startswith(("ansible.plugins.", "deepopsctl."))),
    "gate": gate,
    "collection": sorted(name for name in sys.modules if ".cluster.plugins.filter." in name),
}))
"""
# reports in which process it is loaded
WITNESS = """
import os

with open({path!r}, "a") as stream:
    print(os.getpid(), file=stream)


class FilterModule:
    def filters(self):
        return {{"witness": str}}
"""


def output(directory: Path, program: str, argument: str, **settings: str) -> dict[str, Any]:
    """What a Python program prints as JSON, where Ansible finds this product."""
    argv = [sys.executable, "-P", "-c", program, argument]
    env = {**environment(directory), **settings}
    done = subprocess.run(argv, cwd=directory, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    actual: dict[str, Any] = json.loads(done.stdout)
    return actual


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is loaded; called without the guard that lets a run continue when Ansible has moved something."""
    directory: Path = tmp_path_factory.mktemp("warm")
    return output(directory, ASK, str(WARM_UP))


def test_our_filters_are_loaded_with_what_they_import(warm: dict[str, Any]) -> None:
    assert any(name.endswith(".slurm") for name in warm["collection"])
    assert "deepopsctl.slurm.conf" in warm["loaded"]


@pytest.mark.parametrize("plugin", ["action.normal", "connection.ssh", "shell.sh", "become.sudo", "lookup.template"])
def test_the_plugins_of_every_task_are_loaded(warm: dict[str, Any], plugin: str) -> None:
    assert f"ansible.plugins.{plugin}" in warm["loaded"]


def test_what_the_gate_imports_is_parsed_and_no_more(warm: dict[str, Any]) -> None:
    assert 10 < warm["gate"] < 30


ON_START = """
import json, sys
import ansible.cli.playbook
from ansible.executor import module_common
from ansible.plugins.loader import callback_loader, init_plugin_loader
init_plugin_loader()
original = module_common._compile_module_ast
callback = callback_loader.get("warm_up")
sys.modules[type(callback).__module__].ansible_version = sys.argv[1]
callback.set_options()
callback.v2_playbook_on_start(None)
from types import SimpleNamespace
from ansible.template import trust_as_template
from deepopsctl.node_programs import shipping
task = SimpleNamespace(action="deepopsctl.cluster.node_program", args={"name": "node_doctor"})
callback.v2_playbook_on_task_start(task, False)
# as a worker has it
shipping.archive(trust_as_template("node_doctor"))
print(json.dumps({
    "packed": shipping._packed.cache_info().hits,
    "parses": callback.parses,
    "replaced": module_common._compile_module_ast is not original,
    "loaded": "ansible.plugins.connection.ssh" in sys.modules,
}))
"""


@pytest.mark.parametrize(
    ("version", "switch", "parses", "loads"),
    [
        ("2.19.14", "", True, True),
        ("2.21.0", "", False, True),
        ("2.190.1", "", False, True),
        ("2.19.14", "0", False, False),
    ],
)
def test_ansibles_private_function_stays_where_it_was_not_tested_or_is_not_wanted(
    tmp_path: Path, version: str, switch: str, *, parses: bool, loads: bool
) -> None:
    settings = {"ANSIBLE_CALLBACK_PLUGINS": str(WARM_UP.parent)} | ({"DEEPOPSCTL_WARM_UP": switch} if switch else {})
    actual = output(tmp_path, ON_START, version, **settings)

    assert actual == {"parses": parses, "replaced": parses, "loaded": loads, "packed": int(loads)}


def test_a_filter_is_loaded_once_a_run_however_many_workers_use_it(tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    (tmp_path / "filter").mkdir()
    (tmp_path / "filter" / "witness.py").write_text(WITNESS.format(path=str(loaded)), encoding="utf-8")
    task = {"name": "Tell", "ansible.builtin.debug": {"msg": "{{ 'seen' | witness }}"}}
    plays = [{"name": "Use it", "hosts": "all", "gather_facts": False, "tasks": [task, task]}]

    done = play(tmp_path, plays, {"a": {}, "b": {}}, settings={"ANSIBLE_FILTER_PLUGINS": str(tmp_path / "filter")})

    assert [result.data["msg"] for result in done.results] == ["seen"] * 4
    assert len(loaded.read_text(encoding="utf-8").splitlines()) == 1


# says in which process it is used
USED = """
import os


def witness(value):
    with open({path!r}, "a") as stream:
        print(os.getpid(), file=stream)
    return value


class FilterModule:
    def filters(self):
        return {{"witness": witness}}
"""


def test_a_task_that_is_skipped_has_no_process_of_its_own_and_says_why(tmp_path: Path) -> None:
    debug = {"ansible.builtin.debug": {"msg": "done"}}
    tasks = [
        {"name": "Skip", **debug, "when": [True, "false | witness"]},
        {"name": "Skip each", **debug, "loop": ["x"], "when": "item == 'y'"},
        {"name": "Do", **debug, "when": "true | witness"},
        {"name": "Fail", **debug, "when": "nothing.there"},
    ]
    plays = [{"name": "Some", "hosts": "all", "gather_facts": False, "tasks": tasks}]

    def ended(switch: str) -> tuple[list[tuple[object, ...]], int]:
        directory = tmp_path / switch
        (directory / "filter").mkdir(parents=True)
        (directory / "filter" / "witness.py").write_text(USED.format(path=str(directory / "used")))
        settings = {"ANSIBLE_FILTER_PLUGINS": str(directory / "filter"), "DEEPOPSCTL_WARM_UP": switch}
        done = play(directory, plays, {"a": {}, "b": {}}, settings=settings)
        results = [(each.host, each.task, each.status, each.data) for each in done.results]
        return sorted(results, key=str), len(set((directory / "used").read_text().split()))

    (warm, processes), (cold, workers) = ended("true"), ended("false")

    assert warm == cold
    # two hosts, a task skipped and one done; what is done was found out before its worker, too
    assert (processes, workers) == (3, 4)


# how often the process of Ansible itself slept
SLEEPS = """
import resource
from pathlib import Path
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "aggregate", "sleeps"

    def v2_playbook_on_stats(self, stats):
        Path({path!r}).write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw))
"""


def test_a_run_with_more_nodes_than_workers_does_not_spin(tmp_path: Path) -> None:
    task = {"name": "Take long", "ansible.builtin.command": "sleep 2", "changed_when": False}
    plays = [{"name": "Wait", "hosts": "all", "gather_facts": False, "tasks": [task]}]

    def sleeps(switch: str) -> int:
        directory = tmp_path / switch
        (directory / "callback").mkdir(parents=True)
        (directory / "callback" / "sleeps.py").write_text(SLEEPS.format(path=str(directory / "sleeps")))
        plugins = f"{environment(directory)['ANSIBLE_CALLBACK_PLUGINS']}:{directory / 'callback'}"
        settings = {"ANSIBLE_FORKS": "1", "ANSIBLE_CALLBACK_PLUGINS": plugins, "DEEPOPSCTL_WARM_UP": switch}
        assert play(directory, plays, {"a": {}, "b": {}}, settings=settings).status == 0
        return int((directory / "sleeps").read_text())

    assert sleeps("true") * 3 < sleeps("false")


def test_looks_that_take_long_are_far_apart_and_work_for_the_nodes_is_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("warm_up", WARM_UP)
    assert spec
    assert spec.loader
    warm_up = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(warm_up)
    used, slept = [0.0], list[float]()
    monkeypatch.setattr(warm_up, "time", SimpleNamespace(process_time=lambda: used[0], sleep=slept.append))
    rest = warm_up.Rest()

    for round_s in (0.001, 2.0, 0.001, 0.01, 0.01, 0.2, 0.2):
        used[0] += round_s
        rest.sleep(0.0001)

    assert slept == pytest.approx([0.005, 0.005, 0.005, 0.005, 0.04, 0.04, 0.2])


# how often a template is compiled, here and by a worker that has compiled nothing itself
COMPILE = """
import json, sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("warm_up", sys.argv[1])
warm_up = module_from_spec(spec)
spec.loader.exec_module(warm_up)
from ansible._internal._templating import _jinja_bits
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
compile, compiled = _jinja_bits.AnsibleEnvironment.compile, []
_jinja_bits.AnsibleEnvironment.compile = lambda self, *args: (compiled.append(1), compile(self, *args))[1]
directory = Path("compiled").absolute()
original = _jinja_bits.AnsibleEnvironment.from_string, _jinja_bits.AnsibleEnvironment.compile_expression
templar = Templar(loader=DataLoader(), variables={"a": 2})
def worker(place):
    _jinja_bits.AnsibleEnvironment.from_string, _jinja_bits.AnsibleEnvironment.compile_expression = original
    warm_up.keep_compiled(place)
conditional = trust_as_template("a == 2")
def values():
    return [templar.template(trust_as_template("{{ a + 1 }}")), templar.evaluate_conditional(conditional)]
worker(directory)
first = [values(), values(), len(compiled)]
worker(directory)
again = [values(), len(compiled)]
try:
    templar.template(trust_as_template("{{ a + }}"))
except Exception as error:
    message = str(error)
print(json.dumps({"first": first, "again": again, "message": message}))
"""


def test_a_template_is_compiled_once_a_run_and_an_error_is_ansibles(tmp_path: Path) -> None:
    actual = output(tmp_path, COMPILE, str(WARM_UP))

    assert actual["first"] == [[3, True], [3, True], 2]
    assert actual["again"] == [[3, True], 2]
    assert "Syntax error in template" in actual["message"]


# how often files of variables are merged, and files of plugins listed, before and since
VARIABLES = """
import json, pkgutil, sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("warm_up", sys.argv[1])
warm_up = module_from_spec(spec)
spec.loader.exec_module(warm_up)
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.role import Role
from ansible.plugins.loader import init_plugin_loader, vars_loader
from ansible.template import Templar, trust_as_template
from ansible.vars.manager import VariableManager
init_plugin_loader()
for name, text in {"hosts": "a\\nb\\n", "group_vars/all.yml": "of_all: 1\\n", "host_vars/a.yml": "of_a: 2\\n"}.items():
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
files = DataLoader()
inventory = InventoryManager(loader=files, sources=[str(Path("hosts").absolute())])
variables = VariableManager(loader=files, inventory=inventory)
plugin, counted = type(vars_loader.get("host_group_vars")), []
load, listed = plugin.load_found_files, pkgutil.iter_modules
plugin.load_found_files = lambda *args: (counted.append("files"), load(*args))[1]
pkgutil.iter_modules = lambda *args, **named: (counted.append("plugins"), listed(*args, **named))[1]
a, b = (inventory.get_host(name) for name in "ab")
variables.set_host_facts("a", {"ansible_x": {"n": 1}, "ansible_local": {"l": 2}, "y": [3]})
role = Role()
role._role_path = "."
def round():
    del counted[:]
    first, second = variables.get_vars(host=a), variables.get_vars(host=b)
    templar = Templar(loader=files, variables={"x": "abc"})
    length = templar.template(trust_as_template("{{ x | length if x is defined }}"))
    known = {"of_all", "of_a", "ansible_facts"}
    kept = [{name: values[name] for name in sorted(known & values.keys())} for values in (first, second)]
    return [[kept, length, role.get_role_path()], sorted(set(counted))]
before = round()
warm_up.find_filters_once()
warm_up.read_variables_once()
round()
print(json.dumps({"before": before, "since": round()}))
"""


def test_files_of_variables_and_of_plugins_are_read_once_a_run(tmp_path: Path) -> None:
    actual = output(tmp_path, VARIABLES, str(WARM_UP))

    facts = {"x": {"n": 1}, "ansible_local": {"l": 2}, "y": [3]}
    known = [{"ansible_facts": facts, "of_a": 2, "of_all": 1}, {"ansible_facts": {}, "of_all": 1}]
    assert actual["before"] == [[known, 3, str(tmp_path)], ["files", "plugins"]]
    assert actual["since"] == [[known, 3, str(tmp_path)], []]


def test_a_variable_of_others_is_rendered_once_for_a_template_and_again_for_the_next(tmp_path: Path) -> None:
    variables = {"base": "{{ value | witness }}", "x": "{{ base }}x", "y": "{{ base }}y", "both": "{{ x ~ y }}"}
    tasks: list[dict[str, Any]] = [
        {"name": "Tell", "ansible.builtin.debug": {"msg": ["{{ both }}", "{{ x }}"]}},
        {"name": "Change", "ansible.builtin.set_fact": {"value": "2"}},
        {"name": "Tell", "ansible.builtin.debug": {"msg": "{{ both }}"}},
        {"name": "Tell each", "ansible.builtin.debug": {"msg": "{{ item ~ z }}"}, "loop": ["{{ x }}", "{{ y }}"],
         "vars": {"z": "{{ item ~ both }}"}},
        {"name": "Fail", "ansible.builtin.debug": {"msg": "{{ gone.there ~ x }}"}},
    ]  # fmt: skip
    plays = [{"name": "Use them", "hosts": "all", "gather_facts": False, "vars": variables, "tasks": tasks}]

    def reports(switch: str) -> tuple[list[tuple[object, ...]], int]:
        directory = tmp_path / switch
        (directory / "filter").mkdir(parents=True)
        (directory / "filter" / "witness.py").write_text(USED.format(path=str(directory / "used")), encoding="utf-8")
        settings = {"ANSIBLE_FILTER_PLUGINS": str(directory / "filter"), "DEEPOPSCTL_WARM_UP": switch}
        done = play(directory, plays, {"a": {"value": "1"}, "b": {"value": "3"}}, settings=settings)
        texts = [(each.host, each.task, each.data.get("msg"), each.data.get("results")) for each in done.results]
        return sorted(texts, key=str), len((directory / "used").read_text().splitlines())

    warm, without = reports("true"), reports("false")

    assert warm[0] == without[0]
    assert [text[2] for text in warm[0] if text[:2] == ("a", "Tell")] == ["2x2y", ["1x1y", "1x"]]
    # two in a list and two in a text; one after the change; each item, and what they are made of
    assert warm[1] * 2 <= without[1]


def test_modules_are_packed_once_for_all_runs_where_no_other_user_can_write(tmp_path: Path) -> None:
    task = {"name": "Ask", "deepopsctl.cluster.node_info": {}}
    plays = [{"name": "Ask it", "hosts": "all", "gather_facts": False, "tasks": [task]}]
    cache = tmp_path / "modules"
    settings = {"DEEPOPSCTL_MODULE_CACHE": str(cache)}

    def packed(name: str) -> dict[str, int]:
        (tmp_path / name).mkdir()
        done = play(tmp_path / name, plays, {"a": {}}, settings=settings)
        assert done.status == 0, done.output
        return {path.name: path.stat().st_ino for path in cache.rglob("*-none")}

    first = packed("first")
    assert [name.partition(".modules.")[2].partition("-")[0] for name in first] == ["node_info"]
    # it is neither packed nor copied again
    assert packed("second") == first
    cache.chmod(0o777)
    assert packed("third") == first
    for path in cache.rglob("*-none"):
        path.write_bytes(b"not a module")
    # of a directory that others can write nothing is read
    assert packed("fourth") == first


@pytest.mark.parametrize(("compared", "expected"), [("1", ["Show"]), ("", ["Validating", "Show"])])
def test_what_deepopsctl_has_compared_with_the_specs_ansible_does_not(
    tmp_path: Path, compared: str, expected: list[str]
) -> None:
    role = tmp_path / "roles" / "one"
    for part, text in {
        "meta/argument_specs.yml": '{"argument_specs": {"main": {"options": {"one_number": {"type": "int"}}}}}',
        "tasks/main.yml": '[{"name": "Show", "ansible.builtin.debug": {"msg": "shown"}}]',
    }.items():
        (role / part).parent.mkdir(parents=True)
        (role / part).write_text(text, encoding="utf-8")
    plays = [{"name": "Use it", "hosts": "all", "gather_facts": False, "roles": ["one"]}]
    settings = {"ANSIBLE_ROLES_PATH": str(role.parent), "DEEPOPSCTL_SETTINGS_COMPARED": compared}

    done = play(tmp_path, plays, {"a": {}}, settings=settings)

    assert done.status == 0, done.output
    assert [result.task.rpartition(" : ")[2].split()[0] for result in done.results] == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root of a node keeps anything")
def test_a_node_compiles_the_files_of_a_module_once_where_only_root_can_write(tmp_path: Path) -> None:
    task = {"name": "Ask", "deepopsctl.cluster.node_info": {}}
    plays = [{"name": "Ask it", "hosts": "all", "gather_facts": False, "tasks": [task]}]
    cache = tmp_path / "compiled"

    def kept(name: str) -> dict[str, int]:
        (tmp_path / name).mkdir()
        done = play(tmp_path / name, plays, {"a": {}}, settings={"DEEPOPSCTL_COMPILED": str(cache)})
        assert done.status == 0, done.output
        return {path.name: path.stat().st_ino for path in cache.glob("*")}

    first = kept("first")
    assert len(first) > 50
    assert not cache.stat().st_mode & 0o077
    assert kept("second") == first
    cut = next(cache.glob("*"))
    cut.write_bytes(cut.read_bytes()[:40])
    repaired = kept("third")
    assert {name for name in first if first[name] != repaired[name]} == {cut.name}
    for path in cache.glob("*"):
        path.write_bytes(b"not compiled")
    cache.chmod(0o777)
    # of a directory that others can write nothing is read, and nothing comes there
    assert kept("fourth") == repaired


ASKED = """
import marshal, sys
from plugins.plugin_utils import compiled

load, loaded = marshal.load, []
marshal.load = lambda stream: (loaded.append(1), load(stream))[1]
sys.path.insert(0, sys.argv[1])
compiled.keep_compiled(sys.argv[2])
import package.module
print(len(loaded), package.module.VALUE)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root of a node keeps anything")
def test_a_node_reads_each_file_of_a_module_once(tmp_path: Path) -> None:
    """Python asks an archive for a module's code to name its file, and again to run it."""
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("package/__init__.py", "")
        files.writestr("package/module.py", "VALUE = 3\n")
    command = [sys.executable, "-c", ASKED, str(archive), str(tmp_path / "compiled")]

    outputs = [subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout for _ in range(2)]

    assert outputs == ["0 3\n", "2 3\n"]
