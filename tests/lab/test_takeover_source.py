"""A Slurm that was built from source, as DeepOps does it, gives way to packages while its jobs run, and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from tests.lab import foreign_slurm, source_slurm
from tests.lab.harness import PREFIX, LabCluster, fresh_lab, wait_until

NODES = ("ctl1", "cn01", "cn02")
DAEMONS = {"ctl1": ("slurmdbd", "slurmctld"), "cn01": ("slurmd",), "cn02": ("slurmd",)}

# it may have to be compiled
pytestmark = pytest.mark.timeout(7200)


@dataclass(frozen=True)
class Built:
    """The cluster, and two jobs: one waits for /tmp/go and starts a step then, the other has no place yet."""

    lab: LabCluster
    running: int
    waiting: int


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """A cluster with Slurm in /usr/local, imported, its nodes reached by key, nothing taken over yet."""
    name = f"{PREFIX}-source"
    directory = tmp_path_factory.mktemp(name)
    with fresh_lab(name, "--compute", "2") as lab:
        cluster = LabCluster.of(lab, directory / "cluster")
        source_slurm.build(cluster, {node["name"]: node["address"] for node in lab["nodes"]}, directory)
        options = ("--nodelist=cn01", "--ntasks=2", "--chdir=/tmp", "--output=/tmp/out-%j")
        running = cluster.submit("while [ ! -e /tmp/go ]; do sleep 0.5; done; srun hostname", *options)
        cluster.wait_for_job(running, "RUNNING")
        waiting = cluster.submit("srun hostname", *options)
        foreign_slurm.take_in(cluster, directory)
        yield Built(cluster, running, waiting)


def programs(lab: LabCluster) -> dict[str, set[str]]:
    """The programs of the daemons that run, by node."""
    return {
        node: {lab.root(node, f"readlink /proc/$(systemctl show -P MainPID {name})/exe") for name in names}
        for node, names in DAEMONS.items()
    }


def assert_jobs(made: Built) -> None:
    """The queue is as it was."""
    assert made.lab.job_state(made.running) == "RUNNING"
    assert made.lab.job_state(made.waiting) == "PENDING"


def test_takeover_finds_where_it_was_built(made: Built) -> None:
    document = json.loads(made.lab.deepopsctl("takeover", "--json").stdout)

    assert document["settings"]["slurm_source_prefix"] == "/usr/local"
    assert document["settings"]["slurm_config"]["StateSaveLocation"] == source_slurm.STATE
    assert "PluginDir" not in document["settings"]["slurm_config"]
    assert document["settings"]["slurm_plugstack"] == [f"required {source_slurm.PLUGIN}"]


def test_a_configuration_that_the_packages_do_not_start_with_leaves_the_built_one_in_force(made: Built) -> None:
    settings = yaml.safe_load((made.lab.directory / "inventory/group_vars/all/settings.yml").read_text())
    broken = {**settings["slurm_config"], "SchedulerType": "sched/none"}

    done = made.lab.deepopsctl("deploy", "slurm", "-e", json.dumps({"slurm_config": broken}), ok=False)

    assert "old configuration is in force again" in done.stderr
    assert made.lab.root("ctl1", "readlink /proc/$(systemctl show -P MainPID slurmctld)/exe").startswith("/usr/local")
    assert_jobs(made)


def test_deploy_moves_the_daemons_to_packages_under_the_jobs(made: Built) -> None:
    lab = made.lab

    assert json.loads(lab.deepopsctl("deploy", "slurm", "--json").stdout)["ok"]

    assert all(name.startswith("/usr/sbin/") for names in programs(lab).values() for name in names)
    assert_jobs(made)
    lab.root("cn01", 'test "$(readlink /usr/local/bin/srun)" = /usr/bin/srun')
    assert set(lab.changed(lab.deploy()).values()) == {0}
    assert set(lab.changed(lab.deploy("--full")).values()) == {0}


def assert_pyxis_and_nhc(made: Built) -> None:
    """New jobs have the plugin, and slurmd runs the health check from before."""
    seen = made.lab.root(
        "ctl1", "srun -Q --nodelist=cn02 --ntasks=1 --chdir=/tmp --container-image=x env | grep ^PYXIS"
    )
    assert seen == "PYXIS=here"
    made.lab.root("cn02", "rm -f /run/nhc")
    wait_until("the health check runs", lambda: made.lab.holds("cn02", "test -e /run/nhc"))


def test_plugins_of_jobs_and_the_health_check_stay(made: Built) -> None:
    assert_pyxis_and_nhc(made)

    document = json.loads(made.lab.deepopsctl("doctor", "--json", ok=False).stdout)

    checks = [check["status"] for check in document["checks"] if check["name"] == "plugins"]
    assert checks == ["pass"] * len(NODES)


def test_undo_runs_the_built_one_again_and_a_deploy_the_packages(made: Built) -> None:
    lab = made.lab

    lab.deepopsctl("takeover", "--undo")

    assert all(name.startswith("/usr/local/sbin/") for names in programs(lab).values() for name in names)
    assert lab.root("cn01", "cat /etc/slurm/slurm.conf") == source_slurm.SLURM_CONF.strip()
    wait_until("slurmctld answers", lambda: "UP" in lab.root("ctl1", "scontrol ping", ok=False))
    assert_jobs(made)
    lab.deploy()
    assert all(name.startswith("/usr/sbin/") for names in programs(lab).values() for name in names)
    assert_jobs(made)


def test_finish_waits_for_the_jobs_of_before_and_removes_the_rest(made: Built) -> None:
    lab = made.lab
    refused = lab.deepopsctl("takeover", "--finish", ok=False)
    assert "slurmstepd started from /usr/local and still run" in refused.stderr
    lab.root("cn01", "test -e /usr/local/lib/slurm.before-deepopsctl/sbin/slurmd && touch /tmp/go")
    lab.wait_for_job(made.running, "COMPLETED")
    lab.wait_for_job(made.waiting, "COMPLETED")

    lab.deepopsctl("takeover", "--finish")

    for node in NODES:
        left = lab.root(node, "find /usr/local ! -type d -path '*slurm*' -not -path '*/deepopsctl/*'")
        assert left == source_slurm.PLUGIN
    assert_pyxis_and_nhc(made)
    rows = lab.root("ctl1", "echo 'select id_job from hand_acct.hand_job_table order by id_job' | mariadb -N").split()
    assert rows[:2] == [str(made.running), str(made.waiting)]
    assert set(lab.changed(lab.deploy("--full")).values()) == {0}
    new = lab.submit("true", "--chdir=/tmp", "--output=/dev/null")
    lab.wait_for_job(new, "COMPLETED")
