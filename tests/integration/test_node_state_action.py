"""What a call of node_state leaves out is filled in, and its templates are rendered here, by real Ansible."""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_ansible import Played, collections_with_record_in, environment, play

SECRET = "correct-horse-battery-staple"
OWNER = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}
TEMPLATE = """\
# {{ 'with' if true }} two blank lines at the end, and a part
{% include 'part.j2' %}
{% for number in numbers %}
{{ number }} {{ word | default('no word') }}
{% endfor %}


"""


def write_role(roles: Path, name: str, steps: str, tasks: Sequence[Mapping[str, Any]]) -> None:
    for directory in ("tasks", "templates", "meta"):
        (roles / name / directory).mkdir(parents=True)
    (roles / name / "tasks" / "main.yml").write_text(json.dumps(list(tasks)), encoding="utf-8")
    (roles / name / "templates" / "main.j2").write_text(TEMPLATE, encoding="utf-8")
    (roles / name / "templates" / "part.j2").write_text("the part\n", encoding="utf-8")
    (roles / name / "templates" / "secret.j2").write_text("password={{ password }}\n", encoding="utf-8")
    if steps:
        (roles / name / "meta" / "steps.yml").write_text(steps, encoding="utf-8")


def call(name: str, *, module: str = "node_state", **arguments: object) -> dict[str, Any]:
    return {"name": name, f"deepopsctl.cluster.{module}": arguments, "ignore_errors": True}


def roles_in(roles: Path, etc: Path) -> None:
    main = {"src": "main.j2", "dest": f"{etc}/main", **OWNER}
    secret = {"src": "secret.j2", "dest": f"{etc}/secret", "secret": True, "mode": "0600", **OWNER}
    write_role(
        roles,
        "single",
        "component: test\nsteps: [one]\n",
        [
            call("as it is", templates=[main, secret]),
            call("again", templates=[main, secret]),
            call("with a variable", step="word", templates=[{**main, "dest": f"{etc}/word", "vars": {"word": "hi"}}]),
            call("block", step="block", templates=[{**main, "dest": f"{etc}/block", "block": True}]),
            call("own names", component="other", step="mine", digest="d2"),
            call("own empty digest", step="forgotten", digest=""),
            call("an undefined variable", templates=[main], vars={"numbers": "{{ no_such_variable }}"}),
            call("no such template", templates=[{**main, "src": "absent.j2"}]),
            call("an unknown key", templates=[{**main, "colour": "blue"}]),
            call("no destination", templates=[{"src": "main.j2"}]),
            {**call("another module", module="slurm_verify", scope="compute"), "check_mode": True},
            {
                "name": "lookup",
                "ansible.builtin.set_fact": {"looked_up": "{{ lookup('ansible.builtin.template', 'main.j2') }}"},
            },
        ],
    )
    write_role(
        roles, "several", "component: test\nsteps: [one, two]\n", [call("which one"), call("this one", step="two")]
    )
    write_role(roles, "silent", "", [call("no file")])


@pytest.fixture(scope="module")
def etc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("etc")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, etc: Path, state: Path) -> Played:
    work, roles = tmp_path_factory.mktemp("ansible"), tmp_path_factory.mktemp("roles")
    roles_in(roles, etc)
    own = collections_with_record_in(work, state)
    (work / "content" / "meta").symlink_to(Path(__file__).parents[2] / "meta")
    plays = [
        {
            "hosts": "n1",
            "gather_facts": False,
            "roles": ["single", "several", "silent"],
            "tasks": [call("in no role", step="x")],
            "vars": {"numbers": [1, 2], "password": SECRET, "deepops_digests": {"test": "{{ 'd' ~ 1 }}"}},
        }
    ]
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(own),
        "ANSIBLE_ROLES_PATH": f"{roles}:{environment(work)['ANSIBLE_ROLES_PATH']}",
    }
    return play(work, plays, {"n1": {}}, "--diff", "-vvv", settings=settings)


def record(state: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((state / "records" / f"{name}.json").read_text(encoding="utf-8"))
    return document


def test_a_template_has_the_bytes_that_the_lookup_gives(played: Played, etc: Path) -> None:
    text = played.result("lookup").data["ansible_facts"]["looked_up"]

    assert (etc / "main").read_text() == text
    assert text == "# with two blank lines at the end, and a part\nthe part1 no word\n2 no word\n\n\n"
    assert not played.result("again").changed


def test_it_may_have_variables_of_its_own_and_be_a_block_of_a_file(played: Played, etc: Path) -> None:
    assert "1 hi\n" in (etc / "word").read_text()
    assert (etc / "block").read_text().startswith("# BEGIN deepopsctl\n# with two")


def test_a_secret_one_is_written_and_shown_nowhere(played: Played, etc: Path) -> None:
    assert (etc / "secret").read_text() == f"password={SECRET}\n"
    assert SECRET not in played.output
    assert base64.b64encode(f"password={SECRET}\n".encode()).decode() not in played.output
    assert "(secret)" in json.dumps(played.result("as it is").data["diff"])


def test_component_step_and_digest_are_filled_in_unless_a_call_names_them(state: Path, played: Played) -> None:
    digests = {name: record(state, name)["digest"] for name in ("test.one", "test.two", "other.mine")}

    assert digests == {"test.one": "d1", "test.two": "d1", "other.mine": "d2"}
    assert not (state / "records" / "test.forgotten.json").exists()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("which one", "missing required arguments: step"),
        ("no file", "missing required arguments: component, step"),
        ("in no role", "missing required arguments: component"),
        ("an undefined variable", "'no_such_variable' is undefined"),
        ("no such template", "absent.j2"),
        ("an unknown key", "colour"),
        ("no destination", "an entry of `templates` has no 'dest'"),
    ],
)
def test_what_cannot_be_filled_in_is_an_error_that_says_what(played: Played, task: str, words: str) -> None:
    result = played.result(task)

    assert result.status == "failed"
    assert words in str(result.data["msg"])


def test_other_modules_get_the_same(played: Played) -> None:
    assert played.result("another module").status == "ok"
