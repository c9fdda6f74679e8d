"""A Slurm that was installed manually is taken over: its jobs, its key, its ids, its state and its accounting stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from tests.lab import foreign_slurm
from tests.lab.harness import PREFIX, LabCluster, fresh_lab, wait_until
from tests.lab.leaks import Leaks

NODES = ("ctl1", "gpu01", "gpu02")
# no node of the cluster's
DATABASE = "login1"


@dataclass(frozen=True)
class HandMade:
    """The cluster, a job that ended before the take-over, and one that runs until /tmp/go is there."""

    lab: LabCluster
    ended: int
    running: int
    leaks: Leaks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    """A hand-made cluster with a job on it, imported, its nodes reached by key, nothing taken over yet."""
    name = f"{PREFIX}-handmade"
    directory = tmp_path_factory.mktemp(name)
    with fresh_lab(name, "--compute", "2", "--login", "1", "--gpus", "a100:2") as lab:
        cluster = LabCluster.of(lab, directory / "cluster")
        foreign_slurm.build(cluster, {node["name"]: node["address"] for node in lab["nodes"]}, directory, DATABASE)
        ended = cluster.submit("true", "--chdir=/tmp", "--output=/dev/null")
        cluster.wait_for_job(ended, "COMPLETED")
        options = ("--nodelist=gpu01", "--gpus=a100:1", "--chdir=/tmp", "--output=/dev/null")
        running = cluster.submit("while [ ! -e /tmp/go ]; do sleep 0.5; done; srun hostname", *options)
        cluster.wait_for_job(running, "RUNNING")
        foreign_slurm.take_in(cluster, directory)
        secrets = {"old password": "by-hand-0815", "old munge key": foreign_slurm.MUNGE_KEY.decode()}
        yield HandMade(cluster, ended, running, Leaks(cluster, secrets))


def test_a_slurm_that_deepopsctl_did_not_make_is_refused_before_anything_is_touched(made: HandMade) -> None:
    done = made.lab.deepopsctl("deploy", "slurm", ok=False)

    assert done.returncode == 1
    assert "a Slurm is there that deepopsctl did not make" in done.stderr
    assert f"deepopsctl -C {made.lab.directory} takeover" in done.stderr
    for node in NODES:
        made.lab.root(node, "! test -e /var/lib/deepopsctl && grep -q '# made manually' /etc/slurm/slurm.conf")


def test_takeover_shows_what_it_preserves_and_changes_nothing_on_the_nodes(made: HandMade) -> None:
    done = made.leaks.run("takeover", "--json")

    document = json.loads(done.stdout)
    assert document["written"]
    assert document["settings"]["slurm_dbd_database"] == "hand_acct"
    assert document["settings"]["slurm_dbd_server"] == made.lab.root(DATABASE, "hostname -I").split()[0]
    assert document["settings"]["slurm_user_id"] == foreign_slurm.UID
    assert document["settings"]["slurm_config"]["StateSaveLocation"] == "/srv/slurm/state"
    assert made.lab.root("gpu01", "! test -e /var/lib/deepopsctl; head -1 /etc/slurm/slurm.conf") == "# made manually"
    # policy stays, and what a deploy changes is listed; the plan shows it with both values
    assert (made.lab.directory / "job_submit.lua").read_text() == foreign_slurm.JOB_SUBMIT
    assert document["settings"]["slurm_dbd_config"] == {"PrivateData": "events", "PurgeJobAfter": "12months"}
    assert "slurm.conf: ProctrackType=proctrack/linuxproc" in document["not_kept"]
    planned = json.loads(made.leaks.run("plan", "slurm", "--json").stdout)["changes"]
    keys = {change["name"]: change["detail"] for change in planned if change["kind"] == "key"}
    # slurm.conf has no SlurmdTimeout; the running Slurm has the value that a deploy writes
    assert {"JobSubmitPlugins", "SelectTypeParameters", "ClusterName", "SlurmdTimeout"}.isdisjoint(keys)
    assert keys["ProctrackType"] == "proctrack/linuxproc -> proctrack/cgroup"


def with_settings(made: HandMade, **settings: str) -> str:
    """The error of a deploy that failed with these settings of slurm.conf added to those taken over."""
    slurm_settings = yaml.safe_load((made.lab.directory / "inventory/group_vars/all/settings.yml").read_text())[
        "slurm_config"
    ]
    done = made.leaks.run(
        "deploy", "slurm", "--diff", "-e", json.dumps({"slurm_config": {**slurm_settings, **settings}}), ok=False
    )
    assert done.returncode == 1
    return done.stderr


def assert_original_services(made: HandMade) -> None:
    """The old files and units are in effect, under the job that runs."""
    wait_until("slurmctld answers", lambda: "UP" in made.lab.root("ctl1", "scontrol ping", ok=False))
    assert made.lab.root("ctl1", "cat /etc/slurm/slurm.conf") == foreign_slurm.SLURM_CONF.strip()
    assert made.lab.root("gpu01", "head -1 /etc/slurm/slurm.conf") == "# made manually"
    assert made.lab.root("gpu01", "systemctl is-active slurmd") == "active"
    assert made.lab.job_state(made.running) == "RUNNING"


def test_a_setting_that_would_lose_the_jobs_is_refused_before_slurmctld_sees_it(made: HandMade) -> None:
    was = made.lab.root("ctl1", "systemctl show --property=InvocationID slurmctld")

    message = with_settings(made, StateSaveLocation="/srv/elsewhere")

    assert "StateSaveLocation is /srv/slurm/state, the new slurm.conf says /srv/elsewhere" in message
    assert_original_services(made)
    assert made.lab.root("ctl1", "systemctl show --property=InvocationID slurmctld") == was


def test_a_setting_that_stops_slurmctld_restores_the_original_configuration(made: HandMade) -> None:
    message = with_settings(made, SchedulerType="sched/none")

    assert "old configuration is in force again" in message
    assert_original_services(made)


def test_deploy_goes_on_from_there_under_the_running_job(made: HandMade) -> None:
    lab = made.lab
    keys = {node: lab.root(node, "sha256sum /etc/munge/munge.key") for node in NODES}

    summary = json.loads(made.leaks.run("deploy", "slurm", "--diff", "--json").stdout)

    assert summary["ok"]
    assert lab.job_state(made.running) == "RUNNING"
    assert {node: lab.root(node, "sha256sum /etc/munge/munge.key; id -u slurm") for node in NODES} == {
        node: f"{key}\n{foreign_slurm.UID}" for node, key in keys.items()
    }
    shown = lab.root("ctl1", "scontrol show config; scontrol show node gpu01; scontrol show partition main")
    for setting in ("ClusterName             = hand", "/srv/slurm/state", "/srv/slurm/spool", "CR_CORE", "Weight=5"):
        assert setting in shown
    assert "MaxTime=2-00:00:00" in shown
    assert lab.root("ctl1", "cat /etc/slurm/slurm.conf.before-deepopsctl") == foreign_slurm.SLURM_CONF.strip()
    # its commands read what slurmd fetched, not the file from before; so do those of jobs that have its path
    lab.root("gpu01", "test -L /etc/slurm/slurm.conf && sinfo -h && test -e /etc/slurm/slurm.conf.before-deepopsctl")


def test_accounting_has_the_jobs_of_before_and_after(made: HandMade) -> None:
    lab = made.lab
    assert lab.job_state(made.ended) == "COMPLETED"
    assert "StorageLoc=hand_acct" in lab.root("ctl1", "cat /etc/slurm/slurmdbd.conf")
    shown = lab.root("ctl1", "sacctmgr show config")
    assert "PrivateData            = events" in shown
    assert "PurgeJobAfter          = 12 months" in shown
    refused = lab.user("ctl1", "sbatch --job-name=forbidden --chdir=/tmp --wrap true", ok=False)
    assert "Batch job submission failed" in refused
    assert lab.root("ctl1", "sacctmgr -nP show associations user=ubuntu format=user") == ""
    # it stays on its server
    lab.root("ctl1", "! dpkg --status mariadb-server")
    new = lab.submit("true", "--chdir=/tmp", "--output=/dev/null", "--gpus=1")
    lab.wait_for_job(new, "COMPLETED")

    rows = lab.root(DATABASE, "echo 'select id_job from hand_acct.hand_job_table order by id_job' | mariadb -N").split()

    assert [str(made.ended), str(made.running), str(new)] == rows


def test_undo_puts_the_old_configuration_back_under_the_running_job(made: HandMade) -> None:
    lab = made.lab

    lab.deepopsctl("takeover", "--undo")

    assert_original_services(made)
    refused = lab.user("ctl1", "sbatch --job-name=forbidden --chdir=/tmp --wrap true", ok=False)
    assert "Batch job submission failed" in refused
    assert "PrivateData            = events" in lab.root("ctl1", "sacctmgr show config")
    lab.deploy()
    assert lab.job_state(made.running) == "RUNNING"


def test_a_second_deploy_changes_nothing_and_the_old_job_ends_well(made: HandMade) -> None:
    lab = made.lab

    assert set(lab.changed(lab.deploy()).values()) == {0}
    assert set(lab.changed(lab.deploy("--full")).values()) == {0}
    lab.root("gpu01", "touch /tmp/go")
    lab.wait_for_job(made.running, "COMPLETED")


def test_a_cluster_that_deepopsctl_manages_is_not_taken_over(made: HandMade) -> None:
    done = made.lab.deepopsctl("takeover", ok=False)

    assert done.returncode == 3
    assert "was deployed by deepopsctl already" in done.stderr


def test_no_secret_is_printed_or_readable_anywhere(made: HandMade) -> None:
    made.leaks.in_cluster_directory()

    assert made.leaks.seen == []
    key, password = {"/etc/munge/munge.key": "400"}, {"/etc/slurm/slurmdbd.conf": "600"}
    backups = {f"{path}.before-deepopsctl": mode for path, mode in password.items()}
    assert made.leaks.on_node("gpu01") == key
    assert made.leaks.on_node("ctl1") == {**key, **password, **backups, "/etc/deepopsctl/database.cnf": "600"}
