"""What the fault tests share: waiting for a condition, deploys in the background, and stops in the middle of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cluster import DEEPOPSCTL, DrivenCluster, wait_until

# in front of the real deb-systemd-helper, which the package's own script calls: dpkg is half through by then
HOOK = """set -e
mkdir -p /root/hook
cat > /root/hook/deb-systemd-helper <<'END'
#!/bin/sh
touch /run/reached
while [ -e /run/hold ]; do sleep 0.1; done
exec /usr/bin/deb-systemd-helper "$@"
END
chmod +x /root/hook/deb-systemd-helper
echo 'DPkg::Path "/root/hook:/usr/sbin:/usr/bin:/sbin:/bin";' > /etc/apt/apt.conf.d/99-hook
rm -f /run/reached
touch /run/hold
"""
UNHOOK = "rm -rf /run/hold /run/reached /root/hook /etc/apt/apt.conf.d/99-hook"
# its absence harms nothing that runs, and makes the next deploy install it
PURGE = "dpkg --purge chrony >/dev/null 2>&1"


@dataclass(frozen=True)
class Deploy:
    """A deploy that runs in the background, in a process group of its own."""

    process: subprocess.Popen[str]
    stdout: Path
    stderr: Path
    patience_s: float

    def interrupt(self) -> None:
        """What a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """`kill -9` of deepopsctl alone."""
        self.process.kill()

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Wait for its end: exit code, the JSON document, and what a person saw."""
        code = self.process.wait(timeout=2 * self.patience_s)
        return code, json.loads(self.stdout.read_text() or "{}"), self.stderr.read_text()

    def ensure_ended(self) -> None:
        """Nothing of it is left, whatever the test found."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=self.patience_s)


def deploying(cluster: DrivenCluster, *options: str) -> AbstractContextManager[Deploy]:
    """A deploy in the background."""
    return working(cluster, "deploy", *cluster.components, *options)


@contextmanager
def working(cluster: DrivenCluster, *words: str) -> Iterator[Deploy]:
    """Any command with --json in the background."""
    with tempfile.TemporaryDirectory() as directory:
        stdout, stderr = Path(directory, "stdout"), Path(directory, "stderr")
        with stdout.open("w") as out, stderr.open("w") as err:
            process = subprocess.Popen(
                [DEEPOPSCTL, "-C", str(cluster.directory), *words, "--json"],
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        deploy = Deploy(process, stdout, stderr, cluster.patience_s)
        try:
            yield deploy
        finally:
            deploy.ensure_ended()


def killed_when(cluster: DrivenCluster, words: tuple[str, ...], condition: str) -> None:
    """Start a command, and kill -9 all of it once a shell test on the controller is true."""
    with working(cluster, *words) as started:
        wait_until(
            condition,
            lambda: started.process.poll() is not None or cluster.holds("ctl1", condition),
            # several runs of Ansible
            4 * cluster.patience_s,
            lambda: started.stderr.read_text()[-2000:],
        )
        assert started.process.poll() is None, started.stderr.read_text()[-2000:]


@contextmanager
def in_the_middle_of_an_install(cluster: DrivenCluster, node: str) -> Iterator[Deploy]:
    """A deploy that stands still on one node, in a package's own script; it continues on `release`, or at the end."""
    cluster.root(node, PURGE)
    cluster.root(node, HOOK)
    try:
        with deploying(cluster) as deploy:
            wait_until(
                f"the deploy installs a package on {node}",
                lambda: deploy.process.poll() is not None or holds(cluster, node, "test -e /run/reached"),
                cluster.patience_s,
            )
            assert deploy.process.poll() is None, deploy.stderr.read_text()
            yield deploy
    finally:
        cluster.power_on(node)
        wait_until(f"{node} can be repaired", lambda: holds(cluster, node, UNHOOK), cluster.patience_s)


def release(cluster: DrivenCluster, node: str) -> None:
    """Let the package install continue."""
    cluster.root(node, "rm -f /run/hold")


def holds(cluster: DrivenCluster, node: str, test: str) -> bool:
    """Whether a shell test is true on a node; false where the node is off."""
    return cluster.holds(node, test)


def no_package_manager(cluster: DrivenCluster, node: str) -> bool:
    """True once the package manager of an earlier run has ended on a node."""
    return not holds(cluster, node, "pgrep -x 'apt-get|dpkg'")


@contextmanager
def running_job(cluster: DrivenCluster, node: str) -> Iterator[int]:
    """A job that runs on a node until this ends, and must then have ended well, with its row in the accounting."""
    loop = "while [ ! -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done"
    # quoted for the shell of `su -c`, which would put its own job id in
    job = int(cluster.user("ctl1", f"sbatch --parsable --nodelist={node} --mem=100M --wrap '{loop}'"))
    try:
        cluster.wait_for_job(job, "RUNNING")
        yield job
        cluster.root(node, f"touch /tmp/go-{job}")
        wait_until(
            f"the accounting has job {job} as COMPLETED",
            lambda: accounted(cluster, job) == "COMPLETED 0:0",
            cluster.patience_s,
        )
    finally:
        cluster.user("ctl1", f"scancel {job}", ok=False)
        wait_until(
            f"job {job} is gone",
            lambda: not cluster.user("ctl1", f"squeue -h -j {job}", ok=False).isdigit(),
            cluster.patience_s,
        )


def wait_until_saved(cluster: DrivenCluster, job: int, directory: str = "/var/lib/slurm/slurmctld") -> None:
    """Wait until slurmctld has a running job in its state on disk.

    It writes that every few seconds: killed in between, it forgets that the job has started.
    """
    word = f"saved-{job}"
    cluster.root("ctl1", f"scontrol update jobid={job} comment={word}")
    test = f"grep -qa {word} {directory}/job_state"
    wait_until(f"slurmctld has saved job {job}", lambda: holds(cluster, "ctl1", test), cluster.patience_s)


def accounted(cluster: DrivenCluster, job: int) -> str:
    """State and exit code of a job by slurmdbd alone."""
    return cluster.user("ctl1", f"sacct -nX -P -o state,exitcode -j {job}", ok=False).replace("|", " ")


def is_unchanged(cluster: DrivenCluster, summary: Mapping[str, Any]) -> bool:
    """Whether a deploy changed nothing, and did no more than to check."""
    idle = set(cluster.changed(summary).values()) == {0}
    return idle and all(counts["ok"] <= cluster.unchanged_tasks for counts in summary["hosts"].values())


def assert_heals(cluster: DrivenCluster) -> None:
    """The next deploy makes all good, and the one after it has nothing left to do."""
    last = cluster.deploy(ok=False)
    assert last["ok"], last["failures"]
    if not is_unchanged(cluster, last):
        last = cluster.deploy(ok=False)
        assert last["ok"], last["failures"]
        assert is_unchanged(cluster, last), last
    states = cluster.root("ctl1", "sinfo -h -N -o '%N %T'").splitlines()
    assert {line.split()[1] for line in states} <= {"idle", "mixed", "allocated", "planned"}, states
