"""What `init` writes, as real Ansible and real ssh read it; and what 10,000 nodes cost."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

BIN = Path(sys.executable).parent
EXAMPLE = ROOT / "inventory" / "example"
MEMORY_LIMIT_MB = 200
# a process of its own asks: until it executes another program, a child counts the memory of pytest as its own
PEAK = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


def command(*arguments: str | Path) -> str:
    """The standard output of a program of this environment, which must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    line = [str(BIN / arguments[0]), *map(str, arguments[1:])]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def init(parent: Path, *arguments: str) -> Path:
    """A cluster directory in a directory with a space in its name."""
    directory = parent / "my clusters" / "hpc"
    command("deepopsctl", "init", directory, *arguments)
    return directory


def templated(directory: Path, host: str, expression: str) -> Any:
    """An expression as Ansible sees it on a host, read by `-i <directory>/inventory`, without any login."""
    vault = directory / ".vault-password"
    arguments = ["-m", "ansible.builtin.debug", "-a", f"msg={{{{ {expression} }}}}"]
    output = command("ansible", host, "-i", directory / "inventory", "--vault-password-file", vault, *arguments)
    return json.loads(output.partition("=>")[2])["msg"]


@pytest.fixture(autouse=True)
def neutral_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from any ansible.cfg in the directory the tests are started from."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    node_options = ["--controller", "ctl1=192.0.2.1", "--compute", "gpu[01-02]=192.0.2.[11-12]", "--gpus", "h100:8"]
    return init(tmp_path, *node_options, "--user", "ubuntu", "--port", "2222", "--jump-host", "me@gate.example.com")


@pytest.mark.parametrize("form", ["--list", "--yaml"])
def test_an_inventory_of_a_plugin_comes_through_a_pipe(tmp_path: Path, form: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    hosts = {"ctl1": ("192.0.2.1", "slurm-controller"), "gpu01": ("192.0.2.11", "gpu-node")}
    lines = (f"{name} ansible_host={address} role={role}" for name, (address, role) in hosts.items())
    (source / "1.ini").write_text("\n".join(lines))
    plugin = "plugin: ansible.builtin.constructed\nkeyed_groups: [{key: role, prefix: device_roles}]\n"
    (source / "2.yml").write_text(plugin)
    inventory = command("ansible-inventory", "-i", source, "--list", form)
    groups = ["--group", "controller=device_roles_slurm_controller", "--group", "compute=device_roles_gpu_node"]
    line = [str(BIN / "deepopsctl"), "init", "hpc", "--from", "-", "--json", *groups]
    done = subprocess.run(line, input=inventory, capture_output=True, text=True, check=True)
    nodes = yaml.safe_load((tmp_path / "hpc" / "cluster.yml").read_text())["nodes"]
    assert {node["names"]: (node["addresses"], node["roles"]) for node in nodes} == {
        "ctl1": ("192.0.2.1", ["controller"]), "gpu01": ("192.0.2.11", ["compute"]),
    }, done.stderr  # fmt: skip


def test_ansible_and_ssh_read_it_as_it_is_meant_even_with_a_space_in_the_path(directory: Path) -> None:
    expressions = {
        "munge_key | b64decode(encoding='latin-1') | length": 128,
        "slurm_dbd_password | length": 43,
        "slurm_partitions[0].nodes": "gpu[01-02]",
        "group_names | join(',')": "nvidia_gpu,slurm_cluster,slurm_compute",
        "inventory_dir": str(directory / "inventory"),
    }
    *values, arguments = templated(directory, "gpu02", f"[{', '.join(expressions)}, ansible_ssh_common_args]")
    shown = subprocess.run(["ssh", "-G", *shlex.split(arguments), "gpu02"], capture_output=True, text=True, check=True)
    settings = dict(line.split(" ", 1) for line in shown.stdout.splitlines())

    assert values == list(expressions.values())
    assert settings["userknownhostsfile"] == f"{directory}/inventory/../known_hosts"
    assert settings["stricthostkeychecking"] == "true"
    assert settings["proxycommand"].endswith("-l me -- gate.example.com")


def test_the_example_inventory_finds_the_products_defaults() -> None:
    hosts = EXAMPLE / "inventory" / "hosts.yml"
    variables = json.loads(command("ansible-inventory", "-i", hosts, "--host", "gpu01"))
    assert variables["ansible_host"] == "192.0.2.11"
    assert "slurm_controller_hosts" in variables


def node_table(path: Path, count: int) -> Path:
    """A CSV file with a controller and scattered nodes."""
    rows = [
        f"n{n:05d},10.{n * 37 % 200}.{n % 199}.{n * 7 % 250 + 1},compute,{4 + n % 2},h100" for n in range(count - 1)
    ]
    path.write_text("\n".join(["name,address,role,gpus,gpu_type", "ctl1,192.0.2.1,controller,,", *rows]))
    return path


def test_ten_thousand_nodes_take_little_memory(tmp_path: Path) -> None:
    table = node_table(tmp_path / "nodes.csv", 10_000)
    line = map(str, [sys.executable, "-c", PEAK, BIN / "deepopsctl", "init", tmp_path / "hpc", "--from", table])

    process = subprocess.run([*line], capture_output=True, text=True)

    assert process.returncode == 0, process.stderr
    assert int(process.stdout.splitlines()[-1]) / 1024 < MEMORY_LIMIT_MB


def test_a_thousand_nodes_load_in_ansible(tmp_path: Path) -> None:
    directory = init(tmp_path, "--from", str(node_table(tmp_path / "nodes.csv", 1_000)))

    seen = "[groups['all'] | length, groups['slurm_compute'] | length, deepops_addresses[0].names]"
    assert templated(directory, "n00998", seen) == [1_000, 999, "ctl1,n[00000-00006]"]
