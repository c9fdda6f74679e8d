"""Two controllers that share Slurm's state: one is lost, hangs, or is cut off, and jobs continue.

The kernel below a lab has no NFS. GlusterFS is a real network file system, mounted by FUSE.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from deepopsctl.cluster import secrets
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.lab.podman import podman
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, lab_up, wait_until

NAME = f"{PREFIX}-two"
# the first is the lab's controller, the second a node that cluster.yml makes one
FIRST, SECOND, SERVER = "ctl1", "login1", "cn01"
CONTROLLERS = (FIRST, SECOND)
SERVE = """
export DEBIAN_FRONTEND=noninteractive; exec 2>&1; set -e
apt-get -qq update; apt-get -qq install --no-install-recommends glusterfs-server >/tmp/log
systemctl start glusterd
mkdir -p /srv/brick/state
gluster --mode=script volume create state $(hostname -I | cut -d' ' -f1):/srv/brick/state force
gluster --mode=script volume start state
"""
MOUNT = "/srv/slurm"
IN_CONTROL = "/usr/local/sbin/deepops-slurm-controller active || :"

pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller and two nodes, one of which serves a volume; everything is deployed. Another node waits."""
    with fresh_cluster(NAME, tmp_path_factory, "--compute", "2", "--login", "1") as made:
        if not made.holds(FIRST, "test -e /dev/fuse"):
            pytest.skip("this machine has no FUSE")
        made.root(SERVER, SERVE)
        edit(made.directory / "cluster.yml", "components: [slurm]", "components: [storage, slurm]")
        assert deploy(made)["ok"]
        yield made


def share(cluster: LabCluster) -> None:
    """Have two controllers in cluster.yml, and both keep Slurm's state on the volume."""
    spec = cluster.directory / "cluster.yml"
    edit(spec, "roles: [login]", "roles: [controller]")
    with spec.open("a", encoding="utf-8") as stream:
        stream.write(shared_state(cluster))


def shared_state(cluster: LabCluster) -> str:
    """The lines of cluster.yml for a state on the volume."""
    source = f"{address_of(cluster, SERVER)}:/state"
    entry = f'{{name: state, type: glusterfs, source: "{source}", path: {MOUNT}, nodes: controller}}'
    return f"storage:\n  - {entry}\nslurm_state: state\n"


def deploy(cluster: LabCluster) -> dict[str, Any]:
    """`deploy --json`, parsed."""
    document: dict[str, Any] = json.loads(cluster.deepopsctl("deploy", "--json").stdout)
    return document


def submit(cluster: LabCluster, node: str, *words: str) -> str:
    return cluster.root(node, f"sbatch --parsable --output=/dev/null {' '.join(words)}")


def state_of(cluster: LabCluster, node: str, job: str) -> str:
    return cluster.root(node, f"squeue --noheader --all --jobs={job} --format=%T", ok=False)


def in_control(cluster: LabCluster, node: str) -> str:
    """Which controller is in control, as one of them sees it."""
    return cluster.root(node, IN_CONTROL)


def saved_jobs(cluster: LabCluster) -> tuple[str, str, str]:
    """A job that runs on cn01, one that waits for it, both in the state on disk, and the process of the first."""
    runs = submit(cluster, FIRST, "--nodelist=cn01 --wrap 'sleep 10000'")
    wait_until("a job runs", lambda: state_of(cluster, FIRST, runs) == "RUNNING")
    cluster.root(FIRST, "touch /tmp/mark")
    waits = submit(cluster, FIRST, f"--dependency=afterok:{runs} --wrap hostname")
    # slurmctld saves every few seconds: what came after that is lost with it
    wait_until("they are saved", lambda: cluster.holds(FIRST, f"test {MOUNT}/slurmctld/job_state -nt /tmp/mark"))
    pid = cluster.root("cn01", "pgrep -f 'sleep 10000' -o")
    return runs, waits, pid


def test_a_second_controller_is_added_while_a_job_runs(cluster: LabCluster) -> None:
    runs = submit(cluster, FIRST, "--nodelist=cn01 --wrap 'sleep 10000'")
    waits = submit(cluster, FIRST, f"--dependency=afterok:{runs} --wrap hostname")
    wait_until("a job runs", lambda: state_of(cluster, FIRST, runs) == "RUNNING")
    pid = cluster.root("cn01", "pgrep -f 'sleep 10000' -o")
    share(cluster)
    assert "slurmctld.service" in cluster.deepopsctl("plan").stdout

    assert deploy(cluster)["ok"]

    ping = cluster.root("cn02", "scontrol ping")
    assert "Slurmctld(primary) at ctl1 is UP" in ping
    assert f"Slurmctld(backup) at {SECOND} is UP" in ping
    assert {in_control(cluster, node) for node in CONTROLLERS} == {FIRST}
    assert (state_of(cluster, SECOND, runs), state_of(cluster, SECOND, waits)) == ("RUNNING", "PENDING")
    assert cluster.root("cn01", "pgrep -f 'sleep 10000' -o") == pid
    cluster.root(FIRST, "scancel --user=root")


def test_a_second_deploy_changes_nothing(cluster: LabCluster) -> None:
    assert set(cluster.changed(deploy(cluster)).values()) == {0}


def test_jobs_go_on_when_the_controller_in_control_is_lost(cluster: LabCluster) -> None:
    runs, waits, pid = saved_jobs(cluster)

    cluster.power_cut(FIRST)

    wait_until("the second takes over", lambda: in_control(cluster, SECOND) == SECOND)
    meanwhile = submit(cluster, SECOND, "--wait --nodelist=cn02 --wrap hostname")
    assert int(meanwhile) > int(waits)
    assert (state_of(cluster, SECOND, runs), state_of(cluster, SECOND, waits)) == ("RUNNING", "PENDING")
    queued = submit(cluster, SECOND, f"--dependency=afterok:{runs} --wrap hostname")
    # the others are deployed as usual
    edit(cluster.directory / "cluster.yml", "default: true", 'default: true, max_time: "02:00:00"')
    assert cluster.deepopsctl("deploy", ok=False).returncode == 4
    assert "MaxTime=02:00:00" in cluster.root(SECOND, "scontrol show partition")

    cluster.power_on(FIRST)

    wait_until("the first is back in control", lambda: in_control(cluster, SECOND) == FIRST)
    assert [state_of(cluster, SECOND, job) for job in (runs, waits, queued)] == ["RUNNING", "PENDING", "PENDING"]
    assert cluster.root("cn01", "pgrep -f 'sleep 10000' -o") == pid
    cluster.root(FIRST, "scancel --user=root")


def test_a_slurmctld_that_hangs_is_replaced_by_a_new_one_and_never_goes_on(cluster: LabCluster) -> None:
    wait_until("both serve", lambda: cluster.root(SECOND, "scontrol ping").count(" is UP") == 2)
    pid = main_pid(cluster)

    cluster.root(FIRST, f"kill -STOP {pid}")

    wait_until("another one runs", lambda: main_pid(cluster) not in ("0", pid))
    job = submit(cluster, SECOND, "--wait --wrap hostname")
    assert "no sign of life" in cluster.root(FIRST, "journalctl -u deepops-slurm-guard")
    assert state_of(cluster, SECOND, job) in ("", "COMPLETED")


def main_pid(cluster: LabCluster) -> str:
    return cluster.root(FIRST, "systemctl show --property=MainPID --value slurmctld")


def test_a_standby_that_is_away_is_a_problem_of_status(cluster: LabCluster) -> None:
    cluster.root(SECOND, "systemctl stop slurmctld")

    status = json.loads(cluster.deepopsctl("status", "--json", ok=False).stdout)

    assert (status["slurm"]["in_control"], status["slurm"]["controllers"]) == (FIRST, {FIRST: True, SECOND: False})
    assert [entry["nodes"] for entry in status["findings"] if "can't take over" in entry["message"]] == [[SECOND]]
    cluster.root(SECOND, "systemctl start slurmctld")


def test_a_lost_state_is_restored_while_both_controllers_run(cluster: LabCluster) -> None:
    edit(cluster.directory / SETTINGS, "---\n", "---\nslurm_backup_repository: /srv/backup\n")
    assert deploy(cluster)["ok"]
    runs, waits, pid = saved_jobs(cluster)
    cluster.deepopsctl("backup", "run")
    cluster.root(FIRST, f"rm -rf {MOUNT}/slurmctld/*")

    restored = json.loads(cluster.deepopsctl("restore", "--only", "state", "--yes", "--json").stdout)

    assert restored["ok"]
    assert cluster.root(SECOND, "scontrol ping").count(" is UP") == 2
    assert {in_control(cluster, node) for node in CONTROLLERS} == {FIRST}
    assert (state_of(cluster, SECOND, runs), state_of(cluster, SECOND, waits)) == ("RUNNING", "PENDING")
    assert cluster.root("cn01", "pgrep -f 'sleep 10000' -o") == pid
    assert set(cluster.changed(deploy(cluster)).values()) == {0}
    cluster.root(FIRST, "scancel --user=root")


DATABASE = """
export DEBIAN_FRONTEND=noninteractive; exec 2>&1; set -e
apt-get -qq install --no-install-recommends mariadb-server >/tmp/log
settings='[mysqld]\nbind_address = 0.0.0.0\nloose_innodb_snapshot_isolation = OFF\n'
printf "$settings" >/etc/mysql/mariadb.conf.d/99-site.cnf
systemctl restart mariadb
"""


def serve_database(cluster: LabCluster, server: str, hosts: Iterable[str]) -> tuple[str, str]:
    """Run MariaDB on a node as others would, with a database for slurmdbd on these hosts: its address, the password."""
    directory = ClusterDir(cluster.directory)
    password = secrets.read(directory.secrets, directory.vault_password)["slurm_dbd_password"]
    cluster.root(server, DATABASE)
    statements = "".join(
        f"CREATE USER slurm@'{address}' IDENTIFIED BY '{password}';"
        f"GRANT ALL PRIVILEGES ON slurm_acct_db.* TO slurm@'{address}';"
        for address in (address_of(cluster, host) for host in hosts)
    )
    cluster.root(server, f"mariadb <<'END'\nCREATE DATABASE slurm_acct_db; {statements}\nEND\n")
    return address_of(cluster, server), password


def address_of(cluster: LabCluster, node: str) -> str:
    return cluster.root(node, "hostname -I").split()[0]


def test_a_second_slurmdbd_without_a_database_of_its_own_is_refused(cluster: LabCluster) -> None:
    spec = cluster.directory / "cluster.yml"
    spec.write_text(spec.read_text("utf-8").replace("roles: [controller]", "roles: [controller, dbd]"), "utf-8")

    refused = json.loads(cluster.deepopsctl("deploy", "slurm", "--json", ok=False).stdout)

    assert "gives ctl1, login1 the role dbd: a second slurmdbd" in refused["failures"][0]["message"]


def test_a_database_moves_to_its_server_and_a_second_slurmdbd_stands_by(cluster: LabCluster) -> None:
    job = submit(cluster, FIRST, "--wait --wrap hostname")
    wait_until_accounted(cluster, FIRST, job)
    address, password = serve_database(cluster, SERVER, CONTROLLERS)
    cluster.root(
        FIRST,
        "systemctl stop slurmdbd; mariadb-dump --single-transaction --skip-routines slurm_acct_db >/root/slurm.sql;"
        f"MYSQL_PWD='{password}' mariadb -h {address} -u slurm slurm_acct_db </root/slurm.sql",
    )
    with (cluster.directory / SETTINGS).open("a", encoding="utf-8") as stream:
        stream.write(f"slurm_dbd_server: {address}\n")

    assert deploy(cluster)["ok"]

    assert set(cluster.changed(deploy(cluster)).values()) == {0}
    assert state_in_accounting(cluster, SECOND, job) == "COMPLETED"
    assert "in background mode" in cluster.root(SECOND, "journalctl -u slurmdbd")


def test_accounting_goes_on_by_the_second_slurmdbd(cluster: LabCluster) -> None:
    before = submit(cluster, FIRST, "--wait --wrap hostname")
    wait_until_accounted(cluster, FIRST, before)

    cluster.power_cut(FIRST)

    wait_until("sacct answers", lambda: state_in_accounting(cluster, SECOND, before) == "COMPLETED")
    wait_until("the second takes over", lambda: in_control(cluster, SECOND) == SECOND)
    during = submit(cluster, SECOND, "--wait --wrap hostname")
    wait_until_accounted(cluster, SECOND, during)
    cluster.power_on(FIRST)
    wait_until("the first is back in control", lambda: in_control(cluster, SECOND) == FIRST)
    abandoned = "journalctl -u slurmdbd | tail -n 5 | grep -q 'in background mode'"
    wait_until("the second slurmdbd gives up control", lambda: cluster.holds(SECOND, abandoned))
    after = submit(cluster, SECOND, "--wait --wrap hostname")
    for job in (before, during, after):
        wait_until_accounted(cluster, SECOND, job)


def state_in_accounting(cluster: LabCluster, node: str, job: str) -> str:
    return cluster.root(node, f"sacct -nXP -o state -j {job}", ok=False)


def wait_until_accounted(cluster: LabCluster, node: str, job: str) -> None:
    wait_until("it is accounted", lambda: state_in_accounting(cluster, node, job) == "COMPLETED")


def test_new_hardware_takes_the_place_of_the_standby_while_a_job_runs(cluster: LabCluster) -> None:
    runs = submit(cluster, FIRST, "--nodelist=cn01 --wrap 'sleep 10000'")
    wait_until("a job runs", lambda: state_of(cluster, FIRST, runs) == "RUNNING")
    podman("rm", "--force", "--time", "0", f"{NAME}-{SECOND}")
    lab_up(NAME, "--compute", "2", "--login", "1")
    login = ("--password-file", str(cluster.password_file))

    cluster.deepopsctl("node", "replace", SECOND, "--yes", *login)

    assert cluster.root("cn02", "scontrol ping").count(" is UP") == 2
    assert "in background mode" in cluster.root(SECOND, "journalctl -u slurmdbd")
    assert {in_control(cluster, node) for node in CONTROLLERS} == {FIRST}
    assert state_of(cluster, SECOND, runs) == "RUNNING"
    assert set(cluster.changed(deploy(cluster)).values()) == {0}
    refused = cluster.deepopsctl("node", "replace", FIRST, "--yes", ok=False)
    assert (refused.returncode, f"deepopsctl -C {cluster.directory} restore" in refused.stderr) == (3, True)
    cluster.root(FIRST, "scancel --user=root")


def test_the_suite_interrupts_the_first_controller_and_loses_nothing(cluster: LabCluster) -> None:
    document = json.loads(cluster.deepopsctl("validate", "ha", "--json").stdout)

    assert {check["name"]: check["status"] for check in document["checks"]} == dict.fromkeys(
        [
            "ha-controllers", "ha-killed", "ha-killed-accounting", "ha-killed-after", "ha-frozen", "ha-frozen-after",
            "ha-cut-off", "ha-cut-off-after",
        ],
        "pass",
    )  # fmt: skip


FORGET = """
systemctl stop deepops-slurm-guard slurmctld slurmd slurmdbd 2>/dev/null
rm -rf /etc/slurm/* /var/lib/deepopsctl /var/lib/slurm/slurmctld/* /srv/slurm/slurmctld
! command -v mariadb >/dev/null || mariadb -e "DROP DATABASE IF EXISTS slurm_acct_db"
"""


def test_a_first_deploy_starts_both_at_once(cluster: LabCluster) -> None:
    for node in (*CONTROLLERS, "cn01", "cn02"):
        cluster.root(node, FORGET, ok=False)

    assert deploy(cluster)["ok"]

    assert cluster.root(SECOND, "scontrol ping").count(" is UP") == 2
    assert in_control(cluster, SECOND) == FIRST
    assert submit(cluster, SECOND, "--wait --nodes=2 --wrap 'srun hostname'")


def test_slurmctld_does_not_start_where_its_state_is_not_mounted(cluster: LabCluster) -> None:
    cluster.root(SECOND, f"systemctl stop slurmctld; umount {MOUNT}; mkdir -p {MOUNT}/slurmctld")

    cluster.root(SECOND, "/usr/local/sbin/deepops-slurm-controller mounted && exit 1 || exit 0")
    # at its start, what is missing is mounted
    cluster.root(SECOND, "systemctl start slurmctld; findmnt " + MOUNT)


def test_a_directory_that_is_not_shared_is_refused_before_anything_is_changed(cluster: LabCluster) -> None:
    before = cluster.root(SECOND, "cat /etc/slurm/slurm.conf")
    cluster.root(SECOND, f"mkdir -p /srv/own; systemctl stop slurmctld; umount {MOUNT}; mount --bind /srv/own {MOUNT}")
    with (cluster.directory / SETTINGS).open("a", encoding="utf-8") as stream:
        stream.write("slurm_config: {MaxJobCount: 4321}\n")

    refused = json.loads(cluster.deepopsctl("deploy", "slurm", "--json", ok=False).stdout)

    assert not refused["ok"]
    assert any("is this controller's alone" in failure["message"] for failure in refused["failures"])
    assert cluster.root(SECOND, "cat /etc/slurm/slurm.conf") == before
    assert "4321" not in cluster.root(FIRST, "scontrol show config")
