"""Settings are looked at before a run: broken files, nearly known names, and a vault that nothing opens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepopsctl.clusterdir import ClusterDir
from deepopsctl.content import content_dir
from deepopsctl.errors import ControlMachineError, InputError
from deepopsctl.scaffold import create_cluster
from deepopsctl.settingscheck import known_names, misspelt_settings, require_settings, require_vault_password
from tests.unit.doctor_samples import cluster

SETTINGS = "inventory/group_vars/all/settings.yml"

# follow from cluster.yml and other settings: no site's to set
WORKED_OUT = {
    *("monitoring_host", "monitoring_secrets", "monitoring_settings"),
    *("slurm_compute_hosts", "slurm_controller_hosts", "slurm_dbd_host", "slurm_packages"),
}


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    return create_cluster(tmp_path / "hpc", cluster())


def test_a_new_cluster_directory_is_in_order(directory: ClusterDir) -> None:
    require_settings(directory)
    require_vault_password(directory, {})

    assert misspelt_settings(directory, content_dir()) == ()


class TestBrokenFiles:
    @pytest.mark.parametrize(
        ("text", "where", "message"),
        [
            ("a: 1\nslurm_config: {a: b\n", f"{SETTINGS}:3", "no valid YAML: "),
            ("a: 1\n b: 2\n", f"{SETTINGS}:2", "no valid YAML: "),
            ("- a\n- b\n", SETTINGS, "holds no variables"),
            ("a: 1\n---\nb: 2\n", f"{SETTINGS}:2", "no valid YAML: "),
        ],
    )
    def test_they_are_named_with_their_line(self, directory: ClusterDir, text: str, where: str, message: str) -> None:
        directory.settings.write_text(text)

        with pytest.raises(InputError) as caught:
            require_settings(directory)

        (problem,) = caught.value.problems
        assert problem.where == where
        assert problem.message.startswith(message)
        assert problem.hint

    def test_all_of_them_are_told_at_once(self, directory: ClusterDir) -> None:
        directory.settings.write_text("a: }")
        variables = directory.inventory_dir / "host_vars" / "gpu01.yml"
        variables.parent.mkdir(exist_ok=True)
        variables.write_bytes(b"name: \xff\n")

        with pytest.raises(InputError) as caught:
            require_settings(directory)

        assert [problem.where for problem in caught.value.problems] == [
            f"{SETTINGS}:1",
            "inventory/host_vars/gpu01.yml",
        ]

    @pytest.mark.parametrize("text", ["", "# only comments\n---\n", "key: !vault |\n  $ANSIBLE_VAULT;1.1\n"])
    def test_what_ansible_can_read_is_fine(self, directory: ClusterDir, text: str) -> None:
        directory.settings.write_text(text)

        require_settings(directory)

    def test_a_warning_about_names_leaves_broken_files_to_the_error(self, directory: ClusterDir) -> None:
        directory.settings.write_text("slurm_confg: {")

        assert misspelt_settings(directory, content_dir()) == ()


class TestNames:
    def test_a_nearly_known_one_is_named_with_what_was_meant(self, directory: ClusterDir) -> None:
        directory.settings.write_text("---\nslurm_confg: {}\nmonitoring_enable: false\nour_own_variable: 1\n")

        found = misspelt_settings(directory, content_dir())

        assert [(problem.where, problem.hint) for problem in found] == [
            (f"{SETTINGS}:2", "did you mean slurm_config?"),
            (f"{SETTINGS}:3", "did you mean monitoring_enabled?"),
        ]

    def test_every_setting_of_the_reference_is_known(self) -> None:
        text = Path("docs/reference/settings.md").read_text(encoding="utf-8")
        first, _, _ = text.partition("\n## ")
        rows = [line.split("|")[1] for line in first.splitlines() if line.startswith("| `")]
        documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

        assert documented
        assert documented <= known_names(content_dir())

    def test_every_variable_of_the_product_that_a_site_may_set_is_in_the_reference(self) -> None:
        text = Path("docs/reference/settings.md").read_text(encoding="utf-8")
        files = Path("group_vars/all").glob("*.yml")
        names = {name for path in files for name in re.findall(r"^([a-z]\w+):", path.read_text("utf-8"), re.MULTILINE)}

        assert {name for name in names if not name.startswith("deepops_") and f"`{name}`" not in text} == WORKED_OUT


class TestVault:
    def test_a_missing_password_is_told_with_what_to_do(self, directory: ClusterDir) -> None:
        directory.vault_password.unlink()

        with pytest.raises(ControlMachineError) as caught:
            require_vault_password(directory, {})

        assert "ANSIBLE_VAULT_PASSWORD_FILE" in caught.value.hint

    def test_one_that_is_named_elsewhere_is_ansibles_to_find(self, directory: ClusterDir) -> None:
        directory.vault_password.unlink()

        require_vault_password(directory, {"ANSIBLE_VAULT_IDENTITY_LIST": "a@b"})
        (directory.path / "ansible.cfg").write_text("[defaults]\nvault_password_file = x\n")
        require_vault_password(directory, {})

    def test_plain_secrets_need_none(self, directory: ClusterDir) -> None:
        directory.vault_password.unlink()
        directory.secrets.write_text("munge_key: x\n")

        require_vault_password(directory, {})
