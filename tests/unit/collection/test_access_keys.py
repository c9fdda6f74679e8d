"""Root's file of the deploying user's keys: what is taken over, what replaces what, and who else could write a home."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import access_keys
from deepopsctl.node_programs.operations.node_doctor import main as node_doctor

A = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHuKFJrFKlSN1oTvwmMQw0JpOPrYQo3qzbSgVhRTMEeP"
B = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/BNj5ceSxHv164NueTzX2aUqibHeHV/fZb49d3+0Ib"
CONTROLLER = "ubuntu@ctl1 (deepopsctl cluster hpc)"
MOUNTS = """\
22 1 254:1 / / rw - ext4 /dev/vda1 rw
40 22 0:33 / /home rw - autofs systemd-1 rw,fd=40
41 40 0:50 / /home rw - nfs4 ctl1:/srv/home rw
42 22 0:51 / /shared\\040data rw - lustre 10.0.0.1@tcp:/work rw
"""


@pytest.fixture
def account(tmp_path: Path) -> pwd.struct_passwd:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return pwd.struct_passwd(("ada", "x", os.getuid(), os.getgid(), "", str(tmp_path), "/bin/sh"))


def test_a_key_is_there_once_whatever_its_comment_and_an_administrators_options_stay() -> None:
    lines = ["# mine", f'no-pty,from="192.0.2.9" {A} ada@laptop', f"{B} b"]

    assert access_keys.merged(lines, [f'from="192.0.2.7" {A} x', f"{B} another"]) == lines


@pytest.mark.parametrize("before", ["", 'from="192.0.2.1" '])
def test_a_key_gets_the_addresses_that_it_has_now(before: str) -> None:
    key = f'from="192.0.2.7" {A} x'

    assert access_keys.merged([f"{before}{A} x", B, f"{before}{A} x"], [key]) == [key, B]


def test_a_new_key_of_the_same_controller_replaces_the_former_one_and_no_other() -> None:
    lines = [f'from="192.0.2.7" {A} {CONTROLLER}', f"{A[:-4]}AAAA ubuntu@ctl1", f"{A[:-4]}BBBB {CONTROLLER}"]
    key = f'from="192.0.2.7" {B} {CONTROLLER}'

    assert access_keys.merged(lines, [key]) == [*lines[1:], key]


def test_only_keys_are_taken_over_and_a_pipe_in_their_place_does_not_block(
    account: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(account.pw_dir)
    (home / ".ssh" / "authorized_keys").write_text(f'# {A}\n\nnonsense\nfrom="192.0.2.1" {B} b\n')
    os.mkfifo(home / ".ssh" / "authorized_keys2")
    monkeypatch.setattr(
        access_keys, "accepted_places", lambda _user: [".ssh/authorized_keys", "%h/.ssh/authorized_keys2"]
    )
    # no group list is asked where the test is not root
    monkeypatch.setattr(os, "initgroups", lambda *_ids: None)

    assert access_keys.own_keys(account) == [f'from="192.0.2.1" {B} b']


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/ubuntu", ("/home", "nfs4")),
        ("/homes/ubuntu", ("/", "ext4")),
        ("/shared data/u", ("/shared data", "lustre")),
    ],
)
def test_the_file_system_of_a_home_is_the_one_on_top(tmp_path: Path, path: str, expected: tuple[str, str]) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)

    assert access_keys.file_system_of(path, str(table)) == expected


def test_a_home_that_lies_on_a_file_server_already_is_reported_by_doctor(
    account: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: account)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(access_keys, "in_force", lambda _user: True)
    monkeypatch.setenv("SUDO_USER", "ada")

    monkeypatch.setattr(access_keys, "file_system_of", lambda _path: ("/home", "nfs4"))
    on_a_server = {"user": "ada", "networked": f"{account.pw_dir} (nfs4 at /home)", "keys": "root"}
    assert node_doctor.login() == on_a_server
    monkeypatch.setattr(access_keys, "file_system_of", lambda _path: ("/", "ext4"))
    assert node_doctor.login() == {**on_a_server, "networked": ""}


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "lustre", "beegfs", "ceph", "fuse.ceph-fuse", "fuse.glusterfs", "cifs"]
)
def test_file_servers_are_known_by_their_types(kind: str) -> None:
    assert access_keys.NETWORKED.fullmatch(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs", "fuse.lxcfs", ""])
def test_disks_are_no_file_servers(kind: str) -> None:
    assert not access_keys.NETWORKED.fullmatch(kind)


@pytest.mark.parametrize("user", ["ada,root", "*", "!ada", "a b", "../x"])
def test_a_name_that_sshd_would_read_as_a_pattern_is_refused(user: str) -> None:
    with pytest.raises(access_keys.AccessError):
        access_keys.ensure(user)


class Sshd:
    """sshd and ssh, in place of the programs: what the login of the probe ends with, and where sshd looks."""

    def __init__(
        self, login: int = 0, places: str = "/etc/ssh/deepopsctl/access/%u /etc/ssh/deepopsctl/keys/%u"
    ) -> None:
        self.login, self.places, self.ran = login, places, list[str]()

    def __call__(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.ran.append(" ".join(argv[:2]))
        if argv[0] == "ssh-keygen":
            Path(argv[-1] + ".pub").write_text(f"{A} probe\n")
        if argv[0] == "ssh":
            return subprocess.CompletedProcess(
                list(argv), self.login, "", "" if not self.login else "Permission denied"
            )
        shown = f"authorizedkeysfile {self.places}\n" if "-T" in argv else ""
        return subprocess.CompletedProcess(list(argv), 0, shown, "")


@pytest.fixture
def node(tmp_path: Path, account: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with a user of another id than root, whose home has a key."""
    etc = tmp_path / "etc"
    (etc / "access").mkdir(parents=True)
    (etc / "sshd_config").write_text("Include /etc/ssh/sshd_config.d/*.conf\n")
    monkeypatch.setattr(access_keys, "DIRECTORY", str(etc / "access"))
    monkeypatch.setattr(access_keys, "CONFIG", str(etc / "30.conf"))
    monkeypatch.setattr(access_keys, "MAIN_CONFIG", str(etc / "sshd_config"))
    monkeypatch.setattr(access_keys, "_account", lambda _user: pwd.struct_passwd((*account[:2], 4711, *account[3:])))
    monkeypatch.setattr(access_keys, "own_keys", lambda _account: [f"{B} b"])
    monkeypatch.setattr(access_keys, "_make_directory", lambda _path: None)
    monkeypatch.setattr(access_keys, "in_force", lambda _user: True)
    monkeypatch.setattr(access_keys, "_RELOAD_S", 0.0)
    return etc


def test_keys_move_once_a_login_has_shown_that_they_work(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sshd = Sshd()
    monkeypatch.setattr(access_keys, "_run", sshd)

    outcome = access_keys.ensure("ada", [f"{A} x"])

    assert outcome.adopted == [f"{B} b"]
    assert (node / "access" / "ada").read_text().splitlines()[1:] == [f"{B} b", f"{A} x"]
    # sshd reads nothing in the home, whatever is added there later
    assert ".ssh" not in (node / "30.conf").read_text()
    assert sshd.ran.index("ssh -F") < sshd.ran.index("systemctl reload")
    assert access_keys.ensure("ada", [f"{A} x"]) == ([], [])


def test_a_reload_ends_when_sshd_listens_again(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = socket.create_server(("127.0.0.1", 0))
    port, again = first.getsockname()[1], list[socket.socket]()

    def listen_again() -> None:
        again.append(socket.create_server(("127.0.0.1", port)))

    class Reloading(Sshd):
        def __call__(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
            done = super().__call__(argv)
            if argv[:2] == ["systemctl", "reload"]:
                first.close()
                threading.Timer(0.3, listen_again).start()
            return subprocess.CompletedProcess(done.args, done.returncode, f"{done.stdout}port {port}\n", done.stderr)

    monkeypatch.setattr(access_keys, "_RELOAD_S", 30.0)
    monkeypatch.setattr(access_keys, "_run", Reloading())

    access_keys.ensure("ada", [f"{A} x"])

    assert again
    again[0].close()


def test_where_that_login_fails_nothing_is_changed(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sshd = Sshd(login=255)
    monkeypatch.setattr(access_keys, "_run", sshd)

    with pytest.raises(
        access_keys.AccessError, match="would not accept root's file of keys for ada: Permission denied"
    ):
        access_keys.ensure("ada", [f"{A} x"])

    assert list((node / "access").iterdir()) == []
    assert not (node / "30.conf").exists()
    assert not any("reload" in each for each in sshd.ran)


def test_a_plan_says_what_would_change_and_changes_nothing(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_keys, "_run", Sshd())

    assert access_keys.ensure("ada", dry=True).changed == [str(node / "access" / "ada"), str(node / "30.conf")]
    assert list((node / "access").iterdir()) == []
