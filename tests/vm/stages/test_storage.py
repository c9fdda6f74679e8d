"""Stage storage: two file systems with quotas that the controller serves by NFS.

`shared` (ext4, limits of users) the compute node must have mounted, `seldom` (XFS, limits of a project) it mounts at
first use, and machines outside the cluster may mount it as well.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab.faults import holds
from tests.lab.harness import SETTINGS as SETTINGS_FILE, edit
from tests.support.cluster import wait_until
from tests.vm.stages.conftest import OS
from tests.vm.stages.stand import stand_for
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

EXPORT, PATH = "/srv/shared", "/shared"
UNIT = "shared.mount"
LIMIT_MIB = 20
SELDOM_EXPORT, SELDOM = "/srv/seldom", "/seldom"
# where a user mounts it manually, as a host would that is not in cluster.yml
OUTSIDE = "/mnt/outside"
# of all machines here; of none
SUBNET, NOBODY = (f"{stand_for(OS).network}.{rest}" for rest in ("0/24", "99"))
IDLE_S = 15
SYNC_S = 120
# File systems of their own on the server, in files: with room for quotas, and no danger to the host's disk.
MADE = f"""set -e
truncate --size=300M /srv/shared.img /srv/seldom.img
mkfs.ext4 -q -O quota -E quotatype=usrquota,lazy_itable_init=0 /srv/shared.img
mkdir -p {EXPORT} {SELDOM_EXPORT}
mount -o loop,usrquota /srv/shared.img {EXPORT}
# an initramfs for a package would cost an emulated machine minutes
sed -i s/^update_initramfs=.*/update_initramfs=no/ /etc/initramfs-tools/update-initramfs.conf
command -v mkfs.xfs >/dev/null || apt-get -qq install --yes --no-install-recommends xfsprogs >/dev/null
mkfs.xfs -q /srv/seldom.img
mount -o loop,prjquota /srv/seldom.img {SELDOM_EXPORT}
chmod 1777 {EXPORT} {SELDOM_EXPORT}
echo here > {SELDOM_EXPORT}/there
mkdir {SELDOM_EXPORT}/prof
chown vagrant: {SELDOM_EXPORT}/prof
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
  - name: seldom
    type: nfs
    source: "{CONTROLLER}:{SELDOM_EXPORT}"
    path: {SELDOM}
    nodes: "{NODE}"
    automount: true
    automount_idle: {IDLE_S}s
    nfs: {{clients: ["{SUBNET}"]}}
    quota: {{kind: project, projects: {{prof: {{space: {LIMIT_MIB}M}}}}}}
job_directories: {{}}
"""
# emulated machines are slow, and what is written for a rate has to fit into the quota
SETTINGS = """---
validate_storage_size_mb: 4
validate_storage_answer_timeout: 300
validate_storage_queue_timeout: 300
"""
# a job uses names that another one of the same user has as well
TAKE = "set -e; test -O $SLURM_TMPDIR; for at in $SLURM_TMPDIR /tmp /dev/shm; do test ! -e $at/mine; done; touch "
TAKE += "$SLURM_TMPDIR/mine /tmp/mine /dev/shm/mine"
JOB_DIRECTORIES = "/var/spool/slurm-jobs"


@pytest.fixture(scope="module", autouse=True)
def served(cluster: VmCluster) -> None:
    """The controller has something to serve, and cluster.yml declares who mounts it; nothing of it is deployed."""
    cluster.root(CONTROLLER, MADE)
    edit(cluster.directory / SETTINGS_FILE, "---\n", SETTINGS)
    path = cluster.directory / "cluster.yml"
    edit(path, "[controller]", "[controller, nfs_server]")
    edit(path, "components: [", "components: [storage, environment, ")
    with path.open("a", encoding="utf-8") as stream:
        stream.write(DECLARED)


def validated(cluster: VmCluster, ok: bool = True) -> dict[tuple[str, str], dict[str, Any]]:
    """`validate storage`, by check and target."""
    done = cluster.deepopsctl("validate", "storage", "--json", ok=False)
    document = json.loads(done.stdout)
    assert document["ok"] is ok, json.dumps(document["checks"], indent=1) + done.stderr
    return {(check["name"], check["target"]): check for check in document["checks"]}


def mounted(cluster: VmCluster, node: str = NODE, path: str = PATH) -> str:
    """Type and source of what is on top of a path, by a table that mounts nothing; '' for nothing."""
    script = f"sed -n 's|.* {path} .* - ||p' /proc/self/mountinfo | tail -n 1 | cut -d ' ' -f 1,2"
    return cluster.root(node, script)


def get_rid_of(cluster: VmCluster, path: str, export: str, *names: str) -> None:
    """Have the client write what a limit has blocked it from writing, and remove its files.

    Linux's client (6.12) holds on to that: the file stays open, as .nfs* once it was removed, and a reboot, which takes
    the network away first, waits for it for ever.
    """
    cluster.user(NODE, f"sync; cd {path} && rm -f {' '.join(names)}")
    left = f'test -z "$(find {export} -name ".nfs*")"'
    wait_until("the client holds nothing open", lambda: holds(cluster, CONTROLLER, left), SYNC_S)


def declare(cluster: VmCluster, old: str, new: str) -> None:
    """Change cluster.yml."""
    edit(cluster.directory / "cluster.yml", old, new)


def is_exported(cluster: VmCluster, path: str, to: str) -> bool:
    """Whether the kernel's server lets a client mount a directory."""
    shown = cluster.root(CONTROLLER, "exportfs -s").splitlines()
    return [path, to] in [line.partition("(")[0].split() for line in shown]


def deploy_storage(cluster: VmCluster) -> tuple[dict[str, Any], str]:
    """`deploy storage`: its summary, and its warnings as one text."""
    summary: dict[str, Any] = json.loads(cluster.deepopsctl("deploy", "storage", "--json").stdout)
    return summary, " ".join(map(str, summary["warnings"]))


def test_deploy_serves_and_mounts_it_and_a_second_one_changes_nothing(cluster: VmCluster) -> None:
    summary = cluster.deploy()

    assert summary["ok"], summary
    fstype, source = mounted(cluster).split()
    assert fstype == "nfs4"
    assert source == f"{cluster.addresses[CONTROLLER]}:{EXPORT}"
    exported = cluster.root(CONTROLLER, "exportfs -v")
    assert EXPORT in exported
    assert "no_root_squash" not in exported
    assert "<world>" not in exported
    assert mounted(cluster, path=SELDOM) == "autofs systemd-1"
    cluster.wait_for_state("idle")

    again = cluster.deploy()

    assert set(cluster.changed(again).values()) == {0}, again


def test_validate_storage_passes(cluster: VmCluster) -> None:
    checks = validated(cluster)

    assert "fail" not in {check["status"] for check in checks.values()}, checks
    here, there = f"{NODE}/shared", f"{CONTROLLER}/shared"
    passed = {key for key, check in checks.items() if check["status"] == "pass"}
    wanted = {("storage-mounted", here), ("storage-options", here), ("storage-write", here), ("storage-write", there)}
    wanted |= {("storage-mounted", f"{NODE}/seldom"), ("storage-options", f"{NODE}/seldom")}
    wanted |= {
        ("storage-visible", here),
        ("storage-visible", there),
        ("storage-root-squash", here),
        ("storage-quota", there),
    }
    # the first writer is the compute node: the others are compared with it
    wanted |= {("storage-rename", there), ("storage-lock", there), ("storage-names", there)}
    wanted |= {("storage-write-rate", here), ("storage-read-rate", here), ("storage-metadata-rate", here)}
    assert wanted <= passed, checks
    assert cluster.root(CONTROLLER, f"find {EXPORT} {SELDOM_EXPORT} -name 'deepopsctl*'") == ""


def test_root_of_a_node_is_nobody_on_the_server(cluster: VmCluster) -> None:
    cluster.user(NODE, f"mkdir -m 700 {PATH}/private && echo mine > {PATH}/private/file")

    output = cluster.root(
        NODE, f"cat {PATH}/private/file; touch {PATH}/private/other; chown root {PATH}/private", ok=False
    )

    assert "mine" not in output
    assert output.count("Permission denied") + output.count("Operation not permitted") == 3, output
    assert cluster.root(CONTROLLER, f"ls -A {EXPORT}/private") == "file"


def test_users_see_their_limits_from_another_node(cluster: VmCluster) -> None:
    """Asked by NFS's own protocol: the server's rpc.rquotad answers."""
    output = cluster.user(NODE, "diskusage_report --json --limit 120", ok=False)
    rows = {row["path"]: row for row in json.loads(output)["rows"]}
    row, project = rows[PATH], rows[f"{SELDOM}/prof"]

    assert project["usage"]["space"]["hard"] == LIMIT_MIB * 1024 * 1024, rows
    assert (row["path"], row["who"], row["source"], row["problem"]) == (PATH, "vagrant", "quota", ""), row
    assert row["usage"]["space"]["hard"] == LIMIT_MIB * 1024 * 1024
    assert row["usage"]["space"]["used"] > 0


def test_a_job_gets_no_further_than_its_users_quota(cluster: VmCluster) -> None:
    try:
        writing = f"dd if=/dev/zero of={PATH}/big bs=1M count={3 * LIMIT_MIB} conv=fsync"
        output = cluster.user(CONTROLLER, f"srun --quiet -n1 --mem=100M {writing}", ok=False)

        assert "Disk quota exceeded" in output, output
        # what the user holds, not how long the file seems: writes arrive in any order
        used = cluster.root(CONTROLLER, "quota -w -u vagrant | awk 'END { print $2 }'").rstrip("*")
        assert LIMIT_MIB * 1024 / 2 < int(used) <= LIMIT_MIB * 1024 + 4
        # it is the user's limit, the file system has room
        cluster.root(CONTROLLER, f"dd if=/dev/zero of={EXPORT}/roots bs=1M count={2 * LIMIT_MIB} status=none")
    finally:
        cluster.root(CONTROLLER, f"rm -f {EXPORT}/roots && setquota -u vagrant 0 0 0 0 {EXPORT}")
        get_rid_of(cluster, PATH, EXPORT, "big")
        cluster.root(CONTROLLER, f"setquota -u vagrant 0 {LIMIT_MIB * 1024} 0 0 {EXPORT}")


def test_a_directory_gets_no_fuller_than_its_project_quota(cluster: VmCluster) -> None:
    """On XFS, whose own words for that are these."""
    try:
        writing = f"dd if=/dev/zero of={SELDOM}/prof/big bs=1M count={3 * LIMIT_MIB} conv=fsync"
        output = cluster.user(CONTROLLER, f"srun --quiet -n1 --mem=100M {writing}", ok=False)

        assert "No space left on device" in output, output
        used = int(cluster.root(CONTROLLER, f"du -sk {SELDOM_EXPORT}/prof | cut -f 1"))
        assert LIMIT_MIB * 1024 / 2 < used <= LIMIT_MIB * 1024 + 4
        # outside of it there is room
        cluster.user(NODE, f"dd if=/dev/zero of={SELDOM}/beside bs=1M count={2 * LIMIT_MIB} status=none")
    finally:
        limit = "xfs_quota -x -c 'limit -p bhard={} prof' " + SELDOM_EXPORT
        cluster.root(CONTROLLER, limit.format(0))
        get_rid_of(cluster, SELDOM, SELDOM_EXPORT, "prof/big", "beside")
        cluster.root(CONTROLLER, limit.format(f"{LIMIT_MIB}m"))


def test_what_is_mounted_at_first_use_goes_again_when_nobody_uses_it(cluster: VmCluster) -> None:
    unused = f"! grep -q ' {SELDOM} .* - nfs4 ' /proc/self/mountinfo"
    wait_until("it is unmounted", lambda: holds(cluster, NODE, unused), cluster.patience_s)

    # its first user is a job, which has mounts of its own; with Slurm 22.05 it does not see what comes later
    first, command = (NODE, "") if cluster.os == "debian12" else (CONTROLLER, "srun --quiet -n1 --mem=100M ")
    output = cluster.user(first, f"{command}cat {SELDOM}/there")

    assert output == "here"
    wait_until("it is unmounted again", lambda: holds(cluster, NODE, unused), cluster.patience_s)
    assert cluster.root(NODE, f"systemctl is-active {SELDOM[1:]}.automount") == "active"


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
    # more than two checks without an answer have drained the node; an answer ends that
    cluster.wait_for_state("idle")


def test_a_node_without_its_required_mount_drains_itself_and_comes_back(cluster: VmCluster) -> None:
    cluster.root(NODE, f"systemctl stop {UNIT}")

    cluster.wait_for_state("drained")
    assert f"storage shared is not mounted at {PATH}" in cluster.root(CONTROLLER, f"scontrol show node {NODE}")
    checks = validated(cluster, ok=False)
    assert checks["storage-mounted", f"{NODE}/shared"]["status"] == "fail"
    assert checks["storage-write", f"{CONTROLLER}/shared"]["status"] == "pass"

    cluster.root(NODE, f"systemctl start {UNIT}")

    cluster.wait_for_state("idle")
    assert "nfs4" in mounted(cluster)


def test_jobs_of_one_user_have_temporary_directories_of_their_own(cluster: VmCluster) -> None:
    cluster.root(NODE, "rm -f /var/tmp/go /var/tmp/began")
    waits = "touch /var/tmp/began; while [ ! -e /var/tmp/go ]; do sleep 0.2; done; test -e /tmp/mine"
    holding = cluster.submit(f"{TAKE}; {waits}", "--mem=100M", "--ntasks=1")
    wait_until("the first has begun", lambda: holds(cluster, NODE, "test -e /var/tmp/began"), cluster.patience_s)

    second = cluster.submit(TAKE, "--mem=100M", "--ntasks=1")
    cluster.wait_for_rows([second])
    cluster.user(NODE, "touch /var/tmp/go")
    cluster.wait_for_rows([holding])

    # the directory with the node's name is the plugin's, and stays
    empty = f'test -z "$(find {JOB_DIRECTORIES} -mindepth 2)"'
    wait_until("their directories are gone", lambda: holds(cluster, NODE, empty), cluster.patience_s)
    assert cluster.root(NODE, "ls /tmp/mine /dev/shm/mine 2>/dev/null || true") == ""


def test_a_boot_restores_the_mount_before_jobs_start(cluster: VmCluster) -> None:
    cluster.deepopsctl("node", "drain", NODE, "--reason", "a new kernel", "--wait")
    cluster.reboot_drained()

    cluster.deepopsctl("node", "resume", NODE)

    cluster.wait_for_state("idle")
    output = cluster.user(CONTROLLER, f"srun --quiet -n1 --mem=100M findmnt --noheadings --output FSTYPE {PATH}")
    assert output == "nfs4"
    assert mounted(cluster, path=SELDOM) == "autofs systemd-1"


# After the boot: a kernel that lost what was mounted manually may wait for it at shutdown, and this one did.
def test_an_export_is_narrowed_when_nobody_still_uses_it(cluster: VmCluster) -> None:
    server = f"{cluster.addresses[CONTROLLER]}:{SELDOM_EXPORT}"
    cluster.root(NODE, f"mkdir -p {OUTSIDE} && mount -t nfs4 {server} {OUTSIDE} && cat {OUTSIDE}/there")
    # a directory that systemd knows it needs, it would stop with its mount
    sitting = f"cd {SELDOM} && exec sleep infinity"
    cluster.root(NODE, f"systemd-run --quiet --unit=sits --uid=vagrant sh -c '{sitting}'")
    wait_until("it sits", lambda: holds(cluster, NODE, "pgrep -x sleep"), cluster.patience_s)
    started = cluster.root(CONTROLLER, "systemctl show --property=ActiveEnterTimestampMonotonic nfs-server")
    # as the server is asked for clients that are none of the cluster's
    clients = cluster.root(CONTROLLER, "cat /proc/fs/nfsd/clients/*/info")
    assert f'\naddress: "{cluster.addresses[NODE]}:' in f"\n{clients}", clients
    declare(cluster, f"automount_idle: {IDLE_S}s", f"automount_idle: {2 * IDLE_S}s")
    declare(cluster, SUBNET, NOBODY)

    summary, output = deploy_storage(cluster)

    assert "storage seldom stays as it is: in use by sleep" in output, summary
    assert f"{SELDOM_EXPORT} stays exported as it was: {NODE} may still have it mounted" in output, summary
    assert is_exported(cluster, SELDOM_EXPORT, SUBNET)
    # it was not torn away under who sits there
    sits = "/proc/$(systemctl show --property=MainPID --value sits)/cwd"
    assert cluster.root(NODE, f"cat {sits}/there") == "here"
    assert mounted(cluster, path=SELDOM).startswith("nfs4 ")

    cluster.root(NODE, "systemctl stop sits")
    summary, output = deploy_storage(cluster)

    assert "stays" not in output, summary
    lost = f"{SELDOM_EXPORT} is no longer for {NODE}: {NODE} has it mounted at {OUTSIDE}, not by deepopsctl"
    assert lost in output, summary
    assert not is_exported(cluster, SELDOM_EXPORT, SUBNET)
    assert is_exported(cluster, SELDOM_EXPORT, NOBODY)
    assert is_exported(cluster, EXPORT, cluster.addresses[NODE])
    assert f"TimeoutIdleUSec={2 * IDLE_S}s" in cluster.root(NODE, "systemctl show seldom.automount")
    # who had it mounted has lost it, and can't get it back
    cluster.root(NODE, f"! timeout 60 touch {OUTSIDE}/new && umount --lazy {OUTSIDE}")
    cluster.root(NODE, f"! timeout 120 mount -t nfs4 {server} {OUTSIDE}")
    assert not cluster.holds(CONTROLLER, f"test -e {SELDOM_EXPORT}/new")
    assert cluster.root(CONTROLLER, "systemctl show --property=ActiveEnterTimestampMonotonic nfs-server") == started


def test_what_is_withdrawn_stays_under_a_job_and_is_then_served_no_more(cluster: VmCluster) -> None:
    cluster.user(NODE, f"echo mine > {PATH}/mine")
    cluster.root(NODE, "rm -f /var/tmp/leave")
    job = cluster.submit(f"while [ ! -e /var/tmp/leave ]; do sleep 0.2; done; cat {PATH}/mine", "--mem=100M")
    cluster.wait_for_job(job, "RUNNING")
    path = cluster.directory / "cluster.yml"
    rest = path.read_text(encoding="utf-8").partition("\nstorage:")[0]
    path.write_text(f"{rest}\nstorage: []\njob_directories: {{}}\n", encoding="utf-8")

    summary, output = deploy_storage(cluster)

    assert f"{EXPORT} stays exported as it was: {NODE} may still have it mounted" in output, summary
    assert mounted(cluster).startswith("nfs4 ")
    cluster.user(NODE, "touch /var/tmp/leave")
    cluster.wait_for_rows([job])

    summary, output = deploy_storage(cluster)

    assert "stays" not in output, summary
    assert mounted(cluster) == mounted(cluster, path=SELDOM) == mounted(cluster, CONTROLLER) == ""
    assert not cluster.holds(CONTROLLER, "systemctl is-active --quiet nfs-server")
    assert not cluster.holds(CONTROLLER, "test -e /etc/exports.d/deepopsctl.exports")
    assert cluster.root(CONTROLLER, f"cat {EXPORT}/mine {SELDOM_EXPORT}/there").split() == ["mine", "here"]
    cluster.wait_for_state("idle")
    assert set(cluster.changed(deploy_storage(cluster)[0]).values()) == {0}
