"""What the roles of the environment ask of nodes: modules that a site declares, and the proxy of jobs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from tests.roles.content import load, play_tasks, plays, role_calls, steps_of
from tests.support.files import write_program
from tests.support.local_ansible import play
from tests.support.paths import ROOT
from tests.support.recorded_roles import Asked, Recorded, record

MODULES, SITE_PYTHON = "/opt/deepopsctl/modulefiles", "/usr/local/lib/deepopsctl/modules/site-python/bin"
OS_FAMILY = "ansible_facts['os_family']"
NODE: dict[str, Any] = {
    "modules_packages": {"lmod": ["lmod"], "python": ["python3"], "gcc": ["gcc"]},
    "modules_versions": {"python": "3.11", "gcc": "12"},
    "modules_directory": MODULES,
    "modules_trees": [],
    "modules_wheels": "/opt/wheels",
    "environment_http_proxy": "http://[2001:db8::1]:3128",
    "modules_declared": {
        "python/3.12": {"prefix": "/opt/python/3.12", "default": True},
        "gcc/14": {"prefix": "/opt/gcc/14"},
        "apptainer/1.4": {"package": "apptainer"},
    },
    "http_proxy_packages": ["squid"],
    "http_proxy_addresses": ["192.0.2.1"],
    "http_proxy_listen": "192.0.2.1",
    "environment_proxy_port": 3128,
    "http_proxy_allowed": ["pypi.org"],
    "http_proxy_clients": ["192.0.2.1", "192.0.2.11"],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    none = {"modules_system": "none", "http_proxy_addresses": [], "http_proxy_listen": "", "sssd_cached_days": 0}
    refused = {"role": "sssd", "sssd_directory": {}, "when": "inventory_hostname == 'none'"}
    return record(
        tmp_path_factory.mktemp("environment"),
        [{"role": "modules"}, {"role": "http_proxy"}, refused],
        {"node": NODE, "none": {**NODE, **none}},
    )


def test_what_comes_ahead_is_what_the_later_steps_ask_for(tmp_path: Path) -> None:
    versions = load("group_vars/all/versions.yml")
    calls = {call["role"]: call for call in role_calls("playbooks/environment.yml")}
    ahead = json.loads(json.dumps(calls["user_environment"]["user_environment_ahead"]).replace(OS_FAMILY, "'Debian'"))
    packages = str(load("group_vars/all/environment.yml")["deepops_container_packages"]).replace(OS_FAMILY, "'Debian'")
    node: dict[str, Any] = {
        **NODE, **{name: versions[name] for name in versions if name.startswith("environment_")},
        "modules_packages": versions["environment_module_packages"]["Debian"], "modules_declared": {},
        "modules_versions": versions["environment_module_versions"]["Debian 13"],
        "environment_containers": ["podman", "apptainer"], "deepops_container_packages": packages,
        "deepops_software_here": True, "site_software_easybuild": False, "site_software_spack": "",
        "deepops_containers_here": True,
    }  # fmt: skip
    first = {"user_environment_packages": ["git"], "environment_examples": "/usr/share/deepopsctl/examples"}
    done = record(
        tmp_path,
        [{"role": "user_environment", **first, "user_environment_ahead": ahead}, {"role": "modules"}],
        {
            "node": {**node, "site_software_easybuild": True},
            "none": {**node, "modules_system": "none", "deepops_containers_here": False},
        },
    )

    assert not done.failures, done.output
    asked = {entry["step"]: entry["packages"] for entry in done.step("node", "user_environment").arguments["ahead"]}
    assert set(asked["modules"]) == set(done.step("node", "modules").packages) >= {"lmod", "python3", "gcc"}
    assert asked["containers"] == ["podman", "crun", "uidmap", "squashfuse", "fuse-overlayfs", "uidmap"]
    assert asked["site_software"] == versions["environment_software_packages"]["Debian"]["build"]
    none = {entry["step"]: entry["packages"] for entry in done.step("none", "user_environment").arguments["ahead"]}
    assert none == {"modules": [], "site_software": [], "containers": []}
    assert set(asked) <= {step for role in calls for step in steps_of(role)}


def lines(call: Asked, path: str) -> list[str]:
    """A file of the call."""
    (text,) = (file["content"] for file in call.files if file["path"] == path)
    return str(text).splitlines()


def paths(call: Asked) -> list[str]:
    return [file["path"] for file in call.files]


def test_declared_software_has_its_module_next_to_that_of_the_distribution(recorded: Recorded) -> None:
    call = recorded.asked["node"][0]
    python, wheels = lines(call, f"{MODULES}/python/3.12"), "setenv PIP_CONFIG_FILE /etc/deepopsctl/pip.conf"

    assert set(call.packages) == {"lmod", "python3", "gcc", "apptainer"}
    assert python.index(f"prepend-path PATH {SITE_PYTHON}") < python.index("set prefix /opt/python/3.12")
    assert wheels in python
    assert "setenv CC gcc" in lines(call, f"{MODULES}/gcc/14")
    assert not [line for line in lines(call, f"{MODULES}/apptainer/1.4") if "prefix" in line]
    assert {name: lines(call, f"{MODULES}/{name}/.version")[-1] for name in ("python", "gcc")} == {
        "python": 'set ModulesVersion "3.12"',
        "gcc": 'set ModulesVersion "12"',
    }
    assert {f"{SITE_PYTHON}/python", f"{SITE_PYTHON}/virtualenv", f"{MODULES}/python/3.11"} <= set(paths(call))


def test_tcl_takes_the_brackets_of_a_proxys_ipv6_address_for_no_command(recorded: Recorded) -> None:
    module = "\n".join(lines(recorded.asked["node"][0], f"{MODULES}/httpproxy/1.0"))

    assert r"setenv https_proxy http://\[2001:db8::1\]:3128" in module
    assert not re.search(r"(?<!\\)\[2001", module)


def test_without_a_module_system_and_a_proxy_nothing_is_installed(recorded: Recorded) -> None:
    assert [(list(call.packages), paths(call)) for call in recorded.asked["none"]] == [([], []), ([], [])]


def test_squid_lets_only_the_list_pass_and_never_to_internal_networks(recorded: Recorded) -> None:
    rules = [line for line in lines(recorded.asked["node"][1], "/etc/squid/squid.conf") if "http_access" in line]

    assert rules[0] == "http_access deny !clients"
    assert rules[-4:] == [
        "http_access deny !allowed", "http_access deny internal", "http_access allow clients", "http_access deny all",
    ]  # fmt: skip


def test_another_list_does_not_restart_squid(recorded: Recorded) -> None:
    (squid,) = (unit for unit in recorded.asked["node"][1].units if unit["name"] == "squid.service")

    assert squid["restart_on"] == []
    assert "/etc/squid/squid.conf" in squid["reload_on"]


class Spack:
    """The task that clones Spack, as the role has it, with the programs of a directory first."""

    def __init__(self, place: Path, commit: str) -> None:
        tasks = yaml.safe_load((ROOT / "roles/site_software/tasks/main.yml").read_text(encoding="utf-8"))
        (argv,) = (task["ansible.builtin.command"]["argv"] for task in tasks if task["name"] == "Clone Spack")
        self.source, self.root, self.programs = place / "source", place / "spack/v1", place / "bin"
        values = {"site_software_user": "software", "site_software_spack_version": "v1",
                  "site_software_spack_commit": commit, "site_software_spack": str(self.source),
                  "__site_software_spack_root": str(self.root)}  # fmt: skip
        command = [NativeEnvironment().from_string(word).render(values) for word in argv]
        self.command = command[command.index("--") + 1 :]

    def clone(self) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        return subprocess.run(self.command, env=environment, capture_output=True, text=True)


def test_a_clone_of_spack_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    spack = Spack(tmp_path, "f" * 40)
    # as git does: into no directory that has something
    git = f'[ $1 = clone ] || exec echo {"f" * 40}\nfor last; do :; done\n[ ! -e "$last" ] || exit 128\n'
    clone = f'{git}mkdir -p "$last/bin"\n'
    write_program(spack.programs / "git", clone + "exit 137")
    assert spack.clone().returncode != 0
    assert not (spack.root / "bin/spack").exists()
    write_program(spack.programs / "git", clone + 'touch "$last/bin/spack"')
    assert spack.clone().returncode == 0
    assert (spack.root / "bin/spack").exists()


def test_a_tag_of_spack_that_is_another_commit_is_not_installed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_program(source / "bin/spack", "true")
    tag = "git init -q . && git add . && git -c user.name=x -c user.email=x@example.com commit -qm x && git tag v1"
    subprocess.run(["sh", "-ec", tag], cwd=source, check=True)
    head = subprocess.run(["git", "rev-parse", "v1"], cwd=source, capture_output=True, text=True, check=True)

    refused = Spack(tmp_path, "f" * 40)
    assert f"v1 is commit {head.stdout.strip()}, and site_software_spack_commit is fff" in refused.clone().stderr
    assert not refused.root.exists()

    same = Spack(tmp_path, head.stdout.strip())
    assert same.clone().returncode == 0
    assert (same.root / "bin/spack").exists()


@pytest.mark.parametrize(("changed", "words"), [(False, ""), (True, "DO NOT MATCH THE HASHES")])
def test_nothing_of_easybuilds_sources_runs_on_the_control_machine(tmp_path: Path, changed: bool, words: str) -> None:
    tasks = yaml.safe_load((ROOT / "roles/site_software/tasks/easybuild.yml").read_text(encoding="utf-8"))
    (task,) = (task for task in tasks if task["name"].startswith("Fetch EasyBuild"))
    values = {"ansible_playbook_python": sys.executable, "__site_software_fetched": str(tmp_path / "fetched"),
              "role_path": str(ROOT / "roles/site_software")}  # fmt: skip

    def rendered(text: object) -> str:
        return str(jinja2.Template(str(text), autoescape=True).render(values))

    argv = [rendered(word) for word in task["ansible.builtin.command"]["argv"]]
    environment = {name: rendered(text) for name, text in task["environment"].items()}
    ran, index = tmp_path / "ran-as-this-user", tmp_path / "index"
    index.mkdir()
    archive = index / "easybuild-5.4.1.tar.gz"
    files = {
        "setup.py": f"open({str(ran)!r}, 'w').close()\nimport setuptools\nsetuptools.setup()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: easybuild\nVersion: 5.4.1\n",
    }
    with tarfile.open(archive, "w:gz") as stream:
        for name, text in files.items():
            member = tarfile.TarInfo(f"easybuild-5.4.1/{name}")
            member.size = len(text)
            stream.addfile(member, io.BytesIO(text.encode()))
    digest = "0" * 64 if changed else hashlib.sha256(archive.read_bytes()).hexdigest()

    done = subprocess.run(
        argv, input=f"easybuild==5.4.1 --hash=sha256:{digest}\n", capture_output=True, text=True, check=False,
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), **environment},
    )  # fmt: skip

    assert (bool(done.returncode), words in done.stderr) == (changed, True), done.stderr
    assert not ran.exists()
    assert changed or [path.name for path in (tmp_path / "fetched").iterdir()] == [archive.name]


def test_the_nightly_count_keeps_the_directorys_groups_where_they_are_not_known(tmp_path: Path) -> None:
    (call,) = (
        call for call in role_calls("playbooks/operate/users/people-accounts.yml") if call["role"] == "user_spaces"
    )
    space = {"path": "/project", "by": "group", "mounted": "/project", "counted": True}
    values = {
        "deepops_spaces_made": [space], "environment_people": {"people": [], "groups": []},
        "environment_directory": {"accounts": [{"account": "phys", "group": "physicists"}]},
    }  # fmt: skip
    answer = {"people": [], "groups": [{"name": "physicists", "gid": 5000, "members": []}]}
    hosts = {
        "known": {**values, "slurm_controller_hosts": ["known"], "deepops_members": answer},
        "unknown": {**values, "slurm_controller_hosts": ["unknown"]},
    }

    asked = record(tmp_path, [call], hosts, modules=("node_state", "user_directories")).asked

    assert '"physicists": 5000' in asked["known"][1].texts()["/etc/deepopsctl/space-usage.json"]
    assert [each.step for each in asked["unknown"]] == ["user_spaces"]


def test_a_node_that_makes_no_directories_any_more_loses_the_nightly_count(tmp_path: Path) -> None:
    (removal,) = (each for each in plays("playbooks/environment.yml") if "nightly count" in each["name"])
    todo, left = "deepops_environment_todo", "deepops_environment_left_space_usage"
    hosts = {"first": ["environment_nodes", todo], "left": [left, todo], "settled": [left]}
    groups = {"ansible.builtin.group_by": {"key": "{{ item }}"}, "loop": "{{ groups_of_it }}"}
    (remove,) = removal["tasks"]
    arguments = remove["deepopsctl.cluster.node_state"]
    show = {"name": "Show", "ansible.builtin.debug": {"msg": arguments}}

    done = play(
        tmp_path,
        [
            {"hosts": "all", "gather_facts": False, "tasks": [groups]},
            {**removal, "become": False, "tasks": [show]},
        ],
        {name: {"groups_of_it": of_it} for name, of_it in hosts.items()},
    )

    assert done.status == 0, done.output
    assert done.result("Show").host == "left"
    # it wants nothing, so all that an earlier call installed goes
    assert arguments == {"component": "environment", "step": "space_usage", "owned": True}


def test_a_cache_of_the_directory_without_a_limit_is_refused(recorded: Recorded) -> None:
    assert recorded.failures["none"].startswith("sssd_cached_days: 0 would be no limit")


def test_who_has_another_mail_server_reads_which_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "bin/dpkg-query", "echo exim4-daemon-light: /usr/sbin/sendmail")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    watched = {"job_mail_prometheus_url": "", "job_mail_prometheus_password": ""}
    role = {"role": "job_mail", "job_mail_cluster": "hpc", "job_mail_relay": "smtp.example.com", **watched}

    failures = record(tmp_path, [role], {"ctl1": {}}).failures

    assert failures["ctl1"].startswith("another mail server is installed (exim4-daemon-light): give it the relay smtp")


def test_one_controller_looks_for_idle_gpus_where_the_site_wants_it(tmp_path: Path) -> None:
    wanted = {"job_mail_prometheus_password": "secret-word", "job_mail_cluster": "hpc"}
    hosts = {
        "ctl1": {"job_mail_prometheus_url": "http://mon:9090", "job_mail_idle_gpu_minutes": 90},
        "ctl2": {"job_mail_prometheus_url": "", "job_mail_idle_gpu_minutes": 90},
        "off": {"job_mail_prometheus_url": "http://mon:9090", "job_mail_idle_gpu_minutes": 0},
    }

    recorded = record(tmp_path, [{"role": "job_mail", **wanted}], hosts)

    asked = {host: recorded.step(host, "job_mail") for host in hosts}
    units = {host: [unit["name"] for unit in call.units] for host, call in asked.items()}
    assert units == {
        "ctl1": ["deepops-job-mail.path", "deepops-idle-gpus.timer"],
        "ctl2": ["deepops-job-mail.path"],
        "off": ["deepops-job-mail.path"],
    }
    settings = "/etc/deepopsctl/idle-gpus.json"
    written = json.loads(asked["ctl1"].texts()[settings])
    assert (written["minutes"], written["percent"], written["url"]) == (90, 1.0, "http://mon:9090")
    (file,) = [each for each in asked["ctl1"].files if each["path"] == settings]
    assert (file["mode"], file["group"]) == ("0640", "slurm")
    assert "secret_base64" in file


def test_a_host_for_the_sites_software_that_is_no_node_is_refused(tmp_path: Path) -> None:
    (refusal,) = (task for task in play_tasks("playbooks/environment.yml") if "site's software" in task["name"])
    group = {"ansible.builtin.group_by": {"key": "environment_nodes"}}
    hosts = {"login1": {"environment_software_host": "lgoin1"}}

    done = play(tmp_path, [{"hosts": "all", "gather_facts": False, "tasks": [group, refusal]}], hosts)

    assert done.result(refusal["name"]).data["msg"].startswith("environment_software_host: lgoin1 is not a node")


def test_a_standby_gets_the_accounts_of_the_directorys_users_or_keeps_those_it_has(tmp_path: Path) -> None:
    (saved,) = (
        each for each in plays("playbooks/operate/users/people-accounts.yml") if "other controllers" in each["name"]
    )
    (copy,) = saved["tasks"]
    show = {"name": "Show", "ansible.builtin.debug": {"msg": copy["ansible.builtin.copy"]["content"]}}
    standby = {**saved, "hosts": ["ctl2"], "become": False, "tasks": [show]}
    answer = {"people": [{"name": "bob"}], "groups": [{"name": "physicists", "members": ["bob"]}]}
    first = {
        "hosts": ["ctl1"],
        "gather_facts": False,
        "tasks": [{"ansible.builtin.set_fact": {"deepops_members": answer}}],
    }
    values = {
        "slurm_controller_hosts": ["ctl1", "ctl2"], "deepops_slurm_shared": {"mount": "/shared"},
        "environment_people": {"people": [], "groups": []},
        "environment_directory": {"accounts": [{"account": "phys", "group": "physicists"}]},
    }  # fmt: skip

    done = play(tmp_path, [standby, first, standby], {"ctl1": values, "ctl2": values})

    assert done.status == 0, done.output
    assert '["bob"] = { "phys" }' in done.result("Show").data["msg"]
