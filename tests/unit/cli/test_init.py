"""`deepopsctl init` and `inventory` as a person meets them: files, output, exit codes."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import ExitCode

SCRIPT = Path(sys.executable).with_name("deepopsctl")
MACHINES = ["--controller", "ctl1=192.0.2.1", "--compute", "gpu[1-2]=192.0.2.[11-12]", "--gpus", "h100:8"]


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str) -> ClusterDir:
    assert run_command_line(["init", "hpc", *MACHINES, *arguments]) == ExitCode.OK
    return ClusterDir.open(Path("hpc"))


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def vault_of(directory: ClusterDir) -> VaultLib:
    return VaultLib([("default", VaultSecret(directory.vault_password.read_bytes().strip()))])


def secrets(directory: ClusterDir) -> dict[str, str]:
    variables: dict[str, str] = yaml.safe_load(vault_of(directory).decrypt(directory.secrets.read_bytes()))
    return variables


def test_makes_a_complete_cluster_directory() -> None:
    directory = init()
    assert set(files(directory.path)) == {
        ".gitignore",
        ".schemas/cluster.json",
        ".schemas/people.json",
        ".vault-password",
        "cluster.yml",
        "inventory/group_vars/all/secrets.yml",
        "inventory/group_vars/all/settings.yml",
        "inventory/hosts.yml",
        "known_hosts",
    }
    assert directory.runs.is_dir()
    assert (directory.inventory_dir / "host_vars").is_dir()


def test_private_files_are_private() -> None:
    directory = init()
    assert mode(directory.vault_password) == 0o600
    assert mode(directory.secrets) == 0o600
    assert mode(directory.ssh_key.parent) == 0o700
    assert mode(directory.runs) == 0o700
    assert mode(directory.spec) == 0o644


def test_secrets_are_random_and_encrypted() -> None:
    directory = init()
    assert directory.secrets.read_text().startswith("$ANSIBLE_VAULT;1.1;AES256\n")
    first = secrets(directory)
    passwords = {
        "slurm_dbd_password",
        "monitoring_web_password",
        "grafana_admin_password",
        "backup_password",
        "backup_monitoring_password",
    }
    assert set(first) == {"munge_key", "cluster_authority", *passwords}
    assert len(first["munge_key"]) == 172
    assert run_command_line(["init", "other", *MACHINES]) == ExitCode.OK
    second = secrets(ClusterDir.open(Path("other")))
    assert all(first[name] != second[name] for name in first)


def test_a_vault_of_before_gets_what_is_missing_and_keeps_what_a_person_put_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = init()
    vault = vault_of(directory)
    mine = "munge_key: mine\n# for the archive\nstorage_secrets: {archive: {key: x}}\n"
    directory.secrets.write_bytes(vault.encrypt(mine))

    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.OK

    assert vault.decrypt(directory.secrets.read_bytes()).decode().startswith(mine)
    assert secrets(directory).keys() > {"munge_key", "storage_secrets", "monitoring_web_password"}
    assert "secrets.yml: added slurm_dbd_password, " in capsys.readouterr().err
    before = directory.secrets.read_bytes()
    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.OK
    assert directory.secrets.read_bytes() == before


def test_a_vault_that_another_password_opens_is_left_alone() -> None:
    directory = init()
    directory.vault_password.write_text("another\n")
    before = directory.secrets.read_bytes()

    assert directory.refresh_secrets() == ()
    assert directory.secrets.read_bytes() == before


def test_settings_of_a_node_list_are_where_the_clusters_own_begin() -> None:
    Path("nodes.yml").write_text(
        "schema: 1\nsettings: {monitoring_enabled: false}\nnodes:\n"
        "  - {names: ctl1, roles: [controller]}\n  - {names: gpu01, roles: [compute]}\n",
        encoding="utf-8",
    )

    assert run_command_line(["init", "hpc", "--from", "nodes.yml"]) == ExitCode.OK

    directory = ClusterDir.open(Path("hpc"))
    assert yaml.safe_load(directory.settings.read_text()) == {"monitoring_enabled": False}
    # no GPUs, no storage, and monitoring is switched off
    assert directory.cluster().components == ("slurm",)
    assert not (directory.path / "import-report.md").exists()


def test_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    init("--json")
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "command": "init",
        "ok": True,
        "directory": str(Path("hpc").resolve()),
        "nodes": 3,
        "not_carried": [],
        "to_check": [],
        "changed": [],
        "components": ["nvidia", "slurm", "monitoring"],
        "groups": {
            "slurm_controller": ["ctl1"],
            "slurm_compute": ["gpu1", "gpu2"],
            "slurm_login": [],
            "slurm_dbd": ["ctl1"],
            "nfs_server": ["ctl1"],
            "monitoring": ["ctl1"],
        },
    }


def test_faults_are_printed_all_and_nothing_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = run_command_line(["init", "hpc", "--controller", "ctl1-", "--compute", "n[3-1]", "--json"])
    captured = capsys.readouterr()
    assert code == ExitCode.INVALID_INPUT
    document = json.loads(captured.out)
    assert (document["schema"], document["ok"]) == (1, False)
    assert [error["where"] for error in document["errors"]] == ["--controller", "--compute"]
    assert "error: --compute: n[3-1]: the range 3-1 runs backwards\nhint: write 1-3\n" in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(MACHINES, "hpc: already holds a cluster"), (["--controller", "b-", "--force"], "'b-' is not a valid hostname")],
)
def test_a_cluster_stays_without_force_and_with_an_input_at_fault(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = init()
    before = files(directory.path)
    assert run_command_line(["init", "hpc", *arguments]) == ExitCode.INVALID_INPUT
    assert error in capsys.readouterr().err
    assert files(directory.path) == before


def test_force_replaces_the_nodes_and_keeps_everything_else() -> None:
    directory = init()
    unchanged = {
        "inventory/group_vars/all/settings.yml": b"slurm_config: {MaxArraySize: 5}\n",
        "known_hosts": b"ctl1 ssh-ed25519 AAAA\n",
        "ssh/id_ed25519": b"key",
        "hardware.yml": b"schema: 1\n",
        "people.yml": b"schema: 1\ngroups: [{name: lab, gid: 60001}]\n",
        "runs/1/log": b"log",
        "inventory/host_vars/ctl1.yml": b"a: 1\n",
    }
    for name, content in unchanged.items():
        path = directory.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    before = files(directory.path)
    assert run_command_line(["init", "hpc", "--controller", "new1", "--compute", "n1", "--force"]) == ExitCode.OK
    after = files(directory.path)
    assert {name for name in before if after[name] != before[name]} == {"cluster.yml", "inventory/hosts.yml"}
    assert b"new1" in after["cluster.yml"]
    assert b"environment_people" in after["inventory/hosts.yml"]
    (copy,) = set(after) - set(before)
    assert re.fullmatch(r"cluster\.yml\.\d{8}-\d{6}", copy)
    assert after[copy] == before["cluster.yml"]


def test_force_lists_the_settings_that_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    directory = init()
    directory.settings.write_text("monitoring_enabled: false\n")
    Path("nodes.yml").write_text(
        "schema: 1\nsettings: {monitoring_enabled: false, node_common_time_servers: [ntp.example.com]}\nnodes:\n"
        "  - {names: ctl1, roles: [controller]}\n  - {names: n1, roles: [compute]}\n"
    )
    capsys.readouterr()

    assert run_command_line(["init", "hpc", "--from", "nodes.yml", "--force", "--json"]) == ExitCode.OK

    left = json.loads(capsys.readouterr().out)["not_carried"]
    assert [note["name"] for note in left] == ["node_common_time_servers"]


def test_a_setting_that_is_no_date_is_named_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nodes.yml").write_text(
        "schema: 1\nnodes: [{names: a, roles: [controller, compute]}]\nsettings:\n  x: 2026-02-30\n"
    )

    assert run_command_line(["init", "hpc", "--from", "nodes.yml"]) == ExitCode.INVALID_INPUT

    assert "nodes.yml:4: not valid YAML: day is out of range for month" in capsys.readouterr().err


def test_force_that_changes_nothing_leaves_no_copy() -> None:
    directory = init()
    before = files(directory.path)

    init("--force")

    assert set(files(directory.path)) == set(before)


def test_force_repairs_a_truncated_cluster_file() -> None:
    init().spec.write_text("schema: 1\nnodes:\n  - {na")
    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.INVALID_INPUT
    init("--force")
    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.OK


@pytest.mark.parametrize("arguments", [[], ["--force"]])
def test_refuses_a_directory_that_holds_something_else(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hpc").mkdir()
    Path("hpc/thesis.tex").write_text("mine")
    assert run_command_line(["init", "hpc", *MACHINES, *arguments]) == ExitCode.INVALID_INPUT
    assert "hpc: is not empty: it holds thesis.tex" in capsys.readouterr().err
    assert [path.name for path in Path("hpc").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(("path", "error"), [("file", "file: is a file"), ("file/hpc", "file/hpc: can't be written: ")])
def test_refuses_a_file_as_directory(path: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert run_command_line(["init", path, *MACHINES]) == ExitCode.INVALID_INPUT
    assert f"error: {error}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["it's", "50%", "$HOME", 'a"b'])
def test_refuses_a_path_that_ssh_would_misread(name: str, tmp_path: Path) -> None:
    assert run_command_line(["init", name, *MACHINES]) == ExitCode.INVALID_INPUT
    assert list(tmp_path.iterdir()) == []


def test_fills_a_fresh_git_repository_and_keeps_secrets_out_of_it() -> None:
    Path("hpc/.git").mkdir(parents=True)
    Path("hpc/.gitignore").write_bytes(b"# f\xfcr\n*.swp")
    directory = init()
    assert (directory.path / ".git").is_dir()
    assert (directory.path / ".gitignore").read_bytes() == b"# f\xfcr\n*.swp\n.vault-password\nssh/\nruns/\n"


def test_fills_the_current_directory_without_replacing_it(tmp_path: Path) -> None:
    inode = tmp_path.stat().st_ino
    assert run_command_line(["init", ".", *MACHINES]) == ExitCode.OK
    assert tmp_path.stat().st_ino == inode
    assert Path("cluster.yml").is_file()


def test_leaves_nothing_behind_where_the_disk_is_full(tmp_path: Path) -> None:
    # a limit of 8 KiB a file stops the writing of hosts.yml half-way, as a full disk would
    command = f"ulimit -f 8; {SCRIPT} init hpc --controller ctl1 --compute 'n[1-2000]'"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.INVALID_INPUT
    assert done.stderr.startswith("error: hpc: can't be written: File too large")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_ansible_configuration_is_named(tmp_path: Path) -> None:
    environment = {"PATH": os.defpath, "ANSIBLE_CONFIG": os.devnull}
    arguments = [str(SCRIPT), "init", "hpc", *MACHINES]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == ExitCode.CONTROL_MACHINE
    assert done.stderr.startswith("error: Ansible can't be loaded: ")
    assert list(tmp_path.iterdir()) == []


def test_inventory_follows_cluster_yml(capsys: pytest.CaptureFixture[str]) -> None:
    directory = init()
    text = directory.spec.read_text()
    directory.spec.write_text(text.replace("partitions:", "  - {names: login1, roles: [login]}\npartitions:"))
    capsys.readouterr()
    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.OK
    captured = capsys.readouterr()
    assert "slurm_login           1  login1" in captured.out
    assert captured.err == "inventory/hosts.yml updated: 4 nodes\n"
    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.OK
    assert capsys.readouterr().err == "inventory/hosts.yml is up to date: 4 nodes\n"


def test_inventory_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    init()
    capsys.readouterr()
    assert run_command_line(["-C", "hpc", "inventory", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["nodes"]) == ("inventory", 3)
    assert document["groups"]["slurm_compute"] == ["gpu1", "gpu2"]


def test_inventory_leaves_hosts_yml_alone_where_cluster_yml_is_at_fault() -> None:
    directory = init()
    before = directory.hosts.read_bytes()
    directory.spec.write_text(directory.spec.read_text() + "  - {name: p, nodes: gpu9}\n")
    assert run_command_line(["-C", "hpc", "inventory"]) == ExitCode.INVALID_INPUT
    assert directory.hosts.read_bytes() == before


def test_inventory_outside_a_cluster_directory_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["inventory"]) == ExitCode.INVALID_INPUT
    assert "hint: give one with -C DIR or $DEEPOPSCTL_CLUSTER" in capsys.readouterr().err


# root reads everything, unless it is without these
CAPABILITIES = "-dac_override,-dac_read_search"
_NOT_ALL = ("setpriv", "--bounding-set", CAPABILITIES, "--inh-caps", CAPABILITIES)


@pytest.mark.parametrize(
    ("file", "command", "code"),
    [
        ("cluster.yml", ("inventory",), ExitCode.INVALID_INPUT),
        ("inventory/group_vars/all/settings.yml", ("inventory",), ExitCode.INVALID_INPUT),
        ("inventory/group_vars/all/secrets.yml", ("deploy", "slurm"), ExitCode.INVALID_INPUT),
        (".vault-password", ("deploy", "slurm"), ExitCode.CONTROL_MACHINE),
        ("inventory/hosts.yml", ("inventory",), ExitCode.CONTROL_MACHINE),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_exit_code(
    file: str, command: tuple[str, ...], code: ExitCode
) -> None:
    directory = init()
    (directory.path / file).chmod(0)
    program = [sys.executable, "-m", "deepopsctl", "-C", str(directory.path), *command]

    done = subprocess.run(
        [*(_NOT_ALL if os.geteuid() == 0 else ()), *program], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )

    assert done.returncode == code, done.stderr
    assert f"{file}: " in done.stderr
    assert "Permission denied" in done.stderr
