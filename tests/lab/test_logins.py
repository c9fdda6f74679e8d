"""Users log in to a compute node where they have a job, and only into that job; administrators always."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.harness import PATIENCE_S, LabCluster, wait_until

NODE = "gpu01"
NODES = ("ctl1", "gpu01", "gpu02")
# what Debian's installer installs, and the lab's image has not: the module that takes sessions out of their job
LIKE_A_REAL_NODE = "apt-get install -y -q --no-install-recommends libpam-systemd"


@dataclass(frozen=True)
class Person:
    """A user with an account on all nodes and a key of their own."""

    name: str
    key: Path
    addresses: dict[str, str]

    def argv(self, node: str, script: str) -> list[str]:
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
        words = [word for option in options for word in ("-o", option)]
        return ["ssh", "-i", str(self.key), *words, f"{self.name}@{self.addresses[node]}", script]

    def ssh(self, node: str, script: str) -> tuple[int, str]:
        """The exit code and output of a command over SSH; 255 where the login is refused."""
        done = subprocess.run(self.argv(node, script), capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode, (done.stdout + done.stderr).strip()

    def is_let_in(self, node: str) -> bool:
        return self.ssh(node, "true")[0] == 0


@pytest.fixture(scope="module")
def people(deployed: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Person]]:
    """A user, and an administrator by group: not the one that deepopsctl connects as."""
    key = tmp_path_factory.mktemp("people") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    names = {"alice": "users", "carol": "sudo"}
    addresses = {node: deployed.root(node, "hostname -I").split()[0] for node in NODES}
    try:
        for node in NODES:
            for name, group in names.items():
                home = f"/home/{name}/.ssh"
                deployed.root(node, f"useradd -m -s /bin/bash -G {group} {name} && install -d -o {name} -m 700 {home}")
                deployed.root(node, f"echo '{public}' > {home}/authorized_keys")
        deployed.root("ctl1", "sacctmgr -i add user alice account=default")
        deployed.root(NODE, LIKE_A_REAL_NODE)
        yield {name: Person(name, key, addresses) for name in names}
    finally:
        deployed.root("ctl1", "scancel -u alice; sacctmgr -i delete user alice", ok=False)
        deployed.root(NODE, "apt-get purge -y -q libpam-systemd", ok=False)
        for node in NODES:
            deployed.root(node, "for one in alice carol; do pkill -KILL -u $one; userdel -r $one; done", ok=False)
        # what was set up for an administrator who is gone: a deploy that finds its record up to date sees nothing of it
        deployed.deploy("--full")


def submit(cluster: LabCluster) -> int:
    """A job of alice's with one of the node's two GPUs."""
    words = f"sbatch --parsable -o /dev/null -w {NODE} --gpus=1 --mem=100M --wrap='sleep infinity'"
    return int(cluster.root("ctl1", f'su alice -c "cd /tmp; {words}"'))


def test_a_user_is_inside_of_the_job_and_gone_with_it(deployed: LabCluster, people: dict[str, Person]) -> None:
    alice = people["alice"]
    assert alice.ssh(NODE, "true")[0] == 255
    assert "no active jobs on this node" in deployed.root(NODE, "journalctl -t pam_slurm_adopt -n 5")

    job = submit(deployed)
    deployed.wait_for_job(job, "RUNNING")
    script = "cat /proc/self/cgroup; for one in 0 1; do head -c1 /dev/nvidia$one 2>&1; done"
    code, shown = alice.ssh(NODE, script)

    assert code == 1
    assert f"/job_{job}/step_extern" in shown
    assert "user.slice" not in shown
    # its own has no driver behind it; the other one is not this job's
    assert shown.count("No such device or address") == 1
    assert shown.count("Operation not permitted") == 1
    assert alice.ssh("gpu02", "true")[0] == 255

    with subprocess.Popen(alice.argv(NODE, "sleep infinity"), stdout=subprocess.DEVNULL) as session:
        deployed.root(NODE, "until pgrep -u alice -f 'sleep infinity' | sed -n 2p | grep -q .; do sleep 0.2; done")
        deployed.root("ctl1", f"scancel {job}")
        assert session.wait(PATIENCE_S) != 0
    wait_until("nothing of alice's is left", lambda: not deployed.holds(NODE, "pgrep -u alice"))
    assert not alice.is_let_in(NODE)


def test_other_services_ask_for_no_job(deployed: LabCluster, people: dict[str, Person]) -> None:
    assert deployed.root(NODE, "su - alice -c 'echo in'") == "in"
    assert deployed.root(NODE, "grep -l slurm /etc/pam.d/*") == "/etc/pam.d/sshd"


def test_a_login_node_lets_users_in_within_limits(deployed: LabCluster, people: dict[str, Person]) -> None:
    ask = "systemctl show -p TasksMax --value user-$(id -u).slice"

    assert people["alice"].ssh("ctl1", ask) == (0, "2000")
    # an administrator that came after the deploy; then its user and root
    unlimited = deployed.root("ctl1", "systemctl show -p MemoryMax --value user-0.slice user-1000.slice").split()
    assert unlimited == ["infinity", "infinity"]
    assert deployed.root("ctl1", "systemctl show -p MemoryMax --value user-4711.slice").isdecimal()


def test_administrators_get_in_and_a_deploy_works_while_slurm_is_down(
    deployed: LabCluster, people: dict[str, Person]
) -> None:
    deployed.root(NODE, "systemctl stop slurmd munge")
    deployed.root("ctl1", "systemctl stop slurmctld")

    assert people["carol"].ssh(NODE, "loginctl session-status | head -1")[0] == 0
    assert not people["alice"].is_let_in(NODE)

    assert deployed.deploy()["ok"]
    deployed.wait_until_idle()


def test_it_can_be_switched_off(deployed: LabCluster, people: dict[str, Person]) -> None:
    off = ("-e", "slurm_adopt_enabled=false", "-e", json.dumps({"login_access_limits": {}}))
    deployed.deploy(*off, "--limit", f"{NODE},ctl1")

    assert people["alice"].is_let_in(NODE)
    assert not deployed.holds("ctl1", "ls /etc/systemd/system/user-*.slice.d/deepopsctl.conf")
    assert deployed.deploy(*off, "--limit", NODE)["changes"] == []

    deployed.deploy()
    assert not people["alice"].is_let_in(NODE)


def test_the_programs_that_slurm_conf_names_are_there_and_a_mail_that_cannot_be_sent_is_in_the_journal(
    deployed: LabCluster,
) -> None:
    shown = deployed.root("ctl1", "scontrol show config")
    program = {key: re.search(rf"^{key} += (\S+)", shown, re.MULTILINE) for key in ("MailProg", "RebootProgram")}
    mail, reboot = (match[1] if match else "" for match in program.values())

    assert deployed.holds("ctl1", f"test -x {mail}")
    assert deployed.holds(NODE, f"test -x {reboot}")

    # what another module has deployed sends mails by itself
    report = "/usr/local/sbin/deepops-job-mail"
    deployed.root("ctl1", f"test ! -e {report} || chmod -x {report}")
    try:
        # a user chooses both; the subject's second line would be a header, the address an option of the mailer
        job = deployed.submit(
            "true", "--mail-type=END", "--mail-user=-OQueueDirectory=/tmp", "--job-name=$'a\\nBcc: b'"
        )
        deployed.wait_for_job(job, "COMPLETED")
        words = f"journalctl -t slurm-mail -o cat | grep 'Job_id={job} '"
        wait_until("the mail was refused", lambda: deployed.holds("ctl1", words))
        assert deployed.root("ctl1", words).endswith(": not an address")
    finally:
        deployed.root("ctl1", f"test ! -e {report} || chmod +x {report}")


def test_users_see_windows_of_their_jobs(deployed: LabCluster) -> None:
    cookie = "0123456789abcdef" * 2
    deployed.user("ctl1", f"touch ~/.Xauthority; xauth add ctl1/unix:99 . {cookie}")

    shown = deployed.user("ctl1", "DISPLAY=localhost:99 srun --x11 sh -c 'echo $DISPLAY; xauth list'")

    assert re.search(r"^localhost:\d+\.0$", shown, re.MULTILINE)
    assert cookie in shown


def hop(cluster: LabCluster, start: str, node: str, user: str, script: str, *options: str) -> tuple[int, str]:
    """`ssh NODE` of a user who is on a node already, without any key of their own."""
    words = " ".join(f"-o {option}" for option in ("BatchMode=yes", "LogLevel=ERROR", *options))
    shown = cluster.root(start, f'su - {user} -c \'ssh {words} {node} "{script}"\' 2>&1; echo "rc=$?"', ok=False)
    text, _, code = shown.rpartition("rc=")
    return int(code), text.strip()


def test_from_a_login_node_a_user_gets_into_the_own_job_without_a_password(
    deployed: LabCluster, people: dict[str, Person]
) -> None:
    script = "cat /proc/self/cgroup; env; head -c1 /dev/nvidia0 /dev/nvidia1"
    assert hop(deployed, "ctl1", NODE, "alice", "true")[0] == 255
    assert "no active jobs on this node" in deployed.root(NODE, "journalctl -t pam_slurm_adopt -n 5")

    job = submit(deployed)
    try:
        deployed.wait_for_job(job, "RUNNING")
        _, shown = hop(deployed, "ctl1", NODE, "alice", script)
    finally:
        deployed.root("ctl1", f"scancel {job}")

    assert f"/job_{job}/step_extern" in shown
    assert f"SLURM_JOB_ID={job}" in shown
    # the own one has no driver behind it, the other is not this job's
    assert shown.count("No such device or address") == 1
    assert shown.count("Operation not permitted") == 1


@pytest.mark.parametrize("user", ["root", "ubuntu", "carol"])
def test_nobody_with_more_rights_gets_in_by_a_login_nodes_word(
    deployed: LabCluster, people: dict[str, Person], user: str
) -> None:
    host = "HostbasedAuthentication=yes -o PreferredAuthentications=hostbased"

    assert hop(deployed, "ctl1", NODE, user, "true", host)[0] == 255


def test_a_compute_nodes_word_counts_nowhere(deployed: LabCluster, people: dict[str, Person]) -> None:
    """Its root may ask with the node's own host key, and with the login node's public one."""
    enable = "echo 'EnableSSHKeysign yes' >/etc/ssh/ssh_config.d/00-hostile.conf"
    host = "HostbasedAuthentication=yes -o PreferredAuthentications=hostbased -o StrictHostKeyChecking=no"
    deployed.root("gpu02", enable)
    job = submit(deployed)
    try:
        deployed.wait_for_job(job, "RUNNING")
        for node in ("ctl1", NODE):
            assert hop(deployed, "gpu02", node, "alice", "true", host)[0] == 255
    finally:
        deployed.root("gpu02", "rm /etc/ssh/ssh_config.d/00-hostile.conf")
        deployed.root("ctl1", f"scancel {job}")
