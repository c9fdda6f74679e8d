"""Stage upgrade_os: a newer kernel on the compute node by `upgrade os`, after its job, booted by Slurm, validated.

The kernel is that of Debian's sid, fetched by this machine's apt: Debian 13 has but one. Packages, GRUB, slurmctld's
reboot and the boot are real.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.faults import running_job, working
from tests.support.cluster import wait_until
from tests.support.sid import Sid
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

META = "linux-image-cloud-amd64"
# apt knows nothing else, so that an emulated machine has but the kernel to install
REPOSITORY = """set -e
mkdir -p /srv/kernel && mv /tmp/linux-image-*.deb /srv/kernel && cd /srv/kernel
for deb in *.deb; do
    dpkg-deb --field $deb; echo "Filename: ./$deb"; echo "Size: $(stat -c %s $deb)"
    echo "SHA256: $(sha256sum $deb | cut -d' ' -f1)"; echo
done > Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/kernel ./' > /etc/apt/sources.list"""


def kernel_of_sid(directory: Path) -> list[Path]:
    """The package that depends on the newest kernel, and that kernel's."""
    sid = Sid(directory)
    (image,) = (line.split()[-1] for line in sid.depends(META).splitlines() if "Depends: linux-image-" in line)
    return sid.download(META, image)


@pytest.fixture(scope="module")
def kernel(cluster: VmCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The release of a kernel that the compute node's apt knows and the node does not run."""
    if cluster.os != "debian13":
        pytest.skip("sid's kernel needs tools that Debian 12 does not have")
    files = kernel_of_sid(tmp_path_factory.mktemp("sid"))
    cluster.copy(NODE, files, "/tmp")
    cluster.root(NODE, REPOSITORY)
    (release,) = (path.name.split("_")[0].removeprefix("linux-image-") for path in files if META not in path.name)
    return release


def test_a_newer_kernel_is_installed_after_the_job_and_booted_by_slurm(cluster: VmCluster, kernel: str) -> None:
    before = cluster.root(NODE, "uname -r")
    boot = cluster.root(CONTROLLER, "cat /proc/sys/kernel/random/boot_id")
    assert before != kernel

    plan = cluster.parsed("upgrade", "os", "--plan", "--limit", NODE)
    with running_job(cluster, NODE) as job, working(cluster, "upgrade", "os", "--limit", NODE, "--yes") as upgrade:
        wait_until(
            f"{NODE} is drained and its job goes on",
            lambda: (
                upgrade.process.poll() is not None
                or cluster.holds(CONTROLLER, f"sinfo -hn {NODE} -o %T | grep draining")
            ),
            cluster.patience_s,
            upgrade.stderr.read_text,
        )
        assert cluster.job_state(job) == "RUNNING"
        cluster.root(NODE, f"touch /tmp/go-{job}")
        code, document, shown = upgrade.end()

    assert plan["nodes"][NODE]["reboot"] == f"kernel {kernel} is new"
    assert code == 0, shown
    assert cluster.root(NODE, "uname -r") == kernel
    assert {check["status"] for check in document["checks"]} <= {"pass", "skip", "warn"}
    cluster.wait_for_state("idle")
    assert cluster.root(CONTROLLER, "cat /proc/sys/kernel/random/boot_id") == boot
    assert json.loads(cluster.deepopsctl("upgrade", "os", "--limit", NODE, "--yes", "--json").stdout)["runs"] == []
