"""The storage suite on a real cluster, on a directory that its nodes share: it passes, and reports what is damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit
from tests.lab.smoke import Result, damaged, validate

# quick and small: how fast is nothing to learn here
QUICK = "validate_storage_size_mb: 4\nvalidate_storage_seconds: 0.5\n"
DECLARED = """
storage:
  - {name: shared, type: local, source: /srv/shared, path: /shared, local: {shared: true}}
  - {name: fast, type: tmpfs, path: /fast, nodes: "gpu[01-02]", options: [nosuid], tmpfs: {size: 64M}}
  - {name: apps, type: local, source: /srv/shared, path: /apps, nodes: "gpu[01-02]", options: [ro]}
"""
MOUNTED, OPTIONS, WRITE = "storage-mounted", "storage-options", "storage-write"
TOGETHER = ("storage-visible", "storage-names", "storage-rename", "storage-lock", "storage-flock")
RATES = ("storage-write-rate", "storage-read-rate", "storage-metadata-rate")
# another directory than the one that was declared, at the same place
OTHER = "mkdir -p -m 1777 /srv/other && chmod 1777 /srv/other && mount --bind /srv/other /shared"


@pytest.fixture(scope="module")
def stored(deployed: LabCluster) -> Iterator[LabCluster]:
    """The shared cluster with storage; without it again at the end."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before = spec.read_text(encoding="utf-8")
    spec.write_text(before + DECLARED, encoding="utf-8")
    edit(settings, "---\n", f"---\n{QUICK}")
    deployed.deepopsctl("deploy", "storage")
    yield deployed
    spec.write_text(f"{before}\nstorage: []\n", encoding="utf-8")
    edit(settings, QUICK, "")
    deployed.deepopsctl("deploy", "storage")
    spec.write_text(before, encoding="utf-8")
    deployed.deepopsctl("inventory")


def try_options(cluster: LabCluster, *arguments: str) -> Result:
    return validate(cluster, *arguments, suite="storage")


def leftovers(cluster: LabCluster) -> str:
    """Jobs of the suite that are still there, and what it made and did not remove."""
    jobs = cluster.root("ctl1", "squeue -h -o %j | grep deepopsctl-storage; exit 0")
    return jobs + cluster.root("ctl1", "find /srv/shared -name 'deepopsctl*'")


def test_storage_that_is_as_declared_passes_and_nothing_is_left(stored: LabCluster) -> None:
    result = try_options(stored)

    # half a second on a busy host: comparing the speed of nodes is not tested here
    assert not {key for key in result.failed() if key[0] not in RATES}, result.shown
    passed = {key for key, check in result.checks.items() if check["status"] == "pass"}
    for node in ("ctl1", "gpu01", "gpu02"):
        assert {(MOUNTED, f"{node}/shared"), (WRITE, f"{node}/shared")} <= passed, result.shown
    for node in ("gpu01", "gpu02"):
        assert {(OPTIONS, f"{node}/apps"), (WRITE, f"{node}/apps"), (WRITE, f"{node}/fast")} <= passed
        assert {name for name, target in result.checks if target == f"{node}/shared"} >= set(RATES)
    # the controller submits and has the mount: it is tested as well; the first to write is compared with
    assert {(name, f"{node}/shared") for name in TOGETHER for node in ("ctl1", "gpu02")} <= passed, result.shown
    assert ("storage-write-together", "shared") in passed
    assert leftovers(stored) == ""


def test_another_directory_and_options_that_are_not_in_effect_are_reported(stored: LabCluster) -> None:
    steps = (
        ("gpu02", OTHER, "umount /shared && rm -rf /srv/other"),
        ("gpu01", "mount -o remount,suid /fast", "mount -o remount,nosuid /fast"),
        ("gpu01", "mount -o remount,bind,rw /apps", "mount -o remount,bind,ro /apps"),
        ("gpu02", "systemctl stop fast.mount", "systemctl start fast.mount"),
    )
    with damaged(stored, *steps):
        result = try_options(stored)

    assert result.code == 1, result.shown
    wanted = {(MOUNTED, "gpu02/shared"), (WRITE, "gpu02/shared"), (OPTIONS, "gpu01/fast"), (OPTIONS, "gpu01/apps")}
    assert result.failed() == {*wanted, (WRITE, "gpu01/apps"), (MOUNTED, "gpu02/fast")}, result.shown
    assert result.message(MOUNTED, "gpu02/shared") == "another directory is mounted at /shared"
    assert result.message(OPTIONS, "gpu01/fast") == "nosuid was asked for and is not in force"
    assert "nothing is mounted at /fast" in result.message(MOUNTED, "gpu02/fast")
    assert result.checks[WRITE, "gpu02/fast"]["status"] == "skip"
    assert result.message(WRITE, "gpu01/apps") == "it should be read-only"
    assert leftovers(stored) == ""
