"""Storage on real nodes under a real Slurm: mounted, changed, lost, mounted again, removed.

Only local directories and memory: the kernel below a lab has neither NFS nor automounts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import SETTINGS, SLURM_CONFIG, LabCluster, changes, edit, wait_until

STORAGE = """
storage:
  - {name: disk, type: local, source: /srv/disk, path: /disk, nodes: compute, required: true}
  - {name: fast, type: tmpfs, path: /fast, tmpfs: {size: 32M}}
"""
# quicker than a site would have it, and with a program of the site's own
CHECKS = "HealthCheckInterval: 1, HealthCheckProgram: /usr/local/bin/site-check"
SITE_CHECK = "#!/bin/sh\\necho >>/run/site-checks\\n"
COMPONENTS = ("storage", "slurm")
LOST = "deepopsctl: storage disk is not mounted at /disk"
UNITS = "/etc/systemd/system"
WAIT_JOB = "until [ -e /run/end-of-storage-job ]; do sleep 0.2; done"


def node(cluster: LabCluster, name: str = "gpu01") -> str:
    """scontrol's output for a node, on one line."""
    return cluster.root("ctl1", f"scontrol --oneliner show node {name}")


def checks(cluster: LabCluster) -> int:
    """How often the node was checked to the end: the site's own program comes last."""
    return int(cluster.root("gpu01", "cat /run/site-checks 2>/dev/null | wc -l"))


def wait_for_checks(cluster: LabCluster) -> None:
    """Until the node was checked from the beginning to the end once more."""
    before = checks(cluster)
    wait_until("the node is checked twice more", lambda: checks(cluster) > before + 1)


@pytest.fixture(scope="module")
def deploys(battered: LabCluster) -> Iterator[dict[str, dict[str, Any]]]:
    """The changes that plan listed, those of the first deploy, and of a second one; all is removed at the end."""
    program = "/usr/local/bin/site-check"
    for name in ("gpu01", "gpu02"):
        battered.root(name, f"printf '{SITE_CHECK}' >{program}; chmod +x {program}; mkdir -p /srv/disk /srv/other")
    spec, settings = battered.directory / "cluster.yml", battered.directory / SETTINGS
    before = {path: path.read_text(encoding="utf-8") for path in (spec, settings)}
    spec.write_text(before[spec] + STORAGE, encoding="utf-8")
    edit(settings, SLURM_CONFIG, SLURM_CONFIG.replace("}", f", {CHECKS}}}"))
    yield battered.plan_and_deploy_twice(*COMPONENTS)
    for path, text in before.items():
        path.write_text(text, encoding="utf-8")
    battered.parsed("deploy", *COMPONENTS)


@pytest.fixture(scope="module")
def cluster(battered: LabCluster, deploys: dict[str, dict[str, Any]]) -> LabCluster:
    """The same with its storage."""
    battered.wait_until_idle()
    return battered


def test_everything_is_mounted_where_it_was_wanted(cluster: LabCluster) -> None:
    table = {name: cluster.root(name, "findmnt -n -l -o TARGET").split() for name in ("ctl1", "gpu01", "gpu02")}

    assert all("/fast" in paths for paths in table.values())
    assert [name for name, paths in table.items() if "/disk" in paths] == ["gpu01", "gpu02"]
    assert cluster.root("gpu01", "systemctl is-enabled disk.mount fast.mount").split() == ["enabled", "enabled"]


def test_a_plan_tells_it_beforehand_and_a_second_deploy_changes_nothing(deploys: dict[str, dict[str, Any]]) -> None:
    assert changes(deploys["first"], "storage") == changes(deploys["plan"], "storage")
    assert ("gpu01", "mount", "/disk", "mount") in changes(deploys["plan"], "storage")
    assert deploys["second"]["changes"] == []


def test_a_node_without_its_storage_gets_no_jobs_until_it_is_back(cluster: LabCluster) -> None:
    cluster.root("gpu01", "umount /disk")
    wait_until(
        "the node drains itself", lambda: f"Reason={LOST} [root@" in node(cluster), details=lambda: node(cluster)
    )
    stuck = cluster.submit("true", "--nodelist=gpu01")
    assert "DRAIN" in node(cluster)
    assert cluster.job_state(stuck) == "PENDING"

    # a user unmounted it: that is left alone
    wait_for_checks(cluster)
    assert not cluster.holds("gpu01", "mountpoint -q /disk")

    # the gate sees it
    assert ("gpu01", "mount", "/disk", "mount") in changes(cluster.parsed("deploy", *COMPONENTS), "storage")
    cluster.wait_for_job(stuck, "COMPLETED")


def test_a_mount_that_failed_is_tried_again(cluster: LabCluster) -> None:
    # nothing can be mounted on a file
    cluster.root("gpu01", "umount /disk && rmdir /disk && touch /disk; systemctl start disk.mount", ok=False)
    wait_until("the node drains itself", lambda: LOST in node(cluster), details=lambda: node(cluster))

    cluster.root("gpu01", "rm /disk")

    wait_until("the node serves again", lambda: "DRAIN" not in node(cluster), details=lambda: node(cluster))
    assert cluster.holds("gpu01", "mountpoint -q /disk")


def test_a_mount_stays_under_a_job_and_changes_what_the_kernel_can_change(cluster: LabCluster) -> None:
    job = cluster.submit(WAIT_JOB, "--nodelist=gpu01")
    cluster.wait_for_job(job, "RUNNING")
    edit(cluster.directory / "cluster.yml", "source: /srv/disk", "source: /srv/other")
    edit(cluster.directory / "cluster.yml", "size: 32M", "size: 48M")

    first = cluster.parsed("deploy", *COMPONENTS)

    assert any("storage disk stays as it is: jobs run on it" in warning for warning in first["warnings"])
    assert cluster.holds("gpu01", "findmnt -n -o SOURCE /disk | grep -q /srv/disk")
    assert cluster.holds("gpu01", "findmnt -n -o OPTIONS /fast | grep -q size=49152k")
    # without a job there, it has changed already
    assert cluster.holds("gpu02", "findmnt -n -o SOURCE /disk | grep -q /srv/other")
    assert cluster.job_state(job) == "RUNNING"

    cluster.root("gpu01", "touch /run/end-of-storage-job")
    cluster.wait_for_job(job, "COMPLETED")
    cluster.wait_until_idle()

    assert ("gpu01", "mount", "/disk", "remount") in changes(cluster.parsed("deploy", *COMPONENTS), "storage")
    assert cluster.holds("gpu01", "findmnt -n -o SOURCE /disk | grep -q /srv/other")
    cluster.wait_until_idle()


SETUID = "cp /usr/bin/id {0}/id && chmod 4755 {0}/id && su ubuntu -c '{0}/id -u'; rm {0}/id"


def test_a_setuid_program_on_storage_gives_no_rights(cluster: LabCluster) -> None:
    uid = cluster.user("gpu02", "id -u")

    assert {path: cluster.root("gpu02", SETUID.format(path)) for path in ("/disk", "/fast")} == {
        "/disk": uid,
        "/fast": uid,
    }
    # on the system's own file system it does
    assert cluster.root("gpu02", SETUID.format("/srv")) == "0"


def test_mounts_of_an_earlier_version_change_under_a_job_and_back_by_name(cluster: LabCluster) -> None:
    cluster.root("gpu01", "rm -f /run/end-of-storage-job")
    job = cluster.submit(f"cd /disk; {WAIT_JOB}", "--nodelist=gpu01")
    cluster.wait_for_job(job, "RUNNING")
    cluster.root(
        "gpu01",
        f"sed -i s/,nosuid,nodev// {UNITS}/disk.mount {UNITS}/fast.mount; systemctl daemon-reload;"
        "for path in /disk /fast; do mount -o remount,bind,suid,dev $path; done",
    )
    assert cluster.root("gpu01", SETUID.format("/disk")) == "0"

    made = changes(cluster.parsed("deploy", *COMPONENTS), "storage")

    assert {("gpu01", "mount", "/disk", "remount"), ("gpu01", "mount", "/fast", "remount")} <= set(made)
    options = cluster.root("gpu01", "findmnt -n -o OPTIONS /disk /fast; findmnt -n -o VFS-OPTIONS /fast")
    assert all({"nosuid", "nodev"} <= set(line.split(",")) for line in options.splitlines()), options
    assert cluster.job_state(job) == "RUNNING"

    # who wants it says so, and gets it without an unmount
    edit(cluster.directory / "cluster.yml", "tmpfs: {size: 48M}", "options: [suid], tmpfs: {size: 48M}")
    assert ("gpu01", "mount", "/fast", "remount") in changes(cluster.parsed("deploy", *COMPONENTS), "storage")
    assert cluster.root("gpu01", SETUID.format("/fast")) == "0"
    assert cluster.job_state(job) == "RUNNING"

    edit(cluster.directory / "cluster.yml", "options: [suid], ", "")
    cluster.parsed("deploy", *COMPONENTS)
    assert cluster.root("gpu01", SETUID.format("/fast")) != "0"
    cluster.root("gpu01", "touch /run/end-of-storage-job")
    cluster.wait_for_job(job, "COMPLETED")
    cluster.wait_until_idle()


def test_slurmd_waits_for_it_after_a_power_cut(cluster: LabCluster) -> None:
    cluster.power_cut("gpu02")
    cluster.power_on("gpu02")
    wait_until("slurmd runs", lambda: cluster.holds("gpu02", "systemctl is-active --quiet slurmd"))

    show = "systemctl show -p ActiveEnterTimestampMonotonic --value"
    mounted, running = (int(cluster.root("gpu02", f"{show} {unit}")) for unit in ("disk.mount", "slurmd.service"))
    assert 0 < mounted < running
    cluster.wait_until_idle()


def test_what_came_by_an_entry_goes_with_it(cluster: LabCluster) -> None:
    spec = cluster.directory / "cluster.yml"
    declared = spec.read_text(encoding="utf-8")
    spec.write_text(declared.partition("storage:")[0] + "storage: []\n", encoding="utf-8")

    done = cluster.parsed("deploy", *COMPONENTS)

    assert changes(done, "storage") >= {("gpu02", "mount", "/disk", "remove"), ("ctl1", "mount", "/fast", "remove")}
    left = f"ls {UNITS}/disk.mount {UNITS}/fast.mount {UNITS}/slurmd.service.d/deepopsctl-storage.conf"
    for name in ("ctl1", "gpu01", "gpu02"):
        assert cluster.root(name, f"{left} 2>/dev/null; findmnt -n -l -o TARGET | grep -E '^/(disk|fast)$'; true") == ""
    # a site's own program continues without ours
    assert "/usr/local/bin/site-check" in cluster.root("ctl1", "scontrol show config | grep HealthCheckProgram")
