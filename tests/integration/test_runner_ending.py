"""Runs that end before their end, and runs that meet each other: nothing is left running or locked."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from deepopsctl.errors import ExitCode
from tests.integration.sites import Site, play, processes_with
from tests.support.cluster import wait_until

# no other process on this host sleeps this long
NAP = f"98765.{os.getpid()}"


@pytest.fixture
def site(site: Site) -> Site:
    """With a task that never ends."""
    site.write_playbook("slurm", play(f"- name: Begin\n  debug: {{msg: x}}\n- name: Nap\n  command: sleep {NAP}\n"))
    return site


def napping(site: Site, *arguments: str) -> subprocess.Popen[str]:
    """A run that has come to the task that never ends, on all three nodes."""
    process = site.start("deploy", *arguments)
    site.wait_for_event("Begin")
    wait_until("all nodes sleep", lambda: sleepers() == 3)
    return process


def sleepers() -> int:
    return len([line for line in processes_with(NAP) if line.startswith("sleep ")])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_and_reports_what_is_undone(site: Site, number: signal.Signals) -> None:
    process = napping(site)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == ExitCode.INTERRUPTED
    assert sleepers() == 0
    assert processes_with(str(site.directory.path)) == []
    assert "undone: slurm: Nap on ctl1,n[1-2]" in err
    assert "the same command finishes it" in err
    assert site.summary()["verdict"] == "interrupted"
    assert not (site.last_run() / ".private").exists()


def test_the_time_limit_ends_everything(site: Site) -> None:
    done = site.command("deploy", "--timeout", "3")
    assert done.returncode == ExitCode.TIMEOUT
    assert sleepers() == 0
    assert site.summary()["verdict"] == "timeout"


def test_a_second_run_is_refused_with_who_and_since_when(site: Site) -> None:
    process = napping(site)
    done = site.command("deploy", "--json")
    assert done.returncode == ExitCode.FAILED
    (error,) = json.loads(done.stdout)["errors"]
    assert f"(pid {process.pid})" in error["message"]
    assert "deepopsctl deploy, started by" in error["message"]
    process.terminate()
    process.communicate(timeout=120)


def test_kill_9_ends_ansible_as_well_and_the_next_run_works(site: Site) -> None:
    process = napping(site)
    process.kill()
    process.communicate(timeout=120)
    wait_until("no process sleeps", lambda: sleepers() == 0)
    killed = site.last_run()
    site.write_playbook("slurm", play("- name: Begin\n  debug: {msg: x}\n"))

    done = site.command("deploy")

    assert done.returncode == ExitCode.OK
    assert not (killed / ".private").exists()
    shown = json.loads(site.command("runs", "show", killed.name, "--json").stdout)
    assert shown["state"] == "killed"
    assert shown["summary"]["hosts"]["n1"]["ok"] == 1
