from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.content import content_dir, playbook
from deepopsctl.run import fan_out
from deepopsctl.run.questions import (
    GATE,
    INFO,
    JOBS,
    STATUS,
    Memory,
    Question,
    _read,
    archive,
    gate,
    is_repeatable,
    known,
    left_for_ansible,
)
from deepopsctl.run.request import RunRequest

SPEC = """\
schema: 1
cluster: {name: hpc, user: root}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: gpu01, addresses: 192.0.2.2, roles: [compute]}
"""
CLEAN = {"clean": True, "recorded": ["slurmd"], "foreign": {}, "restore_begun": False, "unregistered": []}


def event(node: str, module: str = "drift_check", **arguments: Any) -> dict[str, Any]:
    """What Ansible reports of a gate."""
    result = {"invocation": {"module_args": {"component": "slurm", "steps": ["slurmd"], **arguments}}}
    data = {"host": node, "task_action": f"deepopsctl.cluster.{module}", "res": result}
    return {"event": "runner_on_ok", "event_data": data}


DIGESTS = {gate("slurm"): "digest", gate("monitoring"): "other", INFO: "whole"}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDir:
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "cluster.yml").write_text(SPEC, encoding="utf-8")
    made = ClusterDir(tmp_path)
    (made.inventory_dir / "group_vars" / "all").mkdir(parents=True)
    return made


@pytest.fixture
def memory() -> Memory:
    made = Memory(DIGESTS)
    for node in ("ctl1", "gpu01"):
        made.note(event(node, digests={"slurm": "older"}, needs={"programs": ["/bin/true"]}))
    return made


def asked(directory: ClusterDir, memory: Memory, playbook: str = "slurm", **fields: Any) -> set[str]:
    return set(known(RunRequest(directory, playbook, **fields), directory.cluster(), memory))


def test_what_ansible_asked_is_asked_again_with_the_digest_of_this_run(directory: ClusterDir, memory: Memory) -> None:
    questions = known(RunRequest(directory, "slurm"), directory.cluster(), memory)

    (question,) = questions["gpu01"]
    assert (question.module, question.arguments["digests"]) == (GATE, {"slurm": "digest"})
    assert question.arguments["steps"] == ["slurmd"]
    # what only matters on a node with work
    assert question.arguments["needs"] == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"full": True}, {"tags": "slurm"}, {"verbosity": 3}, {"ssh_password": "x"}, {"become_password": ""},
        {"limit": "slurm_compute"}, {"limit": "gpu*"}, {"inventory": "all: {}"}, {"more": ("monitoring",)},
        {"user_vars": ({"ansible_port": 2222},)}, {"more": ("validate/smoke",)},
    ],
)  # fmt: skip
def test_ansible_asks_what_only_ansible_knows(directory: ClusterDir, memory: Memory, fields: dict[str, Any]) -> None:
    directory.hosts.write_text("own", encoding="utf-8")

    assert asked(directory, memory, **fields) == set()
    assert asked(directory, memory) == {"ctl1", "gpu01"}


@pytest.mark.parametrize("file", ["ansible.cfg", "inventory/group_vars/all/ssh.yml", "inventory/host_vars/gpu01.yml"])
def test_a_site_that_reaches_its_nodes_in_another_way_is_asked_by_ansible(
    directory: ClusterDir, memory: Memory, file: str
) -> None:
    path = directory.path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("ansible_become_method: doas\n", encoding="utf-8")

    assert asked(directory, memory) == set()


def test_ansibles_environment_is_its_own(
    directory: ClusterDir, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_REMOTE_PORT", "2222")

    assert asked(directory, memory) == set()


def test_a_run_with_variables_of_its_own_neither_keeps_nor_repeats_a_question(directory: ClusterDir) -> None:
    """`restore` and upgrades have steps of their own, under the same digest."""
    own: dict[str, Any] = {"deepops_restore": {"settings": {}}}

    assert not is_repeatable(RunRequest(directory, "slurm", extra_vars=own))
    assert is_repeatable(RunRequest(directory, "slurm", extra_vars={"deepops_hold_waiting": False}))


def test_a_deploy_asks_all_nodes_or_none(directory: ClusterDir, memory: Memory) -> None:
    del memory.asked[f"{GATE} slurm"]["gpu01"]

    assert asked(directory, memory) == set()
    assert asked(directory, memory, limit="ctl1") == {"ctl1"}


def test_a_later_component_is_known_from_the_gate_of_an_earlier_one(directory: ClusterDir) -> None:
    memory = Memory(DIGESTS)
    run = [{"component": "slurm", "steps": ["slurmd"]}, {"component": "monitoring", "steps": ["node"]}]
    for node in ("ctl1", "gpu01"):
        memory.note(event(node, run=run))

    questions = known(RunRequest(directory, "slurm", more=("monitoring",)), directory.cluster(), memory)

    assert [question.arguments["component"] for question in questions["gpu01"]] == ["slurm", "monitoring"]


def test_the_playbooks_of_questions_ask_by_the_modules_that_answer() -> None:
    for name in (STATUS, JOBS):
        assert f"deepopsctl.cluster.{INFO}:" in playbook(name).read_text(encoding="utf-8")


def test_a_plan_asks_the_controller_for_the_jobs_as_well(directory: ClusterDir, memory: Memory) -> None:
    questions = known(RunRequest(directory, "slurm", more=(JOBS,)), directory.cluster(), memory)

    assert [question.module for question in questions["ctl1"]] == [GATE, INFO]
    assert [question.module for question in questions["gpu01"]] == [GATE]


@pytest.mark.parametrize(
    "change",
    [
        {"clean": False}, {"clean": "yes"}, {"recorded": ["slurmd", "slurm_login"]}, {"restore_begun": True},
        {"foreign": {"what": "slurmd"}}, {"unregistered": ["gpu01"]}, {"recorded": None},
    ],
)  # fmt: skip
def test_anything_that_a_play_would_work_on_is_not_settled(change: dict[str, Any]) -> None:
    question = Question(GATE, "slurm", {"steps": ["slurmd"]})

    assert question.is_settled(CLEAN)
    assert not question.is_settled({**CLEAN, **change})


def test_of_a_status_ansible_asks_only_the_silent_ones(directory: ClusterDir, memory: Memory) -> None:
    cluster, status = directory.cluster(), RunRequest(directory, STATUS)
    for node in ("ctl1", "gpu01"):
        memory.note(event(node, "node_info", components=[{"component": "slurm", "steps": ["slurmd"]}], slurm=False))
    questions = known(status, cluster, memory)

    assert left_for_ansible(status, cluster, questions, {"ctl1": [{}]}) == ("gpu01",)


def test_a_deploy_is_ansibles_where_one_node_has_work_or_is_silent(directory: ClusterDir, memory: Memory) -> None:
    cluster, deploy = directory.cluster(), RunRequest(directory, "slurm")
    questions = known(deploy, cluster, memory)
    both = ("ctl1", "gpu01")

    assert left_for_ansible(deploy, cluster, questions, {"ctl1": [CLEAN], "gpu01": [CLEAN]}) == ()
    assert left_for_ansible(deploy, cluster, questions, {"ctl1": [CLEAN]}) == both
    assert left_for_ansible(deploy, cluster, questions, {"ctl1": [CLEAN], "gpu01": [{**CLEAN, "clean": False}]}) == both


def test_it_is_kept_for_the_same_digest_alone(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "questions.json"
    memory.save(path)

    assert Memory.load(path, DIGESTS).asked == memory.asked
    assert Memory.load(path, {**DIGESTS, gate("monitoring"): "another"}).asked == memory.asked
    assert Memory.load(path, {**DIGESTS, gate("slurm"): "another"}).asked == {}
    # equal arguments of many nodes stand there once
    assert len(json.loads(path.read_text(encoding="utf-8"))["arguments"]) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"digests": {"x": ""}, "arguments": [], "asked": {"x": {"n": 3}}}'])
def test_a_damaged_memory_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "questions.json"
    path.write_text(text, encoding="utf-8")

    assert Memory.load(path, {"x": ""}).asked == {}


@pytest.mark.parametrize(
    "output",
    ["", "[]", "{", "3", '["x"]', "[{}, {}]", '[{"msg": "x"}]', "[" * 200_000, '[{"a":' + "[" * 900 + "]" * 900 + "}]"],
    ids=lambda output: output[:12],
)
def test_an_answer_that_is_none_is_no_answer(output: str) -> None:
    """Root of a node writes it; Ansible asks that node."""
    sent = fan_out.Answer(0, b"noise of a login\nDEEPOPSCTL-ANSWER " + output.encode())
    asked = {"gpu01": [Question(INFO, "status", {})]}

    assert dict(_read({"gpu01": sent}, asked)) == {}
    good = fan_out.Answer(0, b'DEEPOPSCTL-ANSWER [{"deepops": {}}]')
    assert dict(_read({"gpu01": good}, asked)) == {"gpu01": [{"deepops": {}}]}


def test_the_program_has_all_that_it_imports(tmp_path: Path) -> None:
    """As it lies on a node, without Ansible and without this checkout."""
    zipfile.ZipFile(BytesIO(b64decode(archive(content_dir())))).extractall(tmp_path)
    start = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.modules['ansible'] = None; "
        "from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.questions import main; main()"
    )
    arguments = {"component": "nothing", "steps": ["x"], "digests": {"nothing": "d"}}
    questions = [
        {
            "question": GATE,
            "arguments": {**arguments, "run": [], "registered": [], "foreign": False, "needs": {}, "requires": {}},
        },
        {"question": INFO, "arguments": {"components": [], "slurm": False}},
        {"question": "no such question", "arguments": {}},
    ]

    done = subprocess.run(
        [sys.executable, "-IBc", start], input=json.dumps(questions) + "\n", capture_output=True, text=True, check=True
    )

    answers = json.loads(done.stdout.removeprefix("DEEPOPSCTL-ANSWER "))
    assert answers[0]["reasons"] == ["never deployed"]
    assert answers[1] == {"deepops": {}}
    assert "KeyError" in answers[2]["msg"]
