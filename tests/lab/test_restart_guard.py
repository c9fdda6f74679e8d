"""An unattended upgrade under a job, with needrestart as Ubuntu 24.04 has it: no daemon of the cluster restarts.

apt, dpkg, needrestart, unattended-upgrades and the packages are Debian's own: the newer libc and munge are the real
ones under a later version, with their own scripts, in a repository on the node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.faults import running_job
from tests.lab.harness import PREFIX, LabCluster, command, fresh_cluster
from tests.lab.reboots import mark, rebootable

NODES = ("ctl1", "cn01")
UNITS = "munge slurmd slurmctld slurmdbd mariadb"
REPOSITORY = r"""
set -e
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
apt-get -qq update
apt-get -qq -y --no-install-recommends install needrestart unattended-upgrades python3-apt >/dev/null
mkdir -p /srv/newer && cd /srv/newer
apt-get -qq download libc6 libc-bin munge libmunge2
for file in *.deb; do
    dpkg-deb --raw-extract "$file" tree
    version=$(dpkg-deb --field "$file" Version)
    pattern=$(echo "$version" | sed 's/[.+~]/\\&/g')
    sed -i "s/^Version: .*/&+newer1/; s/(= $pattern)/(= $version+newer1)/g" tree/DEBIAN/control
    dpkg-deb --root-owner-group -Znone --build tree . >/dev/null
    rm -r tree "$file"
done
python3 - <<'END'
import glob, hashlib, os, subprocess
entries = []
for path in sorted(glob.glob("*.deb")):
    data = open(path, "rb").read()
    control = subprocess.run(["dpkg-deb", "--field", path], check=True, capture_output=True, text=True).stdout
    digest = hashlib.sha256(data).hexdigest()
    entries.append(f"{control.rstrip()}\nFilename: ./{path}\nSize: {len(data)}\nSHA256: {digest}\n")
index = "\n".join(entries).encode()
open("Packages", "wb").write(index)
digest = hashlib.sha256(index).hexdigest()
open("Release", "w").write(
    "Origin: Newer\nLabel: Newer\nSuite: newer\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
    f"SHA256:\n {digest} {len(index)} Packages\n"
)
END
echo 'deb [trusted=yes] file:/srv/newer ./' > /etc/apt/sources.list.d/newer.list
echo 'Unattended-Upgrade::Origins-Pattern { "origin=Newer"; };' > /etc/apt/apt.conf.d/51newer
echo 'APT::Periodic::Unattended-Upgrade "1";' > /etc/apt/apt.conf.d/20auto-upgrades
# as Ubuntu 24.04 and later
echo '$nrconf{restart} = "a";' > /etc/needrestart/conf.d/50-autorestart.conf
apt-get -qq update
printf '[Service]\nExecStart=/usr/bin/sleep infinity\n' > /etc/systemd/system/another.service
systemctl start another
"""
UNATTENDED = "unattended-upgrade --verbose; cat /var/log/unattended-upgrades/*.log"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """Deployed, with a newer libc and munge in the nodes' package sources."""
    with fresh_cluster(f"{PREFIX}-guard", tmp_path_factory, "--compute", "1") as made:
        made.deploy()
        for node in NODES:
            made.root(node, REPOSITORY)
        with rebootable(made, ["cn01"]):
            mark(made, ["cn01"])
            yield made


def started(cluster: LabCluster, node: str) -> dict[str, str]:
    """When the daemons of the cluster that run there began, and as which processes."""
    shown = cluster.root(node, f"systemctl show --property=Id,MainPID,ActiveEnterTimestampMonotonic {UNITS}")
    blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in shown.split("\n\n")]
    return {
        block["Id"]: f"{block['MainPID']} {block['ActiveEnterTimestampMonotonic']}"
        for block in blocks
        if block.get("MainPID", "0") != "0"
    }


def versions(cluster: LabCluster, node: str) -> dict[str, bool]:
    """Whether each of the packages is the newer one."""
    shown = cluster.root(node, "dpkg-query -W -f '${Package} ${Version}\\n' libc6 munge").splitlines()
    return {line.split()[0]: "newer1" in line for line in shown}


@pytest.mark.timeout(3600)
def test_an_unattended_upgrade_under_a_job_restarts_nothing_and_upgrade_os_brings_it_in(cluster: LabCluster) -> None:
    before = {node: started(cluster, node) for node in NODES}
    assert set(before["ctl1"]) >= {"munge.service", "slurmctld.service", "slurmdbd.service", "mariadb.service"}
    assert set(before["cn01"]) == {"munge.service", "slurmd.service"}

    with running_job(cluster, "cn01"):
        for node in NODES:
            another = cluster.root(node, "systemctl show --property=MainPID another")
            log = cluster.root(node, UNATTENDED)
            # the libc came, and needrestart did its work on what may restart
            assert versions(cluster, node) == {"libc6": True, "munge": False}, log
            assert cluster.root(node, "systemctl show --property=MainPID another") != another, log
            # a person's own upgrade is held back, too
            cluster.root(node, "DEBIAN_FRONTEND=noninteractive apt-get -y upgrade")
            assert versions(cluster, node)["munge"] is False
        assert {node: started(cluster, node) for node in NODES} == before

    checks = json.loads(cluster.deepopsctl("doctor", "--json", ok=False).stdout)["checks"]
    assert [check["message"] for check in checks if check["name"] == "restarts" and check["status"] != "pass"] == []

    done = command("-C", str(cluster.directory), "upgrade", "os", "--yes", "--json", seconds=1500)
    assert done.returncode == 0, done.stderr
    for node in NODES:
        assert versions(cluster, node) == {"libc6": True, "munge": True}
        assert "munge" in cluster.root(node, "apt-mark showhold")
    assert cluster.node_state("cn01") == "idle"
    cluster.deploy()
    assert cluster.root("cn01", "munge -n | unmunge | head -1").endswith("Success (0)")


def test_the_doctor_names_what_else_restarts_them(cluster: LabCluster) -> None:
    cluster.root("cn01", "mkdir -p /etc/cron.d; echo '0 4 * * * root systemctl restart munge' > /etc/cron.d/site")
    cluster.root("cn01", """printf '%s\\n' '$nrconf{override_rc} = {};' > /etc/needrestart/conf.d/zz-site.conf""")
    cluster.root(
        "cn01",
        "apt-mark unhold munge; echo 'Unattended-Upgrade::Automatic-Reboot \"true\";' > /etc/apt/apt.conf.d/99site",
    )

    checks = json.loads(cluster.deepopsctl("doctor", "--limit", "cn01", "--json", ok=False).stdout)["checks"]

    (message,) = (check["message"] for check in checks if check["name"] == "restarts")
    for words in (
        "/etc/cron.d/site has `systemctl restart munge",
        "needrestart restarts slurmd.service",
        "not held: munge",
    ):
        assert words in message
    assert "reboots the node" in message
