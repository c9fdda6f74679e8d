"""The runner with real Ansible on this host: what a run does, reports, and leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepopsctl.errors import ControlMachineError, ExitCode
from deepopsctl.run.command_line import RunRequest
from deepopsctl.run.events import Event, HostResult, TaskStarted
from deepopsctl.run.lock import cluster_lock
from deepopsctl.run.outcome import reduce
from deepopsctl.run.runner import run, run_readonly
from deepopsctl.status.cluster import TIMED_OUT
from tests.integration.sites import MODULE, Site, make_site, make_unreachable, play


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


def test_a_good_run_counts_what_each_host_did(site: Site) -> None:
    outcome = site.run("- name: Fine\n  command: 'true'\n- name: Same\n  command: 'true'\n  changed_when: false\n")
    assert outcome.exit_code == ExitCode.OK
    assert {host: (t.ok, t.changed) for host, t in outcome.summary.hosts.items()} == {
        "ctl1": (2, 1), "n1": (2, 1), "n2": (2, 1),
    }  # fmt: skip
    assert outcome.summary.failures == ()
    assert outcome.summary.warnings == ()


def test_the_watcher_sees_every_host_task(site: Site) -> None:
    seen: list[Event] = []
    site.run("- name: Fine\n  debug: {msg: hello}\n", seen.append)
    assert [e.task for e in seen if isinstance(e, TaskStarted)] == ["Fine"]
    assert sorted(e.host for e in seen if isinstance(e, HostResult)) == ["ctl1", "n1", "n2"]


def test_a_watcher_that_raises_does_not_disturb_the_run(site: Site) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("watcher")

    assert site.run("- name: Fine\n  debug: {msg: hello}\n", broken).ok


def test_a_failed_task_is_reported_with_host_component_task_and_the_programs_error(site: Site) -> None:
    task = "- name: Look\n  command: ls /no/such/folder\n  when: inventory_hostname == 'n1'\n"
    outcome = site.run(task)
    assert outcome.exit_code == ExitCode.FAILED
    (failure,) = outcome.summary.failures
    assert (failure.host, failure.component, failure.task) == ("n1", "slurm", "Look")
    assert "No such file or directory" in failure.message
    assert outcome.summary.hosts["n1"].failed == 1
    assert outcome.summary.hosts["ctl1"].skipped == 1


def test_a_module_returns_a_hint_and_data(site: Site) -> None:
    outcome = site.run(
        "- name: Card\n  deepopsctl.cluster.card: {fail: \"{{ inventory_hostname == 'n2' }}\", key: hush}\n"
    )
    (failure,) = outcome.summary.failures
    assert failure.hint == "change the card"
    assert {result.host for result in outcome.summary.results} == {"ctl1", "n1", "n2"}
    assert outcome.summary.results[0].data == {"checks": [1, 2]}
    assert "n1: the disk is old" in outcome.summary.warnings


def test_an_unreachable_host_is_set_aside_and_the_rest_is_done(site: Site) -> None:
    make_unreachable(site, "n2")
    outcome = site.run("- name: One\n  command: 'true'\n- name: Two\n  command: 'true'\n")
    assert outcome.exit_code == ExitCode.UNREACHABLE
    assert outcome.summary.unreachable == ("n2",)
    assert outcome.summary.hosts["n1"].ok == 2
    (failure,) = outcome.summary.failures
    assert failure.message.endswith("Connection refused")
    assert failure.message.startswith("ssh: connect to host 127.0.0.1")
    assert "sshd" in failure.hint


def test_a_node_that_is_lost_in_one_component_blocks_no_other_from_the_next(site: Site) -> None:
    make_unreachable(site, "n2")
    site.write_playbook("first", play("- name: One\n  command: 'true'\n"))
    site.write_playbook("slurm", play("- name: Two\n  command: 'true'\n"))

    outcome = run(RunRequest(site.directory, "first", more=("slurm",), content=site.content), lambda event: None)

    assert outcome.exit_code == ExitCode.UNREACHABLE
    assert outcome.summary.unreachable == ("n2",)
    assert outcome.summary.hosts["n1"].ok == 2
    lines = [json.loads(line) for line in outcome.run_dir.events.read_text().splitlines()]
    assert {(line["component"], line["task"]) for line in lines if line["host"] == "n1"} == {
        ("first", "One"),
        ("slurm", "Two"),
    }
    assert outcome.summary.warnings == ()


def test_the_timeout_for_a_node_that_is_down_is_shorter_than_that_for_sudo_on_a_busy_one(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unreachable(site, "n2")
    shown, program = tmp_path / "settings", tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\necho "$@" > {shown}.words\nssh -G "$@" > {shown}\nexit 255\n')
    program.chmod(0o755)
    monkeypatch.setenv("ANSIBLE_SSH_EXECUTABLE", str(program))
    monkeypatch.delenv("ANSIBLE_TIMEOUT", raising=False)
    site.run("- name: One\n  command: 'true'\n", limit="n2")
    assert "ConnectTimeout=60" in Path(f"{shown}.words").read_text()
    assert "connecttimeout 10" in shown.read_text().splitlines()


def test_unreachable_hosts_alone_end_in_4_too(site: Site) -> None:
    make_unreachable(site, "n2")
    outcome = site.run("- name: One\n  command: 'true'\n", limit="n2")
    assert outcome.exit_code == ExitCode.UNREACHABLE


def test_a_failure_weighs_more_than_an_unreachable_host(site: Site) -> None:
    make_unreachable(site, "n2")
    outcome = site.run("- name: One\n  command: 'false'\n")
    assert outcome.exit_code == ExitCode.FAILED
    assert [failure.unreachable for failure in outcome.summary.failures] == [False, False, True]


def test_ignored_and_rescued_failures_are_no_failures(site: Site) -> None:
    outcome = site.run(
        """
- name: Ignored
  command: "false"
  ignore_errors: true
- name: Try
  block:
    - name: Rescued
      command: "false"
  rescue:
    - name: Mend
      debug: {msg: mended}
"""
    )
    assert outcome.exit_code == ExitCode.OK
    assert outcome.summary.failures == ()
    totals = outcome.summary.hosts["n1"]
    assert (totals.failed, totals.ignored, totals.rescued) == (0, 1, 1)


def test_only_the_failure_that_was_not_rescued_is_reported(site: Site) -> None:
    outcome = site.run(
        """
- name: Try
  block:
    - name: Rescued
      command: "false"
  rescue:
    - name: Mend
      debug: {msg: mended}
- name: Real
  fail: {msg: this one counts}
""",
        limit="n1",
    )
    assert [(f.task, f.message) for f in outcome.summary.failures] == [("Real", "this one counts")]


def test_a_loop_names_the_items_that_failed(site: Site) -> None:
    loop = '- name: Loop\n  command: "{{ item }}"\n  loop: ["true", "ls /no/a", "ls /no/b"]\n'
    outcome = site.run(loop, limit="n1")
    (failure,) = outcome.summary.failures
    assert [line.partition(":")[0] for line in failure.message.splitlines()] == ["ls /no/a", "ls /no/b"]
    assert outcome.summary.hosts["n1"].failed == 1


def test_counting_events_gives_what_ansible_counts(site: Site) -> None:
    make_unreachable(site, "n2")
    seen: list[Event] = []
    tasks = """
- name: Loop
  command: "{{ item }}"
  loop: ["true", "true"]
- name: Skipped
  debug: {msg: no}
  when: inventory_hostname == 'nobody'
- name: Secret
  command: "true"
  no_log: true
- name: Ignored
  command: "false"
  ignore_errors: true
- name: Last
  fail: {msg: end}
  when: inventory_hostname == 'n1'
"""
    outcome = site.run(tasks, seen.append)
    assert reduce(e for e in seen if isinstance(e, HostResult)).hosts == outcome.summary.hosts


def test_several_playbooks_run_in_order_and_name_their_component(site: Site) -> None:
    site.write_playbook("first", play("- name: A\n  debug: {msg: a}"))
    site.write_playbook("second", play("- name: B\n  fail: {msg: b}", hosts="n1"))
    outcome = run(RunRequest(site.directory, "first", more=("second",), content=site.content), lambda event: None)
    assert [(f.component, f.task) for f in outcome.summary.failures] == [("second", "B")]


def test_a_playbook_that_ansible_cannot_read_is_a_failure_with_its_place(site: Site) -> None:
    site.write_playbook("slurm", "- hosts: all\n   bad: [\n")
    done = site.command("deploy")
    assert done.returncode == ExitCode.FAILED
    assert "slurm.yml:2" in done.stderr
    assert site.summary()["failures"][0]["host"] == ""


def test_a_wrong_vault_password_is_reported_as_that(site: Site) -> None:
    site.directory.vault_password.write_text("wrong")
    blob = "$ANSIBLE_VAULT;1.1;AES256\n" + "61" * 40 + "\n"
    site.directory.secrets.write_text(blob)

    with pytest.raises(ControlMachineError, match=r"the password in \.vault-password does not open secrets\.yml"):
        site.run("- name: One\n  debug: {msg: x}\n")


def test_the_sites_variables_win_over_the_products(site: Site) -> None:
    outcome = site.run("- name: Show\n  fail: {msg: '{{ colour }} {{ shape }}'}\n", limit="n1")
    assert outcome.summary.failures[0].message == "site product"


def test_the_users_variables_win_and_the_runs_own_are_there(site: Site) -> None:
    show = "- name: Show\n  fail: {msg: '{{ colour }} {{ deepops_cluster_dir }} {{ deepops_run_id }}'}\n"
    outcome = site.run(show, limit="n1", user_vars=({"colour": "mine"},))
    expected = f"mine {site.directory.path} {outcome.run_id}"
    assert outcome.summary.failures[0].message == expected


def test_the_digest_follows_content_inputs_and_variables(site: Site) -> None:
    show = "- name: Show\n  fail: {msg: 'd={{ deepops_digest }}'}\n"

    def digest(**variables: int) -> str:
        return site.run(show, limit="n1", user_vars=(variables,)).summary.failures[0].message

    first = digest()
    assert len(first) == 66
    assert digest() == first
    assert digest(a=1) != first
    site.directory.settings.write_text(site.directory.settings.read_text() + "b: 2\n")
    assert digest() != first


def test_check_mode_changes_nothing_and_diff_shows_a_file_once(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "written"
    copy = f"- name: Write\n  copy: {{content: 'new\\n', dest: '{target}'}}\n"
    site.write_playbook("slurm", play(copy))
    done = site.command("deploy", "--check", "--diff")
    assert done.returncode == ExitCode.OK
    assert not target.exists()
    assert done.stderr.count("+new") == 1
    assert "ctl1,n[1-2]:" in done.stderr
    assert "would change" in done.stderr


def test_events_are_one_line_a_host_task_and_never_whole_results(site: Site) -> None:
    outcome = site.run("- name: Long\n  command: seq 1000\n- name: Bad\n  command: 'false'\n", limit="n1")
    lines = [json.loads(line) for line in outcome.run_dir.events.read_text().splitlines()]
    assert [line["status"] for line in lines] == ["changed", "failed"]
    assert set(lines[0]) == {"host", "play", "task", "component", "status", "changed", "elapsed_s"}
    assert "non-zero return code" in lines[1]["message"]


def test_a_result_of_many_nodes_is_not_lost(site: Site) -> None:
    """Runner's callback drops results above 700 kB unless it is configured otherwise."""
    module = MODULE.replace("[1, 2]", "['x' * 2_000_000]")
    (site.content / "plugins" / "modules" / "card.py").write_text(module)
    outcome = site.run("- name: Card\n  deepopsctl.cluster.card: {key: hush}\n", limit="n1")
    (result,) = outcome.summary.results
    assert result.data == {"checks": ["x" * 2_000_000]}


def test_only_the_newest_runs_are_stored(site: Site) -> None:
    runs = [site.run("- name: Fine\n  debug: {msg: x}\n", limit="n1", keep_runs=2).run_dir.path for _ in range(3)]
    assert [path.exists() for path in runs] == [False, True, True]


def test_another_batch_systems_variables_do_not_disturb(site: Site) -> None:
    site.write_playbook("slurm", play("- name: Fine\n  debug: {msg: x}\n"))
    assert site.command("deploy", JOB_ID="array-7").returncode == ExitCode.OK


def test_a_query_works_during_a_run_and_leaves_no_directory(site: Site) -> None:
    site.run("- name: Fine\n  command: 'true'\n")
    before = sorted(path.name for path in site.directory.runs.iterdir())
    site.write_playbook("slurm", play("- name: Card\n  deepopsctl.cluster.card: {key: hush}\n"))

    with cluster_lock(site.directory.runs, "deepopsctl deploy"):
        outcome = run_readonly(
            RunRequest(site.directory, "slurm", content=site.content, command="status"), lambda event: None
        )

    assert outcome.ok
    assert {result.host for result in outcome.summary.results} == {"ctl1", "n1", "n2"}
    assert not outcome.run_dir.path.exists()
    assert sorted(path.name for path in site.directory.runs.iterdir()) == before


def test_a_task_that_hangs_is_recognised_by_ansibles_own_message(site: Site) -> None:
    outcome = site.run("- name: Hang\n  command: sleep 60\n  timeout: 1\n  when: inventory_hostname == 'n1'\n")

    (failure,) = outcome.summary.failures
    assert (failure.host, TIMED_OUT in failure.message) == ("n1", True)
