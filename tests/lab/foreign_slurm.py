"""A Slurm cluster as people install it manually: packages, a slurm.conf of their own, and nothing of deepopsctl's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.harness import LabCluster, command

UID = 22078
SLURM_CONF = """\
# made manually
ClusterName=hand
SlurmctldHost=ctl1
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/srv/slurm/state
SlurmdSpoolDir=/srv/slurm/spool
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
ReturnToService=1
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl1
GresTypes=gpu
JobSubmitPlugins=lua
Include nodes.conf
PartitionName=DEFAULT MaxTime=2-00:00:00
PartitionName=main Nodes=ALL Default=YES
"""
NODES_CONF = "NodeName=DEFAULT CPUs=2 RealMemory=500\nNodeName=gpu[01-02] Gres=gpu:a100:2 Feature=old Weight=5\n"
GRES_CONF = "NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
SLURMDBD_CONF = """\
DbdHost=ctl1
SlurmUser=slurm
AuthType=auth/munge
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=hand_acct
StorageUser=handmade
StoragePass=by-hand-0815
PrivateData=events
PurgeJobAfter=12months
"""
JOB_SUBMIT = """\
function slurm_job_submit(job, partitions, uid)
  local names = {{"forbidden"}}
  if job.name == names[1][1] then return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify(job, before, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
MUNGE_KEY = b"by hand, and not very random at all, but as long as it has to be"
CONTROLLER = "munge slurmctld slurmdbd slurm-client"
COMPUTE = "munge slurmd slurm-client"


def put(cluster: LabCluster, node: str, path: str, content: bytes) -> None:
    """Write a file on a node as root."""
    subprocess.run(
        ["podman", "exec", "-i", f"{cluster.name}-{node}", "sh", "-c", f"mkdir -p $(dirname {path}); cat > {path}"],
        input=content,
        check=True,
        capture_output=True,
    )


def serve_database(cluster: LabCluster, node: str) -> None:
    """Run MariaDB as the database server of a site, for other hosts."""
    cluster.root(
        node,
        "DEBIAN_FRONTEND=noninteractive apt-get -yqq install --no-install-recommends mariadb-server >/dev/null;"
        "printf '[mysqld]\\nbind_address = 0.0.0.0\\nloose_innodb_snapshot_isolation = OFF\\n'"
        " >/etc/mysql/mariadb.conf.d/99-site.cnf; systemctl restart mariadb",
    )


def build(cluster: LabCluster, addresses: Mapping[str, str], directory: Path, database: str) -> None:
    """Make the cluster manually, its database on a node that is not a part of it.

    `directory` gets the slurm.conf and hosts file that a person would copy from it.
    """
    server, addresses = addresses[database], {key: value for key, value in addresses.items() if key != database}
    serve_database(cluster, database)
    hosts = "".join(f"{address} {name}\n" for name, address in addresses.items())
    files = {"slurm.conf": SLURM_CONF, "nodes.conf": NODES_CONF, "gres.conf": GRES_CONF, "job_submit.lua": JOB_SUBMIT}

    def prepare(node: str) -> None:
        controller = node == "ctl1"
        cluster.root(
            node,
            f"groupadd -g {UID} slurm; useradd -u {UID} -g slurm -d /nonexistent -M -s /usr/sbin/nologin slurm;"
            f"printf '%s' '{hosts}' >> /etc/hosts; systemctl mask --runtime -q munge slurmctld slurmdbd slurmd;"
            f"DEBIAN_FRONTEND=noninteractive apt-get -yqq install {CONTROLLER if controller else COMPUTE} >/dev/null;"
            "systemctl unmask --runtime -q munge slurmctld slurmdbd slurmd; install -d -o slurm /srv/slurm/state",
        )
        for name, text in files.items():
            put(cluster, node, f"/etc/slurm/{name}", text.encode())
        put(cluster, node, "/etc/munge/munge.key", MUNGE_KEY)
        cluster.root(node, "chown munge: /etc/munge/munge.key; chmod 400 /etc/munge/munge.key; systemctl start munge")

    with ThreadPoolExecutor() as pool:
        list(pool.map(prepare, addresses))
    text = SLURMDBD_CONF.replace("localhost", server)
    put(cluster, "ctl1", "/etc/slurm/slurmdbd.conf", text.encode())
    start(cluster, [node for node in addresses if node != "ctl1"], database, addresses["ctl1"])
    for name, text in files.items():
        (directory / name).write_text(text)
    (directory / "hosts").write_text(hosts)


def start(cluster: LabCluster, compute: Sequence[str], database: str = "ctl1", host: str = "localhost") -> None:
    """Make the database, and start the daemons."""
    cluster.root(
        database,
        'echo "create database hand_acct; '
        f"grant all on hand_acct.* to handmade@'{host}' identified by 'by-hand-0815'\" | mariadb",
    )
    cluster.root(
        "ctl1",
        "chown slurm: /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf;"
        "systemctl enable -q slurmdbd slurmctld; systemctl start slurmdbd; "
        "until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.2; done;"
        "systemctl start slurmctld; until scontrol ping | grep -q UP; do sleep 0.2; done",
    )
    for node in compute:
        cluster.root(node, "systemctl enable -q slurmd; systemctl start slurmd")
    cluster.root("ctl1", 'until [ "$(sinfo -h -o %T)" = idle ]; do sleep 0.2; done')


def take_in(cluster: LabCluster, directory: Path) -> None:
    """Import slurm.conf and hosts from this directory, and let the cluster's key into the nodes."""
    files = ("--from", str(directory / "slurm.conf"), "--addresses", str(directory / "hosts"))
    done = command("init", str(cluster.directory), *files, "--user", "ubuntu")
    assert done.returncode == 0, done.stderr
    cluster.deepopsctl("ssh", "setup", "--password-file", str(cluster.password_file))
