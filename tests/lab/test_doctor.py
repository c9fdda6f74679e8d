"""The doctor on real nodes: bare ones are fit, every damage is found, a dead node delays no other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pexpect
import pytest

from deepopsctl.checks.catalogue.doctor import DOCTOR
from tests.lab.doctor_faults import DAMAGES, DECLARED, DECLARED_EXPECTED, HARDWARE, NOT_HERE, Damage, Key
from tests.lab.harness import PATIENCE_S, LabCluster

NODES = ("ctl1", "gpu01", "gpu02")
# not there before a deploy, or never in a container
NOT_YET = {"names", "memory", "cpus", "time-service", "gpu-driver", "gpu-model", "secure-boot", "security", "database"}
STOP_SSH = "systemctl stop ssh.socket ssh 2>/dev/null; pkill -x sshd; pkill -f '^sshd'; exit 0"
FILES = "find /etc /usr /home /root /opt -xdev -type f -printf '%p %s %T@ %m\\n' | sort"


@dataclass(frozen=True)
class Result:
    """One call of `doctor --json`."""

    code: int
    document: dict[str, Any]
    shown: str

    @property
    def checks(self) -> dict[Key, dict[str, str]]:
        """Checks by name and target."""
        return {(check["name"], check["target"]): check for check in self.document["checks"]}

    def names(self, status: str) -> set[str]:
        """The checks that ended so."""
        return {name for name, _target in self._ended(status)}

    def problems(self) -> set[Key]:
        """Everything that failed or warns."""
        return self._ended("fail", "warn")

    def _ended(self, *statuses: str) -> set[Key]:
        # where the name servers of this host do not answer, its containers rightly report that before a deploy
        return {
            key
            for key, check in self.checks.items()
            if check["status"] in statuses and "too slow" not in check["message"]
        }


def doctor(cluster: LabCluster, *arguments: str, directory: Path | None = None) -> Result:
    """Run doctor, whatever it reports."""
    where = replace(cluster, directory=directory or cluster.directory)
    done = where.deepopsctl("doctor", "--json", *arguments, ok=False)
    return Result(done.returncode, json.loads(done.stdout), done.stderr)


def podman(*arguments: str) -> str:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def step(cluster: LabCluster, node: str, script: str) -> None:
    """On the node as root, or (`net:NODE`) in its network from outside: a container may not change that."""
    if not node.startswith("net:"):
        cluster.root(node, script)
        return
    pid = podman("inspect", "--format", "{{.State.Pid}}", f"{cluster.name}-{node.removeprefix('net:')}")
    done = subprocess.run(
        ["nsenter", "-t", pid, "-n", "sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{script}: {done.stderr}"


@contextmanager
def damaged(cluster: LabCluster, *damages: Damage) -> Iterator[None]:
    """Apply damages and undo them in reverse, whatever happens."""
    done: list[Damage] = []
    try:
        for damage in damages:
            done.append(damage)
            step(cluster, damage.node, damage.damage)
        yield
    finally:
        for damage in reversed(done):
            step(cluster, damage.node, damage.repair)


def copied(cluster: LabCluster, directory: Path) -> Path:
    """The cluster's directory, to be changed."""
    made = directory / "copy"
    shutil.copytree(cluster.directory, made, ignore=shutil.ignore_patterns("runs"))
    (made / "runs").mkdir(mode=0o700)
    return made


def test_bare_nodes_are_fit_and_are_left_as_they_were(bare: LabCluster) -> None:
    before = {node: bare.root(node, FILES) for node in NODES}

    result = doctor(bare)

    assert result.code == 0, result.shown
    assert result.names("warn") == {"gpus"}
    assert "simulated" in result.checks["gpus", "gpu01"]["message"]
    assert result.names("skip") | {"names"} == NOT_YET
    # no deploy has had a module loaded yet, and no plugin is declared
    assert result.names("pass") | {"gpus"} | NOT_YET == set(DOCTOR) - {"examined", "gpu-modules", "plugins"}
    assert {node: bare.root(node, FILES) for node in NODES} == before


def test_all_damage_is_reported_in_one_run(bare: LabCluster, tmp_path: Path) -> None:
    directory = copied(bare, tmp_path)
    for name, old, new in DECLARED:
        text = (directory / name).read_text()
        assert old in text
        (directory / name).write_text(text.replace(old, new))
    (directory / "hardware.yml").write_text(HARDWARE)
    (directory / ".vault-password").chmod(0o644)

    with damaged(bare, *DAMAGES):
        result = doctor(bare, directory=directory)

    expected = {key: words for damage in DAMAGES for key, words in damage.expected.items()} | DECLARED_EXPECTED
    assert result.code == 1, result.shown
    assert set(expected) <= result.problems(), result.shown
    for key, words in expected.items():
        assert words in result.checks[key]["message"], result.checks[key]
        assert result.checks[key]["hint"]
    # the controller's own damage is its sudo and an old Slurm
    assert {name for name, target in result.problems() if target == "ctl1"} == {"sudo", "foreign-slurm"}
    assert result.checks["package-lock", "ctl1"]["status"] == "skip"


def test_everything_is_whole_again(bare: LabCluster) -> None:
    assert doctor(bare).problems() == {("gpus", "gpu01"), ("gpus", "gpu02")}


def test_a_node_that_hangs_one_without_ssh_and_one_without_python_are_distinguished(bare: LabCluster) -> None:
    damages = (
        Damage("gpu01", STOP_SSH, "systemctl start ssh", {}),
        Damage("ctl1", "mv /usr/bin/python3 /usr/bin/python3.away", "mv /usr/bin/python3.away /usr/bin/python3", {}),
    )
    podman("pause", f"{bare.name}-gpu02")
    try:
        with damaged(bare, *damages):
            result = doctor(bare)
    finally:
        podman("unpause", f"{bare.name}-gpu02")

    assert result.code == 1, result.shown
    assert result.checks["reachable", "gpu01"]["message"] == "connection refused"
    assert "is sshd running" in result.checks["reachable", "gpu01"]["hint"]
    assert result.checks["reachable", "gpu02"]["message"] == "it accepts the connection and then does not answer"
    assert result.checks["python", "ctl1"]["status"] == "fail", result.shown
    assert "install python3" in result.checks["python", "ctl1"]["hint"]


def test_a_node_that_is_off_is_exit_code_4_and_the_others_are_checked(bare: LabCluster) -> None:
    with damaged(bare, Damage("gpu02", STOP_SSH, "systemctl start ssh", {})):
        result = doctor(bare)

    assert result.code == 4, result.shown
    assert result.problems() == {("reachable", "gpu02"), ("gpus", "gpu01")}


def test_keys_that_do_not_match_are_distinguished(bare: LabCluster, tmp_path: Path) -> None:
    directory = copied(bare, tmp_path)
    address = {node: bare.root(node, "ip -4 -o address show eth0 | awk '{print $4}' | cut -d/ -f1") for node in NODES}
    pinned = (directory / "known_hosts").read_text().splitlines()
    controller_lines = [line for line in pinned if line.startswith("ctl1,")]
    # nothing is known of gpu01, and gpu02 has the controller's keys
    strangers = [line.replace(f"ctl1,{address['ctl1']}", f"gpu02,{address['gpu02']}") for line in controller_lines]
    (directory / "known_hosts").write_text("\n".join([*controller_lines, *strangers, ""]))
    (directory / "ssh" / "id_ed25519").unlink()
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / "ssh" / "id_ed25519")],
        input="y\n", text=True, check=True, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip

    result = doctor(bare, directory=directory)

    assert result.code == 4, result.shown
    words = {node: result.checks["reachable", node] for node in NODES}
    assert "login refused" in words["ctl1"]["message"], result.shown
    assert "is not known here" in words["gpu01"]["message"]
    assert "ssh setup" in words["gpu01"]["hint"]
    assert "has changed" in words["gpu02"]["message"]
    assert "--accept-new-keys" in words["gpu02"]["hint"]


def test_secrets_that_cannot_be_decrypted_are_reported_before_any_node_is_contacted(
    bare: LabCluster, tmp_path: Path
) -> None:
    directory = copied(bare, tmp_path)
    (directory / ".vault-password").write_text("another\n")

    result = doctor(bare, directory=directory)

    assert result.code == 5, result.shown
    assert result.document["run"] == ""
    assert result.problems() == {("control-vault", "control")}
    assert "does not open" in result.checks["control-vault", "control"]["message"]


@pytest.mark.parametrize(("answer", "code", "words"), [("right", 0, "ok"), ("wrong", 1, "refused the password")])
def test_a_sudo_password_is_tried(bare: LabCluster, answer: str, code: int, words: str) -> None:
    (sudo,) = (damage for damage in DAMAGES if ("sudo", "ctl1") in damage.expected)
    password = bare.password_file.read_text().strip() if answer == "right" else "wrong"
    with damaged(bare, sudo):
        line = ["-m", "deepopsctl", "-C", str(bare.directory), "doctor", "--limit", "ctl1", "-K"]
        terminal = pexpect.spawn(sys.executable, line, encoding="utf-8", timeout=PATIENCE_S, dimensions=(50, 120))
        terminal.expect("sudo password")
        terminal.sendline(password)
        terminal.expect(pexpect.EOF)
        shown = terminal.before
        terminal.close()

    assert terminal.exitstatus == code, shown
    assert words in shown


def test_a_deployed_cluster_has_no_failures(deployed: LabCluster) -> None:
    result = doctor(deployed)

    assert result.code == 0, result.shown
    assert result.names("warn") == {"gpus"}
    assert result.names("skip") == NOT_YET - {"names", "memory", "cpus", "security", "database"}
    assert "slurmctld" in result.checks["ports", "ctl1"]["measured"]
    assert result.checks["ports", "gpu01"]["measured"] == "used by slurmd"


@pytest.mark.without_slurm
def test_every_check_is_damaged_here_or_there_is_a_reason_why_not() -> None:
    here = {name for damage in DAMAGES for name, _target in damage.expected} | {
        name for name, _target in DECLARED_EXPECTED
    }

    assert here | {"reachable", "python", "control-vault"} == set(DOCTOR) - set(NOT_HERE)
