"""What the doctor sees of this machine, on a cluster directory as `init` makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cluster.create import create_cluster
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.doctor import control_host
from tests.data.doctor_samples import cluster
from tests.support.files import write_program


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    return create_cluster(tmp_path / "hpc", cluster())


def test_a_new_cluster_directory_is_private_and_its_secrets_open(directory: ClusterDir) -> None:
    seen = control_host.read_control_facts(directory, {})

    assert (seen.open_files, seen.vault) == ((), "")
    assert seen.free_mb > 0
    assert [package.name for package in seen.packages] == ["ansible-core", "ansible-runner"]
    assert all(package.good and package.wanted for package in (*seen.packages, seen.python))


def test_what_others_may_read_is_named(directory: ClusterDir) -> None:
    directory.vault_password.chmod(0o640)
    directory.runs.chmod(0o755)

    assert control_host.open_files(directory) == (".vault-password", "runs")


def test_encrypted_secrets_may_be_read_and_plain_ones_may_not(directory: ClusterDir) -> None:
    directory.secrets.chmod(0o644)
    assert control_host.open_files(directory) == ()

    directory.secrets.write_text("munge_key: x\n")

    assert control_host.open_files(directory) == ("inventory/group_vars/all/secrets.yml",)
    assert control_host.vault(directory, {}) == ""


class TestVault:
    @pytest.mark.parametrize(
        ("file", "text", "words"),
        [
            ("vault_password", "another\n", "the password in .vault-password does not open secrets.yml"),
            ("vault_password", "", ".vault-password is empty"),
            ("vault_password", None, ".vault-password is missing"),
            ("secrets", None, "secrets.yml is missing"),
        ],
    )
    def test_secrets_that_do_not_open_are_said_with_the_reason(
        self, directory: ClusterDir, file: str, text: str | None, words: str
    ) -> None:
        path: Path = getattr(directory, file)
        path.unlink() if text is None else path.write_text(text)

        assert words in control_host.vault(directory, {})

    def test_the_environment_names_another_file(self, directory: ClusterDir, tmp_path: Path) -> None:
        mine = directory.vault_password.rename(tmp_path / "mine")

        assert control_host.vault(directory, {"ANSIBLE_VAULT_PASSWORD_FILE": str(mine)}) == ""
        assert "/none is missing" in control_host.vault(directory, {"ANSIBLE_VAULT_PASSWORD_FILE": "/none"})

    def test_a_program_that_asks_a_key_store_is_left_to_ansible(self, directory: ClusterDir, tmp_path: Path) -> None:
        program = write_program(tmp_path / "ask", "exit 1")

        assert control_host.vault(directory, {"ANSIBLE_VAULT_PASSWORD_FILE": str(program)}) == ""


def test_versions_are_compared_with_deepopsctls_own_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = control_host.package("no-such-package")
    assert (missing.installed, missing.good) == ("", False)
    assert not control_host.python("3.9.2").good

    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.14.3")

    assert not control_host.package("ansible-core").good


def test_no_ssh_client_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert control_host.ssh_version() == ""
