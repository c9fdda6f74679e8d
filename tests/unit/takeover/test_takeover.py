"""What a take-over keeps, and what speaks against one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.secrets import decrypt
from deepopsctl.errors import InputError
from deepopsctl.imports.request import InitRequest, read_request
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.slurm.hardware import load_hardware
from deepopsctl.takeover.preflight import NodeFacts, read_facts
from deepopsctl.takeover.takeover import apply, plan_takeover
from tests.support.problems import faults as faults_of

MACHINES = {"controller": ("ctl1",), "compute": ("gpu[01-02]",), "gpus": ("a100:2",), "name": "hand"}
GPU_NODE = {
    "cpus": 2, "boards": 1, "sockets": 2, "cores_per_socket": 1, "threads_per_core": 1, "memory_mb": 500,
    "gres": "gpu:a100:2(S:0)",
}  # fmt: skip
COMPUTE = NodeFacts(
    daemons={"slurmd": "/usr/sbin/slurmd"},
    packaged={"slurmd": True},
    units={"slurmd": "/usr/lib/systemd/system/slurmd.service"},
    ids={"slurm": [22078, 22078], "munge": [105, 108]},
    munge_key_hash="ab" * 32,
)
CONTROLLER = replace(
    COMPUTE,
    daemons={"slurmctld": "/usr/sbin/slurmctld", "slurmdbd": "/usr/sbin/slurmdbd"},
    packaged={"slurmctld": True, "slurmdbd": True},
    database={"storageloc": "hand_acct", "storageuser": "handmade", "storagehost": "localhost"},
    config={
        "ClusterName": "hand", "SlurmUser": "slurm(22078)", "SLURM_VERSION": "24.11.5",
        "StateSaveLocation": "/srv/state",
        "SlurmdSpoolDir": "/srv/spool", "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CORE",
        "JobAcctGatherType": "(null)", "AccountingStorageEnforce": "none", "SlurmctldPort": "6817",
        "SlurmdPort": "7003",
    },
    nodes={"gpu01": GPU_NODE, "gpu02": GPU_NODE},
    jobs=1,
    secrets={"munge_key": "b2xk", "slurm_dbd_password": "by-hand"},
)  # fmt: skip
BUILT = {"prefix": "/usr/local", "version": "24.11.5", "target": "24.11.5-4+deb13u1", "file_system": "ext4"}
FOUND = {"ctl1": CONTROLLER, "gpu01": COMPUTE, "gpu02": COMPUTE}


def cluster(**options: Any) -> Cluster:
    return read_request(InitRequest(Path("hpc"), **{**MACHINES, **options})).cluster


def faults(result: Mapping[str, NodeFacts]) -> list[str]:
    return faults_of(plan_takeover, cluster(), result)


def changed(name: str, **fields: Any) -> dict[str, NodeFacts]:
    return {**FOUND, name: replace(FOUND[name], **fields)}


def test_what_running_jobs_lean_on_is_kept() -> None:
    result = plan_takeover(cluster(), FOUND)

    assert result.settings == {
        "slurm_taken_over": True,
        "slurm_config": {
            "StateSaveLocation": "/srv/state",
            "SlurmdSpoolDir": "/srv/spool",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CORE",
            # nothing is what the old cluster has: deepopsctl's own values would change it
            "JobAcctGatherType": None,
            "AccountingStorageEnforce": None,
            "SlurmdPort": "7003",
        },
        "slurm_user_id": 22078,
        "slurm_group_id": 22078,
        "slurm_dbd_database": "hand_acct",
        "slurm_dbd_user": "handmade",
        "slurm_accounts_names": [],
        "slurm_accounts_users": [],
    }
    assert result.secrets == {"munge_key": "b2xk", "slurm_dbd_password": "by-hand"}
    assert [warning[:14] for warning in result.warnings] == ["no account and"]


ON_ANOTHER_HOST = {
    "storageloc": "hand_acct", "storageuser": "handmade", "storagehost": "db9.example.com", "storageport": "3307",
    "storageparameters": "SSL_CA=/etc/ssl/db.pem",
}  # fmt: skip


@pytest.mark.parametrize("lost", [False, True])
def test_an_accounting_database_on_another_host_stays_there(lost: bool) -> None:
    result = changed("ctl1", database=ON_ANOTHER_HOST, deployed=lost)

    taken = plan_takeover(cluster(), result, "bmV3" if lost else "")

    assert {name: value for name, value in taken.settings.items() if "_server" in name} == {
        "slurm_dbd_server": "db9.example.com",
        "slurm_dbd_server_port": 3307,
        "slurm_dbd_server_ca": "/etc/ssl/db.pem",
    }
    assert taken.secrets["slurm_dbd_password"] == "by-hand"
    assert dict(taken.facts)["accounting"].endswith("on db9.example.com")


@pytest.mark.parametrize("host", ["", "localhost", "ctl1", "ctl1.example.com"])
def test_a_database_of_slurmdbds_own_host_is_no_other_server(host: str) -> None:
    taken = plan_takeover(cluster(), changed("ctl1", database={**CONTROLLER.database, "storagehost": host}))

    assert "slurm_dbd_server" not in taken.settings


def built_from_source(node: NodeFacts, **build: str) -> NodeFacts:
    return replace(node, packaged=dict.fromkeys(node.packaged, False), build={**BUILT, **build})


@pytest.mark.parametrize(
    ("build", "fault"),
    [
        ({"target": "24.11.4-1"}, "Slurm 24.11.5 was built from source in /usr/local; the packages are 24.11.4-1"),
        ({"target": "26.05.5-1"}, "Slurm 24.11.5 was built from source in /usr/local; the packages are 26.05.5-1"),
        ({"file_system": "nfs4"}, "Slurm 24.11.5 was built from source in /usr/local, which other nodes share (nfs4)"),
        ({"prefix": "/usr"}, "Slurm 24.11.5 was built from source in /usr, where packages put theirs"),
    ],
)
def test_a_slurm_built_from_source_that_no_package_can_follow_is_refused(build: dict[str, str], fault: str) -> None:
    built = {name: built_from_source(node, **build) for name, node in FOUND.items()}

    assert faults(built) == [f"ctl1,gpu[01-02]: {fault}"]


def test_a_slurm_built_from_source_is_followed_by_packages_of_its_release() -> None:
    built = {name: built_from_source(node) for name, node in FOUND.items()}

    assert plan_takeover(cluster(), built).settings["slurm_source_prefix"] == "/usr/local"


def test_secrets_of_a_cluster_whose_directory_was_lost_are_adopted_and_nothing_else() -> None:
    deployed = {name: replace(node, deployed=True) for name, node in FOUND.items()}

    taken = plan_takeover(cluster(), deployed, "bmV3")

    assert taken.secrets == {"munge_key": "b2xk", "slurm_dbd_password": "by-hand"}
    assert taken.settings == {}
    with pytest.raises(InputError, match="deployed by deepopsctl already"):
        plan_takeover(cluster(), deployed, "b2xk")


def test_several_kinds_of_gpus_agree_in_any_order() -> None:
    several = cluster(gpus=("a40:1", "l40s:1"))
    node = {**GPU_NODE, "gres": "gpu:l40s:1(S:0),gpu:a40:1(S:0)"}

    result = changed("ctl1", nodes={"gpu01": node, "gpu02": node})

    assert plan_takeover(several, result).hardware.keys() == {"gpu01", "gpu02"}


def test_cores_and_memory_are_counted_as_slurmctld_counts_them() -> None:
    hardware = plan_takeover(cluster(), FOUND).hardware["gpu01"]

    assert (hardware.cpus, hardware.sockets, hardware.cores_per_socket) == (2, 2, 1)
    # what slurm.conf gets is 98 % of it
    assert hardware.memory_mb * 98 // 100 == 500


def test_memory_that_slurm_conf_does_not_set_is_the_nodes_own() -> None:
    nodes = {"gpu01": {**GPU_NODE, "memory_mb": 1}, "gpu02": GPU_NODE}
    report = "NodeName=gpu01 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=7900"
    result = {**changed("gpu01", slurmd_report=report), "ctl1": replace(CONTROLLER, nodes=nodes)}

    assert plan_takeover(cluster(), result).hardware["gpu01"].memory_mb == 7900


@pytest.mark.parametrize(
    ("name", "fields", "fault"),
    [
        ("ctl1", {"daemons": {}}, "ctl1: no slurmctld runs there"),
        ("ctl1", {"config": {}}, "ctl1: slurmctld does not answer"),
        ("gpu02", {"deployed": True}, "gpu02: was deployed by deepopsctl already"),
        ("gpu02", {"munge_key_hash": "cd"}, "ctl1,gpu01 and gpu02: have different munge keys"),
        ("gpu01", {"ids": {"slurm": [1, 1]}}, "ctl1,gpu02 and gpu01: have different ids for the user slurm"),
        (
            "gpu01",
            {"daemons": {"slurmd": "/usr/local/sbin/slurmd"}, "packaged": {"slurmd": False}},
            "gpu01: slurmd is /usr/local/sbin/slurmd, which no package installed",
        ),
        (
            "ctl1",
            {"database": {"storagehost": "db9", "storagebackuphost": "db8"}},
            "ctl1: StorageBackupHost is db8",
        ),
        (
            "ctl1",
            {"database": {"storagehost": "db9", "storageparameters": "SSL_CA=/a.pem,SSL_KEY=/b.pem"}},
            "ctl1: StorageParameters has SSL_KEY",
        ),
        (
            "ctl1",
            {"database": {"storagehost": "db9"}, "secrets": {"munge_key": "b2xk"}},
            "ctl1: slurmdbd.conf has no StoragePass for db9",
        ),
        (
            "ctl1",
            {"config": {**CONTROLLER.config, "ClusterName": "other"}},
            "cluster.yml: the cluster is called other in Slurm, hand here",
        ),
        (
            "ctl1",
            {"config": {**CONTROLLER.config, "StateSaveLocation": "/var/spool"}},
            "ctl1: StateSaveLocation: /var/spool is a system or shared directory, not slurmctld's own",
        ),
        (
            "ctl1",
            {"config": {**CONTROLLER.config, "SlurmUser": "hpc(7)"}},
            "ctl1: slurmctld runs as hpc",
        ),
        (
            "ctl1",
            {"nodes": {"gpu01": {**GPU_NODE, "gres": "gpu:4"}, "gpu02": GPU_NODE}},
            "gpu01: Slurm has gpu:4 there, cluster.yml gpu:a100:2",
        ),
    ],
)
def test_what_can_not_be_kept_is_refused(name: str, fields: dict[str, Any], fault: str) -> None:
    assert faults(changed(name, **fields)) == [fault]


def test_differences_that_cost_nothing_are_warnings() -> None:
    nodes = {"gpu01": GPU_NODE, "old9": GPU_NODE}
    files = ("job_container.conf", "topology.conf")
    result = {"ctl1": replace(CONTROLLER, nodes=nodes, other_files=files), "gpu01": COMPUTE}

    assert [warning.partition(":")[0] for warning in plan_takeover(cluster(), result).warnings] == [
        "old9", "gpu02", "gpu02", "job_container.conf", "topology.conf",
        "no account and no user is added to the accounting (slurm_accounts_names, slurm_accounts_users)",
    ]  # fmt: skip


PYXIS = {
    "path": "/usr/local/lib/slurm/spank_pyxis.so", "required": True, "there": True, "version": "24.11.5",
    "arguments": "runtime_path=/run/pyxis",
}  # fmt: skip


def plugstack(plugins: Mapping[str, tuple[Mapping[str, object], ...]]) -> tuple[object, list[str]]:
    """slurm_plugstack of a cluster built from source whose nodes have these plugins, and the warnings about them."""
    built = {name: replace(built_from_source(node), spank=plugins.get(name, ())) for name, node in FOUND.items()}
    taken = plan_takeover(cluster(), built)
    return taken.settings.get("slurm_plugstack"), [
        words for words in taken.warnings if "slurm_pyxis" in words or ".so" in words
    ]


def test_plugins_of_jobs_are_kept() -> None:
    lines, warnings = plugstack(dict.fromkeys(FOUND, (PYXIS, {**PYXIS, "path": "lua.so", "required": False})))

    assert lines == [
        "required /usr/local/lib/slurm/spank_pyxis.so runtime_path=/run/pyxis",
        "optional lua.so runtime_path=/run/pyxis",
    ]
    assert warnings == []
    assert plugstack({}) == (None, [])


def test_a_required_plugin_that_slurmd_would_not_start_with_becomes_optional() -> None:
    misfit, gone = {**PYXIS, "version": "23.11.4"}, {**PYXIS, "there": False}
    optional = ["optional /usr/local/lib/slurm/spank_pyxis.so runtime_path=/run/pyxis"]

    lines, (warning,) = plugstack({**dict.fromkeys(FOUND, (PYXIS,)), "gpu02": (misfit,)})
    assert lines == optional
    assert warning.startswith("gpu02: /usr/local/lib/slurm/spank_pyxis.so was built for Slurm 23.11.4: it becomes")
    for other in ((gone,), ()):
        lines, (warning,) = plugstack({**dict.fromkeys(FOUND, (PYXIS,)), "gpu02": other})
        assert lines == optional
        assert warning.startswith(
            "gpu02: /usr/local/lib/slurm/spank_pyxis.so of plugstack.conf is not there: it becomes"
        )


def test_it_is_written_into_settings_vault_and_hardware_and_only_once(tmp_path: Path) -> None:
    assert run_command_line(["init", str(tmp_path / "hpc"), "--controller", "ctl1", "--compute", "gpu[01-02]"]) == 0
    directory = ClusterDir.open(tmp_path / "hpc")
    taken = plan_takeover(cluster(), FOUND)

    assert apply(directory, taken) == ("secrets.yml", "settings.yml", "hardware.yml")
    assert apply(directory, taken) == ()

    password = directory.vault_password.read_bytes().strip()
    assert decrypt(directory.secrets.read_text(), password).items() >= taken.secrets.items()
    text = directory.settings.read_text()
    assert "by-hand" not in text
    assert yaml.safe_load(text) == taken.settings
    assert "# Further keys of slurm.conf" in text
    assert set(load_hardware(directory.hardware)) == {"gpu01", "gpu02"}


def test_secrets_are_in_no_document_and_no_repr_of_an_object() -> None:
    taken = plan_takeover(cluster(), FOUND)

    assert "by-hand" not in f"{taken}{CONTROLLER}{json.dumps(taken.document(written=True))}"


def test_what_nodes_said_is_read_and_what_is_not_known_is_left(tmp_path: Path) -> None:
    (tmp_path / "gpu01.json").write_text(json.dumps({"jobs": 3, "changed": False, "slurm_conf": "/x"}))

    assert read_facts(tmp_path) == {"gpu01": NodeFacts(jobs=3)}


def test_an_accounting_host_that_was_not_read_is_not_taken_for_one_without_accounting() -> None:
    apart = replace(cluster(), nodes=(*cluster().nodes, Node("dbd1", frozenset({Role.DBD}))))

    (fault,) = faults_of(plan_takeover, apart, FOUND)

    assert fault.startswith("dbd1: slurmdbd runs there, and it was not read")


def with_files(script: str = "", plugins: str = "", **files: Mapping[str, str]) -> dict[str, NodeFacts]:
    """The cluster with what its files set; `slurm_conf` is slurm.conf."""
    config = {**CONTROLLER.config, "JobSubmitPlugins": plugins or "(null)"}
    named = {f"{name.removesuffix('_conf')}.conf": values for name, values in files.items()}
    return changed("ctl1", config=config, files=named, job_submit=script)


def test_the_script_that_decides_on_jobs_and_the_other_plugins_are_kept() -> None:
    result = with_files(
        "return slurm.SUCCESS", "lua,all_partitions", slurm_conf={"JobSubmitPlugins": "lua,all_partitions"}
    )

    taken = plan_takeover(cluster(), result)

    # braces of a script would be a template of Ansible's in settings.yml
    assert (
        taken.settings["slurm_conf_job_script"]
        == "{{ lookup('ansible.builtin.file', deepops_cluster_dir ~ '/job_submit.lua') }}"
    )
    assert taken.script == "return slurm.SUCCESS"
    config = taken.settings["slurm_config"]
    assert isinstance(config, Mapping)
    assert config["JobSubmitPlugins"] == "all_partitions"
    assert taken.not_kept == ()
    assert "slurm_conf_job_script" not in plan_takeover(cluster(), with_files("return 0", "")).settings


def test_policy_of_slurmdbd_and_cgroups_is_kept_and_the_rest_is_named() -> None:
    result = with_files(
        slurmdbd_conf={
            "PrivateData": "jobs,usage", "PurgeJobAfter": "12months", "TrackWCKey": "yes", "StorageLoc": "hand_acct",
            "DbdHost": "ctl1", "PluginDir": "/opt/plugins", "LogFile": "/var/log/{{ x }}",
        },
        cgroup_conf={
            "AllowedRAMSpace": "95", "ConstrainDevices": "no", "ConstrainCores": "yes", "CgroupAutomount": "yes",
        },
        slurm_conf={"ClusterName": "hand", "PriorityWeightAge": "7", "Prolog": "/etc/p.sh", "SelectType": "x"},
    )  # fmt: skip

    taken = plan_takeover(cluster(), result, site={"slurm_config": {"prolog": "/etc/p.sh"}})

    assert taken.settings["slurm_dbd_config"] == {
        "PrivateData": "jobs,usage", "PurgeJobAfter": "12months", "TrackWCKey": "yes",
    }  # fmt: skip
    assert taken.settings["slurm_cgroup_config"] == {"AllowedRAMSpace": "95"}
    assert taken.not_kept == (
        "slurm.conf: PriorityWeightAge=7",
        "slurmdbd.conf: LogFile=/var/log/{{ x }}",
        "slurmdbd.conf: PluginDir=/opt/plugins",
        "cgroup.conf: CgroupAutomount=yes",
        "cgroup.conf: ConstrainDevices=no",
    )


def test_the_login_user_gets_an_association_only_where_the_site_says_so() -> None:
    users = {"slurm_accounts_users": [{"name": "ada", "account": "default"}], "slurm_accounts_names": ["default"]}

    assert plan_takeover(cluster(), FOUND).settings["slurm_accounts_users"] == []
    assert "slurm_accounts_users" not in plan_takeover(cluster(), FOUND, site=users).settings


def test_the_script_goes_to_the_cluster_directory_and_never_over_another(tmp_path: Path) -> None:
    assert (
        run_command_line(
            ["init", str(tmp_path / "hand"), "--controller", "ctl1=192.0.2.1", "--compute", "gpu[01-02]=192.0.2.[2-3]"]
        )
        == 0
    )
    directory = ClusterDir.open(tmp_path / "hand")
    taken = plan_takeover(cluster(), with_files("local t = {{1}}\nreturn 0\n", "lua"))

    assert "job_submit.lua" in apply(directory, taken)
    assert (directory.path / "job_submit.lua").read_text() == "local t = {{1}}\nreturn 0\n"
    assert apply(directory, taken) == ()
    (directory.path / "job_submit.lua").write_text("mine")
    with pytest.raises(InputError, match="is not the controller's"):
        apply(directory, taken)
