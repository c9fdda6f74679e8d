"""What jobs need, all of it in one deploy: datasets, MPI, Apptainer, rclone, libraries, HPC Challenge; and off again.

The kernel below a lab has no NFS: the shared file system is SFTP mounted by FUSE, which counts as honestly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_smoke.mpi import MARK, OPENMPI
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, limit_cores, wait_until
from tests.lab.smoke import validate

NODES = ("gpu01", "gpu02")
BOTH = "gpu[01-02]"
SIZE = 40_000_000
SITE = """
job_directories: {base: /srv/jobs, method: prolog}
storage: [{name: software, type: local, source: /srv/shared/software, path: /opt/software, local: {shared: true}}]
"""
PACKAGES = "[nvidia-cuda-runtime-cu12, nvidia-cuda-nvcc-cu12, nvidia-cuda-cccl-cu12]"
SETTING = f"""\
user_environment_dataset_cache: {{directory: /srv/datasets, space: 64M}}
user_environment_rclone: {{transfers: 2, bwlimit: 100M}}
environment_containers: [apptainer]
environment_packages_more: [hpcc]
validate_hpc_memory_share: 0.0005
# two nodes that share the cores of one machine are not equally fast at any time
validate_hpc_share: 0.4
modules_wheels: /opt/software/wheels
modules_software: [python, gcc, openmpi, mpich]
environments: {{runtime: {{packages: {PACKAGES}, libraries: true}}}}
"""
SOURCE = r"""
#include <cuda_runtime_api.h>
#include <stdio.h>
int main(void) { int version = 0; cudaRuntimeGetVersion(&version); printf("runtime %d\n", version); return 0; }
"""
# with the node's own programs: PMIx is asked by a socket in the directory of slurmd
IN_CONTAINER = """\
cd $SLURM_TMPDIR; mkdir -p tree/usr tree/etc tree/run tree/var tree/tmp tree/proc tree/sys tree/dev
ln -s usr/bin usr/lib usr/lib64 tree; apptainer --silent exec --bind /usr,/etc,/run,/var tree"""
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
    """A controller that serves files, and nodes that mount them and keep datasets between jobs."""
    if not Path("/dev/fuse").exists():
        pytest.skip("this machine has no FUSE")
    with fresh_cluster(
        f"{PREFIX}-job-data", tmp_path_factory, "--compute", str(len(NODES)), "--gpus", "a100:2"
    ) as made:
        made.root("ctl1", "mkdir -p /srv/shared/software")
        spec = made.directory / "cluster.yml"
        edit(spec, "components: [nvidia, slurm]", "components: [storage, slurm, environment]")
        spec.write_text(spec.read_text(encoding="utf-8") + SITE, encoding="utf-8")
        edit(made.directory / SETTINGS, "---\n", f"---\n{SETTING}")
        made.deepopsctl("deploy")
        serve(made, NODES)
        yield made


def serve(cluster: LabCluster, nodes: Iterable[str]) -> None:
    """The controller's files at /data of the nodes."""
    cluster.root("ctl1", SERVE)
    for node in nodes:
        cluster.root(node, MOUNT)


def job(cluster: LabCluster, script: str, nodes: Sequence[str] = NODES) -> tuple[str, int]:
    """What a job on all nodes writes, and the bytes that the file server has sent for it."""
    before = _sent(cluster)
    cluster.user("ctl1", f"cat > job.sh <<'END'\n#!/bin/bash\nset -e\n{script}\nEND")
    options = f"--wait --parsable -N{len(nodes)} --ntasks-per-node=1 -c1 --chdir=/tmp -o /data-out.txt"
    cluster.user("ctl1", f"sbatch {options.replace('/data-out.txt', '/tmp/out-%j.txt')} job.sh > number")
    number = cluster.user("ctl1", "cat number")
    output = "".join(cluster.root(node, f"cat /tmp/out-{number}.txt 2>/dev/null", ok=False) for node in nodes)
    return output, _sent(cluster) - before


def _sent(cluster: LabCluster) -> int:
    return int(cluster.root("ctl1", "cat /sys/class/net/eth0/statistics/tx_bytes"))


def test_the_nodes_of_a_job_read_a_file_once(cluster: LabCluster) -> None:
    _, copied = job(cluster, "srun cp /data/big $SLURM_TMPDIR/")
    output, sent = job(cluster, "stage-in /data/big; srun bash -c 'stat -c %s $SLURM_TMPDIR/big'")

    assert output.split().count(str(SIZE)) == len(NODES)
    assert copied > 0.95 * len(NODES) * SIZE
    assert SIZE < sent < 1.3 * SIZE


def test_an_image_of_many_files_is_mounted_on_each_node_and_goes_with_the_job(cluster: LabCluster) -> None:
    cluster.root(
        "ctl1", "apt-get -qq install squashfs-tools >/tmp/log; cd /srv/data; pack-dataset small; chmod 644 small.sqsh"
    )

    output, _ = job(cluster, "stage-in --mount /data/small.sqsh; srun bash -c 'ls $SLURM_TMPDIR/small | wc -l'")

    assert output.split().count("1000") == len(NODES)
    for node in NODES:
        wait_until("nothing is left", lambda node=node: not cluster.root(node, "ls -A /srv/jobs/slurm-jobs"))  # type: ignore[misc]  # bound now
        assert not cluster.holds(node, "grep squashfuse /proc/mounts")


def test_the_next_job_reads_nothing(cluster: LabCluster) -> None:
    script = "stage-in --cache /data/big; srun bash -c 'stat -Lc %s $SLURM_TMPDIR/big'"
    first, _ = job(cluster, script)
    second, sent = job(cluster, script)

    assert first.split().count(str(SIZE)) == second.split().count(str(SIZE)) == len(NODES)
    assert sent < 0.1 * SIZE


def test_root_removes_what_is_larger_than_a_user_may_have(cluster: LabCluster) -> None:
    # the second has no process; of `ubuntu` there are those of our own kept connection
    busy, own = "/srv/datasets/$(id -u ubuntu)", "/srv/datasets/54321"
    for user, path in (("ubuntu", busy), ("54321", own)):
        make = f"mkdir -p -m 700 {path}; ln -s /etc {path}/link; head -c 90000000 /dev/zero > {path}/more"
        cluster.root("gpu01", f"{make}; chown -R -h {user} {path}")
    cluster.root("gpu01", "systemd-run --quiet --unit=busy --uid=ubuntu sleep 600")

    cluster.root("gpu01", "systemctl start deepops-dataset-cache")

    assert cluster.root("gpu01", f"ls -A {own}") == ""
    assert cluster.root("gpu01", f"stat -c '%u %a' {own}") == "54321 700"
    assert cluster.holds("gpu01", f"test -s {busy}/more && test -s /etc/passwd")
    cluster.root("gpu01", f"systemctl stop busy; rm -r {busy}/more {busy}/link")


def test_a_program_is_built_against_libraries_of_an_environment(cluster: LabCluster) -> None:
    build = "module load runtime && gcc -o $SLURM_TMPDIR/show /tmp/show.c -lcudart && $SLURM_TMPDIR/show"
    for node in NODES:
        cluster.root(node, f"cat > /tmp/show.c <<'END'\n{SOURCE}END")

    output, _ = job(cluster, f"srun bash -lc '{build}'")

    assert output.count("runtime 12") == len(NODES), output


def test_an_mpi_program_is_one_program_on_both_nodes(cluster: LabCluster) -> None:
    result = validate(cluster)

    for name in ("mpi", "mpi-mpich"):
        assert result.checks[name, cluster.name]["status"] == "pass", result.shown
        assert result.message(name, cluster.name) == f"on {NODES[0]} and {NODES[1]}"


def test_the_processes_of_an_mpi_program_in_containers_find_each_other(cluster: LabCluster) -> None:
    for node in NODES:
        cluster.root(node, f"cat > /tmp/mpi.py <<'END'\n{OPENMPI.step[-1]}END")

    output, _ = job(cluster, f"srun --mpi=pmix --mem=500M bash -c '{IN_CONTAINER} python3 /tmp/mpi.py'")

    assert output.count(f"{MARK} 2 2") == len(NODES), output


def test_apptainer_starts_in_jobs_with_the_jobs_devices(cluster: LabCluster) -> None:
    result = validate(cluster, suite="containers")

    expected = {(f"containers-{name}", node): "pass" for name in ("apptainer", "devices", "removed") for node in NODES}
    assert {key: check["status"] for key, check in result.checks.items()} == expected, result.shown
    assert not cluster.holds("gpu01", "find /home/ubuntu/.apptainer -name cache | grep .")


def test_rclone_copies_on_the_login_node_with_the_sites_options(cluster: LabCluster) -> None:
    shown = cluster.user("ctl1", "rclone copy /etc/hostname /tmp/copied -vv && cat /tmp/copied/hostname")

    assert shown.startswith("ctl1")
    assert 'Setting --transfers "2" from environment variable RCLONE_TRANSFERS' in shown
    # rclone's own words for it
    assert 'Setting --bwlimit "100Mi" from environment variable RCLONE_BWLIMIT' in shown
    assert not cluster.holds("gpu01", "command -v rclone")


def test_each_node_and_both_give_right_results_and_rates(cluster: LabCluster) -> None:
    result = validate(cluster, suite="hpc")

    of_nodes = {(f"hpc-{what}", node): "pass" for what in ("node", "hpl", "stream", "fft") for node in NODES}
    of_both = {(f"hpc-{what}", BOTH): "pass" for what in ("together", "hpl-together")}
    assert {key: check["status"] for key, check in result.checks.items()} == of_nodes | of_both, result.shown
    assert not cluster.holds("gpu01", "ls -d /tmp/hpcc.* | grep .")


def test_a_slow_node_is_behind_its_own_past(cluster: LabCluster) -> None:
    # without the other: both as one program would wait for it for minutes
    with limit_cores(cluster, "gpu02", 0.2):
        result = validate(cluster, "--limit", "gpu02", suite="hpc")

    assert ("hpc-hpl", "gpu02") in result.failed(), result.shown
    assert "its own past" in result.message("hpc-hpl", "gpu02")


def test_a_second_deploy_changes_nothing(cluster: LabCluster) -> None:
    assert cluster.parsed("deploy", "environment", "--full")["changes"] == []


def test_without_the_settings_all_of_it_is_gone(cluster: LabCluster) -> None:
    edit(cluster.directory / SETTINGS, SETTING, "")
    cluster.deepopsctl("deploy", "environment")

    left = "/etc/deepopsctl/dataset-cache.json /usr/local/sbin/deepops-dataset-cache /etc/slurm/deepops/prolog.d/30*"
    for node in NODES:
        assert not cluster.holds(node, "command -v apptainer || systemctl cat deepops-dataset-cache.timer")
        assert cluster.root(node, f"ls -d {left} 2>/dev/null", ok=False) == ""
        assert not cluster.holds(node, "ls /opt/deepopsctl/environments/modulefiles/runtime/*")
    assert cluster.user("ctl1", "echo $RCLONE_TRANSFERS $RCLONE_BWLIMIT") == "4 off"
    assert cluster.parsed("deploy", "environment", "--full")["changes"] == []
