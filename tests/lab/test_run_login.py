"""Runs over real SSH: passwords, pinned host keys, nodes that do not answer or have just started again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pexpect
import pytest

from tests.lab.harness import PATIENCE_S, PREFIX, LabCluster, command, fresh_lab

pytestmark = pytest.mark.without_slurm

LAB = f"{PREFIX}-login"
PLAY = """\
- name: Work
  hosts: slurm_cluster
  gather_facts: false
  become: "{{ root | default(false) | bool }}"
  tasks:
    - name: Who
      ansible.builtin.command: id -un
      changed_when: false
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """Two nodes without the cluster's key, whose host keys are pinned, and whose sudo asks for a password."""
    directory = tmp_path_factory.mktemp("login")
    operate = directory / "content" / "playbooks" / "operate" / "cluster"
    operate.mkdir(parents=True)
    # these runs claim nothing
    (operate / "claim.yml").write_text(PLAY.replace("slurm_cluster", "nobody"))
    (directory / "content" / "playbooks" / "site.yml").write_text("- import_playbook: slurm.yml\n")
    (directory / "content" / "playbooks" / "slurm.yml").write_text(PLAY)
    with fresh_lab(LAB, "--compute", "1", "--sudo-password") as lab:
        lab_cluster = LabCluster.of(lab, directory / "hpc")
        assert command("init", str(lab_cluster.directory), "--from", lab["node_list"]).returncode == 0
        lab_cluster.deepopsctl("ssh", "setup", "--password-file", str(lab_cluster.password_file))
        # from here on only the password opens the nodes
        (lab_cluster.directory / "ssh" / "id_ed25519").rename(directory / "key")
        yield lab_cluster


def deploy(cluster: LabCluster, *options: str, answers: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Run the little playbook on a terminal; the exit code and the summary."""
    content = cluster.directory.parent / "content"
    line = ["-m", "deepopsctl", "--content", str(content), "-C", str(cluster.directory), "deploy", *options]
    terminal = pexpect.spawn(sys.executable, line, encoding="utf-8", timeout=PATIENCE_S)
    for question, answer in (answers or {}).items():
        terminal.expect(question)
        terminal.sendline(answer)
    terminal.expect(pexpect.EOF)
    terminal.close()
    summary: dict[str, Any] = json.loads((cluster.directory / "runs" / "latest" / "summary.json").read_text())
    return terminal.exitstatus, summary


def test_without_a_key_the_hint_names_ssh_setup_and_k(cluster: LabCluster) -> None:
    code, summary = deploy(cluster)
    assert code == 4
    assert "Permission denied" in summary["failures"][0]["message"]
    assert "-k" in summary["failures"][0]["hint"]


def test_the_login_password_opens_every_node(cluster: LabCluster) -> None:
    password = cluster.password_file.read_text().strip()
    code, summary = deploy(cluster, "-k", answers={"SSH password": password})
    assert (code, summary["hosts"]["ctl1"]["ok"], summary["hosts"]["cn01"]["ok"]) == (0, 1, 1)
    files = [path for path in (cluster.directory / "runs").rglob("*") if path.is_file()]
    assert [path for path in files if password in path.read_text()] == []


def test_sudo_that_asks_needs_its_password(cluster: LabCluster) -> None:
    password = cluster.password_file.read_text().strip()
    root = ("-e", "root=true")
    code, summary = deploy(cluster, "-k", *root, answers={"SSH password": password})
    assert code == 1
    assert summary["failures"][0]["hint"] == "give the sudo password with -K"
    both = {"SSH password": password, "sudo password": ""}
    assert deploy(cluster, "-k", "-K", *root, answers=both)[0] == 0
    wrong = {"SSH password": password, "sudo password": "wrong"}
    code, summary = deploy(cluster, "-k", "-K", *root, answers=wrong)
    assert code == 1
    assert "refused" in summary["failures"][0]["hint"]


def test_sudo_rs_gets_no_password_and_the_classic_sudo_next_to_it_does(cluster: LabCluster) -> None:
    password = cluster.password_file.read_text().strip()
    both = {"SSH password": password, "sudo password": ""}
    arguments = ("-k", "-K", "-e", "root=true")
    install = "apt-get -qq update && apt-get -qq -y install sudo-rs >/dev/null && mv /usr/bin/sudo /usr/bin/sudo.ws"
    # as Ubuntu 26.04 has them
    cluster.root("cn01", f"{install} && ln -s sudo-rs /usr/bin/sudo && sudo --version 2>&1 | grep sudo-rs")
    try:
        assert deploy(cluster, *arguments, answers=both)[0] == 0
        cluster.root("cn01", "mv /usr/bin/sudo.ws /root/sudo.ws")
        code, summary = deploy(cluster, *arguments, answers=both)
    finally:
        cluster.root(
            "cn01", "! test -e /root/sudo.ws || mv /root/sudo.ws /usr/bin/sudo.ws; mv /usr/bin/sudo.ws /usr/bin/sudo"
        )

    assert code != 0
    (failure,) = summary["failures"]
    assert failure["host"] == "cn01"
    assert "sudo-rs" in failure["hint"]
    assert "NOPASSWD" in failure["hint"]


def test_another_user_wins_over_cluster_yml(cluster: LabCluster) -> None:
    # not over the connections that are open already: those are ubuntu's
    code, summary = deploy(cluster, "-u", "nobody")
    assert code == 4
    assert "nobody@" in summary["failures"][0]["message"]


def test_a_node_that_starts_again_is_reached_at_once(cluster: LabCluster) -> None:
    cluster.root("cn01", "systemctl restart ssh; pkill -f [s]shd- || true")
    password = cluster.password_file.read_text().strip()
    code, _ = deploy(cluster, "-k", answers={"SSH password": password})
    assert code == 0


def test_a_node_without_ssh_is_set_aside_with_what_to_do(cluster: LabCluster) -> None:
    gone = "while pgrep -f [s]shd- >/dev/null; do sleep 0.1; done"
    cluster.root("cn01", f"systemctl stop ssh; pkill -f [s]shd- || true; {gone}")
    try:
        password = cluster.password_file.read_text().strip()
        code, summary = deploy(cluster, "-k", answers={"SSH password": password})
        assert code == 4
        assert summary["hosts"]["ctl1"]["ok"] == 1
        (failure,) = summary["failures"]
        # Ansible writes to an ssh that is just ending now and then, and does not report the reason
        ended = ("Connection refused", "ended before the task was sent")
        assert (failure["host"], any(text in failure["message"] for text in ended)) == ("cn01", True), failure
        assert "sshd" in failure["hint"]
    finally:
        cluster.root("cn01", "systemctl start ssh")


def test_a_changed_host_key_is_refused_with_what_to_do(cluster: LabCluster) -> None:
    renew = "rm /etc/ssh/ssh_host_*; ssh-keygen -A; systemctl restart ssh; pkill -f [s]shd- || true"
    cluster.root("cn01", renew)
    password = cluster.password_file.read_text().strip()
    code, summary = deploy(cluster, "-k", answers={"SSH password": password})
    assert code == 1
    assert "host key" in summary["failures"][0]["hint"]
    # without a password ssh itself reports it
    code, summary = deploy(cluster, "--limit", "cn01")
    assert code == 4
    assert "--accept-new-keys" in summary["failures"][0]["hint"]
