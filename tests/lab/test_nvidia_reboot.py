"""The reboot that a driver may need: only then, only of a node without jobs, once, and verified afterwards.

systemd, SSH, Slurm, jobs, apt and the stop and start of a node are real. Of what a container has from its host,
the node gets its own at each start (MACHINE): a boot id, a PCI bus with GPUs, and the list of loaded kernel modules,
with nouveau until that is kept out, then NVIDIA's in the version that is installed. The driver is stub packages; no
kernel module was loaded or unloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.lab.faults import deploying, running_job
from tests.lab.harness import PREFIX, LabCluster, actions, fresh_cluster, powered, wait_until
from tests.lab.nvidia_stubs import MODULE, STANDIN, Mirrors, driver, mirrors, pci_bus, site, write
from tests.lab.reboots import UNIT

OLD, NEW = "580.95.05", "595.45.04"
GPUS = {"0000:17:00.0": "0x20b0", "0000:1f:00.0": "0x20b0"}
VERSION = "/sys/module/nvidia/version"
DRAINED = "drained deepopsctl: the driver; deploy ends this"
ALLOWED = {"nvidia_driver_reboot": True}
SETTINGS = "/var/lib/standin-nvidia/settings.json"
MACHINE = f"""#!/bin/sh
set -e
echo start >> /var/log/starts
mkdir -p /run/machine/module
cat /proc/sys/kernel/random/uuid > /run/machine/boot_id
if [ -e /{MODULE} ]; then
    mkdir /run/machine/module/nvidia
    cat /{MODULE} > /run/machine/module/nvidia/version
    [ ! -e /etc/initramfs-of-before ] || cat /etc/initramfs-of-before > /run/machine/module/nvidia/version
elif ! grep -qs 'blacklist nouveau' /etc/modprobe.d/*; then
    mkdir /run/machine/module/nouveau
fi
mount --bind /run/machine/boot_id /proc/sys/kernel/random/boot_id
mount --bind /run/machine/module /sys/module
mount --bind /srv/pci /sys/bus/pci/devices
rm -f /run/systemd/container
"""


@dataclass(frozen=True)
class Gpus(LabCluster):
    """A cluster of which the component nvidia is deployed."""

    components: ClassVar[tuple[str, ...]] = ("nvidia",)

    def planned(self, *arguments: str) -> dict[str, Any]:
        """`plan nvidia`, parsed; it may end badly."""
        return self.parsed("plan", "nvidia", *arguments, ok=False)

    def starts(self) -> int:
        """How often the node has started."""
        return len(self.root("gpu01", "cat /var/log/starts").splitlines())

    def kernel(self) -> str:
        """The driver that the kernel runs."""
        return self.root("gpu01", f"cat {VERSION}", ok=False)

    def library(self) -> str:
        """The driver that is installed."""
        return self.root("gpu01", "dpkg-query --show --showformat '${Version}' libcuda1").partition("-")[0]

    def slurm(self) -> str:
        """Slurm's state of the node, and the reason."""
        return self.root("ctl1", "sinfo -h -n gpu01 -o '%T %E'")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpus]:
    """A node with two GPUs on its bus, driven by nouveau; Slurm is not there yet."""
    name = f"{PREFIX}-reboot"
    with fresh_cluster(name, tmp_path_factory, "--compute", "1", "--gpus", "a100:2") as made:
        cluster = Gpus(**vars(made))
        cluster.root("gpu01", pci_bus(GPUS))
        # headers of its kernel, as far as they are used
        cluster.root("gpu01", "d=/lib/modules/$(uname -r)/build; mkdir -p $d && touch $d/Makefile")
        write(cluster, "gpu01", "/usr/bin/nvidia-smi", STANDIN.read_text(encoding="utf-8"), "0755")
        write(cluster, "gpu01", "/usr/local/sbin/machine", MACHINE, "0755")
        write(cluster, "gpu01", "/etc/systemd/system/machine.service", UNIT)
        cluster.root("gpu01", "systemctl enable --now --quiet machine")
        with powered(f"{name}-gpu01"):
            yield cluster


@pytest.fixture(scope="module")
def mirror(bare: Gpus, tmp_path_factory: pytest.TempPathFactory) -> Mirrors:
    """The site's mirror, on the controller."""
    root = tmp_path_factory.mktemp("mirror") / "mirror"
    return mirrors(bare, "ctl1", root, {"site": [*driver(OLD), *driver(NEW)]})


def configure(cluster: Gpus, mirror: Mirrors, branch: str, **settings: object) -> None:
    """What the site sets."""
    site(cluster, {**mirror.settings("site"), "nvidia_driver_branch": branch, **settings})


def test_a_node_that_needs_a_reboot_is_named_and_left_running(bare: Gpus, mirror: Mirrors) -> None:
    configure(bare, mirror, "580")

    refused = bare.deploy(ok=False)

    (failure,) = refused["failures"]
    assert failure["message"].startswith("a reboot is needed: nouveau drives the GPU. Drain the node (`deepopsctl")
    assert "nvidia_driver_reboot" in failure["message"]
    assert (bare.starts(), bare.library()) == (1, OLD)


def test_plan_predicts_the_reboot_that_deploy_may_do_and_it_is_done_once(bare: Gpus, mirror: Mirrors) -> None:
    configure(bare, mirror, "580", **ALLOWED)

    planned = bare.planned()
    assert bare.starts() == 1
    done = bare.deploy()
    again = bare.deploy()
    full = bare.deploy("--full")

    assert (planned["ok"], planned["blocked"]) == (True, [])
    assert ("task", "Reboot the idle node", "change") in actions(planned) & actions(done)
    assert bare.starts() == 2
    assert bare.kernel() == OLD
    assert bare.holds("gpu01", "test ! -e /sys/module/nouveau")
    assert [document["hosts"]["gpu01"]["changed"] for document in (again, full)] == [0, 0]
    assert bare.starts() == 2


@pytest.fixture(scope="module")
def cluster(bare: Gpus, mirror: Mirrors) -> Gpus:
    """The same with Slurm, which may reboot the node and drain it for that."""
    configure(bare, mirror, "580", **ALLOWED, nvidia_driver_drain=True)
    bare.deepopsctl("deploy")
    bare.wait_until_idle()
    return bare


def test_a_deploy_without_need_reboots_nothing(cluster: Gpus) -> None:
    before = cluster.starts()

    with running_job(cluster, "gpu01"):
        assert cluster.changed(cluster.deploy("--full")) == {"ctl1": 0, "gpu01": 0}
        assert cluster.slurm().startswith("mixed")

    assert cluster.starts() == before


def test_a_node_with_jobs_is_not_rebooted_unless_it_may_be_drained(cluster: Gpus, mirror: Mirrors) -> None:
    configure(cluster, mirror, "580", **ALLOWED)
    before = cluster.starts()
    with running_job(cluster, "gpu01") as job:
        # as after an upgrade manually: the kernel still runs the driver from before
        cluster.root("gpu01", f"echo 570.10.01 > {VERSION}")
        try:
            (failure,) = cluster.deploy(ok=False)["failures"]
            planned = cluster.planned()
        finally:
            cluster.root("gpu01", f"echo {OLD} > {VERSION}")
        assert cluster.job_state(job) == "RUNNING"

    assert f"a reboot is needed: the kernel runs driver 570.10.01, and {OLD} is installed" in failure["message"]
    assert [entry["message"] for entry in planned["blocked"]] == [failure["message"]]
    assert cluster.starts() == before
    # it was not drained
    cluster.wait_until_idle()


def test_another_branch_whose_modules_are_in_use_waits_for_jobs_reboots_once_and_is_verified(
    cluster: Gpus, mirror: Mirrors
) -> None:
    configure(cluster, mirror, "595", **ALLOWED, nvidia_driver_drain=True)
    before = cluster.starts()
    job = cluster.submit("until [ -e /tmp/go ]; do sleep 0.2; done", "--nodelist=gpu01", "--mem=100M", "--gpus=1")
    cluster.wait_for_job(job, "RUNNING")

    with deploying(cluster) as deploy:
        wait_until("the node is drained", lambda: cluster.slurm().startswith("draining"), details=cluster.slurm)
        queued = cluster.submit("hostname", "--mem=100M", "--gpus=1")
        # it waits: neither driver nor node is touched under the job
        assert (cluster.starts(), cluster.library(), cluster.kernel()) == (before, OLD, OLD)
        assert (cluster.job_state(job), cluster.job_state(queued)) == ("RUNNING", "PENDING")
        assert deploy.process.poll() is None
        cluster.root("gpu01", "touch /tmp/go")
        code, document, output = deploy.end()

    assert code == 0, output
    assert actions(document) >= {
        ("node", "gpu01", "drain"),
        ("package", "libcuda1", "exchange"),
        ("task", "Reboot the idle node", "change"),
        ("node", "gpu01", "resume"),
    }
    assert (cluster.starts(), cluster.library(), cluster.kernel()) == (before + 1, NEW, NEW)
    for ended in (job, queued):
        cluster.wait_for_job(ended, "COMPLETED")
    assert cluster.slurm().startswith("idle")
    assert cluster.changed(cluster.deploy()) == {"ctl1": 0, "gpu01": 0}
    assert cluster.starts() == before + 1


def test_a_reboot_that_did_not_help_is_not_repeated_and_the_node_stays_drained(cluster: Gpus, mirror: Mirrors) -> None:
    configure(cluster, mirror, "580", **ALLOWED, nvidia_driver_drain=True)
    before = cluster.starts()
    cluster.root("gpu01", f"echo {NEW} > /etc/initramfs-of-before")

    (failure,) = cluster.deploy(ok=False)["failures"]

    assert f"a reboot is needed: the kernel runs driver {NEW}, and {OLD} is installed" in failure["message"]
    assert (cluster.starts(), cluster.slurm()) == (before + 1, DRAINED)


def test_a_gpu_that_does_not_come_back_keeps_the_node_drained_until_it_does(cluster: Gpus, mirror: Mirrors) -> None:
    configure(cluster, mirror, "580", **ALLOWED, nvidia_driver_drain=True)
    before = cluster.starts()
    cluster.root("gpu01", f"rm -f /etc/initramfs-of-before; echo '{{\"gpus\": 1}}' > {SETTINGS}")

    (failure,) = cluster.deploy(ok=False)["failures"]

    assert "its GPUs are not what they should be" in failure["message"]
    assert failure["message"].endswith("it stays drained")
    assert (cluster.starts(), cluster.kernel(), cluster.slurm()) == (before + 1, OLD, DRAINED)

    cluster.root("gpu01", f"rm {SETTINGS}")
    deployed = cluster.deploy()

    assert ("node", "gpu01", "resume") in actions(deployed)
    assert cluster.starts() == before + 1
    cluster.wait_until_idle()


def test_a_node_with_too_few_gpus_is_not_resumed_by_a_person_either(cluster: Gpus) -> None:
    cluster.deepopsctl("node", "drain", "gpu01", "--reason", "a GPU", "--wait", "--timeout", "300")
    cluster.root("gpu01", f"echo '{{\"gpus\": 1}}' > {SETTINGS}")

    refused = cluster.deepopsctl("node", "resume", "gpu01", ok=False)

    assert refused.returncode == 1
    words = "its GPUs are not what they should be: cluster.yml says a100:2, the driver 1 x NVIDIA A100-SXM4-40GB"
    # however it is broken into lines
    assert words in " ".join(refused.stderr.split())
    assert cluster.slurm() == "drained deepopsctl: a GPU"
    cluster.root("gpu01", f"rm {SETTINGS}")
    cluster.deepopsctl("node", "resume", "gpu01")
    cluster.wait_until_idle()
