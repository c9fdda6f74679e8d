"""Stage upgrade_os: a newer kernel on the compute node by `upgrade os`, after its job, booted by Slurm, validated.

The kernel is that of Debian's backports, fetched by this machine's apt: a release has but one. Packages, GRUB,
slurmctld's reboot and the boot are real.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.lab.faults import running_job, working
from tests.support.cluster import wait_until
from tests.support.suite import Suite
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

META = "linux-image-cloud-amd64"
BACKPORTS = {"debian12": "bookworm-backports", "debian13": "trixie-backports"}
# apt knows nothing else, so that an emulated machine has but the kernel to install
REPOSITORY = """set -e
mkdir -p /srv/kernel && mv /tmp/linux-*.deb /srv/kernel && cd /srv/kernel
for deb in *.deb; do
    dpkg-deb --field $deb; echo "Filename: ./$deb"; echo "Size: $(stat -c %s $deb)"
    echo "SHA256: $(sha256sum $deb | cut -d' ' -f1)"; echo
done > Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/kernel ./' > /etc/apt/sources.list"""


def with_dependencies(suite: Suite, package: str) -> list[str]:
    """A package of the kernel, and what else of the kernel it needs."""
    names = [package]
    for name in names:
        needed = re.findall(r"^[ |]+(?:Pre)?Depends: (linux-\S+)", suite.depends(name), re.MULTILINE)
        names += sorted({*needed} - {*names})
    return names


@pytest.fixture(scope="module")
def kernel(cluster: VmCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The release of a kernel that the compute node's apt knows and the node does not run."""
    suite = Suite(BACKPORTS[cluster.os], tmp_path_factory.mktemp("backports"))
    names = with_dependencies(suite, META)
    cluster.copy(NODE, suite.download(*names), "/tmp")
    cluster.root(NODE, REPOSITORY)
    (release,) = (name.removeprefix("linux-image-") for name in names if re.match(r"linux-image-\d", name))
    return release


def test_a_newer_kernel_is_installed_after_the_job_and_booted_by_slurm(cluster: VmCluster, kernel: str) -> None:
    before = cluster.root(NODE, "uname -r")
    boot = cluster.root(CONTROLLER, "cat /proc/sys/kernel/random/boot_id")
    assert before != kernel

    plan = cluster.parsed("upgrade", "os", "--check", "--limit", NODE)
    with running_job(cluster, NODE) as job, working(cluster, "upgrade", "os", "--limit", NODE, "--yes") as upgrade:
        wait_until(
            f"{NODE} is drained and its job continues",
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
