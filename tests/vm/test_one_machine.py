"""One role on one virtual machine: what containers can't show, a clock and a cgroup tree of the machine's own."""

from __future__ import annotations

import base64
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.lab.image import own_mirror
from deepopsctl.lab.layout import DEFAULT_OS
from tests.support.local_ansible import Played, play
from tests.support.role_templates import render
from tests.vm.box.build import ensure_image
from tests.vm.box.disk import TOOLS
from tests.vm.box.recipe import BoxRecipe
from tests.vm.qemu import VirtualMachine, booted

NAME = "vm1"
OS = os.environ.get("DEEPOPSCTL_VM_OS", DEFAULT_OS)
# what the machine has in QEMU's user-mode network
ADDRESS = "10.0.2.15"
MISSING = [tool for tool in ("qemu-system-x86_64", *TOOLS, "ssh", "ssh-keygen", "setpriv") if not shutil.which(tool)]
NOT_POSSIBLE = (
    f"not installed: {', '.join(MISSING)} (`make tools-vm` installs it)"
    if MISSING
    else "building a box needs root"
    if os.geteuid() != 0
    else ""
)

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(bool(NOT_POSSIBLE), reason=NOT_POSSIBLE),
    # the first test's time is that of building the box and of booting it under emulation
    pytest.mark.timeout(2400),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualMachine]:
    """A fresh machine of the default box."""
    image = ensure_image(BoxRecipe(OS, own_mirror()), print)
    with booted(image.path, tmp_path_factory.mktemp("machine")) as vm:
        yield vm


@pytest.fixture(scope="module")
def munge_key() -> str:
    """A key in base64, as the vault has one."""
    return base64.b64encode(secrets.token_bytes(128)).decode()


@pytest.fixture(scope="module")
def applied(machine: VirtualMachine, munge_key: str, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The role's first run."""
    return apply(machine, munge_key, tmp_path_factory.mktemp("first"))


def apply(machine: VirtualMachine, munge_key: str, directory: Path) -> Played:
    """Run node_common over SSH, as a deploy does for a controller."""
    variables = {
        "node_common_component": "slurm",
        "node_common_packages": ["chrony", "munge"],
        "node_common_hold_units": ["chrony.service", "munge.service"],
        "node_common_addresses": {NAME: ADDRESS},
        "node_common_serves_time": True,
        "node_common_munge_key": munge_key,
    }
    reached = {
        "ansible_connection": "ssh",
        "ansible_host": "127.0.0.1",
        "ansible_port": machine.port,
        "ansible_user": "root",
        "ansible_ssh_args": " ".join(machine.ssh_options),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    done = play(
        directory,
        [{"hosts": NAME, "gather_facts": True, "roles": [{"role": "node_common", **variables}]}],
        {NAME: reached},
        settings={"ANSIBLE_REMOTE_TEMP": "/root/.ansible/tmp"},
        seconds=1500,
    )
    assert done.status == 0, f"{done.output}\n{machine.console()}"
    return done


def test_the_role_works_on_a_machine_with_its_own_kernel(machine: VirtualMachine, applied: Played) -> None:
    assert any(result.changed for result in applied.results)
    assert machine.root("hostname") == NAME
    assert machine.root(f"getent ahostsv4 {NAME} | awk '{{print $1}}' | sort -u") == ADDRESS
    assert machine.root("stat -c '%a %U' /etc/munge/munge.key") == "400 munge"
    assert "STATUS:          Success" in re.sub(r"STATUS: +", "STATUS:          ", machine.root("munge -n | unmunge"))


def test_the_clock_is_synchronised_which_containers_cannot_do(machine: VirtualMachine, applied: Played) -> None:
    assert machine.root("systemctl is-active chrony.service") == "active"
    assert "Reference ID" in machine.root("chronyc -n tracking")


def test_a_second_run_changes_nothing(machine: VirtualMachine, applied: Played, munge_key: str, tmp_path: Path) -> None:
    again = apply(machine, munge_key, tmp_path)
    assert [result.task for result in again.results if result.changed] == []


def test_cgroups_are_of_version_2_and_confine(machine: VirtualMachine) -> None:
    assert machine.root("stat -f -c %T /sys/fs/cgroup") == "cgroup2fs"
    controllers = machine.root("cat /sys/fs/cgroup/cgroup.controllers").split()
    assert {"cpuset", "cpu", "memory", "pids"} <= set(controllers)
    # written to, or the kernel would hand out no memory at all
    allocate = "systemd-run --wait -p MemoryMax=50M -p MemorySwapMax=0 python3 -c 'len(b\"x\" * ({} << 20))' 2>&1"
    assert "result: success" in machine.root(allocate.format(20))
    assert "result: oom-kill" in machine.ssh(allocate.format(120)).stdout


# there is no Slurm on the machine that could be asked what the job has requested
MAKE = """
import os, types
program = types.ModuleType("program")
exec(open("/root/job-directories").read(), program.__dict__)
program.asked_for = lambda job: 20 << 20
os.environ.update(SLURM_JOB_UID="1000", SLURM_JOB_GID="1000")
program.make("77")
"""
DISK = "/mnt/disk"


def test_a_job_directory_takes_no_more_than_the_job_has_requested(machine: VirtualMachine) -> None:
    program = render(
        "node_common", "job-directories.j2",
        node_common_job_directories={"method": "prolog", "space": [["", "1G"]]},
        __node_common_job_directory=f"{DISK}/slurm-jobs", inventory_hostname=NAME,
    )  # fmt: skip
    machine.root(f"cat >/root/job-directories <<'END-OF-PROGRAM'\n{program}\nEND-OF-PROGRAM")
    machine.root("truncate -s 200M disk && mkfs.ext4 -q -O quota,project disk")
    machine.root(f"mkdir {DISK} && mount -o loop,prjquota disk {DISK} && python3 -c {shlex.quote(MAKE)}")
    write = "setpriv --reuid=1000 --regid=1000 --clear-groups dd if=/dev/zero bs=1M conv=fsync"

    machine.root(f"{write} count=15 of={DISK}/slurm-jobs/77/fits")
    assert "Disk quota exceeded" in machine.ssh(f"{write} count=15 of={DISK}/slurm-jobs/77/more").stderr
    machine.root(f"SLURM_JOB_ID=77 python3 job-directories remove && rmdir {DISK}/slurm-jobs && umount {DISK}")
