"""Several steps in one call are what each is by itself, by real Ansible."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_node_state_action import OWNER, SECRET, record, write_role
from tests.support.local_ansible import Played, collections_with_record_in, environment, play


def steps(name: str, *entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "deepopsctl.cluster.node_steps": {"steps": list(entries)}, "ignore_errors": True, **more}


def state_of(step: str, **options: Any) -> dict[str, Any]:
    return {"module": "node_state", "step": step, "options": options}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Played:
    work, roles = tmp_path_factory.mktemp("ansible"), tmp_path_factory.mktemp("roles")
    etc = tmp_path_factory.mktemp("etc")
    main = {"src": "main.j2", "dest": f"{etc}/main", **OWNER}
    secret = {"src": "secret.j2", "dest": f"{etc}/secret", "secret": True, "mode": "0600", **OWNER}
    refused = {"path": f"{etc}/refused", "content": "text\n", "validate": ["false", "%s"], **OWNER}
    left_out = {**state_of("left_out"), "when": "{{ numbers | length > 2 }}"}
    verify = {"module": "slurm_verify", "step": "converged", "options": {"scope": "compute", "nodes": ["n1"]}}
    tasks = [
        steps("all", state_of("one", templates=[main]), state_of("two", templates=[secret]), left_out),
        steps("again", state_of("one", templates=[main]), state_of("two", templates=[secret])),
        steps("a plan", state_of("plan", templates=[{**main, "dest": f"{etc}/plan"}]), verify, check_mode=True),
        steps("broken", state_of("before", templates=[{**main, "dest": f"{etc}/before"}]),
              state_of("broken", files=[refused]), state_of("after")),
        steps("dies", {"module": "login_access", "step": "dies", "options": {"limits": {"TasksMax": "x y"}}}),
        # one node is what it takes
        steps("raises", {"module": "slurm_verify", "step": "raises", "options": {"scope": "compute", "nodes": []}}),
        steps("warns", state_of("warns", packages=["no-such"], manual_installs={"no-such": str(etc)})),
        steps("unknown option", state_of("one", colour="blue")),
        steps("no module", {"step": "one"}),
        steps("unknown module", {"module": "command", "step": "one"}),
        {"name": "no steps", "deepopsctl.cluster.node_steps": {"step": "one"}, "ignore_errors": True},
    ]  # fmt: skip
    write_role(roles, "several", "component: test\nsteps: [one, two]\n", tasks)
    own = collections_with_record_in(work, state)
    (work / "content" / "meta").symlink_to(Path(__file__).parents[2] / "meta")
    plays = [
        {
            "hosts": "n1",
            "gather_facts": False,
            "roles": ["several"],
            "vars": {"numbers": [1, 2], "password": SECRET, "deepops_digests": {"test": "{{ 'd' ~ 1 }}"}},
        }
    ]
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(own),
        "ANSIBLE_ROLES_PATH": f"{roles}:{environment(work)['ANSIBLE_ROLES_PATH']}",
    }
    return play(work, plays, {"n1": {}}, "--diff", "-vvv", settings=settings)


def test_each_step_is_done_and_recorded_with_its_templates_and_digest(played: Played, state: Path) -> None:
    result = played.result("all")

    assert (result.status, result.changed) == ("ok", True)
    assert [each["step"] for each in result.data["results"]] == ["one", "two"]
    assert [Path(change["name"]).name for change in result.data["changes"]] == ["main", "secret"]
    assert {record(state, f"test.{step}")["digest"] for step in ("one", "two")} == {"d1"}
    assert not (state / "records" / "test.left_out.json").exists()


def test_what_is_done_already_changes_nothing(played: Played) -> None:
    result = played.result("again")

    assert (result.status, result.changed, result.data["changes"]) == ("ok", False, [])


def test_a_secret_of_a_step_is_shown_nowhere(played: Played) -> None:
    assert SECRET not in played.output
    assert base64.b64encode(f"password={SECRET}\n".encode()).decode() not in played.output
    assert "(secret)" in json.dumps(played.result("all").data["diff"])


def test_check_mode_is_that_of_each_step(played: Played, state: Path) -> None:
    result = played.result("a plan")

    assert (result.status, result.changed) == ("ok", True)
    assert "the part1 no word" in json.dumps(result.data["diff"])
    assert not (state / "records" / "test.plan.json").exists()


def test_the_first_that_fails_ends_the_call_and_what_was_done_is_told(played: Played, state: Path) -> None:
    result = played.result("broken")

    assert (result.status, result.changed) == ("failed", True)
    assert "refused" in str(result.data["msg"])
    assert [Path(change["name"]).name for change in result.data["changes"]] == ["before"]
    assert (state / "records" / "test.before.json").exists()
    assert not (state / "records" / "test.after.json").exists()


def test_a_warning_of_a_step_is_one_of_the_task(played: Played) -> None:
    assert "was installed manually" in str(played.result("warns").data["warnings"])


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("unknown option", "colour"),
        ("no module", "no step is of the module None"),
        ("unknown module", "no step is of the module command"),
        ("no steps", "needs `steps`"),
        ("dies", "TasksMax"),
        ("raises", "slurm_verify: ValueError: not enough values to unpack"),
    ],
)
def test_what_is_no_step_is_an_error_that_says_what(played: Played, task: str, words: str) -> None:
    result = played.result(task)

    assert result.status == "failed"
    assert words in str(result.data["msg"])
