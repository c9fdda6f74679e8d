"""The end of a deploy: every reason for which a node does not run what was deployed is detected, reported or fixed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.faults import assert_heals, holds, running_job
from tests.lab.harness import LabCluster
from tests.support.cluster import DEEPOPSCTL, PATIENCE_S, wait_until
from tests.support.node_modules import COLLECTIONS

# how long to wait for what will not come; what may come on a busy host has its usual time
HASTY = ("--full", "-e", "slurmd_verify_timeout=12")
HASTY_CONTROLLER = ("--full", "-e", "slurmctld_verify_timeout=12")
# systemd runs munged so until the drop-in is gone: a line of its [Service] section is the damage
MUNGED = """mkdir -p /run/systemd/system/munge.service.d
echo "[Service]" > /run/systemd/system/munge.service.d/damage.conf
echo "{}" >> /run/systemd/system/munge.service.d/damage.conf
systemctl daemon-reload && systemctl restart munge"""
OTHER_KEY = """head -c 1024 /dev/urandom > /etc/munge/other.key
chown munge: /etc/munge/other.key && chmod 0400 /etc/munge/other.key
""" + MUNGED.format("ExecStart=\\nExecStart=/usr/sbin/munged --key-file=/etc/munge/other.key")
# a container has no clock of its own; munged is made to see another one
OTHER_CLOCK = """apt-get -qq -o DPkg::Lock::Timeout=60 install libfaketime >/dev/null 2>&1
""" + MUNGED.format("Environment=LD_PRELOAD=$(ls /usr/lib/*/faketime/libfaketime.so.1) FAKETIME=-600")
OWN_MUNGE = """rm -rf /run/systemd/system/munge.service.d /etc/munge/other.key
systemctl daemon-reload; systemctl restart munge; systemctl restart --no-block slurmd"""
# what a stale cache is: slurmd did not get, or could not write, what slurmctld sent; and it can't be sent again
STALE = """echo '# an older one' >> /run/slurm/conf/slurm.conf; mkdir -p /run/systemd/system/slurmd.service.d
printf '[Unit]\\nRefuseManualStop=yes\\n' > /run/systemd/system/slurmd.service.d/damage.conf; systemctl daemon-reload"""
FRESH = "rm -rf /run/systemd/system/slurmd.service.d; systemctl daemon-reload; systemctl restart slurmd"
# the next reconfigure finds a slurmctld that accepts connections and does not answer, as in a deadlock
HANG = """cat > /usr/local/bin/scontrol <<'END'
#!/bin/sh
if [ "$1" = reconfigure ] && mkdir /run/hung 2>/dev/null; then systemctl kill --signal=STOP slurmctld; fi
exec /usr/bin/scontrol "$@"
END
chmod +x /usr/local/bin/scontrol
mkdir -p /run/systemd/system/slurmctld.service.d
printf '[Service]\\nTimeoutStopSec=3\\n' > /run/systemd/system/slurmctld.service.d/damage.conf
systemctl daemon-reload"""
NO_HANG = """rm -rf /usr/local/bin/scontrol /run/hung /run/systemd/system/slurmctld.service.d
systemctl daemon-reload"""
SMI = "/usr/local/bin/nvidia-smi"
ONE_GPU = f"echo '#!/bin/sh' > {SMI}; echo 'echo NVIDIA A100-SXM4-40GB, 00000000:17:00.0' >> {SMI}; chmod 755 {SMI}"
REPLACED = "cp -a /usr/sbin/slurmd-wlm /usr/sbin/slurmd-new && mv /usr/sbin/slurmd-new /usr/sbin/slurmd-wlm"
RESTART = "systemctl restart slurmd"
KEY = "its munge runs with another key than ctl1's"
CLOCK = r"its clock is about \d+ s behind ctl1's"
OLD_CONF = r"slurmd still has the slurm.conf of 20\d\d-.*cannot be restarted"
OLD_PROGRAM = r"slurmd still runs the program that was there before \S+ was installed"


@contextmanager
def damaged(cluster: LabCluster, node: str, damage: str, repair: str) -> Iterator[None]:
    """A node with a damage, which is repaired whatever happens."""
    try:
        cluster.root(node, damage)
        yield
    finally:
        wait_until(f"{node} is repaired", lambda: holds(cluster, node, repair))


def wait_until_in_service(cluster: LabCluster, node: str) -> None:
    """Wait until Slurm schedules jobs on the node again."""
    # Slurm keeps the drain that it set itself until a user resumes it
    cluster.root("ctl1", f"scontrol update nodename={node} state=resume", ok=False)
    wait_until(f"{node} serves again", lambda: cluster.node_state(node) in ("idle", "mixed", "allocated"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            (STALE, FRESH, OLD_CONF, "journalctl -u slurmd"),
            (OTHER_KEY, OWN_MUNGE, KEY, "munge"),
            id="conf, key",
            marks=pytest.mark.every_change,
        ),
        pytest.param(
            (REPLACED, RESTART, OLD_PROGRAM, "systemctl restart"),
            (OTHER_CLOCK, OWN_MUNGE, CLOCK, "clock"),
            id="old, clock",
        ),
    ],
)
def test_a_node_that_does_not_run_what_was_deployed_is_named_with_the_reason(
    battered: LabCluster, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    with damaged(battered, "gpu01", *one[:2]), damaged(battered, "gpu02", *other[:2]):
        document = battered.deploy(*HASTY, ok=False)

        failures = {failure["host"]: failure for failure in document["failures"]}
        assert sorted(failures) == ["gpu01", "gpu02"], failures
        for node, (_, _, reason, hint) in (("gpu01", one), ("gpu02", other)):
            assert re.search(reason, failures[node]["message"]), failures[node]
            assert hint in failures[node]["hint"]
    # healed as a whole after the next damage
    for node in ("gpu01", "gpu02"):
        wait_until_in_service(battered, node)


def test_nodes_that_have_less_than_slurm_conf_declares_are_reported_in_its_words(battered: LabCluster) -> None:
    # RealMemory twice of what they have; the simulated GPUs have no driver, so this stands in for one
    with damaged(battered, "gpu02", ONE_GPU, f"rm -f {SMI}"):
        failed = battered.deploy(*HASTY, "-e", "slurm_conf_memory_reserve_percent=-100", ok=False)

    failures = {failure["host"]: failure for failure in failed["failures"]}
    assert sorted(failures) == ["gpu01", "gpu02"]
    assert re.search(r"slurmctld has it as \S*INVAL\S* \(Low RealMemory", failures["gpu01"]["message"])
    message = "cluster.yml says a100:2, the driver 1 x NVIDIA A100-SXM4-40GB, slurmd gpu:a100:2"
    assert message in failures["gpu02"]["message"]
    assert "fell off the bus" in failures["gpu02"]["hint"]
    battered.deploy()
    for node in ("gpu01", "gpu02"):
        wait_until_in_service(battered, node)
    assert_heals(battered)


def test_a_slurmd_that_missed_the_configuration_is_restarted_under_its_job(battered: LabCluster) -> None:
    with running_job(battered, "gpu02"):
        battered.root("gpu02", "echo '# an older one' >> /run/slurm/conf/slurm.conf")

        document = battered.deploy("--full")

        assert battered.changed(document) == {"ctl1": 0, "gpu01": 0, "gpu02": 1}
        assert "gpu02: slurmd was restarted: slurmd still has the slurm.conf of" in " ".join(document["warnings"])
    assert_heals(battered)


@pytest.mark.parametrize(
    ("setting", "restarts"),
    [
        pytest.param("PreemptExemptTime: '00:10:00'", 1, id="reconfigure"),
        pytest.param("PreemptType: preempt/partition_prio, PreemptMode: REQUEUE", 2, id="restart"),
    ],
)
def test_a_slurmctld_that_hangs_over_its_new_configuration_is_restarted_and_loses_no_job(
    battered: LabCluster, setting: str, restarts: int
) -> None:
    starts = "journalctl --unit slurmctld --output cat | grep -c '^Started '"
    with running_job(battered, "gpu01"), damaged(battered, "ctl1", HANG, NO_HANG):
        before = int(battered.root("ctl1", starts))

        document = battered.deploy("-e", f"{{slurm_config: {{{setting}}}}}")

        assert "ctl1: slurmctld stopped answering when" in " ".join(document["warnings"])
        assert int(battered.root("ctl1", starts)) - before == restarts
        key = setting.partition(":")[0]
        for node in ("ctl1", "gpu01", "gpu02"):
            battered.root(node, f"grep ^{key}= $(readlink -e /run/slurm/conf/slurm.conf || echo /etc/slurm/slurm.conf)")
    assert_heals(battered)


def test_a_node_that_slurmctld_cannot_reach_serves_again(battered: LabCluster) -> None:
    # slurmctld asks a silent node again after a third of this
    options = ("--full", "-e", '{"slurm_config": {"SlurmdTimeout": 3000}}')
    no_way = "ip route {} blackhole $(getent ahostsv4 ctl1 | cut -d' ' -f1 | head -n 1)"
    battered.deploy(*options)
    with damaged(battered, "gpu02", no_way.format("add"), no_way.format("del")):
        battered.root("ctl1", "systemctl restart slurmctld")
        wait_until("slurmctld does not hear gpu02", lambda: battered.node_state("gpu02").endswith("*"))

    document = battered.deploy(*options)

    assert "gpu02: slurmd was restarted: slurmctld has it as" in " ".join(document["warnings"])
    assert battered.node_state("gpu02") == "idle"
    assert_heals(battered)


def test_a_node_that_slurm_took_out_for_a_restart_serves_again_and_one_that_a_person_took_out_does_not(
    battered: LabCluster,
) -> None:
    down = "scontrol update nodename={} state=down reason='{}'"
    # as slurmctld would write it: a container's uptime is the host's, so it can't be seen to restart
    battered.root("ctl1", "runuser -u slurm -- " + down.format("gpu02", "Node unexpectedly rebooted"))
    battered.root("ctl1", down.format("gpu01", "bad DIMM in slot 7"))
    try:
        document = battered.deploy()

        assert battered.changed(document) == {"ctl1": 0, "gpu01": 0, "gpu02": 1}
        assert battered.root("ctl1", "sinfo -h -N -o '%N %T'").splitlines() == ["gpu01 down", "gpu02 idle"]
    finally:
        wait_until_in_service(battered, "gpu01")
        wait_until_in_service(battered, "gpu02")
    assert_heals(battered)


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmdbd"])
def test_a_daemon_that_hangs_is_named_with_what_to_do_and_no_row_is_lost(battered: LabCluster, daemon: str) -> None:
    pid = f"$(systemctl show --property MainPID --value {daemon})"
    with running_job(battered, "gpu01"):
        with damaged(battered, "ctl1", f"kill -STOP {pid}", f"kill -CONT {pid}"):
            document = battered.deploy(*HASTY_CONTROLLER, ok=False)

            (failure,) = document["failures"]
            assert failure["host"] == "ctl1"
            assert f"{daemon}: does not answer" in failure["message"]
            assert f"`systemctl restart {daemon}` there (jobs continue)" in failure["hint"]
            assert "journalctl -u slurmctld -u slurmdbd" in failure["hint"]
        assert_heals(battered)


# slurmctld's package as another version of itself, one that conflicts with it, and a file as 22.05 has it all the time:
# with that, the package's script cancels all jobs when it is removed
PACKAGES = """set -e; rm -rf /root/trial; mkdir -p /root/trial/rival/DEBIAN; cd /root/trial
apt-get download -qq slurmctld; mv slurmctld_*.deb old.deb; dpkg-deb -R old.deb new
sed -i 's/^Version: .*/&+trial/' new/DEBIAN/control; dpkg-deb -b new new.deb >/dev/null
printf '%s\\n' 'Package: rival' 'Version: 1' 'Architecture: all' 'Maintainer: T <t@example.com>' 'Description: T' \\
  'Conflicts: slurmctld' > rival/DEBIAN/control; dpkg-deb -b rival rival.deb >/dev/null
echo 1 > /run/slurmctld.pid"""


def install(cluster: LabCluster, package: str, version: str, archive: str) -> tuple[int, str]:
    """Install a file of ctl1's as roles do; the exit code and the output."""
    task = {"owned": True, "packages": {package: version}, "archives": {package: f"/root/trial/{archive}"}}
    words = [
        "-b",
        "-m",
        "deepopsctl.cluster.node_state",
        "-a",
        json.dumps({"component": "trial", "step": package, **task}),
    ]
    done = subprocess.run(
        [
            Path(DEEPOPSCTL).with_name("ansible"),
            "ctl1",
            "-i",
            "inventory/hosts.yml",
            "--vault-password-file",
            ".vault-password",
            *words,
        ],
        cwd=cluster.directory,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout


def test_packages_neither_remove_a_slurmctld_nor_restart_it_before_the_deploy_does(battered: LabCluster) -> None:
    pid = "systemctl show -p MainPID --value slurmctld"
    with running_job(battered, "gpu01") as job:
        battered.root("ctl1", PACKAGES)
        version = battered.root("ctl1", "dpkg-query -W -f '${Version}' slurmctld")
        before = battered.root("ctl1", pid)
        try:
            code, output = install(battered, "rival", "", "rival.deb")
            assert code != 0
            assert "apt would remove slurmctld, which can cancel all jobs" in output

            code, output = install(battered, "slurmctld", f"{version}+trial", "new.deb")
            assert code == 0, output
            assert battered.root("ctl1", pid) == before
            assert not battered.holds("ctl1", "test -e /usr/sbin/policy-rc.d")

            battered.deploy()
            assert battered.root("ctl1", pid) != before
        finally:
            battered.root("ctl1", "cd /root/trial && rm -f /run/slurmctld.pid && dpkg -i old.deb")
        assert battered.job_state(job) == "RUNNING"
    assert_heals(battered)
