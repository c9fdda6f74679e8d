"""Roles of the installed collection in a playbook of one's own, where ansible-core is and deepopsctl is not."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# ansible-core with what it requires
PACKAGES = (
    "ansible-core", "jinja2", "MarkupSafe", "PyYAML", "cryptography", "cffi", "pycparser", "packaging", "resolvelib",
)  # fmt: skip
COLLECTION = Path("ansible_collections/deepopsctl/cluster")
PLAY = """\
- hosts: localhost
  connection: local
  roles:
    - role: deepopsctl.cluster.node_common
      node_common_munge_key: "{{ 'a' * 88 }}"
      node_common_addresses: {localhost: 192.0.2.1}
    - role: deepopsctl.cluster.mariadb
      mariadb_password: not-a-password
    - role: deepopsctl.cluster.slurmd
      slurmd_controllers: [localhost]
"""


def ansible(word: str, *words: str, home: Path) -> str:
    """The output of one of Ansible's programs, which finds the packages of `home` and no others."""
    start = f"import sys; sys.path.insert(0, {str(home / 'packages')!r}); from ansible.cli.{word} import main; main()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))} | {
        "ANSIBLE_COLLECTIONS_PATH": str(home),
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_LOCALHOST_WARNING": "0",
    }
    # -S: no site-packages
    command = [sys.executable, "-I", "-S", "-c", start, *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A place with ansible-core alone, and the collection as Galaxy would install it."""
    (tmp_path / "packages").mkdir()
    for package in map(distribution, PACKAGES):
        for name in {path.parts[0] for path in package.files or ()} - {"..", "__pycache__"}:
            (tmp_path / "packages" / name).symlink_to(Path(str(package.locate_file(name))))
    ansible("galaxy", "collection", "build", str(ROOT), "--output-path", str(tmp_path), home=tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    ansible("galaxy", "collection", "install", "--offline", "-p", str(tmp_path), str(archive), home=tmp_path)
    return tmp_path


@pytest.mark.skipif(not Path("/usr/bin/dpkg-query").exists(), reason="the roles know Debian's packages")
def test_three_roles_are_checked_without_deepopsctl(home: Path) -> None:
    (home / "play.yml").write_text(PLAY, encoding="utf-8")
    (home / "group_vars").symlink_to(home / COLLECTION / "group_vars")

    printed = ansible(
        "playbook",
        "-i",
        "localhost,",
        "-e",
        "ansible_python_interpreter=/usr/bin/python3",
        "--check",
        "play.yml",
        home=home,
    )

    assert "failed=0" in printed
    for task in ("node_common : Configure packages", "mariadb : Run MariaDB", "slurmd : Run slurmd"):
        assert f"TASK [deepopsctl.cluster.{task}" in printed
