"""A plan that is written, shown, and deployed later: with Ansible, on nodes that are this host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.sites import Site, play


@pytest.fixture
def target(site: Site, tmp_path: Path) -> Path:
    """What the only component writes on one node."""
    target = tmp_path / "target"
    site.write_playbook(
        "slurm", play(f"- ansible.builtin.copy: {{content: new, dest: '{target}', mode: '0600'}}", "ctl1")
    )
    (site.content / "playbooks" / "operate" / "cluster" / "jobs.yml").write_text(play("[]", "deepops_nobody"))
    return target


def plan(site: Site, path: Path) -> None:
    done = site.command("plan", "--out", str(path))
    assert (done.returncode, path.exists()) == (0, True), done.stderr


def test_what_was_planned_is_deployed_once(site: Site, target: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan(site, path)
    assert not target.exists()

    assert site.command("plan", "--exit-code").returncode == 2
    done = site.command("deploy", str(path), "--json")
    assert (done.returncode, target.read_text()) == (0, "new"), done.stderr
    assert json.loads(done.stdout)["command"] == "deploy"
    assert site.command("plan", "--exit-code").returncode == 0

    again = site.command("deploy", str(path))
    assert again.returncode == 1
    assert "the nodes are not as they were" in again.stderr
    assert "nothing was changed" in again.stderr


def test_a_plan_is_refused_after_a_setting_has_changed(site: Site, target: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan(site, path)
    with site.directory.settings.open("a") as settings:
        settings.write("shape: another\n")

    refused = site.command("deploy", str(path), "--json")

    assert refused.returncode == 1
    assert "is stale" in json.loads(refused.stdout)["errors"][0]["message"]
    assert not target.exists()


def test_ask_shows_the_plan_and_changes_nothing_without_a_yes(site: Site, target: Path) -> None:
    refused = site.command("deploy", "--ask")
    assert (refused.returncode, target.exists()) == (2, False)
    assert "there is no terminal to ask on" in refused.stderr

    for answer, code in (("n", 130), ("y", 0)):
        terminal = site.on_a_terminal("deploy", "--ask")
        terminal.expect("1 change on 1 node")
        terminal.expect("deploy this")
        terminal.sendline(answer)
        terminal.expect(r"interrupted|Aborted|deploy: .*done")
        terminal.read()
        terminal.close()
        assert (terminal.exitstatus, target.exists()) == (code, code == 0)
    assert site.command("deploy", "--ask").returncode == 0
