"""Settings are looked at before a run: broken files, nearly known names, and a vault that nothing opens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepopsctl.cluster.create import create_cluster
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.renamed import RENAMED
from deepopsctl.cluster.role_parameters import role_parameters
from deepopsctl.cluster.settings import (
    are_compared,
    known_names,
    misspelt_settings,
    renamed_variables,
    require_settings,
    require_vault_password,
    setting_types,
    site_values,
)
from deepopsctl.content import content_dir
from deepopsctl.errors import ControlMachineError, InputError
from tests.data.doctor_samples import cluster
from tests.support.problems import faults, problems_of

SETTINGS = "inventory/group_vars/all/settings.yml"

# follow from cluster.yml and other settings: no site's to set
WORKED_OUT = {
    *("ansible_managed", "monitoring_host", "slurm_serving_hosts"),
    *("environment_packages", "environment_module_packages", "environment_module_versions"),
    "environment_login_packages",
    *("environment_software_packages", "environment_proxy_packages"),
    *("environment_container_packages", "environment_registry_packages"),
    *("slurm_compute_hosts", "slurm_controller_hosts", "slurm_dbd_host", "slurm_dbd_hosts", "slurm_packages"),
}


def documented() -> set[str]:
    """The names in the tables of docs/reference/settings.md."""
    text = Path("docs/reference/settings.md").read_text(encoding="utf-8")
    names = set(re.findall(r'^\| <a id="(\w+)"></a>`\1` \|', text, re.MULTILINE))
    assert names
    return names


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    return create_cluster(tmp_path / "hpc", cluster())


def test_a_new_cluster_directory_is_in_order(directory: ClusterDir) -> None:
    require_settings(directory, content_dir())
    require_vault_password(directory, {})

    assert misspelt_settings(directory, content_dir()) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slurm_set_hostname: true\nslurm_config: {TreeWidth: 50}\n", True),
        ("slurm_set_hostname: '{{ not here }}'\n", False),
        ("slurm_config: {TreeWidth: '{{ width }}'}\n", False),
        ("slurm_config: !unsafe {TreeWidth: 50}\n", False),
        ("slurm_node_name: !vault x\n", False),
        ("people_declared: []\n", False),
        ("$ANSIBLE_VAULT;1.1;AES256\n", False),
    ],
)  # fmt: skip
def test_ansible_compares_what_this_side_cannot(directory: ClusterDir, text: str, expected: bool) -> None:
    assert are_compared(directory, content_dir())
    directory.settings.write_text(text)

    assert are_compared(directory, content_dir()) is expected


class TestBrokenFiles:
    def test_all_of_them_are_reported_at_once(self, directory: ClusterDir) -> None:
        directory.settings.write_text("a: }")
        variables = directory.inventory_dir / "host_vars" / "gpu01.yml"
        variables.parent.mkdir(exist_ok=True)
        variables.write_bytes(b"name: \xff\n")

        problems = problems_of(require_settings, directory, content_dir())

        assert [problem.where for problem in problems] == [f"{SETTINGS}:1", "inventory/host_vars/gpu01.yml"]

    def test_a_warning_about_names_leaves_broken_files_to_the_error(self, directory: ClusterDir) -> None:
        directory.settings.write_text("slurm_confg: {")

        assert misspelt_settings(directory, content_dir()) == ()


class TestSiteValues:
    def test_a_value_with_a_tag_is_text(self, directory: ClusterDir) -> None:
        directory.settings.write_text("slurm_dbd_server: !vault |\n  $ANSIBLE_VAULT;1.1\nmonitoring_backup: true\n")

        assert site_values(directory) == {"slurm_dbd_server": "$ANSIBLE_VAULT;1.1\n", "monitoring_backup": True}

    def test_a_value_that_ansible_cannot_load_is_named_with_its_line(self, directory: ClusterDir) -> None:
        directory.settings.write_text("a: 1\nb: 2026-13-01\n")

        assert faults(site_values, directory) == [f"{SETTINGS}:2: not valid YAML: month must be in 1..12"]

    @pytest.mark.parametrize("text", ["", "# only comments\n"])
    def test_there_need_not_be_any(self, directory: ClusterDir, text: str) -> None:
        directory.settings.write_text(text)

        assert site_values(directory) == {}


class TestValues:
    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ("a: 1\nslurm_config: {a: b\n", 3, "not valid YAML: "),
            ("a: 1\n b: 2\n", 2, "not valid YAML: "),
            ("a: 1\n---\nb: 2\n", 2, "not valid YAML: "),
            ("- a\n- b\n", 0, "holds no variables"),
            ("slurm_config: hello\n", 1, "slurm_config is 'hello', which is not a mapping"),
            ("a: 1\nmonitoring_enabled: maybe\n", 2, "monitoring_enabled is 'maybe', which is not true or false"),
            ("node_common_time_servers: ntp1\n", 1, "node_common_time_servers is 'ntp1', which is not a list of texts"),
            ("modules_paths:\n  - {a: b}\n", 2, "modules_paths is a list, which is not a list of texts"),
            ("slurm_accounts_users: [ada]\n", 1, "slurm_accounts_users is a list, which is not a list of mappings"),
            ("slurm_config:\n", 1, "slurm_config is empty, which is not a mapping"),
            (
                f"nfs_server_threads: {'9' * 30}\n",
                1,
                f"nfs_server_threads is '{'9' * 30}', which is not a whole number",
            ),
            ("nfs_server_threads: .inf\n", 1, "nfs_server_threads is '.inf', which is not a whole number"),
            ("nfs_server_threads: !!int x\n", 1, "nfs_server_threads is 'x', which is not a whole number"),
            ("nvidia_driver_source: [auto]\n", 1, "nvidia_driver_source is a list, which is not one of auto,"),
            ("slurm_confinement: cgruop\n", 1, "slurm_confinement is 'cgruop', which is not one of auto,"),
            ("a: 1\nb: 2\na: 3\n", 3, "the key a is given twice"),
            ("a:\n  - b: {c: 1, c: 2}\n", 2, "the key c is given twice"),
            ("slurm_config:\n  QOS: a\n  Qos: b\n", 3, "QOS and Qos are one key to Slurm"),
            ("a: 1\nb: [2026-02-30]\n", 2, "not valid YAML: day is out of range for month"),
            ("a: 1\n? [b]\n: 1\n", 2, "not valid YAML: found unhashable key"),
            ("a: !!python/object:x {}\n", 1, "not valid YAML: could not determine a constructor for the tag"),
        ],
    )
    def test_one_that_its_setting_can_not_have_and_a_broken_file_are_named_with_their_line(
        self, directory: ClusterDir, text: str, line: int, message: str
    ) -> None:
        directory.settings.write_text(text)

        (problem,) = problems_of(require_settings, directory, content_dir())
        assert problem.where == (f"{SETTINGS}:{line}" if line else SETTINGS)
        assert problem.message.startswith(message)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "# only comments\n---\n",
            'grafana_enabled: "no"\nmonitoring_enabled: off\nnvidia_dcgm: 0\nmonitoring_drain_limit: "3"\n',
            'slurm_config: "{{ ours }}"\nmodules_paths: ["{{ ours }}", b]\ngrafana_enabled: !vault |\n  $ANSIBLE\n',
            "slurm_config: {A: null, B: [1]}\nslurm_accounts_users: [{name: a}]\nnvidia_driver_branch: 580\n",
            "x: &x {a: 1}\ny: {<<: *x, <<: *x, a: 2}\nz: [*x, *x]\n",
        ],
    )
    def test_what_ansible_takes_for_it_is_fine(self, directory: ClusterDir, text: str) -> None:
        directory.settings.write_text(text)

        require_settings(directory, content_dir())

    @pytest.mark.parametrize(
        "text",
        [
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)),
            "self: &self {again: *self}\n",
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000)),
        ],
    )
    def test_anchors_without_end_are_refused_at_once(self, directory: ClusterDir, text: str) -> None:
        directory.settings.write_text(text)

        with pytest.raises(InputError, match="too many values"):
            require_settings(directory, content_dir())

    def test_hardware_yml_is_looked_at_with_them(self, directory: ClusterDir) -> None:
        directory.hardware.write_text("nodes: many\n")

        with pytest.raises(InputError, match=r"hardware\.yml"):
            require_settings(directory, content_dir())

    def test_every_setting_of_the_reference_has_a_type(self) -> None:
        assert documented() <= set(setting_types(content_dir()))

    def test_a_setting_that_its_role_takes_as_anything_has_the_type_of_its_default(self) -> None:
        types = setting_types(content_dir())

        assert (types["monitoring_alerts"].name, types["alertmanager_routes"].name) == ("dict", "list")
        assert "raw" not in {wanted.name for wanted in types.values()}

    def test_every_switch_is_read_as_one_also_where_ansible_gets_a_text(self) -> None:
        """`-e grafana_enabled=false` by hand is the text `false`, which is true."""
        types = setting_types(content_dir())
        switches = {name for name in documented() if types[name].name == "bool"}
        paths = [*Path("playbooks").rglob("*.yml"), *Path("group_vars").rglob("*.yml"), *Path("roles").rglob("*.yml")]
        paths += Path("roles").rglob("*.j2")
        # templates, conditions, and the lines of a list of these
        listed = r"^ +- (?:not )?[\w.]+(?: (?:and|or) [^\n]*)?$"
        inside = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|when: [^\n]*|" + listed, re.DOTALL | re.MULTILINE)
        words = re.compile(r"(?<![\w.'-])\w+(?! is (?:not )?defined)(?![\w'=:/.])(?! \| )")
        bare = {
            f"{path}: {match}"
            for path in paths
            if path.parent.name not in ("meta", "defaults")
            for expression in inside.findall(re.sub(r"^\s*#.*|^\s*tags:.*", "", path.read_text("utf-8"), flags=re.M))
            for match in switches.intersection(words.findall(expression))
        }

        assert switches >= {"grafana_enabled", "nvidia_driver_reboot", "slurm_set_hostname"}
        assert bare == set()


class TestNames:
    def test_a_nearly_known_one_is_named_with_what_was_meant(self, directory: ClusterDir) -> None:
        directory.settings.write_text("---\nslurm_confg: {}\nmonitoring_enable: false\nour_own_variable: 1\n")

        problems = misspelt_settings(directory, content_dir())

        assert [(problem.where, problem.hint) for problem in problems] == [
            (f"{SETTINGS}:2", "did you mean slurm_config?"),
            (f"{SETTINGS}:3", "did you mean monitoring_enabled?"),
        ]

    def test_every_setting_of_the_reference_is_known(self) -> None:
        assert documented() <= known_names(content_dir())

    def test_every_variable_of_the_product_that_a_site_may_set_is_in_the_reference(self) -> None:
        text = Path("docs/reference/settings.md").read_text(encoding="utf-8")
        files = Path("group_vars/all").glob("*.yml")
        names = {name for path in files for name in re.findall(r"^([a-z]\w+):", path.read_text("utf-8"), re.MULTILINE)}

        assert {name for name in names if not name.startswith("deepops_") and f"`{name}`" not in text} == WORKED_OUT


class TestRoleParameters:
    """Ansible lets what a play passes to a role win over the inventory."""

    def test_one_that_a_playbook_passes_is_refused(self, directory: ClusterDir) -> None:
        directory.settings.write_text("---\nprometheus_retention: 10d\ngrafana_wanted: true\ngrafana_port: 3001\n")

        (problem,) = problems_of(require_settings, directory, content_dir())

        assert (problem.where, problem.message, problem.hint) == (
            f"{SETTINGS}:3",
            "grafana_wanted has no effect here: a playbook passes it to the role",
            "remove it: deepopsctl computes the value, see settings.md",
        )

    def test_those_of_a_node_are_refused_as_well(self, directory: ClusterDir) -> None:
        (directory.inventory_dir / "host_vars").mkdir(exist_ok=True)
        (directory.inventory_dir / "host_vars" / "gpu01.yml").write_text("monitoring_node_runs_jobs: false\n")

        (problem,) = problems_of(require_settings, directory, content_dir())

        assert problem.where == "inventory/host_vars/gpu01.yml:1"

    def test_a_misspelt_one_is_not_recommended(self, directory: ClusterDir) -> None:
        directory.settings.write_text("prometheus_retenton: 10d\ngrafana_wantd: true\n")

        assert [problem.hint for problem in misspelt_settings(directory, content_dir())] == [
            "did you mean prometheus_retention?",
            "settings of the role are in roles/grafana/README.md",
        ]

    def test_no_setting_of_the_reference_is_passed_by_its_own_name(self) -> None:
        assert role_parameters(content_dir(), documented()) == set()

    def test_every_option_of_a_role_works_or_is_refused(self, directory: ClusterDir) -> None:
        """All of them at once, each with its default or a value of its type."""
        specs = [yaml.safe_load(path.read_text("utf-8")) for path in Path("roles").glob("*/meta/argument_specs.yml")]
        entries = [entry for spec in specs for entry in spec["argument_specs"].values()]
        options = {name: option for entry in entries for name, option in (entry.get("options") or {}).items()}
        values = {name: option.get("default", example(option)) for name, option in options.items()}
        directory.settings.write_text(yaml.safe_dump(values, default_style=None), "utf-8")

        problems = problems_of(require_settings, directory, content_dir())

        refused = {problem.message.split(" has no effect")[0] for problem in problems}
        assert refused == role_parameters(content_dir(), options)
        assert len(options.keys() - refused) > 150


def example(option: dict[str, Any]) -> object:
    """A value of an option's type."""
    values = {"bool": True, "int": 1, "float": 1.5, "list": [], "dict": {}, "raw": {}}
    return values[option["type"]] if option["type"] in values else option.get("choices", ["word"])[0]


class TestOldNames:
    """Those from before 0.1.0 work for one release, and a warning has the new one."""

    def test_every_one_has_a_message_with_the_setting_that_it_is_now(self, directory: ClusterDir) -> None:
        directory.settings.write_text("".join(f"{old}: '{{{{ ours }}}}'\n" for old in RENAMED))

        require_settings(directory, content_dir())
        problems = misspelt_settings(directory, content_dir(), ["slurm_users"])

        lines = [f"{SETTINGS}:{number}" for number, _ in enumerate(RENAMED, 1)]
        assert [problem.where for problem in problems] == [*lines, "-e"]
        assert [problem.message for problem in problems] == [
            *(f"{old} is now {new}" for old, new in RENAMED.items()),
            "slurm_users is now slurm_accounts_users",
        ]
        assert set(RENAMED.values()) <= documented()

    def test_it_has_the_type_of_the_new_one(self) -> None:
        types = setting_types(content_dir())

        assert all(types[old] == types[new] for old, new in RENAMED.items())

    def test_values_are_read_by_the_new_name_which_wins(self, directory: ClusterDir) -> None:
        directory.settings.write_text("slurm_users: [1]\nslurm_accounts_names: [a]\nslurm_accounts: [b]\n")

        assert site_values(directory) == {"slurm_accounts_users": [1], "slurm_accounts_names": ["a"]}

    def test_each_file_of_variables_gets_one_with_the_new_names(self, directory: ClusterDir) -> None:
        directory.settings.write_text("slurm_time_servers: [a]\nslurm_users: []\nslurm_accounts_users: []\n")
        of_node = directory.inventory_dir / "host_vars" / "gpu01.yml"
        of_node.write_text("slurm_login_limits: {}\n")
        (of_node.parent / "gpu02.yml").write_text("login_access_limits: {}\n")

        assert renamed_variables(directory) == {
            Path("group_vars/all/settings.yml"): {"node_common_time_servers": "{{ slurm_time_servers }}"},
            Path("host_vars/gpu01.yml"): {"login_access_limits": "{{ slurm_login_limits }}"},
        }


class TestVault:
    def test_a_missing_password_is_reported_with_what_to_do(self, directory: ClusterDir) -> None:
        directory.vault_password.unlink()

        with pytest.raises(ControlMachineError) as caught:
            require_vault_password(directory, {})

        assert "ANSIBLE_VAULT_PASSWORD_FILE" in caught.value.hint

    @pytest.mark.parametrize(
        ("password", "why"), [("wrong", "the password in .vault-password does not open secrets.yml"), ("", "is empty")]
    )
    def test_a_wrong_password_is_reported_before_ansible_starts(
        self, directory: ClusterDir, password: str, why: str
    ) -> None:
        directory.vault_password.write_text(password)

        with pytest.raises(ControlMachineError, match=why):
            require_vault_password(directory, {})

    @pytest.mark.parametrize("marker", ["<<<<<<< HEAD\n", "\xff"])
    def test_secrets_that_a_merge_has_damaged_are_reported_as_such(self, directory: ClusterDir, marker: str) -> None:
        header, rest = directory.secrets.read_text().split("\n", 1)
        directory.secrets.write_text(f"{header}\n{marker}{rest}", encoding="latin-1")

        assert directory.refresh_secrets() == ()
        with pytest.raises(ControlMachineError, match=r"secrets\.yml is damaged"):
            require_vault_password(directory, {})

    def test_one_that_is_named_in_the_environment_is_tried_unless_it_is_a_program(
        self, directory: ClusterDir, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.write_text("wrong\n")
        environment = {"ANSIBLE_VAULT_PASSWORD_FILE": str(other)}

        with pytest.raises(ControlMachineError, match="the password in other does not open"):
            require_vault_password(directory, environment)
        other.chmod(0o700)
        require_vault_password(directory, environment)
        other.write_bytes(directory.vault_password.read_bytes())
        other.chmod(0o600)
        require_vault_password(directory, environment)

    def test_one_that_is_named_elsewhere_is_ansibles_to_find(self, directory: ClusterDir) -> None:
        directory.vault_password.unlink()

        require_vault_password(directory, {"ANSIBLE_VAULT_IDENTITY_LIST": "a@b"})
        (directory.path / "ansible.cfg").write_text("[defaults]\nvault_password_file = x\n")
        require_vault_password(directory, {})

    def test_plain_secrets_need_none(self, directory: ClusterDir) -> None:
        directory.vault_password.unlink()
        directory.secrets.write_text("munge_key: x\n")

        require_vault_password(directory, {})
