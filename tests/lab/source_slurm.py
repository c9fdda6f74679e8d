"""A Slurm cluster as DeepOps makes it: compiled on a node, installed in /usr/local, units and configuration by hand."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab import foreign_slurm
from tests.lab.foreign_slurm import MUNGE_KEY, SLURMDBD_CONF, UID, put
from tests.lab.harness import LabCluster

# the release of Debian 13's packages, which follow it
SOURCE = "pool/main/s/slurm-wlm/slurm-wlm_24.11.5.orig.tar.gz"
STATE, SPOOL = "/var/spool/slurm/ctld", "/var/spool/slurm/d"
SLURM_CONF = f"""\
# made manually
ClusterName=hand
SlurmctldHost=ctl1
SlurmUser=slurm
AuthType=auth/munge
PluginDir=/usr/local/lib/slurm
StateSaveLocation={STATE}
SlurmdSpoolDir={SPOOL}
SlurmctldPidFile=/var/run/slurmctld.pid
ReturnToService=1
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl1
HealthCheckProgram=/usr/sbin/nhc
HealthCheckInterval=10
NodeName=cn[01-02] CPUs=2 RealMemory=500
PartitionName=batch Nodes=ALL Default=YES
"""
# stand-ins for what DeepOps installs besides Slurm: a plugin of jobs as pyxis is one, and a health check
PLUGIN = "/usr/local/lib/slurm/spank_pyxis.so"
PLUGIN_SOURCE = b"""\
#include <stddef.h>
#include <slurm/spank.h>
SPANK_PLUGIN(pyxis, 1);
static struct spank_option option = {"container-image", "IMAGE", "image of the container", 1, 0, NULL};
int slurm_spank_init(spank_t spank, int count, char **words) { return spank_option_register(spank, &option); }
int slurm_spank_user_init(spank_t spank, int count, char **words) { spank_setenv(spank, "PYXIS", "here", 1); return 0; }
"""
NHC = b"#!/bin/sh\ntouch /run/nhc\n"
BUILD_DEPENDS = (
    "build-essential pkg-config bzip2 libmunge-dev libmariadb-dev libpam0g-dev libhwloc-dev libdbus-1-dev libjson-c-dev"
    " libreadline-dev libssl-dev"
)
DEPENDS = "munge libmunge2 libmariadb3 libhwloc15 libnuma1 libdbus-1-3 libjson-c5 libreadline8t64"
# what DeepOps' role does, without what needs a GPU
BUILD = f"""\
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -yqq install --no-install-recommends curl {BUILD_DEPENDS} >/dev/null
mirror=$(apt-get indextargets --format '$(REPO_URI)' | head -1)
mkdir -p /opt/deepops/build/slurm
cd /opt/deepops/build/slurm
curl -fsS "${{mirror}}{SOURCE}" | tar xz --strip-components=1
pam=$(dpkg -L libpam-modules | grep /pam_unix.so)
./configure --prefix=/usr/local --sysconfdir=/etc/slurm --enable-pam --with-pam_dir="$(dirname "$pam")"
make -j2
make install DESTDIR=/opt/installed
make -C contribs/pam_slurm_adopt install DESTDIR=/opt/installed
install -D -t /opt/installed/etc/systemd/system etc/slurmctld.service etc/slurmd.service etc/slurmdbd.service
tar cz -C /opt/installed -f /root/slurm.tar.gz .
"""


def built(cluster: LabCluster, node: str) -> Path:
    """What `make install` leaves, as an archive; compiled on the node once, in a quarter of an hour, and kept."""
    name = hashlib.sha256(f"{SOURCE} {BUILD}".encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepopsctl"
    archive = cache / f"slurm-from-source-{name}.tar.gz"
    if not archive.exists():
        put(cluster, node, "/root/build.sh", BUILD.encode())
        log = "/root/build.log"
        run = f"sh /root/build.sh >{log} 2>&1 || {{ tail -n 20 {log} >&2; exit 1; }}; cat /root/slurm.tar.gz"
        # not by cluster.root, which waits for minutes only
        done = subprocess.run(["podman", "exec", f"{cluster.name}-{node}", "sh", "-c", run], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        content = done.stdout
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(f".{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(archive)
    return archive


def build(cluster: LabCluster, addresses: Mapping[str, str], directory: Path) -> None:
    """Make the cluster; `directory` gets the slurm.conf and hosts file that a person would copy from it."""
    archive = built(cluster, "ctl1").read_bytes()
    hosts = "".join(f"{address} {name}\n" for name, address in addresses.items())

    def prepare(node: str) -> None:
        packages = f"{DEPENDS} mariadb-server" if node == "ctl1" else DEPENDS
        cluster.root(
            node,
            f"groupadd -g {UID} slurm; useradd -u {UID} -g slurm -d /local/slurm -M slurm;"
            f"printf '%s' '{hosts}' >> /etc/hosts; systemctl mask --runtime -q munge;"
            f"DEBIAN_FRONTEND=noninteractive apt-get -yqq install {packages} >/dev/null;"
            f"systemctl unmask --runtime -q munge; install -d -o slurm {STATE} {SPOOL} /var/log/slurm",
        )
        subprocess.run(
            ["podman", "exec", "-i", f"{cluster.name}-{node}", "tar", "xz", "-C", "/", "--keep-directory-symlink"],
            input=archive,
            check=True,
            capture_output=True,
        )
        put(cluster, node, "/etc/slurm/slurm.conf", SLURM_CONF.encode())
        put(cluster, node, "/etc/ld.so.conf.d/slurm.conf", b"/usr/local/lib\n/usr/local/lib64\n")
        put(cluster, node, "/etc/munge/munge.key", MUNGE_KEY)
        cluster.root(
            node,
            "ldconfig; chown munge: /etc/munge/munge.key; chmod 400 /etc/munge/munge.key; systemctl start munge;"
            "systemctl daemon-reload",
        )

    with ThreadPoolExecutor() as pool:
        list(pool.map(prepare, addresses))
    add_plugin(cluster, tuple(addresses))
    put(cluster, "ctl1", "/etc/slurm/slurmdbd.conf", (SLURMDBD_CONF + "PluginDir=/usr/local/lib/slurm\n").encode())
    foreign_slurm.start(cluster, [node for node in addresses if node != "ctl1"])
    (directory / "slurm.conf").write_text(SLURM_CONF)
    (directory / "hosts").write_text(hosts)


def add_plugin(cluster: LabCluster, nodes: Sequence[str]) -> None:
    """The plugin where DeepOps' role has it, compiled on the controller, and the health check."""
    put(cluster, "ctl1", "/root/pyxis.c", PLUGIN_SOURCE)
    cluster.root(
        "ctl1",
        "DEBIAN_FRONTEND=noninteractive apt-get -yqq install --no-install-recommends gcc libc6-dev >/dev/null;"
        "gcc -shared -fPIC -Wl,-z,now -I/usr/local/include -o /root/pyxis.so /root/pyxis.c",
    )
    compiled = subprocess.run(
        ["podman", "exec", f"{cluster.name}-ctl1", "cat", "/root/pyxis.so"], check=True, capture_output=True
    ).stdout
    for node in nodes:
        put(cluster, node, PLUGIN, compiled)
        put(cluster, node, "/etc/slurm/plugstack.conf", b"include /etc/slurm/plugstack.conf.d/*\n")
        put(cluster, node, "/etc/slurm/plugstack.conf.d/pyxis.conf", f"required {PLUGIN}\n".encode())
        put(cluster, node, "/usr/sbin/nhc", NHC)
        cluster.root(node, "chmod 755 /usr/sbin/nhc")
