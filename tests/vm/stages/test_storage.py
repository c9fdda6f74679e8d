"""Stage storage: a file system with quotas that the controller serves by NFS and the compute node must have mounted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.driven import wait_until
from tests.lab.faults import holds
from tests.lab.harness import SETTINGS as SETTINGS_FILE
from tests.lab.harness import edit
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

EXPORT, PATH = "/srv/shared", "/shared"
UNIT = "shared.mount"
LIMIT_MIB = 20
# A file system of its own on the server, in a file: with room for quotas, and no danger to the machine's disk.
MADE = f"""set -e
truncate --size=300M /srv/shared.img
mkfs.ext4 -q -O quota -E quotatype=usrquota,lazy_itable_init=0 /srv/shared.img
mkdir -p {EXPORT}
mount -o loop,usrquota /srv/shared.img {EXPORT}
chmod 1777 {EXPORT}
"""
DECLARED = f"""
storage:
  - name: shared
    type: nfs
    source: "{CONTROLLER}:{EXPORT}"
    path: {PATH}
    nodes: "{CONTROLLER},{NODE}"
    required: true
    options: [noatime]
    quota: {{users: {{vagrant: {{space: {LIMIT_MIB}M}}}}}}
job_directories: {{}}
"""
# emulated machines take their time, and what is written for a rate has to fit into the quota
SETTINGS = """---
validate_storage_size_mb: 4
validate_storage_answer_timeout: 300
validate_storage_queue_timeout: 300
"""
# a job takes names that another one of the same user has as well
TAKE = "set -e; test -O $SLURM_TMPDIR; for at in $SLURM_TMPDIR /tmp /dev/shm; do test ! -e $at/mine; done; touch "
TAKE += "$SLURM_TMPDIR/mine /tmp/mine /dev/shm/mine"
FOLDERS = "/var/spool/slurm-jobs"


@pytest.fixture(scope="module", autouse=True)
def served(cluster: VmCluster) -> None:
    """The controller has something to serve, and cluster.yml says who mounts it; nothing of it is deployed."""
    cluster.root(CONTROLLER, MADE)
    edit(cluster.directory / SETTINGS_FILE, "---\n", SETTINGS)
    path = cluster.directory / "cluster.yml"
    text = path.read_text(encoding="utf-8")
    assert "[controller]" in text, text
    path.write_text(text.replace("[controller]", "[controller, nfs_server]") + DECLARED, encoding="utf-8")


def validated(cluster: VmCluster, ok: bool = True) -> dict[tuple[str, str], dict[str, Any]]:
    """`validate storage`, by check and target."""
    done = cluster.deepopsctl("validate", "storage", "--json", ok=False)
    found = json.loads(done.stdout)
    assert found["ok"] is ok, json.dumps(found["checks"], indent=1) + done.stderr
    return {(check["name"], check["target"]): check for check in found["checks"]}


def mounted(cluster: VmCluster, node: str = NODE) -> str:
    """Type and source of what is mounted; '' for nothing."""
    return cluster.root(node, f"findmnt --noheadings --output FSTYPE,SOURCE {PATH} || true")


def test_deploy_serves_and_mounts_it_and_a_second_one_changes_nothing(cluster: VmCluster) -> None:
    summary = cluster.deploy()

    assert summary["ok"], summary
    kind, source = mounted(cluster).split()
    assert kind == "nfs4"
    assert source == f"{cluster.addresses[CONTROLLER]}:{EXPORT}"
    exported = cluster.root(CONTROLLER, "exportfs -v")
    assert EXPORT in exported
    assert "no_root_squash" not in exported
    assert "<world>" not in exported
    cluster.wait_for_state("idle")

    again = cluster.deploy()

    assert set(cluster.changed(again).values()) == {0}, again


def test_validate_storage_proves_it(cluster: VmCluster) -> None:
    found = validated(cluster)

    assert "fail" not in {check["status"] for check in found.values()}, found
    here, there = f"{NODE}/shared", f"{CONTROLLER}/shared"
    proven = {key for key, check in found.items() if check["status"] == "pass"}
    wanted = {("storage-mounted", here), ("storage-options", here), ("storage-write", here), ("storage-write", there)}
    wanted |= {
        ("storage-visible", here),
        ("storage-visible", there),
        ("storage-root-squash", here),
        ("storage-quota", there),
    }
    # the first writer is the compute node: the others are compared with it
    wanted |= {("storage-rename", there), ("storage-lock", there), ("storage-names", there)}
    wanted |= {("storage-write-rate", here), ("storage-read-rate", here), ("storage-metadata-rate", here)}
    assert wanted <= proven, found
    assert cluster.root(CONTROLLER, f"find {EXPORT} -name 'deepopsctl*'") == ""


def test_root_of_a_node_is_nobody_on_the_server(cluster: VmCluster) -> None:
    cluster.user(NODE, f"mkdir -m 700 {PATH}/private && echo mine > {PATH}/private/file")

    said = cluster.root(
        NODE, f"cat {PATH}/private/file; touch {PATH}/private/other; chown root {PATH}/private", ok=False
    )

    assert "mine" not in said
    assert said.count("Permission denied") + said.count("Operation not permitted") == 3, said
    assert cluster.root(CONTROLLER, f"ls -A {EXPORT}/private") == "file"


def test_users_see_their_limits_from_another_node(cluster: VmCluster) -> None:
    """Asked by NFS's own protocol: the server's rpc.rquotad answers."""
    said = cluster.user(NODE, "diskusage_report --json --limit 120", ok=False)
    (row,) = json.loads(said)["rows"]

    assert (row["path"], row["who"], row["source"], row["problem"]) == (PATH, "vagrant", "quota", ""), row
    assert row["usage"]["space"]["hard"] == LIMIT_MIB * 1024 * 1024
    assert row["usage"]["space"]["used"] > 0


def test_a_job_gets_no_further_than_its_users_quota(cluster: VmCluster) -> None:
    try:
        writing = f"dd if=/dev/zero of={PATH}/big bs=1M count={3 * LIMIT_MIB} conv=fsync"
        said = cluster.user(CONTROLLER, f"srun --quiet -n1 --mem=100M {writing}", ok=False)

        assert "Disk quota exceeded" in said, said
        # what the user holds, not how long the file seems: writes arrive in any order
        used = cluster.root(CONTROLLER, "quota -w -u vagrant | awk 'END { print $2 }'").rstrip("*")
        assert LIMIT_MIB * 1024 / 2 < int(used) <= LIMIT_MIB * 1024 + 4
        # it is the user's limit, the file system has room
        cluster.root(CONTROLLER, f"dd if=/dev/zero of={EXPORT}/roots bs=1M count={2 * LIMIT_MIB} status=none")
    finally:
        cluster.root(CONTROLLER, f"rm -f {EXPORT}/big {EXPORT}/roots")


def test_a_job_waits_for_a_server_that_is_away_and_others_run_on(cluster: VmCluster) -> None:
    # /tmp is the job's own
    begun = f"touch /var/tmp/begun; echo waited > {PATH}/waited"
    cluster.root(CONTROLLER, "systemctl stop nfs-server")
    try:
        waiting = cluster.submit(begun, "--mem=100M", f"--nodelist={NODE}")
        wait_until("the job has begun", lambda: holds(cluster, NODE, "test -e /var/tmp/begun"), cluster.patience_s)

        cluster.wait_for_rows([cluster.submit("hostname", "--mem=100M")])
        assert cluster.job_state(waiting) == "RUNNING"
    finally:
        cluster.root(CONTROLLER, "systemctl start nfs-server")

    cluster.wait_for_rows([waiting])
    assert cluster.root(CONTROLLER, f"cat {EXPORT}/waited") == "waited"


def test_a_node_without_its_required_mount_drains_itself_and_comes_back(cluster: VmCluster) -> None:
    cluster.root(NODE, f"systemctl stop {UNIT}")

    cluster.wait_for_state("drained")
    assert f"storage shared is not mounted at {PATH}" in cluster.root(CONTROLLER, f"scontrol show node {NODE}")
    found = validated(cluster, ok=False)
    assert found["storage-mounted", f"{NODE}/shared"]["status"] == "fail"
    assert found["storage-write", f"{CONTROLLER}/shared"]["status"] == "pass"

    cluster.root(NODE, f"systemctl start {UNIT}")

    cluster.wait_for_state("idle")
    assert "nfs4" in mounted(cluster)


def test_a_boot_brings_the_mount_back_before_jobs_start(cluster: VmCluster) -> None:
    cluster.deepopsctl("node", "drain", NODE, "--reason", "a new kernel", "--wait")
    cluster.reboot(NODE)

    cluster.deepopsctl("node", "resume", NODE)

    cluster.wait_for_state("idle")
    said = cluster.user(CONTROLLER, f"srun --quiet -n1 --mem=100M findmnt --noheadings --output FSTYPE {PATH}")
    assert said == "nfs4"


def test_jobs_of_one_user_have_temporary_folders_of_their_own(cluster: VmCluster) -> None:
    cluster.root(NODE, "rm -f /var/tmp/go /var/tmp/began")
    waits = "touch /var/tmp/began; while [ ! -e /var/tmp/go ]; do sleep 0.2; done; test -e /tmp/mine"
    holding = cluster.submit(f"{TAKE}; {waits}", "--mem=100M", "--ntasks=1")
    wait_until("the first has begun", lambda: holds(cluster, NODE, "test -e /var/tmp/began"), cluster.patience_s)

    second = cluster.submit(TAKE, "--mem=100M", "--ntasks=1")
    cluster.wait_for_rows([second])
    cluster.user(NODE, "touch /var/tmp/go")
    cluster.wait_for_rows([holding])

    empty = f'test -z "$(ls -A {FOLDERS})"'
    wait_until("their folders are gone", lambda: holds(cluster, NODE, empty), cluster.patience_s)
    assert cluster.root(NODE, "ls /tmp/mine /dev/shm/mine 2>/dev/null || true") == ""
