"""A DeepOps inventory becomes a cluster; its variables are honoured by name, or named as left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.builder import Draft
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import render_inventory
from deepopsctl.cluster.settings import known_names
from deepopsctl.content import content_dir
from deepopsctl.imports.deepops_vars import NOT_YET
from deepopsctl.imports.read import draft_text
from deepopsctl.imports.request import InitRequest, InitResult, read_request
from deepopsctl.model.cluster import Access, Gpus, Role
from deepopsctl.text.problems import Problems
from tests.support.paths import ROOT
from tests.support.problems import faults, problems_of

EXAMPLE = ROOT / "inventory" / "deepops"
MINIMAL = "[slurm-master]\nm1\n[slurm-node]\ngpu[01:16] \n"


def read(text: str, groups: Mapping[str, Role] = {}) -> Draft:
    problems = Problems()
    draft = draft_text(text, "inventory", problems, None, groups)
    problems.raise_if_any()
    return draft


def site(directory: Path, variables: str, inventory: str = MINIMAL) -> Path:
    (directory / "group_vars").mkdir()
    (directory / "group_vars" / "slurm-cluster.yml").write_text(variables)
    (directory / "inventory").write_text(f"{inventory}[slurm-cluster:children]\nslurm-master\nslurm-node\n")
    return directory


def imported(directory: Path, variables: str, inventory: str = MINIMAL) -> InitResult:
    return read_request(InitRequest(directory / "new", source=site(directory, variables, inventory)))


def left(draft: Draft | InitResult) -> list[str]:
    return [note.name for note in draft.carryover.not_carried]


def test_the_example_is_imported_whole() -> None:
    result = read_request(InitRequest(Path("x"), source=EXAMPLE, gpus=("h100:8",)))

    cluster = result.cluster
    assert cluster.name == "alpha"
    assert cluster.access == Access("ubuntu", jump_host="ubuntu@192.0.2.254")
    assert [(node.name, node.address) for node in cluster.nodes[:3]] == [
        ("mgmt01", "192.0.2.1"), ("login01", "192.0.2.2"), ("gpu01", "192.0.2.11"),
    ]  # fmt: skip
    assert [node.roles for node in cluster.nodes[:3]] == [{Role.CONTROLLER}, {Role.LOGIN}, {Role.COMPUTE}]
    assert {node.gpus for node in cluster.compute} == {Gpus("h100", 8)}
    (batch,) = cluster.partitions
    assert (batch.name, batch.default, batch.max_time) == ("batch", True, "7-00:00:00")
    assert batch.options == {"DefaultTime": "01:00:00"}
    assert result.carryover.settings == {
        "node_common_time_servers": ["ntp1.example.com"],
        "slurm_user_id": 22078,
        "slurm_config": {"ReturnToService": "2"},
    }
    assert result.carryover.secrets == {"slurm_dbd_password": "not-the-placeholder"}
    assert set(left(result)) == {
        "install_dcgm", "users", "slurm_install_nhc", "slurm_install_enroot", "sm_prefix",
        "sm_module_root", "[kube-master]",
    }  # fmt: skip


def test_its_nfs_mounts_become_storage() -> None:
    result = read_request(InitRequest(Path("x"), source=EXAMPLE))

    (home,) = result.cluster.storage
    assert (home.name, home.source, home.path, home.server) == ("home", "mgmt01:/home", "/home", "mgmt01")
    assert home.nodes == ("gpu01", "gpu02", "gpu03", "gpu04")
    assert (home.options, dict(home.settings)) == ((), {})
    assert [note.name for note in result.carryover.to_check] == ["nfs_mounts: /home"]


def test_a_server_of_somebody_elses_keeps_its_version_and_options(tmp_path: Path) -> None:
    options = "ro,nfsvers=4.1,defaults,noatime"
    listed = f"nfs_mounts: [{{mountpoint: /sw, server: filer1, path: /vol/sw, options: '{options}'}}]"
    (sw,) = imported(tmp_path, listed).cluster.storage

    assert (sw.source, sw.options, dict(sw.settings)) == ("filer1:/vol/sw", ("ro", "noatime"), {"version": "4.1"})
    assert len(sw.nodes) == 17


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ("nfs_mounts: [{mountpoint: /a, server: '{{ my_own }}', path: /a}]", "nfs_mounts: /a"),
        ("nfs_mounts: [{mountpoint: /etc/a, server: x, path: /a}]", "nfs_mounts: /etc/a"),
        ("nfs_mounts: [{mountpoint: /a, server: x, path: /a, options: 'a b'}]", "nfs_mounts: /a"),
        ("nfs_mounts: many", "nfs_mounts"),
        ("nfs_exports: [{path: /a, options: '*(rw)'}]", "nfs_exports: /a"),
        ("nfs_client_group: slurm-node", "nfs_client_group"),
        ("nfs_pkg_state: latest", "nfs_pkg_state"),
    ],
)
def test_nfs_that_cannot_come_along_is_named(tmp_path: Path, variables: str, name: str) -> None:
    result = imported(tmp_path, variables)

    assert left(result) == [name]
    assert result.cluster.storage == ()


def test_a_full_name_is_shortened_and_becomes_the_address() -> None:
    draft = read("[slurm-master]\nm1.example.com\n[slurm-node]\nn1 ansible_host=192.0.2.5 ansible_port=2222\n")

    assert draft.nodes["m1"].address == "m1.example.com"
    assert (draft.nodes["n1"].address, draft.nodes["n1"].port) == ("192.0.2.5", 2222)


def test_a_node_of_the_cluster_that_is_nothing_else_is_a_login_node() -> None:
    draft = read(f"{MINIMAL}[slurm-cluster]\nfront1\n[slurm-cluster:children]\nslurm-node\n")

    assert draft.nodes["front1"].roles == {Role.LOGIN}


def test_a_host_pattern_in_a_variable_names_the_nfs_server() -> None:
    draft = read(f"[slurm-master]\nm[1:2]\n{MINIMAL}[all:vars]\nnfs_server_group=slurm-master[1]\n")

    assert Role.NFS_SERVER in draft.nodes["m2"].roles
    assert left(draft) == []


def test_variables_of_a_group_override_those_of_the_group_around_it() -> None:
    around = "[slurm-cluster:children]\nslurm-master\nslurm-node\n[slurm-cluster:vars]\nansible_port=22\n"
    draft = read(f"{MINIMAL}[slurm-node:vars]\nansible_port=2222\n{around}")

    assert {node.name: node.port for node in draft.nodes.values()} == {
        "m1": 22, **{f"gpu{number:02}": 2222 for number in range(1, 17)}
    }  # fmt: skip


def test_hosts_of_no_slurm_group_are_left_out_by_name() -> None:
    draft = read(f"{MINIMAL}[Kube_Node]\nk8s[1:3]\n")

    assert left(draft) == ["[Kube_Node]", "hosts k8s[1-3]"]
    assert draft.carryover.not_carried[0].reason == "not a group of Slurm's (3 hosts in it)"
    assert "k8s1" not in draft.nodes


def test_an_inventory_without_slurm_groups_takes_its_roles_from_options() -> None:
    draft = read("[web]\na1 ansible_host=192.0.2.1\na2\n")

    assert [(m.name, m.roles) for m in draft.nodes.values()] == [("a1", frozenset()), ("a2", frozenset())]


@pytest.mark.parametrize("name", ["slurm_password", "slurm_db_password"])
@pytest.mark.parametrize("value", ["ReplaceWithASecurePasswordInTheVault", "deepops"])
def test_the_passwords_that_deepops_ships_are_refused(tmp_path: Path, name: str, value: str) -> None:
    directory = site(tmp_path, f"slurm_version: 1\n{name}: {value}\n")

    (problem,) = problems_of(read_request, InitRequest(tmp_path / "new", source=directory))

    assert problem.where.endswith("slurm-cluster.yml:2")
    assert name in problem.message
    assert value not in problem.message


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ("slurm_version: 26.05.1", "slurm_version"),
        ("slurm_enable_ha: true", "slurm_enable_ha"),
        ("grafana_cfg_pass: deepops", "grafana_cfg_pass"),
        ("slurm_conf_template: ../x", "slurm_conf_template"),
        ("slurm_db_username: '{{ x }}'", "slurm_db_username"),
        ("slurm_db_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3131", "slurm_db_password"),
        ("slurm_db_password: private\\", "slurm_db_password"),
        ("my_own_thing: [1, {a: b}]", "my_own_thing"),
        ("nfs_server_group: nowhere", "nfs_server_group"),
        ("slurm_user_uid: many", "slurm_user_uid"),
        ("slurm_user_uid: 0644", "slurm_user_uid"),
        ("slurm_password: private", "slurm_password"),
    ],
)
def test_every_other_variable_is_named_and_its_value_is_not_shown(tmp_path: Path, variables: str, name: str) -> None:
    (note,) = imported(tmp_path, variables).carryover.not_carried
    assert (note.name, note.where.rpartition("/")[2]) == (name, "slurm-cluster.yml:1")
    assert not any(secret in str(note) for secret in ("private", "deepops)", "3131"))


class TestSeveralControllers:
    INVENTORY = "[slurm-master]\nm1\nm2\n[slurm-node]\nn[1:2]\n"
    FILER = "slurm_enable_ha: true\nnfs_mounts: [{mountpoint: /sw, server: filer1, path: /vol/sw}]\n"

    @pytest.mark.parametrize(
        ("variables", "reason"),
        [
            (FILER.replace("filer1", "\"{{ groups['slurm-master'][0] }}\""), "sw is served by the controller m1"),
            (FILER, "sw is mounted on n[1-2] as well"),
            (FILER + "slurm_ha_state_save_location: /state\n", "nfs_mounts has no /state"),
        ],
    )
    def test_a_state_directory_that_is_lost_with_one_or_that_jobs_nodes_have_is_left_out(
        self, tmp_path: Path, variables: str, reason: str
    ) -> None:
        result = imported(tmp_path, variables, self.INVENTORY)

        assert result.cluster.slurm_state == ""
        (note,) = (note for note in result.carryover.not_carried if note.name == "slurm_enable_ha")
        assert reason in note.reason


def test_an_encrypted_file_is_named(tmp_path: Path) -> None:
    assert left(imported(tmp_path, "$ANSIBLE_VAULT;1.1;AES256\n3131\n")) == ["slurm-cluster.yml"]


def test_faults_of_inventory_and_variables_are_reported_together(tmp_path: Path) -> None:
    directory = site(tmp_path, "a: [1\n", "[slurm-master]\nm1 'x\n[slurm-node:wars]\n[slurm-node]\nn[5:1]\nn1-\n")

    problems = problems_of(read_request, InitRequest(tmp_path / "new", source=directory))

    assert [problem.message for problem in problems] == [
        "not valid YAML: did not find expected ',' or ']'",
        "m1 'x: a quote is not closed",
        "[slurm-node:wars] is not a section",
        "n[5:1]: [5:1] is not a valid range",
        "'n1-' is not a valid hostname",
    ]


def test_init_writes_settings_secrets_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = ClusterDir(tmp_path / "new")

    assert run_command_line(["init", str(made.path), "--from", str(EXAMPLE), "--gpus", "h100:8", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert {"name", "where", "reason", "hint"} == set(document["not_carried"][0])
    assert "slurm_user_id: 22078" in made.settings.read_text()
    assert made.secrets.read_text().startswith("$ANSIBLE_VAULT")
    report = (made.path / "import-report.md").read_text()
    assert "slurm_install_nhc" in report
    assert "not-the-placeholder" not in report


def test_settings_of_an_existing_cluster_stay(tmp_path: Path) -> None:
    made = ClusterDir(tmp_path / "new")
    assert run_command_line(["init", str(made.path), "--controller", "c1", "--compute", "n1"]) == 0
    before, secrets = made.settings.read_text(), made.secrets.read_text()

    assert run_command_line(["init", str(made.path), "--from", str(EXAMPLE), "--force"]) == 0

    assert (made.settings.read_text(), made.secrets.read_text()) == (before, secrets)
    assert "| slurm_user_id |" in (made.path / "import-report.md").read_text()


def test_a_variable_of_a_thousand_hosts_is_one_line() -> None:
    hosts = "".join(f"gpu{number:03} ip=10.1.{number // 250}.{number % 250}\n" for number in range(1000))
    draft = read(f"[all]\nm1 ansible_host=10.0.0.1 rack=7\n{hosts}[slurm-master]\nm1\n[slurm-node]\ngpu[000:999]\n")

    reasons = {note.name: note.reason for note in draft.carryover.not_carried}
    assert reasons == {"ip": "it is set for single hosts (1000): gpu[000-999]", "rack": "it is set for m1 alone"}


def test_a_file_of_comments_is_no_fault(tmp_path: Path) -> None:
    directory = site(tmp_path, "# nothing\n")
    (directory / "host_vars").mkdir()
    (directory / "host_vars" / "gpu01").write_text("---\n# variables of gpu01\n")

    assert read_request(InitRequest(tmp_path / "new", source=directory)).cluster.compute


def test_what_is_called_missing_is_in_no_role_and_no_setting() -> None:
    names = {path.name for path in (ROOT / "roles").iterdir()} | known_names(content_dir())

    assert [name for name in sorted(names) for missing in NOT_YET.values() if re.search(missing, name)] == []


@pytest.mark.parametrize(
    "name",
    ["install_dcgm", "nvidia_dcgm_version", "slurm_restrict_node_access", "mig_manager", "users", "spack_version",
     "easybuild_prefix", "krb5_realm"],
)  # fmt: skip
def test_what_deepopsctl_has_is_not_called_missing(tmp_path: Path, name: str) -> None:
    (note,) = imported(tmp_path, f"{name}: true").carryover.not_carried
    assert "yet" not in note.reason
    assert note.hint


YAML = """
all:
  vars: {ansible_user: ubuntu}
  children:
    head:
      hosts:
        m1: {ansible_host: 192.0.2.1}
    workers:
      children:
        fast: {hosts: {"gpu[01:02]": null}}
      vars:
        slurm_cluster_name: other
"""
GROUPS = {"head": Role.CONTROLLER, "workers": Role.COMPUTE}


def test_merge_keys_are_what_they_stand_for() -> None:
    text = """
all:
  children:
    slurm-master:
      hosts:
        m1: &common {ansible_host: 192.0.2.1, ansible_port: 2222}
    slurm-node:
      hosts:
        n1: {ansible_host: 192.0.2.2, <<: *common}
"""

    draft = read(text)

    assert [(node.address, node.port) for node in draft.nodes.values()] == [("192.0.2.1", 2222), ("192.0.2.2", 2222)]
    assert left(draft) == []


def test_a_merge_key_of_something_else_is_named() -> None:
    (fault,) = faults(read, "all:\n  hosts:\n    m1: {<<: x}\n  children: {}\n")

    assert fault.startswith("inventory:3: not valid YAML: expected a mapping")


def test_the_clusters_name_is_in_lower_case_as_in_slurm(tmp_path: Path) -> None:
    assert imported(tmp_path, "slurm_cluster_name: Hpc\n").cluster.name == "hpc"


def test_another_name_replaces_one_that_slurm_cannot_have(tmp_path: Path) -> None:
    source = site(tmp_path, "slurm_cluster_name: my cluster\n")

    assert read_request(InitRequest(Path("x"), source=source, name="other")).cluster.name == "other"
    (problem,) = problems_of(read_request, InitRequest(Path("x"), source=source))
    assert problem.where.endswith("slurm-cluster.yml:1")
    assert problem.hint.startswith("give another by --name")


def test_an_inventory_in_yaml_is_one_in_ini() -> None:
    cluster = read(YAML.replace("head", "slurm-master").replace("workers", "slurm_node")).finish()

    assert (cluster.name, cluster.access.user) == ("other", "ubuntu")
    assert [(node.name, node.address) for node in cluster.nodes] == [("m1", "192.0.2.1"), ("gpu01", ""), ("gpu02", "")]
    assert [node.name for node in cluster.compute] == ["gpu01", "gpu02"]


def test_our_own_inventory_is_read_back() -> None:
    made = read(MINIMAL).finish()
    again = read(render_inventory(made)).finish()

    assert [(node.name, node.roles) for node in again.nodes] == [(node.name, node.roles) for node in made.nodes]


@pytest.mark.parametrize("text", [YAML, "[head]\nm1 ansible_host=192.0.2.1\n[workers]\ngpu[01:02]\n"])
def test_groups_of_any_name_are_named_by_an_option(tmp_path: Path, text: str) -> None:
    path = tmp_path / "inventory"
    path.write_text(text)
    request = InitRequest(tmp_path / "new", source=path, group=("controller=head", "compute=workers"))

    cluster = read_request(request).cluster
    assert [node.name for node in cluster.controllers] == ["m1"]
    assert [node.name for node in cluster.compute] == ["gpu01", "gpu02"]


def test_without_the_option_the_groups_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts.yml").write_text(YAML)

    assert run_command_line(["init", str(tmp_path / "new"), "--from", str(tmp_path)]) == 3
    output = capsys.readouterr().err
    assert "head (1), workers (2), fast (2)" in output
    assert "--group controller=GROUP" in output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("option", ["workers", "boss=head", "compute=nowhere", "compute="])
def test_a_wrong_group_is_refused(tmp_path: Path, option: str) -> None:
    (tmp_path / "hosts.yml").write_text(YAML)

    request = InitRequest(tmp_path / "new", source=tmp_path, group=("controller=head", option))

    assert [problem.where for problem in problems_of(read_request, request)] == ["--group"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("all:\n  hosts: [a, b]\n", "inventory:2: is not a mapping"),
        ("all:\n  hosts: {'n[5:1]': }\n", "inventory:2: n[5:1]: [5:1] is not a valid range"),
        ("all:\n  hosts:\n   a: {\n", "inventory:4: not valid YAML: did not find expected node content"),
        ("all:\n  hosts: {a: }\n  roles: x\n", "inventory:3: roles is not a part of a group"),
    ],
)
def test_faults_of_an_inventory_in_yaml_have_their_lines(text: str, fault: str) -> None:
    assert fault in faults(read, text, GROUPS)
