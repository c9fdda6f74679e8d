"""Datasets in jobs: bytes that a file server sends for a naive copy and for stage-in, images, and a cache between jobs.

The kernel below a lab has no NFS: the shared file system is SFTP mounted by FUSE, which counts as honestly.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until

NODES = ("gpu01", "gpu02")
SIZE = 40_000_000
SETTING = "user_environment_dataset_cache: {directory: /srv/datasets, space: 64M}\n"
INSTALL = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq install {} >/tmp/log"
SERVE = f"""
{INSTALL.format("socat openssh-sftp-server")}
mkdir -p /srv/data/small; cd /srv/data; head -c {SIZE} /dev/urandom > big
for i in $(seq 1000); do head -c 4000 /dev/urandom > small/$i; done; chmod -R a+rX .
systemd-run --unit=files socat TCP-LISTEN:7777,fork,reuseaddr EXEC:/usr/lib/openssh/sftp-server
"""
MOUNT = f"""
{INSTALL.format("sshfs")}
chmod 666 /dev/fuse; mkdir -p /data; echo user_allow_other > /etc/fuse.conf
sshfs -o directport=7777,allow_other,cache=no,ro $(getent hosts ctl1 | cut -d' ' -f1):/srv/data /data
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller that serves files, and two nodes that mount them and keep datasets between jobs."""
    with fresh_cluster(f"{PREFIX}-job-data", tmp_path_factory, "--compute", "2") as made:
        if not made.holds("gpu01", "test -e /dev/fuse"):
            pytest.skip("this machine has no FUSE")
        spec = made.directory / "cluster.yml"
        edit(spec, "components: [slurm]", "components: [slurm, environment]")
        spec.write_text(
            spec.read_text(encoding="utf-8") + "job_directories: {base: /srv/jobs, method: prolog}\n", encoding="utf-8"
        )
        edit(made.directory / SETTINGS, "---\n", f"---\n{SETTING}")
        made.deepopsctl("deploy")
        made.root("ctl1", SERVE)
        for node in NODES:
            made.root(node, MOUNT)
        yield made


def job(cluster: LabCluster, script: str) -> tuple[str, int]:
    """What a job on both nodes writes, and the bytes that the file server has sent for it."""
    before = _sent(cluster)
    cluster.user("ctl1", f"cat > job.sh <<'END'\n#!/bin/bash\nset -e\n{script}\nEND")
    options = "--wait --parsable -N2 --ntasks-per-node=1 -c1 --chdir=/tmp -o /data-out.txt"
    cluster.user("ctl1", f"sbatch {options.replace('/data-out.txt', '/tmp/out-%j.txt')} job.sh > number")
    number = cluster.user("ctl1", "cat number")
    output = "".join(cluster.root(node, f"cat /tmp/out-{number}.txt", ok=False) for node in NODES)
    return output, _sent(cluster) - before


def _sent(cluster: LabCluster) -> int:
    return int(cluster.root("ctl1", "cat /sys/class/net/eth0/statistics/tx_bytes"))


def test_two_nodes_read_a_file_once(cluster: LabCluster) -> None:
    _, copied = job(cluster, "srun cp /data/big $SLURM_TMPDIR/")
    output, sent = job(cluster, "stage-in /data/big; srun bash -c 'stat -c %s $SLURM_TMPDIR/big'")

    assert output.split().count(str(SIZE)) == 2
    assert copied > 1.9 * SIZE
    assert SIZE < sent < 1.3 * SIZE


def test_an_image_of_many_files_is_mounted_on_both_nodes_and_goes_with_the_job(cluster: LabCluster) -> None:
    cluster.root(
        "ctl1", "apt-get -qq install squashfs-tools >/tmp/log; cd /srv/data; pack-dataset small; chmod 644 small.sqsh"
    )

    output, _ = job(cluster, "stage-in --mount /data/small.sqsh; srun bash -c 'ls $SLURM_TMPDIR/small | wc -l'")

    assert output.split().count("1000") == 2
    for node in NODES:
        wait_until("nothing is left", lambda node=node: not cluster.root(node, "ls -A /srv/jobs/slurm-jobs"))  # type: ignore[misc]  # bound now
        assert not cluster.holds(node, "grep squashfuse /proc/mounts")


def test_the_next_job_reads_nothing(cluster: LabCluster) -> None:
    script = "stage-in --cache /data/big; srun bash -c 'stat -Lc %s $SLURM_TMPDIR/big'"
    first, _ = job(cluster, script)
    second, sent = job(cluster, script)

    assert first.split().count(str(SIZE)) == second.split().count(str(SIZE)) == 2
    assert sent < 0.1 * SIZE


def test_root_removes_what_is_larger_than_a_user_may_have(cluster: LabCluster) -> None:
    own = "/srv/datasets/$(id -u ubuntu)"
    cluster.root(
        "gpu01",
        f"mkdir -p {own}; ln -s /etc {own}/link; head -c 90000000 /dev/zero > {own}/more; chown -R -h ubuntu {own}",
    )

    wait_until("no process of the user", lambda: not cluster.holds("gpu01", "pgrep -u ubuntu"))
    cluster.root("gpu01", "systemctl start deepops-dataset-cache")

    assert cluster.root("gpu01", f"ls -A {own}") == ""
    assert cluster.holds("gpu01", "test -s /etc/passwd")
    assert cluster.root("gpu01", f"stat -c %a {own}") == "700"
