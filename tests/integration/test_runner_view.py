"""What a person sees of a run: on a terminal, elsewhere, without colours, and with Ansible's own words."""

from __future__ import annotations

import json
import re

import pexpect
import pytest

from tests.integration.sites import Site, make_unreachable, play

TASKS = """
- name: Fine
  command: "true"
- name: Broken
  fail: {msg: "the [card] is broken"}
  when: inventory_hostname == 'n1'
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def site(site: Site) -> Site:
    """With a task that fails on one node."""
    site.write_playbook("slurm", play(TASKS))
    return site


def on_a_terminal(site: Site, **environment: str) -> str:
    terminal = site.on_a_terminal("deploy", **environment)
    terminal.expect(pexpect.EOF)
    return str(terminal.before)


def test_elsewhere_there_is_one_plain_line_a_task(site: Site) -> None:
    done = site.command("deploy")
    lines = done.stderr.splitlines()
    assert done.stdout == ""
    assert lines[0] == "deploy slurm on 3 nodes: ctl1,n[1-2]"
    assert re.fullmatch(r"\[ +[0-9.]+s\] slurm: Fine: 3 nodes ok, 3 changed", lines[1])
    assert lines[2].endswith("slurm: Broken: n1 failed: the [card] is broken")
    assert lines[-1].startswith("deploy: failed after ")
    assert lines[-1].endswith(f"runs show {site.last_run().name}")
    assert "\x1b" not in done.stderr


def test_json_is_one_object_and_all_there_is_on_stdout(site: Site) -> None:
    done = site.command("deploy", "--json")
    document = json.loads(done.stdout)
    assert document == site.summary()
    assert document["failures"] == [
        {"host": "n1", "component": "slurm", "task": "Broken", "message": "the [card] is broken", "hint": ""}
    ]


def test_a_terminal_gets_a_live_view_that_leaves_failures_and_the_summary(site: Site) -> None:
    shown = on_a_terminal(site)
    assert COLOUR.search(shown)
    assert "slurm  Fine" in COLOUR.sub("", shown)
    assert "\x1b[?25h" in shown, "the cursor must come back"
    # what is written after the view was removed
    last = COLOUR.sub("", shown.rpartition("\x1b[2K")[2])
    assert "failed: n1: slurm: Broken" in last
    assert "the [card] is broken" in last


def test_a_dumb_terminal_gets_plain_lines(site: Site) -> None:
    assert "slurm: Fine: 3 nodes ok, 3 changed" in on_a_terminal(site, TERM="dumb")


def test_vvv_shows_ansibles_output(site: Site) -> None:
    done = site.command("-vvv", "deploy", "--limit", "n2")
    assert "TASK [Fine]" in done.stderr
    assert "task path: " in done.stderr


def test_runs_list_and_show_report_earlier_runs(site: Site) -> None:
    make_unreachable(site, "n2")
    site.command("deploy", "--limit", "n[1-2]")
    run = site.last_run().name
    listed = site.command("runs", "list").stdout.splitlines()
    assert re.split(r" {2,}", listed[1])[:2] == [run, "failed"]
    shown = site.command("runs", "show", run[:8]).stdout
    assert f"{run}: failed after " in shown
    assert "failed: n1: slurm: Broken" in shown
    assert "unreachable: n2: slurm: Fine" in shown
    assert json.loads(site.command("runs", "show", "--json").stdout)["summary"] == site.summary()
