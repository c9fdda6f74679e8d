"""Another release of Slurm with two controllers, two slurmdbd on hosts of their own, a database elsewhere."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from deepopsctl.model.cluster import Role
from tests.lab.harness import (
    DEEPOPSCTL,
    PREFIX,
    SETTINGS,
    LabCluster,
    assign_roles,
    fresh_cluster,
    wait_until,
)
from tests.lab.test_two_controllers import SERVE, SERVER, in_control, serve_database, shared_state
from tests.lab.test_upgrade import NO_MPI, UPGRADE, WITHOUT, add_new_release, history, record, version

NAME = f"{PREFIX}-richer"
FIRST, SECOND, LOGIN, DATABASE, STANDBY = "ctl1", "login1", "login2", "cn02", "login3"
ROLES: dict[str, Role | frozenset[Role]] = {
    FIRST: Role.CONTROLLER,
    SECOND: Role.CONTROLLER,
    LOGIN: Role.LOGIN,
    SERVER: Role.COMPUTE,
    DATABASE: frozenset({Role.DBD, Role.COMPUTE}),
    STANDBY: Role.DBD,
}

pytestmark = pytest.mark.timeout(5400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """24.11 is deployed, and 26.05 is in the cluster's repository. A compute node has the state and the database."""
    with fresh_cluster(NAME, tmp_path_factory, "--compute", "2", "--login", "3") as made:
        if not made.holds(FIRST, "test -e /dev/fuse"):
            pytest.skip("this machine has no FUSE")
        made.root(SERVER, SERVE)
        address, _password = serve_database(made, SERVER, (DATABASE, STANDBY))
        with (made.directory / SETTINGS).open("a", encoding="utf-8") as stream:
            stream.write(f"slurm_dbd_server: {address}\n{NO_MPI}")
        assign_roles(made, ROLES, ("storage", "slurm"))
        with (made.directory / "cluster.yml").open("a", encoding="utf-8") as stream:
            stream.write(shared_state(made))
        made.deepopsctl("deploy")
        add_new_release(made, tmp_path_factory.mktemp("sid"))
        yield made


def test_the_plan_has_slurmdbd_first_then_controllers_login_nodes_and_compute_nodes(cluster: LabCluster) -> None:
    plan = cluster.parsed("upgrade", "slurm", "--to", "26.05", "--check", *WITHOUT)

    assert plan["controllers"] == [DATABASE, STANDBY, FIRST, SECOND]
    assert (plan["login"], plan["batches"]) == ([LOGIN], [[SERVER]])
    assert plan["refusals"] == []


def test_jobs_start_and_end_all_the_time_and_none_is_lost_or_missing_in_the_accounting(cluster: LabCluster) -> None:
    runs = cluster.submit("sleep 100000", "--mem=10M", "-n1", f"--nodelist={SERVER}")
    cluster.wait_for_job(runs, "RUNNING")
    # one whose start fails would end
    short = cluster.submit("sleep 1", "--array=1-1000", "--no-requeue", "--mem=10M", "-n1")
    pid = cluster.root(SERVER, "pgrep -f 'sleep 100000' -o")
    fields = cluster.root(FIRST, "sacct -e | xargs | tr ' ' ','")
    before = history(cluster, fields)

    with (cluster.directory / "upgrade.log").open("wb") as log:
        process = subprocess.Popen([DEEPOPSCTL, "-C", str(cluster.directory), *UPGRADE], stdout=log, stderr=log)
    wait_until(
        "slurmdbd is converted",
        lambda: process.poll() is not None or cluster.holds(DATABASE, "test -e /var/lib/deepopsctl/upgrade/converting"),
        pause_s=0.05,
    )
    shown = (cluster.directory / "upgrade.log").read_text
    assert process.poll() is None, shown()
    # slurmctld serves meanwhile, and no old slurmdbd does
    assert cluster.root(FIRST, "scontrol ping").count(" is UP") == 2
    assert not cluster.holds(STANDBY, "systemctl is-active slurmdbd")
    process.wait(timeout=1800)

    assert process.returncode == 0, shown()
    assert "accounting: slurmctld still has" not in shown()
    assert version(cluster) == "26.05.5"
    assert record(cluster) == {}
    for node in (FIRST, SECOND, DATABASE, STANDBY):
        assert not cluster.holds(node, "test -e /var/lib/deepopsctl/upgrade")
    ping = cluster.root(LOGIN, "scontrol --version; scontrol ping")
    assert "26.05.5" in ping
    assert ping.count(" is UP") == 2
    assert cluster.root(SECOND, "slurmctld -V").endswith("26.05.5")
    for node in (DATABASE, STANDBY):
        assert cluster.root(node, "slurmdbd -V").endswith("26.05.5")
    assert in_control(cluster, SECOND) == FIRST
    assert cluster.root(SERVER, "pgrep -f 'sleep 100000' -o") == pid
    after = history(cluster, fields)
    assert [line for line in before if line not in after] == []
    cluster.root(FIRST, f"scancel {short}")
    wait_until("they have ended", lambda: cluster.root(FIRST, "squeue -h -o %T") == "RUNNING")
    ended = set(cluster.root(FIRST, f"sacct -nXPD -o state,nodelist -j {short} | sed 's/ by [0-9]*//'").splitlines())
    assert ended - {f"CANCELLED|{node}" for node in ("None assigned", SERVER, DATABASE)} == {
        f"COMPLETED|{node}" for node in (SERVER, DATABASE)
    }


def test_the_standbys_take_over_in_the_new_release(cluster: LabCluster) -> None:
    cluster.root(DATABASE, "systemctl stop slurmdbd")
    cluster.root(SECOND, "scontrol takeover")
    wait_until("the second is in control", lambda: in_control(cluster, SECOND) == SECOND)
    wait_until("sacct answers", lambda: cluster.root(LOGIN, "sacct -nXP -o state -s running", ok=False) == "RUNNING")
    assert cluster.root(SECOND, "squeue -h -o %T") == "RUNNING"
    cluster.root(DATABASE, "systemctl start slurmdbd")
    cluster.root(FIRST, "systemctl start slurmctld")
    wait_until("control is back", lambda: in_control(cluster, SECOND) == FIRST)


def test_a_deploy_changes_nothing_afterwards(cluster: LabCluster) -> None:
    assert set(cluster.changed(cluster.parsed("deploy")).values()) == {0}
