"""Commands that ask one node without Ansible, as a user with an SSH password and a sudo password: -u, -k and -K.

The real ssh logs in to an sshd of its own, in a mount namespace where a user with a password exists.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import Login
from deepopsctl.errors import UnreachableError
from deepopsctl.ssh.node_command import ask, command_on
from deepopsctl.status.journals import pass_on
from tests.integration.test_ssh_config import SSHD, _listens, free_port, key_at
from tests.support.cluster import wait_until
from tests.support.files import write_program

pytestmark = pytest.mark.skipif(
    SSHD is None or os.getuid() != 0 or not shutil.which("openssl"), reason="needs sshd, openssl and root"
)
PASSWORD, SUDO_PASSWORD = "ssh secret", "sudo secret"
# asks as sudo does: once for each line that it gets, and not again for a command of the same shell
SUDO = f"""\
if [ "$1" = -S ]; then IFS= read -r given && [ "$given" = "{SUDO_PASSWORD}" ] && touch granted; exit; fi
[ "$1" = -n ] && test -e granted && shift && exec "$@"
"""
RIGHT = Login("op", PASSWORD, SUDO_PASSWORD)


@dataclass(frozen=True)
class Site:
    cluster: ClusterDir

    def answer(self, login: Login, *, as_root: bool = True) -> str:
        cluster = self.cluster.cluster()
        return ask(self.cluster, cluster, cluster.nodes[0], ["id", "-un"], as_root=as_root, login=login).output.strip()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    port, home = free_port(), tmp_path / "home"
    home.mkdir()
    os.chown(home, 4242, 4242)
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(0o755)
    write_program(tmp_path / "bin" / "sudo", SUDO)
    host_key = key_at(tmp_path / "host_key")
    cluster = tmp_path / "hpc"
    (cluster / "ssh").mkdir(parents=True, mode=0o700)
    key_at(cluster / "ssh" / "id_ed25519")
    (cluster / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host_key.split()[:2])}\n", encoding="utf-8")
    (cluster / "cluster.yml").write_text(
        f"schema: 1\ncluster: {{name: hpc, user: other, port: {port}}}\nnodes:\n"
        "  - {names: n1, addresses: 127.0.0.1, roles: [controller, compute]}\n",
        encoding="utf-8",
    )
    secret = subprocess.run(["openssl", "passwd", "-6", PASSWORD], capture_output=True, text=True, check=True).stdout
    for name, line in (("passwd", f"op:x:4242:4242::{home}:/bin/sh\n"), ("shadow", f"op:{secret.strip()}:1::::::\n")):
        (tmp_path / name).write_text(Path("/etc", name).read_text(encoding="utf-8") + line, encoding="utf-8")
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host_key\nUsePAM no\nStrictModes no\n"
        f"PidFile none\nPasswordAuthentication yes\nSetEnv PATH={tmp_path}/bin:/usr/bin:/bin\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("/run/sshd").mkdir(exist_ok=True)
    mounts = " && ".join(f"mount --bind {tmp_path}/{name} /etc/{name}" for name in ("passwd", "shadow"))
    words = f"{mounts} && exec {SSHD} -D -e -f {tmp_path}/sshd_config"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(["unshare", "--mount", "sh", "-c", words], stderr=log)
    try:
        wait_until("sshd listens", lambda: _listens(port))
        yield Site(ClusterDir(cluster))
    finally:
        server.terminate()
        server.wait()


def test_a_node_is_asked_with_both_passwords_neither_of_which_stands_on_a_command_line(site: Site) -> None:
    assert site.answer(RIGHT) == "op"
    cluster = site.cluster.cluster()
    with command_on(site.cluster, cluster, cluster.nodes[0], ["id", "-un"], as_root=True, login=RIGHT) as command:
        assert not [word for word in command.argv if PASSWORD in word or SUDO_PASSWORD in word]
        out = BytesIO()
        assert pass_on(command.argv, out, command.data) == (0, True)
    assert out.getvalue() == b"op\n"
    assert "secret" not in repr(RIGHT)


@pytest.mark.parametrize("login", [Login("op", "wrong"), Login("op"), Login("", PASSWORD)])
def test_a_wrong_password_none_or_another_user_does_not_get_in(site: Site, login: Login) -> None:
    with pytest.raises(UnreachableError, match="n1 can't be reached"):
        site.answer(login, as_root=False)


def test_a_wrong_sudo_password_runs_nothing(site: Site) -> None:
    assert site.answer(Login("op", PASSWORD, "wrong")) == ""
    assert site.answer(Login("op", PASSWORD)) == ""
