"""Faults of the control machine, the network and the nodes: a clear message, nothing lost, the next deploy heals."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.doctor_faults import CGROUP
from tests.lab.faults import (
    PURGE,
    accounted,
    assert_heals,
    deploying,
    holds,
    in_the_middle_of_an_install,
    no_package_manager,
    release,
    running_job,
    wait_until_saved,
)
from tests.lab.harness import LabCluster, command, wait_until


@pytest.fixture
def cluster(battered: LabCluster) -> LabCluster:
    """One damage after the other, each healed before the next."""
    return battered


@pytest.mark.every_change
def test_a_node_that_dies_in_the_middle_is_set_aside_and_made_good_later(cluster: LabCluster) -> None:
    with running_job(cluster, "gpu01"):
        with in_the_middle_of_an_install(cluster, "gpu02") as deploy:
            cluster.power_cut("gpu02")
            code, document, seen = deploy.end()

            assert code == 4, seen
            (failure,) = document["failures"]
            assert failure["host"] == "gpu02"
            assert "broke in the middle" in failure["message"]
            assert "are the node and the network up" in failure["hint"]
            assert "but for nodes that did not answer" in seen
            # and it is down before the next one, which leaves it in Slurm's configuration
            down = cluster.deepopsctl("deploy", "slurm", "--full", ok=False)
            assert down.returncode == 4, down.stderr
            assert "gpu02" in down.stderr
            assert "NodeName=gpu[01-02]" in cluster.root("ctl1", "cat /etc/slurm/slurm.conf")

        wait_until("gpu02 has an SSH server again", lambda: holds(cluster, "gpu02", "systemctl is-active ssh"))
        assert_heals(cluster)
        assert cluster.root("gpu02", "dpkg --audit") == ""


def test_a_node_that_could_not_confine_jobs_is_left_out_by_name_and_the_others_stay_confined(
    cluster: LabCluster,
) -> None:
    hardware = cluster.directory / "hardware.yml"
    before = hardware.read_text(encoding="utf-8")
    assert 'names: "gpu[01-02]"' in before
    # a node that is new, and one that serves
    hardware.write_text(before.replace('names: "gpu[01-02]"', 'names: "gpu01"'), encoding="utf-8")
    for node in ("gpu01", "gpu02"):
        cluster.root(node, CGROUP.format("ro"))
    try:
        done = cluster.deepopsctl("deploy", "slurm", "--full", "--json", ok=False)
    finally:
        for node in ("gpu01", "gpu02"):
            cluster.root(node, CGROUP.format("rw"))

    assert done.returncode == 1, done.stderr
    failures = {failure["host"]: failure for failure in json.loads(done.stdout)["failures"]}
    assert set(failures) == {"gpu01", "gpu02"}
    assert "Slurm can't confine jobs to their cores, memory and devices here" in failures["gpu02"]["message"]
    assert "take it out of cluster.yml" in failures["gpu02"]["hint"]
    conf = cluster.root("ctl1", "cat /etc/slurm/slurm.conf")
    assert "TaskPlugin=task/cgroup" in conf
    assert "NodeName=gpu01 " in conf
    assert_heals(cluster)
    assert hardware.read_text(encoding="utf-8") == before


def test_a_connection_that_is_cut_in_the_middle_is_named_and_made_good_later(cluster: LabCluster) -> None:
    with running_job(cluster, "gpu01"):
        with in_the_middle_of_an_install(cluster, "gpu01") as deploy:
            cluster.root("gpu01", "systemctl stop ssh; pkill -f '[s]shd-' || true")
            try:
                code, document, seen = deploy.end()
            finally:
                cluster.root("gpu01", "systemctl start ssh")

            assert code == 4, seen
            (failure,) = document["failures"]
            assert failure["host"] == "gpu01"
            assert "may still finish" in failure["hint"]
            release(cluster, "gpu01")

        assert_heals(cluster)


def test_ctrl_c_reports_what_is_undone_and_a_second_deploy_who_holds_the_lock(
    cluster: LabCluster, tmp_path: Path
) -> None:
    clone = shutil.copytree(cluster.directory, tmp_path / "clone", symlinks=True)
    with running_job(cluster, "gpu01"):
        with in_the_middle_of_an_install(cluster, "gpu01") as deploy:
            second = command("-C", str(cluster.directory), "deploy", "slurm")
            assert second.returncode == 1, second.stderr
            assert re.search(
                rf"deepopsctl deploy, started by \S+ on \S+ \(pid {deploy.process.pid}\) at 20\d\d-", second.stderr
            ), second.stderr
            assert "hint: wait" in second.stderr
            # as if from another control machine: no lock of this one blocks it
            third = command("-C", str(clone), "deploy", "slurm")
            assert third.returncode == 1, third.stderr
            at_work = (
                rf"works on this cluster: deepopsctl deploy, .*\(pid {deploy.process.pid}, in {cluster.directory}\)"
            )
            assert re.search(at_work, third.stderr), third.stderr
            assert "--break-lock" in third.stderr

            deploy.interrupt()
            code, document, seen = deploy.end()

            assert (code, document["verdict"]) == (130, "interrupted"), seen
            assert "undone: slurm: Configure packages, name resolution, time and munge on gpu01" in seen
            assert "the same command finishes it" in seen
            release(cluster, "gpu01")
            assert not holds(cluster, "ctl1", "test -e /var/lib/deepopsctl/cluster/lock.json")

        assert_heals(cluster)


@pytest.mark.every_change
def test_a_deploy_that_was_killed_is_finished_by_the_next(cluster: LabCluster) -> None:
    # nothing that it could remember helps the next one
    cluster.root("ctl1", "rm -rf /var/lib/deepopsctl")
    with running_job(cluster, "gpu01"):
        with in_the_middle_of_an_install(cluster, "gpu01") as deploy:
            deploy.kill()
            assert deploy.process.wait() == -signal.SIGKILL
            release(cluster, "gpu01")
            again = ("-C", str(cluster.directory), "deploy", "slurm")
            wait_until("nothing of the killed run is left", lambda: "another run" not in command(*again).stderr)

        assert_heals(cluster)
        assert set(cluster.changed(cluster.deploy("--full")).values()) == {0}


def test_a_controller_that_is_down_ends_no_other_nodes_deploy(cluster: LabCluster) -> None:
    cluster.power_cut("ctl1")
    try:
        nodes = cluster.deepopsctl("deploy", "slurm", "--full", "--limit", "gpu[01-02]", "--json", ok=False)
        whole = cluster.deepopsctl("deploy", "slurm", "--full", "--json", ok=False)
    finally:
        cluster.power_on("ctl1")
        wait_until("ctl1 has an SSH server again", lambda: holds(cluster, "ctl1", "systemctl is-active ssh"))

    # all is done there that needs no controller; slurmd answers for itself
    for done, hosts in ((nodes, {"gpu01", "gpu02"}), (whole, {"ctl1", "gpu01", "gpu02"})):
        document = json.loads(done.stdout)
        assert set(document["hosts"]) == hosts
        assert "ctl1 could not be asked whether another control machine works on this cluster" in document["warnings"]
        assert "Run slurmd, which fetches its configuration from the controller: 2 nodes ok" in done.stderr
        assert [host for host, counts in document["hosts"].items() if counts["unreachable"]] == [
            *hosts - {"gpu01", "gpu02"}
        ]
        assert not re.search("gpu0[12] unreachable", done.stderr)
    assert whole.returncode == 4, whole.stderr
    assert_heals(cluster)


LOCK = """cp /usr/bin/python3 /tmp/unattended-upgr
cat > /tmp/lock.py <<'END'
import fcntl, os, time
handle = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(handle, fcntl.LOCK_EX)
open("/run/reached", "w")
while os.path.exists("/run/hold"):
    time.sleep(0.1)
END
touch /run/hold
systemd-run --quiet --unit=lock-holder /tmp/unattended-upgr /tmp/lock.py
"""
UNLOCK = "rm -f /run/hold /run/reached; systemctl stop lock-holder; rm -f /tmp/lock.py /tmp/unattended-upgr; true"


FILL = "apt-get clean; mount -t tmpfs -o size=16k full /var/cache/apt/archives"


def test_deploy_waits_for_the_package_managers_lock_and_reports_its_holder_and_a_full_disk(
    cluster: LabCluster,
) -> None:
    for node, damage in (("gpu01", FILL), ("gpu02", LOCK)):
        cluster.root(node, PURGE)
        cluster.root(node, damage)
    try:
        wait_until("the lock is held", lambda: holds(cluster, "gpu02", "test -e /run/reached"))

        hasty = cluster.deploy("-e", "node_common_lock_wait=1", ok=False)

        failures = {failure["host"]: failure for failure in hasty["failures"]}
        assert sorted(failures) == ["gpu01", "gpu02"], failures
        assert "space" in failures["gpu01"]["message"]
        assert "free disk space on this node" in failures["gpu01"]["hint"]
        assert re.search(
            r"dpkg frontend lock was locked by /tmp/unattended-upgr process with pid \d+", failures["gpu02"]["message"]
        )
        assert "wait" in failures["gpu02"]["hint"]
        cluster.root("gpu01", "umount /var/cache/apt/archives")
        with deploying(cluster) as patient:
            wait_until("a deploy waits for it", lambda: holds(cluster, "gpu02", "pgrep -f 'apt-get.*install'"))
            assert patient.process.poll() is None
            cluster.root("gpu02", "rm /run/hold")
            code, _, seen = patient.end()
            assert code == 0, seen
    finally:
        cluster.root("gpu01", "! mountpoint -q /var/cache/apt/archives || umount /var/cache/apt/archives")
        cluster.root("gpu02", UNLOCK)
    assert_heals(cluster)


def test_a_full_disk_under_the_configuration_leaves_the_old_one_whole(cluster: LabCluster) -> None:
    before = cluster.root("ctl1", "sha256sum /etc/slurm/*.conf")
    fill = """mkdir /run/copy && cp -a /etc/slurm/. /run/copy/ && mount -t tmpfs -o size=64k,mode=755 full /etc/slurm
cp -a /run/copy/. /etc/slurm/; dd if=/dev/zero of=/etc/slurm/fill bs=4k 2>/dev/null; true"""
    cluster.root("ctl1", fill)
    try:
        failed = cluster.deploy("-e", '{"slurm_config": {"KillWait": 33}}', ok=False)

        (failure,) = failed["failures"]
        assert (failure["host"], "No space left on device" in failure["message"]) == ("ctl1", True)
        assert "/etc/slurm/slurm.conf" in failure["message"]
        assert "make room" in failure["hint"]
        assert cluster.root("ctl1", "sha256sum /etc/slurm/*.conf") == before
        assert cluster.root("ctl1", "ls -A /etc/slurm | grep deepopsctl || true") == ""
        assert "KillWait                = 30 sec" in cluster.root("ctl1", "scontrol show config")
    finally:
        cluster.root("ctl1", "umount /etc/slurm; rm -rf /run/copy")
    assert_heals(cluster)


@pytest.fixture(scope="module")
def job(battered: LabCluster) -> Iterator[int]:
    """A job on gpu01 that runs on while one daemon after the other is killed."""
    number = battered.submit(
        "while [ ! -e /tmp/daemons-were-killed ]; do sleep 0.2; done", "--nodelist=gpu01", "--mem=100M"
    )
    battered.wait_for_job(number, "RUNNING")
    yield number
    battered.root("ctl1", f"scancel {number}", ok=False)
    battered.root("gpu01", "rm -f /tmp/daemons-were-killed")


@pytest.mark.parametrize(
    ("node", "unit", "works"),
    [
        pytest.param("ctl1", "slurmctld", "scontrol ping | grep -q UP", marks=pytest.mark.every_change),
        ("ctl1", "slurmdbd", "sacctmgr -n show cluster | grep -q ."),
        ("ctl1", "mariadb", "sacctmgr -n show cluster | grep -q ."),
        ("ctl1", "munge", "munge -n | unmunge | grep -q Success"),
        ("gpu01", "munge", "munge -n | unmunge | grep -q Success"),
        ("gpu01", "slurmd", "scontrol show slurmd | grep -q Version"),
    ],
)
def test_a_daemon_that_is_killed_comes_back_and_no_job_is_lost(
    cluster: LabCluster, job: int, node: str, unit: str, works: str
) -> None:
    pid = f"systemctl show --property MainPID --value {unit}"
    if unit == "slurmctld":
        wait_until_saved(cluster, job)
    before = cluster.root(node, pid)
    cluster.root(node, f"kill -9 {before}")

    wait_until(f"systemd starts {unit} again", lambda: cluster.root(node, pid) not in ("0", before))
    wait_until(f"{unit} works", lambda: holds(cluster, node, works))
    wait_until("Slurm answers", lambda: cluster.job_state(job) == "RUNNING")


@pytest.mark.every_change
def test_the_running_job_ends_well_and_there_is_nothing_to_fix(cluster: LabCluster, job: int) -> None:
    cluster.root("gpu01", "touch /tmp/daemons-were-killed")
    wait_until("the accounting has it", lambda: accounted(cluster, job) == "COMPLETED 0:0")

    assert_heals(cluster)


def test_a_job_whose_script_a_power_cut_lost_fails_and_no_other(cluster: LabCluster) -> None:
    lost, whole = (cluster.submit("hostname", "--hold", "--mem=100M") for _ in range(2))
    script = f"/var/lib/slurm/slurmctld/hash.{lost % 10}/job.{lost}/script"

    cluster.root("ctl1", f"systemctl stop slurmctld && truncate --size=0 {script} && systemctl start slurmctld")

    wait_until("the accounting has it", lambda: accounted(cluster, lost).startswith("FAILED"))
    cluster.user("ctl1", f"scontrol release {whole}")
    wait_until("the other one runs", lambda: accounted(cluster, whole) == "COMPLETED 0:0")
    assert cluster.root("ctl1", "systemctl show --property NRestarts --value slurmctld") == "0"


def test_nothing_of_a_package_manager_is_left_on_any_node(cluster: LabCluster) -> None:
    for node in ("ctl1", "gpu01", "gpu02"):
        assert no_package_manager(cluster, node)
        assert cluster.root(node, "dpkg --audit") == ""
