"""The commands of guides: the list, its page, and what the suite makes of a shell's answers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deepopsctl.checks.catalogue.environment import ENVIRONMENT
from deepopsctl.checks.catalogue.smoke import SMOKE
from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs._slurm_jobs.session import Running, Session
from deepopsctl.node_programs.suites.validate_environment import guides
from deepopsctl.node_programs.suites.validate_environment.guides import COMMANDS, Command
from tests.support.paths import ROOT

EVERYTHING = {
    "modules": ["python", "gcc"], "module_system": "lmod", "wheels": True, "proxy": {"host": "x"},
    "spaces": [{"name": "scratch"}],
}  # fmt: skip


def test_each_command_is_run_or_checked_or_has_its_reason() -> None:
    known = {*SMOKE, *ENVIRONMENT}

    assert [each.typed for each in COMMANDS if bool(each.run) + bool(each.check) + (not each.works) != 1] == []
    assert [each.typed for each in COMMANDS if not each.works and not each.here] == []
    assert {each.check for each in COMMANDS if each.check} <= known
    assert len({each.typed for each in COMMANDS}) == len(COMMANDS)


def test_the_suite_runs_every_command_of_the_list_that_the_page_calls_checked() -> None:
    listed = [each for each in COMMANDS if each.run]

    modules = ["StdEnv/2023", "cuda", "python/3.11", "python/3.12"]
    assert guides.runnable(guides.features_of(EVERYTHING, modules)) == listed
    assert guides.runnable(guides.features_of({})) == [each for each in listed if not each.needs]


def test_the_page_is_that_list() -> None:
    page = ROOT / "docs" / "users" / "from-other-clusters.md"

    assert subprocess.run([sys.executable, str(ROOT / "scripts" / "guide-commands"), "--check"]).returncode == 0
    assert page.read_text(encoding="utf-8").count("\n| ") == len(COMMANDS) + 1


def test_what_fails_is_named_with_its_text_and_the_others_count(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = (
        Command("good", "FAU", run="cd / && cat && echo fine"),
        Command("bad", "FAU", run="echo no such thing >&2; exit 3"),
        Command("after", "FAU", run='[ "${PWD%/*}" = "$HOME" ]'),
        Command("reads", "FAU", run="! read line"),
    )
    monkeypatch.setattr(guides, "COMMANDS", commands)

    (made,) = guides.verify_guides("n1", ["bash", "-c"], [])

    assert (made["status"], made["measured"], made["message"]) == ("fail", "3", "bad: exits 3: no such thing")


def test_what_a_persons_profile_prints_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guides, "COMMANDS", (Command("sq", "Alliance", run="true"),))
    shell = ["bash", "-c", 'echo deepopsctl-guide; echo "deepopsctl-guide x y"; eval "$0"']

    (made,) = guides.verify_guides("n1", shell, [])

    assert made["status"] == "pass"


def test_a_shell_that_does_not_start_fails_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guides, "COMMANDS", (Command("sq", "Alliance", run="sq"),))

    (made,) = guides.verify_guides("n1", ["sh", "-c", "echo broken >&2; exit 1"], [])

    assert (made["status"], made["message"]) == ("fail", "sq: sh: broken")


def test_each_command_is_one_that_bash_can_read() -> None:
    for each in COMMANDS:
        done = subprocess.run(["bash", "-n", "-c", each.run], capture_output=True, text=True)
        assert done.returncode == 0, each.typed + done.stderr


def test_what_a_site_prints_before_each_task_is_no_part_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Running(["sh", "-c", "echo Welcome to gpu01; echo deepopsctl-guide 12"], {})
    answers = {"srun": "Welcome to gpu01\n12\n", "scancel": ""}
    monkeypatch.setattr(command, "run", lambda argv, *_, **__: Result(argv[0], 0, answers[argv[0]], "", 0.1))
    session = Session("environment", "abc", "alice")
    monkeypatch.setattr(session, "start", lambda *_arguments: step)

    (check,) = guides.verify_in_job("hpc", session)

    assert (check["status"], check["message"]) == ("pass", "")
