from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from base64 import b64decode
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import render_inventory
from deepopsctl.cluster.ssh_login import cheap_exchange, options
from deepopsctl.content import content_dir, playbook
from deepopsctl.run import fan_out, questions as asking
from deepopsctl.run.question_program import archive
from deepopsctl.run.questions import (
    DOCTOR,
    DOCTOR_PLAYBOOK,
    GATE,
    INFO,
    JOBS,
    SLURM_INFO,
    STATUS,
    Memory,
    Question,
    Replies,
    ask,
    components_left,
    gate,
    is_repeatable,
    known,
    nodes_left,
    without_secrets,
)
from deepopsctl.run.request import IMPATIENT_SSH, RunRequest
from deepopsctl.run.runner import QUESTIONS, _Run
from deepopsctl.run.workspace import RunDir
from tests.support.files import write_program

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
        {"full": True}, {"tags": "slurm"}, {"verbosity": 3}, {"ssh_password": "x"},
        {"limit": "slurm_compute"}, {"limit": "gpu*"}, {"inventory": "all: {}"},
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
    for name in (STATUS, JOBS, SLURM_INFO):
        assert f"deepopsctl.cluster.{INFO}:" in playbook(name).read_text(encoding="utf-8")
    (play,) = yaml.safe_load(playbook(DOCTOR_PLAYBOOK).read_text(encoding="utf-8"))
    (task,) = play["tasks"]
    assert task["deepopsctl.cluster.node_program"]["name"] == DOCTOR
    # a report calls it the same on both ways
    assert QUESTIONS[DOCTOR_PLAYBOOK] == (play["name"], task["name"])
    assert f"default({asking.GATE_S:g})" in task["timeout"]


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
    question = Question(GATE, {"steps": ["slurmd"]})

    assert question.is_settled(CLEAN)
    assert not question.is_settled({**CLEAN, **change})


def test_of_a_status_ansible_asks_only_those_that_gave_no_answer(directory: ClusterDir, memory: Memory) -> None:
    cluster, status = directory.cluster(), RunRequest(directory, STATUS)
    for node in ("ctl1", "gpu01"):
        memory.note(event(node, "node_info", components=[{"component": "slurm", "steps": ["slurmd"]}], slurm=False))
    questions = known(status, cluster, memory)

    assert nodes_left(questions, Replies({"ctl1": [{}]})) == ("gpu01",)
    # that it is off is an answer, too
    off = Replies({"ctl1": [{}]}, {"gpu01": ("runner_on_unreachable", "Connection refused")})
    assert nodes_left(questions, off) == ()


def test_a_node_that_never_answered_is_asked_for_a_sign_of_life(directory: ClusterDir, memory: Memory) -> None:
    cluster, status = directory.cluster(), RunRequest(directory, STATUS)
    assert known(status, cluster, memory) == {}
    memory.note(event("ctl1", "node_info", components=[{"component": "slurm", "steps": ["slurmd"]}]))

    assert [(name, len(each)) for name, each in known(status, cluster, memory).items()] == [("ctl1", 1), ("gpu01", 0)]


def test_the_first_status_asks_what_the_gate_of_a_deploy_said(directory: ClusterDir) -> None:
    memory = Memory(DIGESTS)
    status = {
        "components": [{"component": "slurm", "steps": ["slurmd"]}],
        "digests": {"slurm": "digest"},
        "slurm": False,
    }
    memory.note(event("gpu01", status=status))

    questions = known(RunRequest(directory, STATUS), directory.cluster(), memory)

    assert questions == {"ctl1": [], "gpu01": [Question(INFO, status)]}


def test_a_deploy_is_ansibles_where_one_node_has_work_or_is_silent(directory: ClusterDir, memory: Memory) -> None:
    cluster, deploy = directory.cluster(), RunRequest(directory, "slurm")
    questions = known(deploy, cluster, memory)
    off = {"gpu01": ("runner_on_unreachable", "Connection refused")}

    assert components_left(deploy, questions, Replies({"ctl1": [CLEAN], "gpu01": [CLEAN]})) == ()
    assert components_left(deploy, questions, Replies({"ctl1": [CLEAN]}, off)) == ("slurm",)
    work = Replies({"ctl1": [CLEAN], "gpu01": [{**CLEAN, "clean": False}]})
    assert components_left(deploy, questions, work) == ("slurm",)


def test_ansible_begins_with_the_first_component_that_has_work_or_is_not_known(
    directory: ClusterDir, memory: Memory
) -> None:
    cluster = directory.cluster()
    deploy = RunRequest(directory, "slurm", more=("monitoring", JOBS))
    asked = known(deploy, cluster, memory)

    # monitoring was not asked about since its settings changed
    assert [len(each) for each in asked.values()] == [1, 1]
    assert components_left(deploy, asked, Replies({"ctl1": [CLEAN], "gpu01": [CLEAN]})) == ("monitoring",)
    work = Replies({"ctl1": [CLEAN], "gpu01": [{**CLEAN, "clean": False}]})
    assert components_left(deploy, asked, work) == ("slurm", "monitoring")


def test_the_doctor_asks_what_its_playbook_asked(directory: ClusterDir, memory: Memory) -> None:
    examined = {"names": "ctl1 gpu01", "ports": {"slurmctld": 6817}}
    for node in ("ctl1", "gpu01"):
        memory.note(event(node, "node_program", name=DOCTOR, input=examined))
        memory.note(event(node, "node_program", name="burn_in", input={"token": "x"}))
    own = {"deepops_doctor_names": "ctl1 gpu01"}
    request = RunRequest(directory, DOCTOR_PLAYBOOK, extra_vars=own)

    assert is_repeatable(request)
    assert not request.deploys
    assert known(request, directory.cluster(), memory) == {
        node: [Question(DOCTOR, examined)] for node in ("ctl1", "gpu01")
    }


def test_a_run_has_a_digest_for_each_question_that_it_keeps(directory: ClusterDir, tmp_path: Path) -> None:
    """Without one, nothing would ever be asked again."""
    run = _Run(RunRequest(directory, STATUS), RunDir(tmp_path), lambda _: None, tmp_path / "lock")

    assert run._digests().keys() >= {INFO, DOCTOR}


def test_a_wait_asks_the_first_controller_alone_whatever_was_asked_before(directory: ClusterDir) -> None:
    request, nothing = RunRequest(directory, SLURM_INFO), Memory({})
    questions = known(request, directory.cluster(), nothing)

    ((name, (question,)),) = questions.items()
    assert (name, question.module) == ("ctl1", INFO)
    (play,) = yaml.safe_load(playbook(SLURM_INFO).read_text(encoding="utf-8"))
    module = play["tasks"][0]["deepopsctl.cluster.node_info"]
    assert {key: question.arguments[key] for key in ("slurm", "slurm_wait")} == {"slurm": True, "slurm_wait": 20}
    assert (module["slurm"], module["slurm_wait"]) == (True, 20)
    assert known(RunRequest(directory, SLURM_INFO, limit="gpu01"), directory.cluster(), nothing) == {}


class Sent:
    """The calls of one request, and what is answered to each: by node, the next one of a list."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[fan_out.Answer]) -> None:
        self.calls: list[fan_out.Call] = []
        self.answers = answers
        monkeypatch.setattr(fan_out, "ask_all", self.ask_all)

    def ask_all(self, calls: Iterable[fan_out.Call], **_: object) -> dict[str, fan_out.Answer]:
        asked = list(calls)
        self.calls += asked
        return {call.node: self.answers[call.node].pop(0) for call in asked}


FACTS = b'DEEPOPSCTL-BEGUN\nDEEPOPSCTL-RESULT {"deepops": {"doctor": {"root": true}}}'
DOCTORS = {"ctl1": [Question(DOCTOR, {"names": ""})], "gpu01": [Question(DOCTOR, {"names": ""})]}


def test_the_doctors_program_comes_from_memory_and_the_answer_has_its_time(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, refused = (
        fan_out.Answer(0, FACTS, began=5.0, ended=7.5),
        fan_out.Answer(1, b"", "sudo: a password is required"),
    )
    sent = Sent(monkeypatch, ctl1=[good], gpu01=[refused])
    request = RunRequest(directory, DOCTOR_PLAYBOOK, ssh=IMPATIENT_SSH)

    replies = ask(request, directory.cluster(), DOCTORS, content_dir(), lambda: False)

    ((answer,),) = replies.answers.values()
    assert answer["deepops"]["call"] == {"asked": {"before": 5.0, "after": 7.5}, "sudo": ""}
    # Ansible asks it without sudo, and says what sudo said
    assert nodes_left(DOCTORS, replies) == ("gpu01",)
    call = sent.calls[0]
    assert "/var/lib/deepopsctl/programs" not in call.command[-1]
    assert "ControlPath=none" in call.command
    assert len(call.data.splitlines()) == 2


@pytest.mark.parametrize(
    ("changes", "cheap"),
    [({}, True), ({"become_password": "x"}, False), ({"ssh_password": "x"}, False), ({"verbosity": 1}, False)],
)
def test_a_password_is_kept_from_computers_to_come(
    directory: ClusterDir, changes: dict[str, Any], *, cheap: bool
) -> None:
    request = without_secrets(RunRequest(directory, DOCTOR_PLAYBOOK, ssh=IMPATIENT_SSH, **changes), directory.cluster())

    shown = subprocess.run(["ssh", "-G", *options(request.ssh), "any"], capture_output=True, text=True, check=True)

    algorithms = shown.stdout.partition("\nkexalgorithms ")[2].splitlines()[0].split(",")
    assert (algorithms[0] == "ecdh-sha2-nistp256") is cheap
    # a node that lacks it uses another
    assert len(algorithms) > 1


@pytest.mark.parametrize(
    ("script", "cheap"),
    [
        ("", True),
        # an older one
        ('case "$*" in *KexAlgorithms=^*) exit 255 ;; esac', False),
        # a configuration of the person's, or the system's
        ('case "$*" in *"-F none"*) ;; *) set -- -o KexAlgorithms=curve25519-sha256 "$@" ;; esac', False),
    ],
)
def test_what_a_site_chooses_and_what_an_old_ssh_lacks_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, *, cheap: bool
) -> None:
    wrapper = f'{script}\nexec {shutil.which("ssh")} "$@"'
    monkeypatch.setenv("PATH", f"{write_program(tmp_path / 'ssh', wrapper).parent}:{os.environ['PATH']}")

    assert bool(cheap_exchange.__wrapped__()) is cheap


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (fan_out.Answer(255, b"", "ssh: connect to host x port 22: Connection refused\n"), "runner_on_unreachable",
         "Failed to connect to the host via ssh: ssh: connect to host x port 22: Connection refused"),
        (fan_out.Answer(None, b"DEEPOPSCTL-BEGUN\n", late=True), "runner_on_failed", "Timed out after 60 second(s)."),
        # a sudo that hangs, an answer without end, no Python: Ansible finds out
        (fan_out.Answer(None, b"", late=True), "", ""),
        (fan_out.Answer(None), "", ""),
        (fan_out.Answer(127, b"", "python3: not found"), "", ""),
    ],
)  # fmt: skip
def test_a_silent_node_is_reported_as_ansible_would(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch, answer: fan_out.Answer, kind: str, words: str
) -> None:
    Sent(monkeypatch, ctl1=[fan_out.Answer(0, FACTS)], gpu01=[answer])

    replies = ask(RunRequest(directory, DOCTOR_PLAYBOOK), directory.cluster(), DOCTORS, content_dir(), lambda: False)

    assert replies.silent.get("gpu01", ("", "")) == (kind, words)
    assert nodes_left(DOCTORS, replies) == (() if kind else ("gpu01",))


def test_a_busy_jump_host_makes_no_node_silent(directory: ClusterDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sshd hangs up on some of those that come at once (MaxStartups)."""
    dropped = "kex_exchange_identification: read: Connection reset by peer\nConnection closed by UNKNOWN port 65535\n"
    behind = "channel 0: open failed: connect failed: No route to host\nkex_exchange_identification: closed\n"
    sent = Sent(
        monkeypatch,
        ctl1=[fan_out.Answer(255, b"", dropped), fan_out.Answer(0, FACTS)],
        gpu01=[fan_out.Answer(255, b"", behind)],
    )

    replies = ask(RunRequest(directory, DOCTOR_PLAYBOOK), directory.cluster(), DOCTORS, content_dir(), lambda: False)

    assert list(replies.answers) == ["ctl1"]
    assert list(replies.silent) == ["gpu01"]
    assert [call.node for call in sent.calls] == ["ctl1", "gpu01", "ctl1"]


def test_a_busy_control_machine_makes_no_node_silent(directory: ClusterDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ssh measures by the clock, also while it is not run; one that ran all the time is believed."""
    late = "Connection timed out during banner exchange\nConnection to 192.0.2.1 port 22 timed out\n"
    sent = Sent(
        monkeypatch,
        ctl1=[fan_out.Answer(255, b"", late, starved_s=4), fan_out.Answer(0, FACTS)],
        gpu01=[fan_out.Answer(255, b"", late, starved_s=0.1)],
    )

    replies = ask(RunRequest(directory, DOCTOR_PLAYBOOK), directory.cluster(), DOCTORS, content_dir(), lambda: False)

    assert list(replies.answers) == ["ctl1"]
    assert list(replies.silent) == ["gpu01"]
    assert [call.node for call in sent.calls] == ["ctl1", "gpu01", "ctl1"]


def test_a_question_goes_through_the_jump_hosts_that_ansible_goes_through(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SPEC.replace("user: root}", "user: ada, jump_host: 'eve@192.0.2.9:2222'}")
    directory.spec.write_text(text, encoding="utf-8")
    sent = Sent(monkeypatch, ctl1=[fan_out.Answer(0)])
    cluster = directory.cluster()

    ask(RunRequest(directory, SLURM_INFO), cluster, known(RunRequest(directory, SLURM_INFO), cluster, Memory({})),
        content_dir(), lambda: False)  # fmt: skip

    command = sent.calls[0].command
    (proxy,) = (word for word in command if word.startswith("ProxyCommand="))
    of_ansible = yaml.safe_load(render_inventory(cluster))["all"]["vars"]["ansible_ssh_common_args"]
    arguments = of_ansible.replace("{{ inventory_dir }}/..", str(directory.path))
    assert proxy in shlex.split(arguments)
    assert "-p 2222 -l eve -- 192.0.2.9" in proxy
    assert command[-1].startswith("sudo -n /usr/bin/python3 -IBc")


def test_of_two_controllers_a_wait_asks_the_first_and_a_status_gives_both_more_time(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's commands ask a controller that is away, before they ask the next one."""
    second = "  - {names: ctl2, addresses: 192.0.2.3, roles: [controller]}\n"
    directory.spec.write_text(SPEC + second, encoding="utf-8")
    cluster = directory.cluster()
    sent = Sent(monkeypatch, **{name: [fan_out.Answer(0)] for name in ("ctl1", "ctl2", "gpu01")})
    slurm, other = Question(INFO, {"components": [{}], "slurm": True}), Question(INFO, {"components": [{}]})
    request = RunRequest(directory, STATUS, extra_vars={"deepops_node_timeout": 10})

    ask(request, cluster, {"ctl1": [slurm], "ctl2": [slurm], "gpu01": [other]}, content_dir(), lambda: False)

    assert {call.node: (call.timeout_s, call.most) for call in sent.calls} == {
        "ctl1": (30, fan_out.MOST_BYTES_OF_SLURM), "ctl2": (30, fan_out.MOST_BYTES_OF_SLURM),
        "gpu01": (10, fan_out.MOST_BYTES),
    }  # fmt: skip
    assert set(known(RunRequest(directory, SLURM_INFO), cluster, Memory({}))) == {"ctl1"}


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
def test_an_answer_that_is_none_is_no_answer(
    directory: ClusterDir, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """Root of a node writes it; Ansible asks that node."""
    noise = b"noise of a login\nDEEPOPSCTL-ANSWER "
    asked = {name: [Question(INFO, {})] for name in ("ctl1", "gpu01")}
    Sent(monkeypatch, ctl1=[fan_out.Answer(0, noise + b'[{"deepops": {}}]')],
         gpu01=[fan_out.Answer(0, noise + output.encode())])  # fmt: skip

    replies = ask(RunRequest(directory, STATUS), directory.cluster(), asked, content_dir(), lambda: False)

    assert replies == Replies({"ctl1": [{"deepops": {}}]})


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
