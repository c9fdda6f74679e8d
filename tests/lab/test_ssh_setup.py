"""`ssh setup` against real sshds: what is installed where, and above all what is not."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import DEEPOPSCTL, PATIENCE_S, PREFIX, LabCluster, command, edit, fresh_lab, wait_until

pytestmark = pytest.mark.without_slurm

LAB = f"{PREFIX}-ssh"
NODES = ("ctl1", "gpu01", "gpu02")
SITE = "/etc/ssh/sshd_config.d/00-site.conf"
ASK_FOR_PASSWORDS = "/etc/ssh/sshd_config.d/00-test.conf"
# systemd refuses the sixth start within ten seconds unless its counter is reset
ACCESS = "/etc/ssh/deepopsctl/access"
RESTART = "systemctl reset-failed ssh; systemctl restart ssh"


@dataclass(frozen=True)
class SshLab(LabCluster):
    """A lab and a new cluster directory, no key installed anywhere."""

    @property
    def password(self) -> str:
        return self.password_file.read_text().strip()

    def setup(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """`ssh setup --json`, parsed: the nodes by name."""
        done = self.deepopsctl("ssh", "setup", "--json", *arguments, ok=False)
        assert done.returncode == code, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["ok"] is (code == 0)
        return {node["name"]: node for node in document["nodes"]}

    def setup_with_password(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return self.setup("--password-file", str(self.password_file), *arguments, code=code)

    def authorized(self, node: str) -> list[str]:
        """The keys that sshd reads for the cluster's user, in root's file."""
        return self.root(node, f"grep -v '^#' {ACCESS}/ubuntu 2>/dev/null", ok=False).splitlines()

    def state(self) -> list[str]:
        """Everything that a second run must leave as it is."""
        script = (
            f"find {ACCESS} /etc/ssh/deepopsctl/login /home/ubuntu/.ssh -printf '%p %m %u %t ' -type f -exec cat {{}} +"
        )
        return [(self.directory / "known_hosts").read_text(), *(self.root(node, script, ok=False) for node in NODES)]

    def passwords_sent_to(self, node: str) -> int:
        """How many passwords a node's sshd has checked since the test began."""
        log = self.root(node, "journalctl -u ssh -q --no-pager --since @$(cat /run/test-began)")
        return sum("password for ubuntu" in line for line in log.splitlines())

    def new_host_keys(self, node: str) -> None:
        self.root(node, f"rm /etc/ssh/ssh_host_* && ssh-keygen -A; {RESTART}")


@pytest.fixture(scope="module")
def lab_files() -> Iterator[dict[str, Any]]:
    with fresh_lab(LAB, "--compute", "2", "--gpus", "a100:1") as made:
        yield made


@pytest.fixture
def ssh_lab(lab_files: dict[str, Any], tmp_path: Path) -> SshLab:
    directory = tmp_path / "cluster"
    made = command("init", str(directory), "--from", lab_files["node_list"])
    assert made.returncode == 0, made.stderr
    lab = SshLab.of(lab_files, directory)
    # a new sshd has forgotten the failed logins of the test before (PerSourcePenalties)
    fresh = (
        f"rm -rf /home/ubuntu/.ssh {ASK_FOR_PASSWORDS} /etc/ssh/deepopsctl /etc/ssh/sshd_config.d/30-deepopsctl-*;"
        f"rm -f {SITE};"
        " date +%s >/run/test-began;"
        f"echo 'ubuntu ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/lab; {RESTART}"
    )
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: lab.root(node, fresh), NODES))
    return lab


def test_the_first_run_installs_pins_and_checks_everything(ssh_lab: SshLab) -> None:
    nodes = ssh_lab.setup_with_password()
    public = (ssh_lab.directory / "ssh" / "id_ed25519.pub").read_text().strip()
    assert set(nodes) == set(NODES)
    assert all(node["changed"] and node["sudo"] == "passwordless" for node in nodes.values())
    for node in NODES:
        assert ssh_lab.authorized(node).count(public) == 1
        assert ssh_lab.root(node, f"stat -c %a%U {ACCESS} {ACCESS}/ubuntu").split() == ["755root", "644root"]
    pinned = {line.split()[0].split(",")[0] for line in (ssh_lab.directory / "known_hosts").read_text().splitlines()}
    assert pinned == set(NODES)


def test_the_second_run_asks_for_nothing_and_changes_nothing(ssh_lab: SshLab) -> None:
    ssh_lab.setup_with_password()
    before = ssh_lab.state()
    nodes = ssh_lab.setup()
    assert not any(node["changed"] for node in nodes.values())
    assert ssh_lab.state() == before


def test_the_controller_logs_in_to_nodes_by_name_and_by_address(ssh_lab: SshLab) -> None:
    ssh_lab.setup_with_password()
    address = ssh_lab.root("gpu01", "hostname -I").split()[0]
    script = f"for host in gpu01 {address} ctl1; do ssh -o BatchMode=yes $host hostname; done"
    assert ssh_lab.user("ctl1", script).split() == ["gpu01", "gpu01", "ctl1"]


def test_the_controllers_private_key_stays_there(ssh_lab: SshLab) -> None:
    ssh_lab.setup_with_password()
    place = f"/etc/ssh/deepopsctl/login/deepopsctl-{LAB}"
    assert ssh_lab.root("ctl1", f"stat -c %a%U /etc/ssh/deepopsctl/login {place}").split() == ["755root", "400ubuntu"]
    for node in NODES[1:]:
        assert not ssh_lab.holds(node, f"[ -e /home/ubuntu/.ssh ] || [ -e {place} ]")
    private = ssh_lab.root("ctl1", f"sed -n 4p {place}")
    assert not any(private in file.read_text() for file in ssh_lab.directory.rglob("*") if file.is_file())


def test_a_dead_node_is_named_and_the_others_are_done(ssh_lab: SshLab) -> None:
    container = f"{LAB}-gpu02"
    subprocess.run(["podman", "stop", "-t", "1", container], check=True, capture_output=True)
    try:
        nodes = ssh_lab.setup_with_password("--connect-timeout", "60", code=4)
    finally:
        subprocess.run(["podman", "start", container], check=True, capture_output=True)
    assert {name for name, node in nodes.items() if not node["ok"]} == {"gpu02"}
    assert nodes["gpu02"]["status"] == "unreachable"
    assert ssh_lab.authorized("gpu01")
    wait_until("gpu02 is there again", lambda: ssh_lab.holds("gpu02", "systemctl is-active ssh"))
    again = ssh_lab.setup_with_password()
    assert {name for name, node in again.items() if node["changed"]} >= {"gpu02"}
    assert len(ssh_lab.authorized("gpu01")) == 2


def test_a_wrong_password_is_tried_once_and_named(ssh_lab: SshLab, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    wrong.chmod(0o600)
    nodes = ssh_lab.setup("--password-file", str(wrong), code=1)
    assert [nodes[name]["status"] for name in NODES] == ["password refused", "not tried", "not tried"]
    assert [ssh_lab.passwords_sent_to(node) for node in NODES] == [1, 0, 0]


def test_a_changed_host_key_stops_that_node_and_gets_no_password(ssh_lab: SshLab) -> None:
    ssh_lab.setup_with_password()
    pinned = (ssh_lab.directory / "known_hosts").read_text()
    ssh_lab.root("gpu01", f"rm {ACCESS}/ubuntu")
    ssh_lab.new_host_keys("gpu01")
    before = ssh_lab.passwords_sent_to("gpu01")
    nodes = ssh_lab.setup_with_password(code=1)
    now = ssh_lab.root("gpu01", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert [nodes[name]["ok"] for name in NODES] == [True, False, True]
    assert nodes["gpu01"]["status"] == "host key changed"
    assert now in nodes["gpu01"]["message"]
    assert "--accept-new-keys gpu01" in nodes["gpu01"]["hint"]
    assert (ssh_lab.directory / "known_hosts").read_text() == pinned
    assert ssh_lab.passwords_sent_to("gpu01") == before
    assert not ssh_lab.authorized("gpu01")


def test_a_reinstalled_node_is_accepted_by_name(ssh_lab: SshLab) -> None:
    ssh_lab.setup_with_password()
    others = [line for line in (ssh_lab.directory / "known_hosts").read_text().splitlines() if "gpu01" not in line]
    ssh_lab.new_host_keys("gpu01")
    nodes = ssh_lab.setup("--accept-new-keys", "gpu01")
    assert nodes["gpu01"]["message"] == "new host key accepted"
    assert not nodes["gpu02"]["changed"]
    lines = (ssh_lab.directory / "known_hosts").read_text().splitlines()
    assert [line for line in lines if "gpu01" not in line] == others
    assert ssh_lab.user("ctl1", "ssh -o BatchMode=yes gpu01 hostname") == "gpu01"


def test_the_password_is_nowhere_to_be_seen_while_it_runs(ssh_lab: SshLab) -> None:
    seen: list[str] = []
    looked: list[int] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(ssh_lab.password.encode(), seen, looked, done))
    watcher.start()
    try:
        ssh_lab.setup_with_password()
    finally:
        done.set()
        watcher.join()
    assert len(looked) > 5
    assert seen == []
    assert not any(ssh_lab.password in file.read_text() for file in ssh_lab.directory.rglob("*") if file.is_file())


def _watch(secret: bytes, seen: list[str], looked: list[int], done: threading.Event) -> None:
    """Search for the secret in the command line and environment of every process, again and again."""
    while not done.wait(0.02):
        looked.append(1)
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    text = (process / name).read_bytes()
                except OSError:
                    continue
                if secret in text:
                    seen.append(f"{process / name}: {text!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_is_finished_by_the_next(ssh_lab: SshLab, number: signal.Signals) -> None:
    arguments = [
        DEEPOPSCTL,
        "-C",
        str(ssh_lab.directory),
        "ssh",
        "setup",
        "--password-file",
        str(ssh_lab.password_file),
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        pins = ssh_lab.directory / "known_hosts"
        wait_until("it has reached ctl1", lambda: "ctl1" in pins.read_text(), pause_s=0.005)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_S)
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        assert "of 3 nodes are ready" in errors
    nodes = ssh_lab.setup_with_password()
    assert all(node["ok"] for node in nodes.values())
    assert all(len(set(ssh_lab.authorized(node))) == len(ssh_lab.authorized(node)) == 2 for node in NODES)


@pytest.fixture
def own_key(ssh_lab: SshLab, tmp_path: Path) -> Path:
    """A person's key that opens all nodes, where passwords are off."""
    key = tmp_path / "mine"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_name("mine.pub").read_text().strip()
    for node in NODES:
        ssh_lab.user(node, f"mkdir -m 700 .ssh && echo '{public}' >.ssh/authorized_keys")
        ssh_lab.root(node, f"echo PasswordAuthentication no >{ASK_FOR_PASSWORDS}; {RESTART}")
    return key


def test_an_existing_key_logs_in_where_passwords_are_off(ssh_lab: SshLab, own_key: Path) -> None:
    public = own_key.with_name("mine.pub").read_text().strip()
    ssh_lab.setup("--identity", str(own_key))
    assert all(ssh_lab.authorized(node)[0] == public and len(ssh_lab.authorized(node)) == 3 for node in NODES)
    assert not any(node["changed"] for node in ssh_lab.setup().values())


def test_a_key_in_the_persons_agent_is_enough(
    ssh_lab: SshLab, own_key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        wait_until("the agent listens", lambda: (tmp_path / "agent").exists() or agent.poll() is not None)
        subprocess.run(["ssh-add", "-q", str(own_key)], check=True, capture_output=True)
        ssh_lab.setup()
    finally:
        agent.terminate()
        agent.wait()


def test_a_node_that_only_asks_interactively_gets_the_password_too(ssh_lab: SshLab) -> None:
    ssh_lab.root(
        "gpu01",
        f"printf 'PasswordAuthentication no\\nKbdInteractiveAuthentication yes\\n' >{ASK_FOR_PASSWORDS}; {RESTART}",
    )
    assert ssh_lab.setup_with_password()["gpu01"]["ok"]


def test_all_goes_through_a_jump_host(ssh_lab: SshLab) -> None:
    address = ssh_lab.root("gpu01", "hostname -I").split()[0]
    edit(ssh_lab.directory / "cluster.yml", "user: ubuntu", f"user: ubuntu, jump_host: 'ubuntu@{address}'")
    ssh_lab.setup_with_password()
    for node in ("ctl1", "gpu02"):
        log = ssh_lab.root(node, "journalctl -u ssh -q --no-pager --since @$(cat /run/test-began)")
        passwords = [line for line in log.splitlines() if "Accepted password" in line]
        assert passwords
        assert all(f"from {address} " in line for line in passwords)
    assert not any(node["changed"] for node in ssh_lab.setup().values())
    # the way that Ansible goes afterwards
    ssh_lab.deepopsctl("inventory")
    arguments = ["-i", "inventory/hosts.yml", "--vault-password-file", ".vault-password", "-m", "ping", "all"]
    ansible = Path(DEEPOPSCTL).with_name("ansible")
    done = subprocess.run(
        [ansible, *arguments], cwd=ssh_lab.directory, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == 3


def test_nodes_may_have_ports_of_their_own(ssh_lab: SshLab) -> None:
    ssh_lab.root("gpu02", f"printf 'Port 2222\\n' >{ASK_FOR_PASSWORDS}; {RESTART}")
    addresses = {node: ssh_lab.root(node, "hostname -I").split()[0] for node in NODES}
    (ssh_lab.directory / "cluster.yml").write_text(
        f"schema: 1\ncluster: {{name: {LAB}, user: ubuntu}}\nnodes:\n"
        f"  - {{names: ctl1, addresses: {addresses['ctl1']}, roles: [controller]}}\n"
        f"  - {{names: gpu01, addresses: {addresses['gpu01']}, roles: [compute]}}\n"
        f"  - {{names: gpu02, addresses: {addresses['gpu02']}, port: 2222, roles: [compute]}}\n"
    )
    ssh_lab.setup_with_password()
    assert f"[gpu02]:2222,[{addresses['gpu02']}]:2222 " in (ssh_lab.directory / "known_hosts").read_text()
    assert ssh_lab.user("ctl1", "ssh -o BatchMode=yes gpu02 hostname") == "gpu02"


def test_a_persons_own_ssh_configuration_counts(
    ssh_lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, wrapper = tmp_path / "config", tmp_path / "bin" / "ssh"
    config.write_text(
        "".join(
            f"Host {node}\n    HostName {ssh_lab.root(node, 'hostname -I').split()[0]}\n    HostKeyAlias {node}.alias\n"
            for node in NODES
        )
    )
    # ssh reads the home directory from the user database, so a test can't give it a ~/.ssh/config
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    (ssh_lab.directory / "cluster.yml").write_text(
        f"schema: 1\ncluster: {{name: {LAB}, user: ubuntu}}\nnodes:\n"
        "  - {names: ctl1, roles: [controller]}\n  - {names: 'gpu[01-02]', roles: [compute]}\n"
    )
    nodes = ssh_lab.setup_with_password("--no-controller-key")
    assert all(node["ok"] for node in nodes.values())
    assert "gpu01,gpu01.alias ssh-ed25519 " in (ssh_lab.directory / "known_hosts").read_text()


def test_copies_of_one_image_are_detected_by_their_host_keys(ssh_lab: SshLab) -> None:
    keys = ssh_lab.root("gpu01", "tar -C /etc/ssh -cf - ssh_host_ed25519_key ssh_host_ed25519_key.pub | base64")
    before = ssh_lab.root("gpu02", "tar -C /etc/ssh -cf - ssh_host_ed25519_key ssh_host_ed25519_key.pub | base64")
    put = "base64 -d <<'END' | tar -C /etc/ssh -xf -\n{}\nEND\n" + RESTART
    ssh_lab.root("gpu02", put.format(keys))
    try:
        done = ssh_lab.deepopsctl("ssh", "setup", "--password-file", str(ssh_lab.password_file))
    finally:
        ssh_lab.root("gpu02", put.format(before))
    assert "gpu01, gpu02 have the same host key" in done.stderr


def test_no_sudo_at_all_is_a_failure_that_names_the_node(ssh_lab: SshLab) -> None:
    ssh_lab.root("gpu01", "mv /usr/bin/sudo /usr/bin/sudo.off")
    try:
        nodes = ssh_lab.setup_with_password(code=1)
    finally:
        ssh_lab.root("gpu01", "mv /usr/bin/sudo.off /usr/bin/sudo")
    assert [nodes[name]["ok"] for name in NODES] == [True, False, True]
    assert nodes["gpu01"]["sudo"] == "none"


def test_ctrl_c_at_the_question_ends_it(ssh_lab: SshLab) -> None:
    code, shown = on_terminal(ssh_lab, answers=[("SSH password of", "\x03")])
    assert code == 130, shown
    assert not any(ssh_lab.authorized(node) for node in NODES)


def test_on_a_terminal_it_asks_once_for_each_password(ssh_lab: SshLab) -> None:
    ssh_lab.root("gpu01", "echo 'ubuntu ALL=(ALL) ALL' >/etc/sudoers.d/lab")
    code, shown = on_terminal(ssh_lab, "-K", answers=[("sudo password", ""), ("SSH password of", ssh_lab.password)])
    assert code == 0, shown
    assert shown.count("SSH password of ubuntu") == 1
    assert "the one given works" in shown
    assert ssh_lab.password not in shown


def on_terminal(lab: SshLab, *arguments: str, answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Run `ssh setup` on a pseudo-terminal and type each answer when its question appears."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(DEEPOPSCTL, [DEEPOPSCTL, "-C", str(lab.directory), "ssh", "setup", *arguments])  # noqa: S606 - the child of pty.fork
    shown, deadline = "", time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        # what is typed before the echo is off would be dropped
        if answers and answers[0][0] in shown and not termios.tcgetattr(terminal)[3] & termios.ECHO:
            os.write(terminal, answers.pop(0)[1].encode() + b"\n")
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if not ready:
            continue
        try:
            shown += os.read(terminal, 4096).decode(errors="replace")
        except OSError:
            # Linux reports the end of a terminal so
            break
    else:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown


def lets_in(lab: SshLab, node: str, key: Path) -> bool:
    address = lab.root(node, "hostname -I").split()[0]
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes")
    words = [word for option in options for word in ("-o", option)]
    argv = ["ssh", "-F", "/dev/null", *words, "-i", str(key), f"ubuntu@{address}", "true"]
    return subprocess.run(argv, capture_output=True, timeout=PATIENCE_S).returncode == 0


def test_a_key_that_is_put_into_the_home_opens_nothing(ssh_lab: SshLab, tmp_path: Path) -> None:
    """What root of another node could write on a shared file system."""
    key = tmp_path / "hostile"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_name("hostile.pub").read_text().strip()
    plant = f"mkdir -pm 700 .ssh && for f in authorized_keys authorized_keys2; do echo '{public}' >>.ssh/$f; done"
    ssh_lab.setup_with_password()

    ssh_lab.user("gpu01", plant)

    assert not lets_in(ssh_lab, "gpu01", key)
    assert lets_in(ssh_lab, "gpu01", ssh_lab.directory / "ssh" / "id_ed25519")
    assert not any(node["changed"] for node in ssh_lab.setup().values())
    assert not lets_in(ssh_lab, "gpu01", key)


def test_keys_of_an_older_setup_move_and_go_on_opening_the_node(ssh_lab: SshLab, own_key: Path) -> None:
    moved = ssh_lab.setup("--identity", str(own_key))

    assert "1 key of ~/.ssh moved to root's file" in moved["gpu01"]["message"]
    assert lets_in(ssh_lab, "gpu01", own_key)


def test_where_sshd_would_not_take_roots_file_the_keys_stay_and_nobody_is_locked_out(ssh_lab: SshLab) -> None:
    block = "Match User ubuntu\\n    AuthorizedKeysFile .ssh/authorized_keys\\n"
    ssh_lab.root("gpu01", f"printf '{block}' >{SITE}; {RESTART}")

    nodes = ssh_lab.setup_with_password()

    assert "keys are in ~/.ssh: sshd would not accept root's file of keys for ubuntu" in nodes["gpu01"]["message"]
    assert not ssh_lab.holds("gpu01", "ls /etc/ssh/sshd_config.d/30-deepopsctl-*")
    assert not ssh_lab.holds("gpu01", f"ls {ACCESS}/*.probe")
    assert all(lets_in(ssh_lab, node, ssh_lab.directory / "ssh" / "id_ed25519") for node in NODES)
    # once the site has taken its block away
    ssh_lab.root("gpu01", f"rm {SITE}; {RESTART}")
    assert "moved to root's file" in ssh_lab.setup()["gpu01"]["message"]


def test_with_a_sudo_password_the_keys_go_to_roots_file_at_once_or_with_the_deploy(ssh_lab: SshLab) -> None:
    ssh_lab.root("gpu01", "echo 'ubuntu ALL=(ALL) ALL' >/etc/sudoers.d/lab")

    nodes = ssh_lab.setup_with_password()
    assert "keys are in ~/.ssh: only root may move them" in nodes["gpu01"]["message"]
    assert not ssh_lab.authorized("gpu01")

    code, shown = on_terminal(ssh_lab, "-K", answers=[("sudo password", ssh_lab.password)])
    assert code == 0, shown
    assert len(ssh_lab.authorized("gpu01")) == 2
    # without it there is nothing to do now
    assert not ssh_lab.setup()["gpu01"]["changed"]
