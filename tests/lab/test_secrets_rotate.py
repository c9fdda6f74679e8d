"""A new munge key and database password under a running job: all nodes, or none; interrupted, in the middle, again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lab.faults import assert_heals, holds, is_unchanged, running_job, working
from tests.lab.harness import LabCluster, wait_until
from tests.lab.leaks import Leaks

NODES = ("ctl1", "gpu01", "gpu02")
# what munge does on a node whenever it is started
MUNGE = "/etc/systemd/system/munge.service.d/test.conf"
ROTATE = ("secrets", "rotate", "--yes")


@pytest.fixture(scope="module")
def cluster(battered: LabCluster) -> LabCluster:
    """A controller and two nodes."""
    return battered


def keys(cluster: LabCluster) -> set[str]:
    """The hash of each node's munge key."""
    return {cluster.root(node, "sha256sum < /etc/munge/munge.key") for node in NODES}


def password(cluster: LabCluster) -> str:
    return cluster.root("ctl1", "grep StoragePass /etc/slurm/slurmdbd.conf")


@contextmanager
def munge_that(cluster: LabCluster, node: str, command: str) -> Iterator[None]:
    """A munge that runs a command before it starts."""
    cluster.root(
        node,
        f"mkdir -p $(dirname {MUNGE}); printf '[Service]\\nExecStartPre=+/bin/sh -c \"{command}\"\\n' > {MUNGE};"
        "systemctl daemon-reload",
    )
    try:
        yield
    finally:
        cluster.root(node, f"rm -f {MUNGE} /run/hold; systemctl daemon-reload")


def test_a_rotation_that_is_cut_off_in_the_middle_is_finished_by_the_next_one(
    cluster: LabCluster, leaks: Leaks
) -> None:
    old_keys, old_password = keys(cluster), password(cluster)

    with running_job(cluster, "gpu01") as job:
        cluster.root("gpu02", "touch /run/hold")
        hold = "touch /run/reached; while [ -e /run/hold ]; do sleep 0.1; done"
        with munge_that(cluster, "gpu02", hold), working(cluster, *ROTATE) as rotation:
            wait_until(
                "gpu02 has its new key, and munge starts there",
                lambda: rotation.process.poll() is not None or holds(cluster, "gpu02", "test -e /run/reached"),
            )
            rotation.interrupt()
            code, document, seen = rotation.end()
        assert code == 130, seen
        assert "slurmctld is stopped" in document["stopped"]["message"]
        assert cluster.root("ctl1", "systemctl is-active slurmctld", ok=False) == "inactive"

        done = json.loads(leaks.run(*ROTATE, "--json").stdout)

        assert done["ok"]
        assert len(keys(cluster)) == 1
        assert keys(cluster).isdisjoint(old_keys)
        assert password(cluster) != old_password
        assert cluster.job_state(job) == "RUNNING"
        # jobs start on every node, with what the new key signs
        assert cluster.user("ctl1", "srun -N2 --mem=50M -n2 hostname | sort").split() == ["gpu01", "gpu02"]
    assert is_unchanged(cluster, cluster.deploy())


def test_neither_the_old_secrets_nor_the_new_are_printed_or_readable_anywhere(
    cluster: LabCluster, leaks: Leaks
) -> None:
    leaks.in_cluster_directory()

    assert leaks.seen == []
    key = {"/etc/munge/munge.key": "400"}
    for node in ("gpu01", "gpu02"):
        assert leaks.on_node(node) == key
    assert leaks.on_node("ctl1") == {**key, "/etc/slurm/slurmdbd.conf": "600"}
    owners = "stat -c '%U:%G %a' /etc/munge/munge.key /etc/slurm/slurmdbd.conf"
    assert cluster.root("ctl1", owners).splitlines() == ["munge:munge 400", "slurm:slurm 600"]


def test_a_node_that_fails_restores_the_old_key_on_all_others(cluster: LabCluster) -> None:
    before = keys(cluster)

    with running_job(cluster, "gpu01") as job, munge_that(cluster, "gpu02", "exit 1"):
        done = rotate(cluster, code=1)

        assert "gpu02 failed: the old key is in force again" in done["stopped"]["message"]
        assert keys(cluster) == before
        assert "UP" in cluster.root("ctl1", "scontrol ping")
        assert cluster.job_state(job) == "RUNNING"
    assert_heals(cluster)


def test_a_node_that_is_off_is_left_out_only_where_that_was_asked_for(cluster: LabCluster) -> None:
    before = keys(cluster)
    (old,) = before
    cluster.power_cut("gpu02")
    try:
        refused = rotate(cluster, "munge-key", code=4)
        assert "gpu02 did not answer: nothing was changed" in refused["stopped"]["message"]
        assert cluster.root("gpu01", "sha256sum < /etc/munge/munge.key") == old

        done = rotate(cluster, "munge-key", "--exclude", "gpu02")

        assert any("gpu02 has the old munge key" in warning for warning in done["warnings"])
        assert cluster.root("gpu01", "sha256sum < /etc/munge/munge.key") != old
    finally:
        cluster.power_on("gpu02")
        wait_until("gpu02 has an SSH server", lambda: holds(cluster, "gpu02", "systemctl is-active ssh"))
    cluster.deploy(ok=False)
    cluster.deepopsctl("node", "resume", "gpu02")
    assert len(keys(cluster)) == 1
    assert_heals(cluster)


def rotate(cluster: LabCluster, *words: str, code: int = 0) -> dict[str, Any]:
    """`secrets rotate --json`, parsed."""
    done = cluster.deepopsctl(*ROTATE, *words, "--json", ok=False)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_doctor_reads_the_settings_of_the_database_that_runs(cluster: LabCluster) -> None:
    cluster.root("ctl1", "echo 'SET GLOBAL innodb_snapshot_isolation = ON' | mariadb")
    try:
        check = checks(cluster)
    finally:
        cluster.root("ctl1", "echo 'SET GLOBAL innodb_snapshot_isolation = OFF' | mariadb")

    assert check["status"] == "fail"
    assert "can stop slurmdbd" in check["message"]
    assert checks(cluster)["status"] == "pass"


def checks(cluster: LabCluster) -> dict[str, str]:
    """The doctor's word on the database."""
    document = json.loads(cluster.deepopsctl("doctor", "--json", ok=False).stdout)
    (database,) = (check for check in document["checks"] if check["name"] == "database")
    return dict(database)
