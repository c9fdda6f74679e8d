"""Directories of a job's own, by real jobs: Slurm's plugin first, then the prolog; the cluster is left as it was."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.foreign_slurm import put
from tests.lab.harness import SETTINGS, SLURM_CONFIG, LabCluster, edit, wait_until
from tests.support.node_modules import MODULE_UTILS

JOB_DIRECTORY = "/var/spool/slurm-jobs"
SITE = SLURM_CONFIG.replace("}", ", Epilog: /usr/local/sbin/site-epilog}")
# Numbers of jobs that were not run; a crash may leave their directories.
STALE = ("900001", "900002")
# What a job does that wants root to unmount, remove or own something of others, or to own what is not its own.
HOSTILE = f"""
cd $SLURM_TMPDIR
ln -s /srv/precious .ns; ln -s /srv/precious link; ln -s /srv/precious {STALE[1]}
ln /srv/of-root hard 2>/dev/null
mkdir "a
{STALE[0]}" -- -rf "$(printf '%0200d' 1)"
bash -c "exec -a 'slurmstepd: [{STALE[0]}.batch]' sleep 600" &
sleep 600 | bash -c "exec -a 'slurmstepd: [{STALE[0]}.0]' su -c true" &
touch -d '1 Jan 2040' . ready
wait
"""
PROBE = 'stat -c "%a %U" $SLURM_TMPDIR; echo $SLURM_TMPDIR; ls -A $SLURM_TMPDIR /dev/shm'
# Since Linux 6.18 each processor numbers namespaces in a range of its own, and the kernel lets no process hold a mount
# namespace with a lower number than its own: in a container, whose own has no low one, whether the plugin works depends
# on the processor. Once a range is used up all numbers are higher. A node's own first namespace has the lowest of all.
OUTGROW = """
import ctypes, os
for cpu in os.sched_getaffinity(0):
    if os.fork() == 0:
        os.sched_setaffinity(0, {cpu})
        for _ in range(4097):
            ctypes.CDLL(None).unshare(0x04000000)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def cluster(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster with job directories by Slurm's plugin, and a site's own epilog; all reverted at the end."""
    paths = [deployed.directory / "cluster.yml", deployed.directory / SETTINGS]
    before = [path.read_text(encoding="utf-8") for path in paths]
    for node in ("gpu01", "gpu02"):
        subprocess.run(["podman", "exec", f"{deployed.name}-{node}", "python3", "-c", OUTGROW], check=True)
        deployed.root(node, "printf '#!/bin/sh\\nid -u >/run/site-epilog\\n' >/usr/local/sbin/site-epilog")
        deployed.root(node, "chmod 755 /usr/local/sbin/site-epilog")
    paths[0].write_text(f"{before[0]}job_directories: {{}}\n", encoding="utf-8")
    edit(paths[1], SLURM_CONFIG, SITE)
    try:
        deployed.deploy()
        yield deployed
    finally:
        empty_queue(deployed)
        off = [path.read_text(encoding="utf-8") for path in paths] == before
        for path, text in zip(paths, before, strict=True):
            path.write_text(text, encoding="utf-8")
        if not off:
            deployed.deploy()


def empty_queue(cluster: LabCluster) -> None:
    """Cancel all jobs, and wait until they are gone."""
    cluster.root("ctl1", "scancel --user=ubuntu", ok=False)
    wait_until("the queue is empty", lambda: not cluster.root("ctl1", "squeue --noheader", ok=False))


def submit(cluster: LabCluster, script: str, *options: str) -> str:
    """A batch job's number; the job runs when this returns."""
    text = f"cat <<'END' | sbatch --parsable --mem=50M --chdir=/ {' '.join(options)}\n#!/bin/bash\n{script}\nEND"
    job = cluster.user("ctl1", text).split()[-1]
    wait_until(f"job {job} runs", lambda: cluster.user("ctl1", f"squeue -ho %T -j {job}") == "RUNNING")
    return job


def job_directories(cluster: LabCluster, node: str) -> set[str]:
    """Numbers of the jobs that have a directory on a node, and what else there is of directories there."""
    paths = cluster.root(
        node, f"cd {JOB_DIRECTORY} && find . -mindepth 1 -maxdepth 2 -name '[0-9.]*' -printf '%f\\n'", ok=False
    )
    return set(paths.split())


def until_gone(cluster: LabCluster, node: str, *jobs: str) -> None:
    """Wait until no directory of these jobs is on a node."""
    wait_until(f"{jobs} have left {node}", lambda: not job_directories(cluster, node) & set(jobs))


def checks(cluster: LabCluster) -> list[dict[str, Any]]:
    """The results of the check of the smoke suite."""
    done = cluster.deepopsctl("validate", "smoke", "--json", ok=False)
    return [check for check in json.loads(done.stdout)["checks"] if check["name"] == "job-directories"]


class TestNamespace:
    def test_two_jobs_of_one_user_at_once_see_nothing_of_each_other(self, cluster: LabCluster) -> None:
        leave = "touch $SLURM_TMPDIR/mark{0} /dev/shm/mark{0}; sleep 600"
        jobs = [submit(cluster, leave.format(number), "-w gpu01", "-o /dev/null") for number in (1, 2)]

        def inside(job: str) -> str:
            return cluster.user("ctl1", f"srun --jobid={job} --overlap --mem=0 --chdir=/ sh -c '{PROBE}'")

        wait_until("both have left their marks", lambda: all("mark" in inside(job) for job in jobs))
        for number, job in enumerate(jobs, 1):
            lines = inside(job).splitlines()
            assert lines[:2] == ["700 ubuntu", "/tmp"]
            assert {line for line in lines if line.startswith("mark")} == {f"mark{number}"}
        assert "mark" not in cluster.root("gpu01", "ls /tmp /dev/shm")

        # a slurmd that restarts removes nothing of jobs that run
        cluster.root("gpu01", f"mkdir -p {JOB_DIRECTORY}/{STALE[0]}/.{STALE[0]}/_tmp {JOB_DIRECTORY}/gpu01/{STALE[1]}")
        cluster.root("gpu01", "systemctl kill --kill-whom=main --signal=KILL slurmd; systemctl restart slurmd")
        until_gone(cluster, "gpu01", *STALE)
        assert job_directories(cluster, "gpu01") >= set(jobs)
        assert "mark1" in inside(jobs[0])

        cluster.user("ctl1", f"scancel {' '.join(jobs)}")
        until_gone(cluster, "gpu01", *jobs)

    def test_every_type_of_job_gets_the_path_of_its_own_directory(self, cluster: LabCluster) -> None:
        run = "--mem=50M --chdir=/ -Q"
        assert cluster.user("ctl1", f"srun {run} -N2 sh -c 'echo $SLURM_TMPDIR'").split() == ["/tmp", "/tmp"]
        assert cluster.user("ctl1", f"salloc {run} srun --mem=0 printenv SLURM_TMPDIR").split()[-1] == "/tmp"
        interactive = f"echo 'echo own=$SLURM_TMPDIR; exit' | salloc {run}"
        assert "own=/tmp" in cluster.user("ctl1", interactive, ok=False)
        output = "-o /home/ubuntu/own-%a.out"
        cluster.user("ctl1", f"sbatch --wait --array=1-2 -w gpu01 {run} {output} --wrap 'echo $SLURM_TMPDIR'")
        assert cluster.root("gpu01", "cat /home/ubuntu/own-[12].out; rm /home/ubuntu/own-*.out").split() == ["/tmp"] * 2
        # the site's own epilog continues being called
        wait_until("the site's epilog has run", lambda: cluster.root("gpu01", "cat /run/site-epilog", ok=False) == "0")

    def test_what_a_killed_step_leaves_goes_with_the_job(self, cluster: LabCluster) -> None:
        job = submit(cluster, "sleep 600", "-w gpu02", "-o /dev/null")
        cluster.root("gpu02", f"pkill -KILL -f '^slurmstepd: .{job}.extern'")

        cluster.user("ctl1", f"scancel {job}")

        until_gone(cluster, "gpu02", job)

    def test_a_node_that_crashed_comes_back_without_the_directories_of_before(self, cluster: LabCluster) -> None:
        job = submit(cluster, "sleep 600", "-w gpu02", "-o /dev/null", "--no-requeue")
        assert job in job_directories(cluster, "gpu02")
        cluster.power_cut("gpu02")
        cluster.power_on("gpu02")

        until_gone(cluster, "gpu02", job)
        cluster.user("ctl1", f"scancel {job}", ok=False)
        subprocess.run(["podman", "exec", f"{cluster.name}-gpu02", "python3", "-c", OUTGROW], check=True)

    def test_under_running_jobs_it_is_not_switched_off(self, cluster: LabCluster) -> None:
        job = submit(cluster, "sleep 600", "-w gpu01", "-o /dev/null")
        spec = cluster.directory / "cluster.yml"
        text = spec.read_text(encoding="utf-8")
        try:
            edit(spec, "job_directories: {}\n", "")
            refused = cluster.deepopsctl("deploy", ok=False)
        finally:
            spec.write_text(text, encoding="utf-8")

        assert refused.returncode == 1
        assert f"changing JobContainerType would break jobs that are running: {job}" in refused.stderr + refused.stdout
        cluster.user("ctl1", f"scancel {job}")

    def test_validate_sees_that_they_are_private(self, cluster: LabCluster) -> None:
        wait_until("gpu02 is back", lambda: "idle" in cluster.root("ctl1", "sinfo -hn gpu02 -o %t", ok=False))

        assert [(check["target"], check["status"], check["message"]) for check in checks(cluster)] == [
            (node, "pass", "/dev/shm as well") for node in ("gpu01", "gpu02")
        ]


class TestProlog:
    @pytest.fixture(scope="class")
    @staticmethod
    def cluster(cluster: LabCluster) -> LabCluster:
        """The same by prolog and epilog, and no job that would block that."""
        empty_queue(cluster)
        edit(cluster.directory / "cluster.yml", "job_directories: {}", "job_directories: {method: prolog}")
        cluster.deploy()
        return cluster

    def test_each_job_has_a_directory_that_is_removed_with_it(self, cluster: LabCluster) -> None:
        lines = cluster.user("ctl1", f"srun -N2 --mem=50M --chdir=/ sh -c '{PROBE}; echo $TMPDIR'").splitlines()

        own = next(line for line in lines if line.startswith(JOB_DIRECTORY))
        assert re.fullmatch(rf"{JOB_DIRECTORY}/[0-9]+", own)
        assert lines.count("700 ubuntu") == 2
        # $SLURM_TMPDIR and $TMPDIR, on both nodes
        assert lines.count(own) == 4
        for node in ("gpu01", "gpu02"):
            until_gone(cluster, node, Path(own).name)

    def test_a_hostile_job_cannot_remove_unmount_or_own_anything_of_others(self, cluster: LabCluster) -> None:
        cluster.root("gpu01", "mkdir -p /srv/precious && mount -t tmpfs none /srv/precious")
        cluster.root("gpu01", "touch /srv/precious/file /srv/of-root")
        before = cluster.root("gpu01", "stat -c '%U %a %n' /srv/precious /srv/precious/file /srv/of-root")
        job = submit(cluster, HOSTILE, "-w gpu01", "-o /dev/null")
        wait_until("it has done its worst", lambda: cluster.holds("gpu01", f"test -e {JOB_DIRECTORY}/{job}/ready"))
        wait_until("it pretends", lambda: cluster.holds("gpu01", f"pgrep -f '^slurmstepd: .{STALE[0]}.0'"))

        # what a crash left goes, whichever job claims to run; the job's own stays
        cluster.root("gpu01", f"mkdir {JOB_DIRECTORY}/{STALE[0]} && systemctl restart slurmd")
        until_gone(cluster, "gpu01", STALE[0])
        assert cluster.holds("gpu01", f"test -e {JOB_DIRECTORY}/{job}/ready")
        cluster.user("ctl1", f"scancel {job}")
        until_gone(cluster, "gpu01", job)

        wait_until("nothing is left", lambda: not job_directories(cluster, "gpu01"))
        assert cluster.root("gpu01", "stat -c '%U %a %n' /srv/precious /srv/precious/file /srv/of-root") == before
        cluster.root("gpu01", "umount /srv/precious; rm -r /srv/precious /srv/of-root")

    def test_only_a_step_of_slurm_blocks_a_deploy_on_a_node(self, cluster: LabCluster) -> None:
        put(cluster, "gpu01", "/run/steps.py", Path(MODULE_UTILS, "nvidia/mig.py").read_bytes())
        has_steps = "import sys; sys.path.append('/run'); import steps; print(steps.has_steps())"

        def asked() -> str:
            return cluster.root("gpu01", f'python3 -c "{has_steps}"')

        wait_until("no job runs", lambda: asked() == "False")
        cluster.user("gpu01", "cp /usr/bin/sleep slurmstepd; nohup ./slurmstepd infinity >/dev/null 2>&1 &")
        try:
            wait_until("it runs", lambda: cluster.holds("gpu01", "pgrep -x slurmstepd"))
            assert asked() == "False"
            job = submit(cluster, "sleep 600", "-w gpu01", "-o /dev/null")
            assert asked() == "True"
            cluster.user("ctl1", f"scancel {job}")
        finally:
            cluster.root("gpu01", "pkill -u ubuntu -x slurmstepd; rm -f ~ubuntu/slurmstepd /run/steps.py")

    def test_a_prolog_that_fails_writes_to_the_journal(self, cluster: LabCluster) -> None:
        cluster.root("gpu01", f"mv {JOB_DIRECTORY} {JOB_DIRECTORY}.away && ln -s /home {JOB_DIRECTORY}")
        try:
            cluster.user("ctl1", "sbatch -Q -w gpu01 --mem=50M -o /dev/null --wrap true")
            reason = "deepopsctl: prolog 10-job-directories.required ended with status 1"
            wait_until(
                "the node has the reason", lambda: reason in cluster.root("ctl1", "sinfo -hRn gpu01 -o %E", ok=False)
            )
        finally:
            empty_queue(cluster)
            cluster.root("gpu01", f"rm {JOB_DIRECTORY} && mv {JOB_DIRECTORY}.away {JOB_DIRECTORY}")
            cluster.root("ctl1", "scontrol update nodename=gpu01 state=resume")

    def test_validate_fails_where_a_jobs_directory_is_open_or_stays(self, cluster: LabCluster) -> None:
        program = "/etc/slurm/deepops/job-directories"
        cluster.root("gpu01", f"sed -i 's/0o700/0o755/' {program}")
        cluster.root("gpu02", f"sed -i 's/^def remove(job):/&\\n    return/' {program}")

        results = {check["target"]: (check["status"], check["message"]) for check in checks(cluster)}

        assert results["gpu01"][0] == results["gpu02"][0] == "fail"
        assert results["gpu01"][1].endswith("has mode 755")
        assert results["gpu02"][1].endswith("is still there after its job's end")


class TestSpace:
    @pytest.fixture(scope="class")
    @staticmethod
    def cluster(cluster: LabCluster) -> LabCluster:
        """The same, with a disk that Slurm counts; the file systems of a lab have no project quotas."""
        empty_queue(cluster)
        edit(cluster.directory / "cluster.yml", "{method: prolog}", "{method: prolog, space: 10G, share: 1G}")
        cluster.deploy()
        return cluster

    def test_jobs_that_ask_for_more_than_the_disk_do_not_run_at_once(self, cluster: LabCluster) -> None:
        first = submit(cluster, "sleep 600", "-w gpu01", "-o /dev/null", "--tmp=6G")
        # one that asks for nothing has its share, and fits
        submit(cluster, "sleep 600", "-w gpu01", "-o /dev/null")
        held = "sbatch --parsable --mem=50M --chdir=/ -o /dev/null -w gpu01"
        second = cluster.user("ctl1", f"{held} --gres=tmpdisk:6G --wrap 'sleep 600'")

        assert f"tmpdisk:{7 << 30}" in cluster.root("ctl1", "scontrol show node gpu01 -d | grep GresUsed")
        reason = f"squeue -ho '%T %r' -j {second}"
        wait_until("it waits", lambda: cluster.user("ctl1", reason) == "PENDING Resources")
        cluster.user("ctl1", f"scancel {first}")
        wait_until("it starts", lambda: cluster.user("ctl1", f"squeue -ho %T -j {second}") == "RUNNING")
        empty_queue(cluster)

    def test_more_than_a_disk_has_is_refused(self, cluster: LabCluster) -> None:
        refused = cluster.user("ctl1", "sbatch --mem=50M -o /dev/null --tmp=11G --wrap true", ok=False)

        assert "Requested node configuration is not available" in refused

    def test_the_steps_of_a_job_still_run_at_once(self, cluster: LabCluster) -> None:
        step = "srun --exact --ntasks=1 --mem=50M --chdir=/"
        # each waits for the other
        meet = "touch $SLURM_TMPDIR/{0}; until [ -e $SLURM_TMPDIR/{1} ]; do sleep 0.1; done"
        steps = "; ".join(f"{step} sh -c '{meet.format(*pair)}' &" for pair in ("ab", "ba")).replace("&;", "&")
        cluster.user(
            "ctl1", f"cat <<'END' | sbatch --wait --ntasks=2 --nodes=1 --mem=100M --chdir=/ -o /dev/null -t 5\n"
            f"#!/bin/bash\n{steps}\nwait\nEND",
        )  # fmt: skip


def test_switched_off_nothing_of_it_is_left(cluster: LabCluster) -> None:
    empty_queue(cluster)
    edit(cluster.directory / "cluster.yml", "job_directories: {method: prolog, space: 10G, share: 1G}\n", "")
    edit(cluster.directory / SETTINGS, SITE, SLURM_CONFIG)
    cluster.deploy()

    assert cluster.user("ctl1", "srun --mem=50M --chdir=/ sh -c 'echo own=$SLURM_TMPDIR'") == "own="
    assert not cluster.holds("ctl1", "grep -q 'Prolog=\\|Epilog=\\|JobContainer' /etc/slurm/slurm.conf")
    assert not cluster.holds("ctl1", "test -e /etc/slurm/job_container.conf -o -e /etc/slurm/job_submit.lua")
    assert not cluster.holds("gpu01", "test -e /etc/slurm/deepops/job-directories")
