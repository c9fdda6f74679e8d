"""The doctor's judges: a good cluster passes, and every check finds the damage it is there for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.checks.catalogue.doctor import DOCTOR, SUITE
from deepopsctl.checks.check import Check, Status
from deepopsctl.cli.views.checks import check_lines
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.doctor import cross_node
from deepopsctl.doctor.advisories import SLURM, open_ones
from deepopsctl.doctor.control_host import TARGET, check_control_host
from deepopsctl.doctor.examine import Examination, check_facts, examine, late_hosts, names_of, save, unfit
from deepopsctl.doctor.facts import (
    Address,
    ControlFacts,
    Disk,
    Listener,
    Names,
    Outside,
    Packages,
    SeenGpus,
    parse_facts,
)
from deepopsctl.doctor.single_node import check_failure
from deepopsctl.errors import ExitCode
from deepopsctl.node_programs.suites.validate_smoke import clock
from deepopsctl.report.table import table
from deepopsctl.run.events import Totals
from deepopsctl.run.hints import hint_for
from deepopsctl.run.outcome import Failure, RunOutcome, RunSummary, TaskResult, Verdict
from deepopsctl.run.workspace import RunDir
from tests.data.doctor_samples import HARDWARE, REPORT, SPEC, World, control, healthy
from tests.support.paths import ROOT

FAIL, WARN, SKIP = Status.FAIL, Status.WARN, Status.SKIP


@dataclass(frozen=True)
class Damage:
    """What is changed in a good world, and which check must say what about whom."""

    check: str
    status: Status
    words: str
    change: Callable[[World], World]
    target: str = "gpu02"

    def __str__(self) -> str:
        return f"{self.check}: {self.words}"


def gpu02(**changes: Any) -> Callable[[World], World]:
    return lambda world: world.but("gpu02", **changes)


def everywhere(**changes: Any) -> Callable[[World], World]:
    return lambda world: world.all_but(**changes)


def named(**changes: Any) -> Callable[[World], World]:
    return lambda world: world.but("gpu02", names=replace(world.node("gpu02").names, **changes))


def set_to(**changes: Any) -> Callable[[World], World]:
    return lambda world: world.all_but(settings=replace(world.nodes[0].settings, **changes))


def both(*changes: Callable[[World], World]) -> Callable[[World], World]:
    def apply(world: World) -> World:
        for change in changes:
            world = change(world)
        return world

    return apply


PYXIS = {"path": "/usr/local/lib/slurm/spank_pyxis.so", "required": True, "there": True, "version": "24.11.5"}


def database(**changes: str) -> Callable[[World], World]:
    return lambda world: world.but("ctl1", database={**world.nodes[0].database, **changes})


def declaring(old: str, new: str) -> Callable[[World], World]:
    return lambda world: world.declaring(old, new)


def with_hardware(**changes: Any) -> Callable[[World], World]:
    def apply(world: World) -> World:
        stored = {**world.declared.hardware, "gpu02": replace(HARDWARE, **changes)}
        return replace(world, declared=replace(world.declared, hardware=stored))

    return apply


def without_hardware(world: World) -> World:
    return replace(world, declared=replace(world.declared, hardware={}))


def addressed(address: str, network: str = "10.89.6.0/24", mtu: int = 1500) -> tuple[Address, ...]:
    return (Address("eth0", address, network, mtu),)


def bus(count: int, **changes: Any) -> SeenGpus:
    return replace(SeenGpus(("0x20b0",) * count, count, ("NVIDIA A100-SXM4-40GB",) * count, "570.86.15"), **changes)


ROOT_DISK = Disk("/", 76241, 16777216, 16295824, read_only=False)
KEYS_IN_HOME = {"user": "ubuntu", "networked": "", "keys": "home"}
DAMAGES = (
    Damage("sudo", FAIL, "asks for a password", gpu02(sudo="Task failed: Missing sudo password")),
    Damage("sudo", FAIL, "refused the password", gpu02(sudo="Task failed: Incorrect sudo password")),
    Damage("sudo", FAIL, "does not answer", gpu02(sudo="Timeout (122s) waiting for privilege escalation prompt: ")),
    Damage("sudo", FAIL, "not in the sudoers", gpu02(sudo="ubuntu is not in the sudoers file.")),
    Damage("login-keys", FAIL, "its home is on a file server: /home/ubuntu (nfs4 at /home)",
           gpu02(login={"user": "ubuntu", "networked": "/home/ubuntu (nfs4 at /home)", "keys": "root"})),
    Damage("login-keys", WARN, "`deploy` moves them", gpu02(managed=True, login=KEYS_IN_HOME)),
    Damage("login-keys", SKIP, "only root can see it", gpu02(root=False, login={**KEYS_IN_HOME, "keys": ""})),
    Damage("os", FAIL, "not supported", gpu02(refusals={"platform": ("Rocky 9.4 is not supported", "hint")})),
    Damage("os", WARN, "deepopsctl is not tested on", gpu02(version="11")),
    Damage("os", WARN, "on Ubuntu 24.04", gpu02(distribution="Ubuntu", version="24.04")),
    Damage("hostname", FAIL, "gpu01, which is another node", gpu02(hostname="gpu01")),
    Damage("hostname", WARN, "`deploy` will change it", gpu02(hostname="localhost")),
    Damage("hostname", FAIL, "keeps it", both(gpu02(hostname="localhost"), set_to(set_hostname=False))),
    Damage("machine-id", FAIL, "gpu[01-02] have the same", gpu02(machine_id=f"{1:032x}")),
    Damage("machine-id", FAIL, "same host", gpu02(machine_id=f"{1:032x}", addresses=addressed("10.89.6.101"))),
    Damage("machine-id", FAIL, "is empty", gpu02(machine_id="")),
    Damage("addresses", FAIL, "10.89.6.101 is on gpu[01-02]", gpu02(addresses=addressed("10.89.6.101"))),
    Damage("addresses", SKIP, "the node reports none", gpu02(addresses=())),
    Damage("names", FAIL, "gpu01 is 10.89.6.99", named(otherwise={"gpu01": ("10.89.6.99",)})),
    Damage("names", FAIL, "gpu01 is 127.0.1.1", named(otherwise={"gpu01": ("127.0.1.1",)})),
    Damage("names", FAIL, "10.89.6.101 is called ctl1, not gpu01", named(called={"10.89.6.101": ("ctl1",)})),
    Damage("names", FAIL, "does not resolve: ctl1", named(unresolved=("ctl1",))),
    Damage("names", WARN, "too slow for ctl1", named(silent=("ctl1",))),
    Damage("names", SKIP, "not known there yet", named(unresolved=("ctl1",), managed=False)),
    Damage("mtu", FAIL, "eth0 has 9000, others in 10.89.6.0/24 have 1500",
           gpu02(addresses=addressed("10.89.6.102", mtu=9000))),
    Damage("mtu", SKIP, "the node reports none", gpu02(addresses=())),
    Damage("clock-offset", WARN, "at least 2.0 s ahead of", gpu02(lead=(2.0, 2.4))),
    Damage("clock-offset", FAIL, "at least 90.0 s behind", gpu02(lead=(-90.5, -90.0))),
    Damage("control-clock", FAIL, "at least 100 s behind those of all 3 nodes", everywhere(lead=(100, 101)), TARGET),
    Damage("control-clock", WARN, "ahead of those of all 3 nodes", everywhere(lead=(-9, -8)), TARGET),
    Damage("package-lock", WARN, "apt-get (pid 287)", gpu02(packages=Packages("dpkg", "apt-get (pid 287)"))),
    Damage("package-lock", SKIP, "sudo does not work", gpu02(packages=Packages("dpkg", seen=False))),
    Damage("packages-broken", FAIL, "munge, slurmd", gpu02(packages=Packages("dpkg", broken=("munge", "slurmd")))),
    Damage("packages-broken", FAIL, "interrupted", gpu02(packages=Packages("dpkg", interrupted=True))),
    Damage("packages-broken", SKIP, "only dpkg", gpu02(packages=Packages("rpm"))),
    Damage(
        "repositories", WARN, "no way to https://a.example (no answer): Grafana will be left out",
        gpu02(outside=(Outside("Grafana", "https://a.example", "no answer", optional=True),)),
    ),
    Damage(
        "repositories", FAIL, "NVIDIA's driver will be left out, and the deploy fails",
        gpu02(outside=(Outside("NVIDIA's driver", "https://a.example", "no answer"),)),
    ),
    Damage("disk", FAIL, "/ has 12 MiB left", gpu02(disks=(replace(ROOT_DISK, free_mb=12),))),
    Damage("disk", FAIL, "is read-only", gpu02(disks=(replace(ROOT_DISK, read_only=True),))),
    Damage("disk", FAIL, "5 inodes left", gpu02(disks=(replace(ROOT_DISK, free_inodes=5),))),
    Damage("disk", WARN, "/ has 1200 MiB left", gpu02(disks=(replace(ROOT_DISK, free_mb=1200),))),
    Damage("time-service", FAIL, "no daemon", gpu02(time_daemons=())),
    Damage("time-service", WARN, "several", gpu02(time_daemons=("chronyd", "ntpd"))),
    Damage("time-service", WARN, "has not set the clock", gpu02(synchronised=False)),
    Damage("time-service", SKIP, "container", gpu02(container=True)),
    Damage("ports", FAIL, "python3 (pid 7) listens on 6818, slurmd's port",
           gpu02(listeners=(Listener(6818, 7, "python3"),))),
    Damage("ports", FAIL, "mysql-proxy (pid 9) listens on 3306, mariadb's port",
           lambda world: world.but("ctl1", listeners=(Listener(3306, 9, "mysql-proxy"),)), "ctl1"),
    Damage("ports", SKIP, "only root can list", gpu02(listeners=(Listener(6818, 0, ""),), root=False)),
    Damage("ports", WARN, "listens on 6818 can't be read: root lacks CAP_SYS_PTRACE",
           gpu02(listeners=(Listener(6818, 0, ""),))),
    Damage("firewall", WARN, "firewalld is active", gpu02(firewalls=("firewalld",))),
    Damage("foreign-slurm", WARN, "Slurm 24.11.5 is installed, slurmd run", gpu02(managed=False)),
    Damage("security", WARN, "Slurm 24.11.5-4 has CVE-2026-65107", gpu02(versions={"slurmd": "24.11.5-4"})),
    Damage("security", WARN, "munge 0.5.15-2 has CVE-2026-25506", gpu02(versions={"munge": "0.5.15-2"})),
    Damage("security", WARN, "Slurm 21.08.5 has CVE-2026-65107", gpu02(versions={}, slurm_version="21.08.5")),
    Damage("security", SKIP, "installed yet", gpu02(versions={}, slurm_version="")),
    Damage("storage-rights", WARN, "without nosuid and nodev: /gpfs (gpfs), /srv/home (ext4, exported); root of",
           gpu02(storage=({"path": "/gpfs", "type": "gpfs", "served": False, "lacks": ["nodev"]},
                          {"path": "/srv/home", "type": "ext4", "served": True, "lacks": ["nosuid"]}))),
    Damage("user-ids", WARN, "alice is 1002:1002 and 1001:1001 on ctl1,gpu01",
           both(everywhere(users={"alice": "1001:1001"}), gpu02(users={"alice": "1002:1002"}))),
    Damage("user-ids", WARN, "1001 is bob and alice on ctl1,gpu01",
           both(everywhere(users={"alice": "1001:1001"}), gpu02(users={"bob": "1001:1001"}))),
    Damage("user-ids", FAIL, "the user slurm has the id 994 here, 64030 in the cluster",
           gpu02(users={"slurm": "994:994"})),
    Damage("user-ids", FAIL, "the user slurm has the id 994 here, 64030 in the cluster",
           both(everywhere(users={}), gpu02(users={"slurm": "994:994"}))),
    Damage("restarts", WARN, "needrestart restarts munge", gpu02(restarts=("needrestart restarts munge",))),
    Damage("python", FAIL, "too new", gpu02(refusals={"python": ("Python 3.14.2 is too new here", "hint")})),
    Damage("os", FAIL, "cgroup v2", gpu02(refusals={"slurm": ("Slurm 21.08 can't confine by cgroup v2", "h")})),
    Damage("hostname", FAIL, "is 127.0.1.1", gpu02(refusals={"name": ("its own name gpu02 is 127.0.1.1 here", "h")})),
    Damage("hostname", FAIL, "cloud-init", gpu02(refusals={"cloud-init": ("cloud-init writes /etc/hosts", "h")})),
    Damage("names", FAIL, "gpu02 is 127.0.1.1", gpu02(names=Names(otherwise={"gpu02": ("127.0.1.1",)}, managed=True))),
    Damage("restarts", WARN, "not held: munge, slurmd", gpu02(unheld=("munge", "slurmd"))),
    Damage("restarts", SKIP, "`deploy` configures it", gpu02(managed=False, restarts=("needrestart restarts munge",))),
    Damage("slurm-needs", FAIL, "Prolog=/s/p is not there", gpu02(unmet=("Prolog=/s/p is not there",))),
    Damage("slurm-needs", FAIL, "CoreSpecCount=2 leaves nothing of the 2",
           declaring("roles: [compute]", "roles: [compute], slurm: {CoreSpecCount: 2}")),
    Damage("slurm-needs", SKIP, "only root", gpu02(root=False)),
    Damage("plugins", FAIL, "spank_pyxis.so was built for Slurm 23.11.4: slurmd does not start",
           gpu02(plugins=({**PYXIS, "version": "23.11.4"},))),
    Damage("plugins", WARN, "spank_pyxis.so is not there: jobs continue",
           gpu02(plugins=({**PYXIS, "there": False, "required": False},))),
    Damage("database", FAIL, "can stop slurmdbd", database(innodb_snapshot_isolation="ON"), "ctl1"),
    Damage("database", WARN, "16777216 is needed", database(max_allowed_packet="1048576"), "ctl1"),
    Damage("database", WARN, "listens on all addresses", database(bind_address=""), "ctl1"),
    Damage("database", SKIP, "no MariaDB answers", lambda world: world.but("ctl1", database={}), "ctl1"),
    Damage("database", FAIL, "db1: db1 port 3306: timed out",
           database(server="db1", problem="db1 port 3306: timed out"), "ctl1"),
    Damage("memory", FAIL, "less memory than hardware.yml", with_hardware(memory_mb=32000)),
    Damage("memory", FAIL, "less memory than cluster.yml",
           declaring("roles: [compute]", "roles: [compute], slurm: {RealMemory: 24106}")),
    Damage("memory", WARN, "more memory", with_hardware(memory_mb=12000)),
    Damage("memory", SKIP, "not in hardware.yml yet", without_hardware),
    Damage("cpus", FAIL, "fewer CPUs", with_hardware(cpus=4)),
    Damage("cpus", WARN, "more CPUs", with_hardware(cpus=1)),
    Damage("cpus", SKIP, "not in hardware.yml yet", without_hardware),
    Damage("cgroup", FAIL, "a deploy leaves the node out", gpu02(cgroup="none")),
    Damage("cgroup", SKIP, "sudo does not work", gpu02(cgroup="none", root=False)),
    Damage("cgroup", SKIP, "jobs are not confined", both(gpu02(cgroup="none"), set_to(confinement="none"))),
    Damage("kernel", WARN, "2 versions: 6.1.0 on gpu02, 6.18.44-fc-v595 on gpu01", gpu02(kernel="6.1.0"), "gpu"),
    Damage("gpu-driver", FAIL, "gpu02 has none", gpu02(gpus=bus(2, driver="", models=())), "gpu"),
    Damage("gpu-driver", WARN, "550.1 on gpu02", gpu02(gpus=bus(2, driver="550.1")), "gpu"),
    Damage("gpu-driver", SKIP, "no node has one", everywhere(gpus=SeenGpus()), "gpu"),
    Damage("gpus", FAIL, "fewer", gpu02(gpus=bus(1))),
    Damage("gpus", FAIL, "no NVIDIA GPU", gpu02(gpus=SeenGpus())),
    Damage("gpus", FAIL, "no NVIDIA GPU", gpu02(gpus=SeenGpus(files=2))),
    Damage("gpus", WARN, "more than cluster.yml", gpu02(gpus=bus(4))),
    Damage("gpus", WARN, "simulated", gpu02(gpus=SeenGpus(files=2), container=True)),
    Damage("gpus", WARN, "declares no GPUs", declaring(", gpus: {type: a100, count: 2}", "")),
    Damage("gpu-model", WARN, "the driver NVIDIA H100", gpu02(gpus=bus(2, models=("NVIDIA H100 80GB HBM3",) * 2))),
    Damage("gpu-model", WARN, "calls them l4, the driver NVIDIA L40S",
           both(declaring("type: a100", "type: l4"), gpu02(gpus=bus(2, models=("NVIDIA L40S",) * 2)))),
    Damage("gpu-model", SKIP, "only a loaded NVIDIA driver", gpu02(gpus=bus(2, models=()))),
    Damage("gpu-modules", FAIL, "not loaded: gdrdrv", gpu02(gpus=bus(2, modules={"nvidia": True, "gdrdrv": False}))),
    Damage("gpu-modules", SKIP, "its host's kernel", gpu02(gpus=bus(2, modules={"gdrdrv": False}), container=True)),
    Damage("secure-boot", WARN, "will not load", gpu02(secure_boot="on", gpus=bus(2, driver="", models=()))),
    Damage("secure-boot", SKIP, "can't be read", gpu02(secure_boot="unknown")),
)  # fmt: skip

SSH = "Failed to connect to the host via ssh: "
REFUSED = f"{SSH}ssh: connect to host 10.89.6.102 port 22: Connection refused"
FAILURES = (
    ("reachable", "connection refused", "no SSH server answers",
     REFUSED),
    ("reachable", "no answer", "is the node up", "ssh: connect to host 10.89.6.102 port 22: Connection timed out"),
    ("reachable", "no route", "is the node up", "ssh: connect to host 10.89.6.102 port 22: No route to host"),
    ("reachable", "accepts the connection and then", "see its console",
     "Connection timed out during banner exchange\nConnection to 10.89.6.102 port 22 timed out"),
    ("reachable", "accepts the connection and then", "see its console",
     "Timeout, server 10.89.6.102 not responding."),
    ("reachable", "login refused", "ssh setup", "ubuntu@10.89.6.102: Permission denied (publickey,password)."),
    ("reachable", "has changed", "--accept-new-keys",
     "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed."),
    ("reachable", "is not known here", "ssh setup",
     "No ED25519 host key is known for 10.89.6.102 and you have requested strict checking."),
    ("reachable", "does not resolve", "address in cluster.yml",
     "ssh: Could not resolve hostname gpu02: Name or service not known"),
    ("python", "was not found", "install python3",
     "The module interpreter '/usr/bin/python3' was not found."),
    ("python", "minimum of Python", "",
     "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.8"),
    ("examined", "then it does not answer", "find what hangs", "Timed out after 60 second(s)."),
    ("examined", "Traceback", "", "Traceback (most recent call last): KeyError: 'x'"),
)  # fmt: skip
HERE = (
    ("control-python", FAIL, "3.9.2", replace(
        control(), python=replace(control().python, installed="3.9.2", good=False))),
    ("control-packages", FAIL, "ansible-core is 2.14.3", replace(
        control(), packages=(replace(control().packages[0], installed="2.14.3", good=False), control().packages[1]))),
    ("control-packages", FAIL, "ansible-runner is not installed", replace(
        control(), packages=(control().packages[0], replace(control().packages[1], installed="", good=False)))),
    ("control-ssh", FAIL, "no ssh client", replace(control(), ssh="")),
    ("control-disk", FAIL, "too little", replace(control(), free_mb=20)),
    ("control-disk", WARN, "little room", replace(control(), free_mb=500)),
    ("control-files", FAIL, "ssh/id_ed25519", replace(control(), open_files=("ssh/id_ed25519",))),
    ("control-vault", FAIL, "does not open", replace(control(), vault="the password does not open secrets.yml")),
)  # fmt: skip


def checks_of(world: World) -> dict[tuple[str, str], Check]:
    return {(check.name, check.target): check for check in check_facts(world.nodes, world.declared)}


def text_of(check: Check) -> str:
    return f"{check.message} {check.measured}"


def lost(message: str, *, unreachable: bool = True) -> Failure:
    return Failure("gpu02", "doctor", "Query every node's state", message, hint_for(message), unreachable)


def test_a_good_cluster_passes_every_check() -> None:
    checks = [*check_control_host(control()), *checks_of(healthy()).values()]

    assert {check.status for check in checks} == {Status.PASS}, [c for c in checks if c.status is not Status.PASS]
    assert {check.name for check in checks} == set(DOCTOR) - {"reachable", "examined"}


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_is_reported_of_the_damaged_alone(damage: Damage) -> None:
    checks = checks_of(damage.change(healthy()))
    check = checks[damage.check, damage.target]

    assert check.status is damage.status, check
    assert damage.words in text_of(check)
    assert {name for name, _target in checks} <= set(DOCTOR)
    controllers = checks.get((damage.check, "ctl1"))
    assert damage.target != "gpu02" or controllers is None or controllers.status is Status.PASS


@pytest.mark.parametrize(("name", "words", "hint", "message"), FAILURES)
def test_a_node_that_could_not_be_asked_says_why_and_what_to_do(name: str, words: str, hint: str, message: str) -> None:
    check = check_failure(lost(message, unreachable=name == "reachable"))

    assert (check.name, check.status, check.target) == (name, FAIL, "gpu02")
    assert words in check.message
    assert hint in check.hint


@pytest.mark.parametrize(("name", "status", "words", "seen"), HERE)
def test_faults_of_this_machine_are_found(name: str, status: Status, words: str, seen: ControlFacts) -> None:
    (check,) = (check for check in check_control_host(seen) if check.name == name)

    assert check.status is status
    assert words in text_of(check)
    assert check.target == TARGET


def test_every_check_has_a_damage_that_it_does_not_pass() -> None:
    damaged = {damage.check for damage in DAMAGES if damage.status in (FAIL, WARN)}
    damaged |= {name for name, *_rest in FAILURES} | {name for name, *_rest in HERE}

    assert damaged == set(DOCTOR)


@pytest.mark.parametrize(
    ("version", "result"),
    [
        ("24.11.5-4+deb13u1", 0),
        ("24.11.5-4+deb13u2", 0),
        ("24.11.5-4+deb13u1~bpo12+1", 0),
        ("24.11.5-5", 0),
        ("24.11.5-4", 1),
        ("24.11.5-4~bpo12+1", 1),
        ("24.11.5", 1),
        ("24.11.4-1", 2),
        ("22.05.8-4+deb12u3", 1),
        ("22.05.8-4+deb12u2", 2),
        ("22.05.8-4", 4),
        ("23.11.4-1.2ubuntu5", 3),
        ("25.05.9-1", 0),
        ("26.05.4-1", 1),
        ("26.05.5-1", 0),
        ("1:26.05.5-1", 0),
        ("26.11.0", 0),
    ],
)
def test_a_version_of_slurm_has_what_was_not_fixed_in_it(version: str, result: int) -> None:
    assert len(open_ones(version, SLURM)) == result


def test_the_reference_page_has_no_other_checks() -> None:
    page = (ROOT / "docs/reference/doctor.md").read_text().partition("\n## Checks\n")[2]

    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == list(DOCTOR)


class TestFacts:
    def test_the_clock_is_bounded_by_when_we_asked(self) -> None:
        low, high = parse_facts("gpu01", REPORT).lead

        assert (round(low, 2), round(high, 2)) == (-0.12, 1.82)

    def test_a_cgroup_tree_that_nobody_may_write_to_is_none(self) -> None:
        assert parse_facts("gpu01", {**REPORT, "deepops_cgroup_writable": False}).cgroup == "none"

    def test_who_holds_the_lock_is_reported(self) -> None:
        packages = {**REPORT["packages"], "lock": {"path": "/var/lib/dpkg/lock", "pid": 7, "command": "apt-get"}}

        assert parse_facts("gpu01", {**REPORT, "packages": packages}).packages.lock == "apt-get (pid 7)"

    def test_addresses_that_are_names_are_left_to_the_resolver(self) -> None:
        spec = SPEC.replace('addresses: "10.89.6.10"', "addresses: head.example.com")

        assert names_of(parse_spec(spec, "x")) == "ctl1 gpu01=10.89.6.101 gpu02=10.89.6.102"


GPU01_HAS_TWO = (*addressed("10.89.6.101"), *addressed("10.0.0.1", "10.0.0.0/24"))
NO_DAMAGE = {
    "a full hostname": ("hostname", gpu02(hostname="gpu02.example.com")),
    # before a deploy, which writes its own line first
    "its own name on loopback": ("names", named(otherwise={"gpu02": ("127.0.1.1",)}, managed=False)),
    "another address of that node": (
        "names",
        both(lambda world: world.but("gpu01", addresses=GPU01_HAS_TWO), named(otherwise={"gpu01": ("10.0.0.1",)})),
    ),
    "another size on another network": ("mtu", gpu02(addresses=addressed("10.0.0.2", "10.0.0.0/24", mtu=9000))),
    "Secure Boot with a driver that loaded": ("secure-boot", gpu02(secure_boot="on")),
    "a port of a daemon that is not for this node": ("ports", gpu02(listeners=(Listener(3306, 9, "postgres"),))),
}


@pytest.mark.parametrize(
    ("check", "change"),
    [
        (cross_node.machine_ids, {"machine_id": "one"}),
        (cross_node.addresses, {"addresses": addressed("10.89.6.1")}),
        (cross_node.user_ids, {"users": {"ada": "1:1"}}),
    ],
)
def test_a_fault_of_many_nodes_is_put_in_words_once(
    check: Callable[..., Iterable[Check]], change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding the names of 5,000 nodes for each of them takes minutes."""
    folded: list[list[str]] = []

    def fold(names: list[str]) -> str:
        folded.append(names)
        return ",".join(names)

    monkeypatch.setattr(cross_node, "fold", fold)
    world = healthy().all_but(**change)
    # as many have another id
    others = [replace(node, name=f"x{node.name}", users={"ada": "2:2"}) for node in world.nodes]
    nodes = (*world.nodes, *others) if "users" in change else world.nodes

    checks = list(check(nodes, world.declared))

    assert len(checks) == len(nodes)
    assert len(folded) == (2 if "users" in change else 1)


class TestLatitude:
    @pytest.mark.parametrize(("check", "change"), NO_DAMAGE.values(), ids=NO_DAMAGE)
    def test_what_is_no_damage_passes(self, check: str, change: Callable[[World], World]) -> None:
        assert checks_of(change(healthy()))[check, "gpu02"].status is Status.PASS

    def test_a_node_without_modules_of_a_deploy_is_not_asked_for_any(self) -> None:
        assert ("gpu-modules", "gpu02") not in checks_of(healthy().but("gpu02", gpus=bus(2, modules={})))

    def test_of_two_nodes_nobody_knows_which_size_is_right(self) -> None:
        world = gpu02(addresses=addressed("10.89.6.102", mtu=9000))(healthy())
        result = checks_of(replace(world, nodes=world.nodes[1:]))

        assert {result["mtu", name].status for name in ("gpu01", "gpu02")} == {FAIL}

    def test_nodes_that_are_wrong_in_different_ways_do_not_blame_this_machine(self) -> None:
        result = checks_of(healthy().all_but(lead=(100, 101)).but("gpu02", lead=(-90.5, -90)))

        assert result["control-clock", TARGET].status is Status.PASS
        assert result["clock-offset", "gpu02"].status is FAIL

    def test_one_node_can_not_tell_whose_clock_is_wrong(self) -> None:
        world = healthy()

        assert checks_of(replace(world, nodes=world.nodes[:1]))["control-clock", TARGET].status is SKIP

    def test_clocks_are_evaluated_as_the_smoke_suite_does(self) -> None:
        assert (cross_node.WARN_S, cross_node.FAIL_S) == (clock.WARN_S, clock.FAIL_S)


def returned(report: dict[str, Any]) -> dict[str, Any]:
    """What the node found out, and what node_program adds about its call."""
    call = {key: report[key] for key in ("asked", "sudo") if key in report}
    return {"doctor": {key: value for key, value in report.items() if key not in call}, "call": call}


def summary(reports: dict[str, dict[str, Any]], *failures: Failure) -> RunSummary:
    hosts = {host: Totals(ok=1) for host in reports}
    hosts |= {f.host: Totals(unreachable=f.unreachable, failed=not f.unreachable) for f in failures}
    results = tuple(TaskResult(host, "Query", returned(raw)) for host, raw in reports.items())
    return RunSummary(hosts, failures, (), (), results)


def reports(*names: str) -> dict[str, dict[str, Any]]:
    return {
        name: {**REPORT, "hostname": name, "machine_id": name, "addresses": [],
               "names": {**REPORT["names"], "otherwise": {}}}
        for name in names
    }  # fmt: skip


def examined(result: RunSummary | None, run_dir: Path, here: tuple[Check, ...] = (), **more: Any) -> Examination:
    outcome = RunOutcome(RunDir(run_dir), "doctor", result, 1.0, 0, **more) if result else None
    return examine(outcome, here, healthy().declared, datetime(2026, 11, 21, tzinfo=UTC), 1.0)


LOST = lost(REFUSED)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        # warnings, and what is not there yet
        (summary(reports("gpu01", "gpu02")), ExitCode.OK),
        (summary(reports("gpu01"), LOST), ExitCode.UNREACHABLE),
        # a failed check outweighs a node that does not answer
        (summary({"gpu01": {**reports("gpu01")["gpu01"], "hostname": "ctl1"}}, LOST), ExitCode.FAILED),
        # a node that can't be examined
        (summary({"gpu01": {"hostname": "gpu01"}}), ExitCode.FAILED),
    ],
)
def test_the_exit_code_is_that_of_the_worst(result: RunSummary, code: ExitCode, tmp_path: Path) -> None:
    assert examined(result, tmp_path).exit_code is code


@pytest.mark.parametrize(("load", "late"), [(0.1, ("gpu01",)), (64.0, ("gpu01", "gpu02"))])
def test_a_silent_sudo_is_tried_again_and_a_late_node_where_this_machine_is_busy(
    load: float, late: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    silent = "Task failed: Timeout (12s) waiting for privilege escalation prompt: "
    texts = {"gpu01": silent, "ctl1": "Task failed: Missing sudo password"}
    answers = {name: {**reports(name)[name], "sudo": text} for name, text in texts.items()}

    assert late_hosts(summary(answers, lost("Timed out after 60 second(s).", unreachable=False))) == late


def test_a_machine_that_can_not_ask_is_5(tmp_path: Path) -> None:
    here = check_control_host(replace(control(), ssh=""))
    result = examined(None, tmp_path, here)

    assert unfit(here)
    assert not unfit(check_control_host(replace(control(), free_mb=1, open_files=("runs",))))
    assert (result.exit_code, result.document()["ok"]) == (ExitCode.CONTROL_MACHINE, False)


def test_a_doctor_that_was_interrupted_does_not_call_the_cluster_well(tmp_path: Path) -> None:
    result = examined(summary(reports()), tmp_path, check_control_host(control()), stopped=Verdict.INTERRUPTED)

    assert result.exit_code is ExitCode.INTERRUPTED
    assert list(check_lines(result.facts))[-1].count("interrupted after 1.0 s: ") == 1
    assert (result.document()["ok"], result.document()["verdict"]) == (False, "interrupted")


def test_findings_are_kept_in_validates_form_with_what_to_do(tmp_path: Path) -> None:
    save(examined(summary(reports("gpu01"), LOST), tmp_path))

    document = json.loads((tmp_path / "checks.json").read_text())
    assert (document["schema"], document["command"], document["ok"]) == (1, "doctor", False)
    (bad,) = (check for check in document["checks"] if check["status"] == "fail")
    assert set(bad) == {"suite", "name", "target", "status", "measured", "expected", "unit", "message", "hint"}
    assert bad["suite"] == SUITE
    assert json.loads((tmp_path / "summary.json").read_text())["verdict"] == "unreachable"


def test_the_table_gives_the_advice_of_the_very_case(tmp_path: Path) -> None:
    lines = [line.plain() for line in table(examined(summary(reports("gpu01"), LOST), tmp_path).facts, 100)]

    assert "  fail  reachable: gpu02" in lines
    assert any("do: the node is up, but no SSH server answers" in line for line in lines)
    assert lines.index("Reaching the nodes") < lines.index("GPUs") < lines.index("To do")
