"""Secrets reach the nodes, and nothing of them stays in the run directory."""

from __future__ import annotations

from pathlib import Path

import pexpect
import pytest

from deepopsctl.errors import ExitCode
from tests.integration.sites import Site, play
from tests.support.files import write_program

SECRETS = ("arg-5eCr3t", "param-5eCr3t", "var-5eCr3t", "environment-5eCr3t", "sudo-5eCr3t", "loop-5eCr3t")

TASKS = """
- name: Argument
  command: echo {{ arg }}
  no_log: true
- name: Failing argument
  command: ls {{ arg }}
  no_log: true
  ignore_errors: true
- name: Parameter
  deepopsctl.cluster.card: {key: '{{ param }}', fail: true}
  ignore_errors: true
- name: Variable
  command: echo {{ password }}
  no_log: true
- name: Loop
  command: ls {{ item }}
  loop: ['{{ item_secret }}']
  no_log: true
  ignore_errors: true
"""

# Speaks sudo's protocol: asks with the prompt of its arguments, runs the command for the right word only
SUDO = """\
while :; do case "$1" in -p) prompt=$2; shift 2;; -u) shift 2;; -*) shift;; *) break;; esac; done
printf '%s' "$prompt" >&2
read -r word
[ "$word" = sudo-5eCr3t ] || { echo 'Sorry, try again.' >&2; exit 1; }
exec "$@"
"""


def files_with(directory: Path, words: tuple[str, ...]) -> list[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [f"{word} in {path}" for path in files for word in words if word in path.read_text(errors="replace")]


def test_no_secret_stays_in_the_run_directory(site: Site) -> None:
    site.write_playbook("slurm", play(TASKS))
    secrets = {"arg": "arg", "param": "param", "password": "var", "item_secret": "loop"}
    variables = [word for key, value in secrets.items() for word in ("-e", f"{key}={value}-5eCr3t")]
    done = site.command("deploy", *variables, MY_TOKEN="environment-5eCr3t")
    assert done.returncode == ExitCode.OK, done.stderr
    assert files_with(site.directory.runs, SECRETS) == []
    assert [word for word in SECRETS if word in done.stderr + done.stdout] == []


def test_a_run_leaves_exactly_its_own_files_closed_to_others(site: Site) -> None:
    site.run("- name: One\n  debug: {msg: x}\n")
    directory = site.last_run()
    assert sorted(path.name for path in directory.iterdir()) == [
        "events.jsonl",
        "run.json",
        "stdout.log",
        "summary.json",
    ]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_no_file_holds_the_environment_while_the_run_goes_on(site: Site) -> None:
    query = f"- name: Look\n  command: grep -rl environment-5eCr3t '{site.directory.runs}'\n  register: seen\n"
    show = "  failed_when: false\n- name: Show\n  fail: {msg: 'found: {{ seen.stdout }}'}\n"
    site.write_playbook("slurm", play(query + show, "n1"))
    site.command("deploy", MY_TOKEN="environment-5eCr3t")
    assert site.summary()["failures"][0]["message"] == "found:"


def test_what_a_killed_run_left_behind_changes_nothing(site: Site) -> None:
    site.run("- name: One\n  debug: {msg: x}\n")
    stale = site.last_run() / ".private" / "runner" / "env"
    stale.mkdir(parents=True)
    (stale / "envvars").write_text('{"STALE": "old", "ANSIBLE_FORKS": "1"}')
    (stale / "extravars").write_text('{"colour": "stale"}')
    outcome = site.run("- name: Show\n  fail: {msg: \"{{ lookup('env', 'STALE') }}-{{ colour }}\"}\n", limit="n1")
    assert outcome.summary.failures[0].message == "-site"
    assert not stale.exists()


@pytest.mark.parametrize(("word", "code"), [("sudo-5eCr3t", ExitCode.OK), ("wrong-5eCr3t", ExitCode.FAILED)])
def test_the_sudo_password_is_asked_once_and_written_nowhere(
    site: Site, tmp_path: Path, word: str, code: ExitCode
) -> None:
    sudo = write_program(tmp_path / "sudo", SUDO)
    site.directory.settings.write_text(site.directory.settings.read_text() + f"ansible_become_exe: {sudo}\n")
    site.write_playbook("slurm", play("- name: Root\n  command: id\n  become: true\n  become_user: daemon\n"))
    terminal = site.on_a_terminal("deploy", "-K")

    terminal.expect("sudo password:")
    terminal.sendline(word)
    terminal.expect(pexpect.EOF)
    terminal.close()

    assert terminal.exitstatus == code, terminal.before
    assert word not in str(terminal.before)
    assert files_with(site.directory.runs, (word,)) == []
    if code:
        assert "the sudo password was refused" in str(terminal.before)
