"""The lab itself: its nodes are real hosts to SSH, systemd, apt and cgroups, and nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.lab.state import LabStore
from tests.lab.harness import DEEPOPSCTL, PATIENCE_S, command, fresh_lab, lab_up

pytestmark = pytest.mark.without_slurm

DEVICE_ANSWER = "python3 -c 'import errno, os; os.open(\"/dev/nvidia1\", os.O_RDWR)' 2>&1 | tail -n 1"
NEW_CGROUP = """set -e
root=/sys/fs/cgroup
if [ -d $root/memory ]; then set -- $root/memory $root/devices $root/cpuset $root/freezer; else set -- $root; fi
for tree; do mkdir $tree/lab-test; rmdir $tree/lab-test; done
"""
SSH_OPTIONS = (
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
    *("-o", "PreferredAuthentications=password"),
)


def podman(*arguments: str) -> str:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


class Lab:
    """A lab under test."""

    def __init__(self, name: str, document: dict[str, Any]) -> None:
        self.name = name
        self.document = document
        self.nodes = [node["name"] for node in document["nodes"]]

    def run(self, node: str, script: str) -> str:
        return podman("exec", f"{self.name}-{node}", "sh", "-c", script)

    def inspect(self, node: str, form: str) -> str:
        return podman("inspect", "--type", "container", "--format", form, f"{self.name}-{node}")

    def address(self, node: str) -> str:
        return next(str(entry["address"]) for entry in self.document["nodes"] if entry["name"] == node)

    @property
    def password(self) -> str:
        return Path(self.document["password_file"]).read_text(encoding="utf-8").strip()

    def ssh(self, node: str, script: str, directory: Path, options: Sequence[str] = (), stdin: str = "") -> str:
        """Log in with the password, as a person would."""
        answer = directory / "askpass"
        answer.write_text(f"#!/bin/sh\ncat {self.document['password_file']}\n", encoding="utf-8")
        answer.chmod(0o700)
        done = subprocess.run(
            ["ssh", *SSH_OPTIONS, *options, f"ubuntu@{self.address(node)}", script],
            env={**os.environ, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return (done.stdout + done.stderr).strip()


def traces(name: str, containers: Sequence[str] = ()) -> list[str]:
    """What is left of a lab on this host."""
    store = LabStore.default()
    container_ids = podman("ps", "--all", "--quiet", "--filter", f"label=deepopsctl.lab={name}").split()
    container_ids += podman("network", "ls", "--quiet", "--filter", f"label=deepopsctl.lab={name}").split()
    container_ids += [str(path) for path in (store.root / name, store.root / f"{name}.lock") if path.exists()]
    for container in containers:
        find = ["find", "/sys/fs/cgroup", "-maxdepth", "4", "-name", f"*{container}*"]
        container_ids += subprocess.run(find, capture_output=True, text=True, timeout=PATIENCE_S).stdout.split()
    return container_ids


@pytest.fixture(scope="module", params=["debian12", "debian13"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    name = f"nodes-{request.param}-{os.getpid()}"
    with fresh_lab(name, "--os", request.param, "--compute", "1", "--gpus", "h100:2") as made:
        yield Lab(name, made)


def test_systemd_is_up_on_every_node_and_no_unit_failed(lab: Lab) -> None:
    assert {node: lab.run(node, "systemctl is-system-running") for node in lab.nodes} == dict.fromkeys(
        ["ctl1", "gpu01"], "running"
    )


def test_a_simulated_gpu_is_there_but_has_no_driver(lab: Lab) -> None:
    assert lab.run("gpu01", "ls /dev/nvidia*") == "/dev/nvidia0\n/dev/nvidia1"
    assert "No such device or address" in lab.run("gpu01", DEVICE_ANSWER)


def test_a_node_may_make_cgroups_of_its_own(lab: Lab) -> None:
    lab.run("gpu01", NEW_CGROUP)


def test_the_hosts_own_kernel_settings_cannot_be_changed_from_a_node(lab: Lab) -> None:
    assert "Read-only" in lab.run(
        "gpu01", "echo 1 2>&1 > /proc/sys/vm/swappiness || true; sysctl -w vm.swappiness=1 2>&1 || true"
    )


def test_slurm_can_be_installed_without_an_update_first(lab: Lab) -> None:
    assert "Candidate: 2" in lab.run("gpu01", "apt-cache policy slurmd")
    lab.run("ctl1", "apt-get install --simulate slurmctld munge")


def test_a_node_has_its_own_identity(lab: Lab) -> None:
    for file in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub"):
        assert len({lab.run(node, f"cat {file}") for node in lab.nodes}) == len(lab.nodes)
    assert lab.run("gpu01", "hostname") == "gpu01"


def test_etc_hosts_can_be_replaced_as_on_a_real_machine(lab: Lab) -> None:
    lab.run("gpu01", "cp /etc/hosts /etc/hosts.new && mv /etc/hosts.new /etc/hosts")
    assert "127.0.1.1 gpu01" in lab.run("gpu01", "cat /etc/hosts")


def test_the_user_logs_in_by_password_and_has_sudo(lab: Lab, tmp_path: Path) -> None:
    assert lab.ssh("gpu01", "id -un; sudo -n id -un", tmp_path) == "ubuntu\nroot"
    assert Path(lab.document["password_file"]).stat().st_mode & 0o777 == 0o600


def test_status_shows_the_nodes(lab: Lab) -> None:
    (shown,) = json.loads(command("lab", "status", "--json", "--name", lab.name).stdout)["labs"]
    assert [(n["name"], n["address"], n["state"]) for n in shown["nodes"]] == [
        (node, lab.address(node), "running") for node in lab.nodes
    ]


def test_a_restarted_node_is_the_same_node(lab: Lab) -> None:
    keys = lab.run("gpu01", "cat /etc/ssh/*.pub")
    podman("stop", "--time=5", f"{lab.name}-gpu01")
    again = lab_up(lab.name, "--compute", "1")
    assert again["added"] == []
    assert again["nodes"] == lab.document["nodes"]
    assert lab.run("gpu01", "cat /etc/ssh/*.pub") == keys
    lab.run("gpu01", NEW_CGROUP)


def test_what_a_lab_cannot_become_is_refused(lab: Lab) -> None:
    refused = command("lab", "up", "--name", lab.name, "--gpus", "a100:1", "--json")
    assert refused.returncode == 3
    assert json.loads(refused.stdout)["errors"][0]["where"] == "--gpus"


def test_a_node_is_added_without_touching_the_others_and_down_leaves_no_trace(lab: Lab, tmp_path: Path) -> None:
    running = "{{.Id}} {{.State.StartedAt}} {{.State.Pid}}"
    before = {node: lab.inspect(node, running) for node in lab.nodes}
    output = tmp_path / "nodes.yml"
    grown = Lab(lab.name, lab_up(lab.name, "--compute", "2", "--login", "1", "--output", str(output)))
    assert grown.nodes == ["ctl1", "gpu01", "gpu02", "login1"]
    assert grown.document["added"] == ["gpu02", "login1"]
    assert {node: grown.inspect(node, running) for node in lab.nodes} == before
    assert "No such device or address" in grown.run("gpu02", DEVICE_ANSWER)
    assert "gpu02" in output.read_text(encoding="utf-8")
    ids = [grown.inspect(node, "{{.Id}}") for node in grown.nodes]
    for _ in range(2):
        assert command("lab", "down", "--name", lab.name).returncode == 0
        assert traces(lab.name, ids) == []


def test_an_interrupted_start_leaves_no_trace() -> None:
    name = f"interrupted-{os.getpid()}"
    argv = [DEEPOPSCTL, "lab", "up", "--name", name, "--compute", "2"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("starting"):
                process.send_signal(signal.SIGTERM)  # SIGINT is ignored in a shell's background
                break
        process.stderr.read()
    assert process.returncode == 130
    assert traces(name) == []


def test_a_failed_start_leaves_no_trace_and_names_the_node(tmp_path: Path) -> None:
    name = f"failing-{os.getpid()}"
    used_name = f"{name}-cn01"
    podman("create", "--name", used_name, "--rootfs", str(tmp_path), "/bin/true")
    try:
        failed = command("lab", "up", "--name", name)
        assert failed.returncode == 1
        assert used_name in failed.stderr
        assert traces(name) == []
        podman("container", "exists", used_name)
    finally:
        podman("rm", "--force", "--ignore", used_name)


def test_sudo_asks_for_the_password_where_it_shall(tmp_path: Path) -> None:
    name = f"asks-{os.getpid()}"
    with fresh_lab(name, "--compute", "1", "--sudo-password") as made:
        lab = Lab(name, made)
        assert "a password is required" in lab.ssh("cn01", "sudo -n id -un", tmp_path)
        assert lab.ssh("cn01", "sudo -S -p '' id -un", tmp_path, stdin=f"{lab.password}\n") == "root"
