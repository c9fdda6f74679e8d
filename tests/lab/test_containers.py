"""Containers in jobs: Podman and Charliecloud through Slurm, the registry, and what is left after a job.

Podman needs a file system below its images that is not overlay, as that of the nodes of a lab is: theirs is a disk of
ext4, a file of this machine. A container in a container can't mount /proc, which a setting of the site says.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_smoke.mpi import MARK, OPENMPI
from tests.lab.harness import PATIENCE_S, PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until
from tests.lab.smoke import validate

NODES = ("gpu01", "gpu02")
REGISTRY = "ctl1:5000"
LINES = """\
environment_containers: [podman, charliecloud, oci]
containers_conf: {containers: {volumes: ["/proc:/proc"]}}
environment_registry_node: ctl1
"""
# its compilers are half of what a first deploy unpacks on each node, and no test loads a module
NO_MODULES = "modules_system: none\n"
PEOPLE = """\
schema: 1
groups: [{name: def-lab, gid: 3001, pi: alice}]
people: [{name: alice, uid: 2001, groups: [def-lab]}]
"""
MOUNT = "mkdir -p /scratch && mknod /dev/scratchdisk b 7 {0} && mount /dev/scratchdisk /scratch && rm /dev/scratchdisk"
# an image of the node's shell, whose files belong to subordinate ids, too
JOB = """\
cd $SLURM_TMPDIR && mkdir -p tree/bin && cp /bin/sh tree/bin/ && for each in $(ldd /bin/sh | grep -o '/[^ ]*'); do
mkdir -p tree/$(dirname $each); cp $each tree/$each; done; tar -C tree -c . | podman import - tree:1 &&
podman unshare chown 33:33 tree/bin/sh && ln -s /etc/passwd link && podman run --rm tree:1 /bin/sh -c 'echo inside'
"""
# an image with an MPI of its own
MPI_IMAGE = """\
apt-get install -qq --no-install-recommends mmdebstrap >/tmp/log
mmdebstrap --quiet --mode=root --variant=apt --include=python3,libopenmpi40 --skip=output/mknod trixie /root/mpi.tar
registry-add tarball:/root/mpi.tar mpi:1
"""
# as docs/users/containers.md has it
MPI_JOB = f"""\
srun -n $SLURM_NNODES --ntasks-per-node=1 bash -c 'podman pull -q {REGISTRY}/mpi:1 && mkdir $SLURM_TMPDIR/image &&
    podman export $(podman create {REGISTRY}/mpi:1 true) | tar -C $SLURM_TMPDIR/image -x'
srun --mpi=pmix ch-run --join -b /tmp $SLURM_TMPDIR/image -- python3 /tmp/mpi.py
echo podman
srun -n $SLURM_NNODES --ntasks-per-node=1 --mpi=pmix podman run --rm --userns=keep-id \\
    --env 'PMIX_*' --env 'SLURM_*' -v /tmp:/tmp {REGISTRY}/mpi:1 python3 /tmp/mpi.py
"""

# a bundle of the node's shell that shows the node's files; its root is $0 outside. A lab can't mount /proc in it
BUNDLE = """\
cd && rm -rf bundle made && mkdir -p bundle/rootfs && cd bundle/rootfs && mkdir host proc dev bin
for each in /bin/sh /usr/bin/cat; do cp $each bin; for part in $(ldd $each | grep -o '/[^ ]*'); do
mkdir -p ./$(dirname $part); cp $part ./$part; done; done; cat > ../config.json <<END
{"ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": true},
 "process": {"cwd": "/", "args": ["/bin/sh"], "env": [], "user": {"uid": 0, "gid": 0}},
 "mounts": [{"destination": "/host", "source": "/", "options": ["rbind"]},
            {"destination": "/proc", "source": "/proc", "options": ["rbind"]}],
 "linux": {"namespaces": [{"type": "user"}, {"type": "mount"}],
           "uidMappings": [{"containerID": 0, "hostID": $0, "size": 1}],
           "gidMappings": [{"containerID": 0, "hostID": $(id -g), "size": 1}]}}
END
"""
IN_BUNDLE = """\
echo > /host/home/ubuntu/made
cat /host/etc/shadow
cat /proc/self/cgroup
while read -r word value; do case $word in Cpus_allowed_list:) echo "cpus $value";; esac; done </proc/self/status
"""


def host(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A cluster with containers, a disk for jobs on each node, and a registry on the controller."""
    devices: list[str] = []
    options = ("--compute", "2", "--gpus", "a100:2")
    with fresh_cluster(f"{PREFIX}-containers", tmp_path_factory, *options) as made:
        try:
            devices += [give_disk(made, node, tmp_path_factory.mktemp("disk") / "image") for node in NODES]
            prepare(made)
            made.deepopsctl("deploy")
            yield made
        finally:
            for node in NODES:
                made.root(node, "umount -l /scratch", ok=False)
            for device in devices:
                subprocess.run(["losetup", "-d", device], check=False)


def give_disk(cluster: LabCluster, node: str, image: Path) -> str:
    """Mount a disk at /scratch of a node, which may not do that itself; the loop device."""
    host("truncate", "-s", "3G", str(image))
    host("mkfs.ext4", "-q", "-F", str(image))
    device = host("losetup", "-f", "--show", str(image))
    process = host("podman", "inspect", "--format", "{{.State.Pid}}", f"{cluster.name}-{node}")
    host("nsenter", "-t", process, "-m", "sh", "-c", MOUNT.format(device.removeprefix("/dev/loop")))
    return device


def prepare(cluster: LabCluster) -> None:
    spec = cluster.directory / "cluster.yml"
    edit(spec, "components: [nvidia, slurm]", "components: [slurm, environment]")
    text = spec.read_text(encoding="utf-8")
    spec.write_text(f"{text}job_directories: {{base: /scratch, method: prolog}}\n", encoding="utf-8")
    (cluster.directory / "people.yml").write_text(PEOPLE, encoding="utf-8")
    edit(cluster.directory / SETTINGS, "---\n", f"---\n{NO_MODULES}{LINES}")


def test_containers_start_through_slurm_on_both_nodes(cluster: LabCluster) -> None:
    result = validate(cluster, suite="containers")

    names = ("podman", "charliecloud", "oci", "registry", "devices", "starts", "removed")
    expected = {(f"containers-{name}", node): "pass" for name in names for node in NODES}
    assert {key: check["status"] for key, check in result.checks.items()} == expected


def test_a_jobs_images_go_with_it_and_no_link_is_followed(cluster: LabCluster) -> None:
    job = cluster.user(
        "ctl1", f"cat > job.sh <<'END'\n#!/bin/sh\n{JOB}\nEND\nsbatch --parsable --mem=1G -w gpu01 job.sh"
    )

    wait_until("the job has ended", lambda: not cluster.user("ctl1", f"squeue -h -j {job}", ok=False))
    assert "inside" in cluster.user("gpu01", f"cat slurm-{job}.out").splitlines()
    wait_until("nothing is left", lambda: not cluster.root("gpu01", "ls /scratch/slurm-jobs"))
    assert cluster.holds("gpu01", "test -s /etc/passwd")
    assert not cluster.holds("gpu01", "find /home/ubuntu -path '*overlay*' | grep .")


def test_a_users_bundle_runs_with_the_users_rights_and_within_its_step(cluster: LabCluster) -> None:
    step = "srun --mem=200M -c1 -w gpu01 --container=$HOME/bundle /bin/sh -c"
    cluster.user("gpu01", f"bash -c {shlex.quote(BUNDLE)} $(id -u)")

    shown = cluster.user("gpu01", f"{step} {shlex.quote(IN_BUNDLE)} 2>&1", ok=False)

    assert cluster.user("gpu01", "stat -c %U made") == "ubuntu"
    assert "/etc/shadow: Permission denied" in shown
    assert re.search(r"devices:.*/job_\d+/step_0/task_0$", shown, re.MULTILINE), shown
    assert re.search(r"^cpus \d+$", shown, re.MULTILINE), shown
    # what root does after a step follows nothing of the user's, and nothing is left
    assert not cluster.root("gpu01", "find /var/lib/slurm/slurmd -name 'oci-*'")
    cluster.user("gpu01", f"bash -c {shlex.quote(BUNDLE)} 0")
    refused = cluster.user("gpu01", f"{step} 'echo started' 2>&1", ok=False)
    assert "Operation not permitted" in refused
    assert "started" not in refused


def test_only_root_on_its_node_writes_to_the_registry(cluster: LabCluster) -> None:
    image = f"{REGISTRY}/deepopsctl/validate:1"
    job = f"podman pull -q {image} && podman push -q {image} {REGISTRY}/users:1"

    refused = cluster.user("ctl1", f"srun --mem=1G -w gpu02 sh -c '{job}'", ok=False)

    assert "405" in refused


def test_the_processes_of_an_mpi_program_in_containers_find_each_other(cluster: LabCluster) -> None:
    cluster.root("ctl1", MPI_IMAGE)
    for node in NODES:
        cluster.root(node, f"cat > /tmp/mpi.py <<'END'\n{OPENMPI.step[-1]}END")
    cluster.user("ctl1", f"cat > mpi.sh <<'END'\n#!/bin/bash\n{MPI_JOB}END")
    options = "--wait -N2 --ntasks-per-node=2 --mem=1G -w gpu[01-02] -o /tmp/mpi.out"

    cluster.user("ctl1", f"sbatch {options} mpi.sh", ok=False)

    output = cluster.root("gpu01", "cat /tmp/mpi.out")
    in_charliecloud, _, in_podman = output.partition("\npodman\n")
    # one program on both nodes: of two processes on each, and of one
    assert in_charliecloud.count(f"{MARK} 4 4") == 4, output
    assert in_podman.count(f"{MARK} 2 2") == 2, output


def test_lines_of_others_stay_and_ids_that_two_users_share_are_refused(cluster: LabCluster) -> None:
    cluster.root("gpu01", "echo daemon:786500000:10 >> /etc/subuid")
    try:
        done = cluster.deepopsctl("deploy", "environment", "--full", "--limit", "gpu01", ok=False)
        # the block is as it was: nothing is written, and so nothing is refused
        assert done.returncode == 0
        edit(
            cluster.directory / "people.yml",
            "groups: [def-lab]}]",
            "groups: [def-lab]}, {name: carol, uid: 2002, groups: [def-lab]}]",
        )
        refused = cluster.deepopsctl("deploy", "environment", "--limit", "gpu01", ok=False)
        assert "both have the subordinate id 786500000" in refused.stdout + refused.stderr
    finally:
        cluster.root("gpu01", "sed -i /^daemon:/d /etc/subuid")
    cluster.deepopsctl("deploy", "environment")
    assert "carol:786563072:65536" in cluster.root("gpu01", "cat /etc/subuid /etc/subgid").splitlines()


def test_a_second_deploy_changes_nothing(cluster: LabCluster) -> None:
    assert cluster.parsed("deploy", "environment", "--full")["changes"] == []


def test_without_the_settings_it_is_removed(cluster: LabCluster) -> None:
    edit(cluster.directory / SETTINGS, LINES, "")
    cluster.deepopsctl("deploy", "environment", "slurm")

    for node in NODES:
        assert not cluster.holds(node, "command -v podman || test -e /etc/slurm/deepops/task_prolog.d/30-containers")
        assert "deepopsctl" not in cluster.root(node, "cat /etc/subuid")
        # nodes drop their copy with a reconfigure
        cluster.root(node, "for i in $(seq 60); do [ -e /run/slurm/conf/oci.conf ] || exit 0; sleep 1; done; exit 1")
    assert not cluster.holds("ctl1", "ss -Hltn 'sport = :5000' | grep .")
    assert cluster.holds("gpu01", "grep -q ^ubuntu: /etc/subuid")
