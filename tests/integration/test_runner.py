"""The runner with real Ansible on this host: what a run does, reports, and leaves behind."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deepopsctl.cluster.secrets import encrypt
from deepopsctl.errors import ControlMachineError, ExitCode
from deepopsctl.run.events import Event, HostResult, TaskStarted
from deepopsctl.run.late import TIMED_OUT
from deepopsctl.run.lock import cluster_lock
from deepopsctl.run.outcome import Failure, RunOutcome, reduce
from deepopsctl.run.request import RunRequest
from deepopsctl.run.runner import run_playbooks, run_readonly
from tests.integration.sites import MODULE, Site, make_site, make_unreachable, play
from tests.support.files import write_program

# ctl1 fails in a module, n1 in a loop, n2 is not there
TASKS = """
- name: Long
  command: seq 1000
- name: Same
  command: 'true'
  changed_when: false
- name: Skipped
  debug: {msg: no}
  when: inventory_hostname == 'nobody'
- name: Secret
  command: 'true'
  no_log: true
- name: Ignored
  command: 'false'
  ignore_errors: true
- name: Try
  block:
    - name: Rescued
      command: 'false'
  rescue:
    - name: Mend
      debug: {msg: mended}
- name: Card
  deepopsctl.cluster.card:
    key: hush
    fail: "{{ inventory_hostname == 'ctl1' }}"
    note: "{{ [colour, shape, deepops_cluster_dir, deepops_run_id] }}"
- name: Loop
  command: "{{ item }}"
  loop: ["true", "ls /no/a", "ls /no/b"]
"""


@dataclass(frozen=True)
class Finished:
    """A run on three nodes, with what its watcher saw, which failed at each event."""

    site: Site
    outcome: RunOutcome
    seen: list[Event]

    def failure(self, host: str) -> Failure:
        (match,) = (failure for failure in self.outcome.summary.failures if failure.host == host)
        return match


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    site = make_site(tmp_path_factory.mktemp("finished"))
    make_unreachable(site, "n2")
    seen: list[Event] = []

    def watch(event: Event) -> None:
        seen.append(event)
        raise RuntimeError("watcher")

    return Finished(site, site.run(TASKS, watch), seen)


def test_a_watcher_sees_every_host_task_and_one_that_raises_does_not_disturb(finished: Finished) -> None:
    assert [event.task for event in finished.seen if isinstance(event, TaskStarted)] == [
        "Long", "Same", "Skipped", "Secret", "Ignored", "Rescued", "Mend", "Card", "Loop",
    ]  # fmt: skip
    assert {event.host for event in finished.seen if isinstance(event, HostResult)} == {"ctl1", "n1", "n2"}


def test_counting_events_gives_what_ansible_counts(finished: Finished) -> None:
    totals = finished.outcome.summary.hosts
    counted = reduce(event for event in finished.seen if isinstance(event, HostResult)).hosts
    n1 = totals["n1"]

    # that a failure is rescued is known from Ansible's own count alone
    for host, mine in counted.items():
        assert replace(mine, failed=mine.failed - totals[host].rescued, rescued=totals[host].rescued) == totals[host]
    assert (n1.ok, n1.changed, n1.skipped, n1.failed, n1.ignored, n1.rescued) == (6, 4, 1, 1, 1, 1)


def test_a_failed_task_is_reported_with_its_component_and_the_items_that_failed(finished: Finished) -> None:
    failure = finished.failure("n1")

    assert (failure.component, failure.task) == ("slurm", "Loop")
    assert [line.partition(":")[0] for line in failure.message.splitlines()] == ["ls /no/a", "ls /no/b"]
    assert failure.message.count("No such file or directory") == 2


def test_a_module_returns_a_hint_data_and_warnings(finished: Finished) -> None:
    assert finished.failure("ctl1").hint == "change the card"
    assert {result.host for result in finished.outcome.summary.results} == {"ctl1", "n1"}
    assert finished.outcome.summary.results[0].data["checks"] == [1, 2]
    assert "n1: the disk is old" in finished.outcome.summary.warnings


def test_an_unreachable_host_is_named_with_the_reason_and_what_to_do(finished: Finished) -> None:
    failure = finished.failure("n2")

    assert finished.outcome.summary.unreachable == ("n2",)
    # Ansible does not read what ssh printed where ssh has ended before Ansible writes to it
    unsent = "the connection to 127.0.0.1 ended before the task was sent"
    assert re.fullmatch(rf"ssh: connect to host 127\.0\.0\.1 .*Connection refused|{unsent}", failure.message)
    assert "sshd" in failure.hint


def test_events_are_one_line_a_host_task_and_never_whole_results(finished: Finished) -> None:
    lines = [json.loads(line) for line in finished.outcome.run_dir.events.read_text().splitlines()]
    n1 = [line for line in lines if line["host"] == "n1"]

    assert [line["status"] for line in n1][:3] == ["changed", "ok", "skipped"]
    assert set(n1[0]) == {"host", "play", "task", "component", "status", "changed", "elapsed_s", "at"}
    assert "No such file" in n1[-1]["message"]


def variables(outcome: RunOutcome) -> list[str]:
    """What the module was told of variables."""
    return ast.literal_eval(str(outcome.summary.results[0].data["note"]))  # type: ignore[no-any-return]  # a list, above


def test_variables_of_the_user_win_over_those_of_the_site_and_these_over_the_products(finished: Finished) -> None:
    site = finished.site
    again = site.run(TASKS, limit="n1", user_vars=({"colour": "mine"},))
    colour, shape, directory, run_id = variables(finished.outcome)

    assert (colour, shape, directory, run_id) == ("site", "product", str(site.directory.path), finished.outcome.run_id)
    assert variables(again)[0] == "mine"


def test_a_node_that_is_lost_in_one_component_blocks_no_other_from_the_next(site: Site) -> None:
    make_unreachable(site, "n2")
    site.write_playbook("first", play("- name: One\n  command: 'true'\n"))
    site.write_playbook(
        "slurm",
        play("- name: Two\n  command: 'true'\n- name: B\n  fail: {msg: b}\n  when: inventory_hostname == 'ctl1'\n"),
    )

    outcome = run_playbooks(
        RunRequest(site.directory, "first", more=("slurm",), content=site.content), lambda event: None
    )

    assert outcome.exit_code == ExitCode.FAILED
    assert [(each.component, each.task) for each in outcome.summary.failures] == [("slurm", "B"), ("first", "One")]
    assert outcome.summary.unreachable == ("n2",)
    assert outcome.summary.hosts["n1"].ok == 2
    lines = [json.loads(line) for line in outcome.run_dir.events.read_text().splitlines()]
    assert {(line["component"], line["task"]) for line in lines if line["host"] == "n1"} == {
        ("first", "One"),
        ("slurm", "Two"),
        ("slurm", "B"),
    }
    assert outcome.summary.warnings == ()


def test_the_timeout_for_a_node_that_is_down_is_shorter_than_that_for_sudo_on_a_busy_one(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unreachable(site, "n2")
    shown = tmp_path / "settings"
    program = write_program(tmp_path / "ssh", f'echo "$@" > {shown}.words\nssh -G "$@" > {shown}\nexit 255')
    monkeypatch.setenv("ANSIBLE_SSH_EXECUTABLE", str(program))
    monkeypatch.delenv("ANSIBLE_TIMEOUT", raising=False)
    site.run("- name: One\n  command: 'true'\n", limit="n2")
    assert "ConnectTimeout=60" in Path(f"{shown}.words").read_text()
    assert "connecttimeout 10" in shown.read_text().splitlines()


def test_a_playbook_that_ansible_cannot_read_is_a_failure_with_its_place(site: Site) -> None:
    site.write_playbook("slurm", "- hosts: all\n   bad: [\n")
    done = site.command("deploy")
    assert done.returncode == ExitCode.FAILED
    assert "slurm.yml:2" in done.stderr
    assert site.summary()["failures"][0]["host"] == ""


def test_a_wrong_vault_password_is_reported_as_that(site: Site) -> None:
    site.directory.vault_password.write_text("wrong")
    site.directory.secrets.write_text(encrypt({"munge_key": "x"}, b"right"))

    with pytest.raises(ControlMachineError, match=r"the password in \.vault-password does not open secrets\.yml"):
        site.run("- name: One\n  debug: {msg: x}\n")


def test_check_mode_changes_nothing_and_diff_shows_a_file_once(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "written"
    copy = f"- name: Write\n  copy: {{content: 'new\\n', dest: '{target}'}}\n"
    site.write_playbook("slurm", play(copy))
    # another batch system's variable must not disturb
    done = site.command("deploy", "--check", "--diff", JOB_ID="array-7")
    assert done.returncode == ExitCode.OK
    assert not target.exists()
    assert done.stderr.count("+new") == 1
    assert "ctl1,n[1-2]:" in done.stderr
    assert "would change" in done.stderr


def test_a_result_of_many_nodes_is_not_lost(site: Site) -> None:
    """Runner's callback drops results above 700 kB unless it is configured otherwise."""
    module = MODULE.replace("[1, 2]", "['x' * 2_000_000]")
    (site.content / "plugins" / "modules" / "card.py").write_text(module)
    outcome = site.run("- name: Card\n  deepopsctl.cluster.card: {key: hush}\n", limit="n1")
    (result,) = outcome.summary.results
    assert result.data["checks"] == ["x" * 2_000_000]


def test_only_the_newest_runs_are_stored(site: Site) -> None:
    runs = [site.run("- name: Fine\n  debug: {msg: x}\n", limit="n1", keep_runs=1).run_dir.path for _ in range(2)]
    assert [path.exists() for path in runs] == [False, True]


def test_a_query_works_during_a_run_and_leaves_no_directory(site: Site) -> None:
    site.write_playbook("slurm", play("- name: Card\n  deepopsctl.cluster.card: {key: hush}\n"))

    with cluster_lock(site.directory.runs, "deepopsctl deploy"):
        outcome = run_readonly(
            RunRequest(site.directory, "slurm", content=site.content, command="status"), lambda event: None
        )

    assert outcome.ok
    assert {result.host for result in outcome.summary.results} == {"ctl1", "n1", "n2"}
    assert not outcome.run_dir.path.exists()
    assert not [path.name for path in site.directory.runs.iterdir() if path.is_dir()]


def test_a_task_that_hangs_is_recognised_by_ansibles_own_message(site: Site) -> None:
    outcome = site.run("- name: Hang\n  command: sleep 60\n  timeout: 1\n  when: inventory_hostname == 'n1'\n")

    (failure,) = outcome.summary.failures
    assert (failure.host, TIMED_OUT in failure.message) == ("n1", True)
