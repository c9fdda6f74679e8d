"""Node programs as Ansible runs them: packed, over a connection, with the system's Python and without any file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.local_ansible import TaskResult, play


def run(directory: Path, name: str, *options: str, **arguments: Any) -> TaskResult:
    task = {"name": "Run it", "deepopsctl.cluster.node_program": {"name": name, **arguments}}
    home = directory / "home-on-node"
    home.mkdir(exist_ok=True)
    plays = [{"hosts": "all", "gather_facts": False, "environment": {"HOME": str(home)}, "tasks": [task]}]
    return play(directory, plays, {"n1": {}}, *options).result("Run it")


def test_a_program_runs_on_the_node_in_the_task_s_environment(tmp_path: Path) -> None:
    output = tmp_path / "home-on-node" / "deepopsctl-burnin-abc-12_0.out"
    output.parent.mkdir()
    output.write_text("left by a job")
    # a variable, as playbooks give them: what the program gets is its value
    done = run(tmp_path, "burn_in", "-e", "token=abc", input={"phase": "fetch", "token": "{{ token }}"}, clock=True)

    assert done.status == "ok", done.data
    assert done.data["deepops"] == {"checks": []}
    assert not done.changed
    assert done.data["clock"]["before"] - 1 < float(done.data["clock"]["remote"]) < done.data["clock"]["after"] + 1
    assert not output.exists()


def test_where_sudo_does_not_work_a_program_can_run_without_it_and_says_so(tmp_path: Path) -> None:
    request = {"names": "", "ports": {}, "outside": [], "settings": {}}
    broken = ("-e", '{"ansible_become": true, "ansible_become_user": "nobody", "ansible_become_exe": "/usr/bin/false"}')
    done = run(tmp_path, "node_doctor", *broken, input=request, sudo_optional=True)

    call, facts = done.data["deepops"]["call"], done.data["deepops"]["doctor"]
    assert call["sudo"] == "Premature end of stream waiting for become success."
    assert call["asked"]["before"] < facts["clock"]["begin"] <= facts["clock"]["end"] < call["asked"]["after"]


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    done = run(tmp_path, "burn_in", input={"phase": "none"})

    assert (done.status, done.data["msg"]) == ("failed", "KeyError: 'none'")
    assert "Traceback" in done.data["module_stderr"]


def test_a_program_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "burn_out")

    assert done.status == "failed"
    assert "no node program burn_out" in done.data["msg"]
