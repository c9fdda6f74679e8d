"""What is rendered starts: slurmctld of each release on imports of many styles and on all golden files."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.imports.request import InitRequest, read_request
from deepopsctl.slurm.hardware import NodeHardware, store_hardware
from tests.lab.harness import PATIENCE_S, PREFIX, LabCluster, fresh_cluster
from tests.roles.cases import CASES, DEBIAN12, DEBIAN13, Case, defaults
from tests.support.local_ansible import play
from tests.support.paths import ROOT

SITES = sorted((ROOT / "tests" / "data" / "sites").iterdir())
VERSIONS = {"debian12": DEBIAN12, "debian13": DEBIAN13, "sid": "26.05.5-1"}
FILES = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf")
NODE = NodeHardware(cpus=4, boards=1, sockets=1, cores_per_socket=4, threads_per_core=1, memory_mb=7950)
WORK = "/tmp/imports"

# Each as on the node it is for, with an accounting database of its own: a TRES that another import made would hide
# that one is missing. Ports of their own, as a deployed Slurm may run alongside.
TRY = f"""
cd {WORK}
systemctl start mariadb
for conf in */slurm.conf; do
    site=${{conf%/*}} directory={WORK}/${{conf%/*}}
    export SLURM_CONF=$directory/slurm.conf
    mkdir $directory/state
    sed -i -e "s,^SlurmctldHost=.*,SlurmctldHost=$(hostname -s)," $directory/slurm.conf
    sed -i -e "s,^AccountingStorageHost=.*,AccountingStorageHost=localhost," $directory/slurm.conf
    sed -i -e "s,^StateSaveLocation=.*,StateSaveLocation=$directory/state," $directory/slurm.conf
    sed -i -e "s,^SlurmctldPidFile=.*,SlurmctldPidFile=$directory/state/pid," $directory/slurm.conf
    sed -i -e '/^SlurmctldPort=/d; /^AccountingStoragePort=/d' $directory/slurm.conf
    sed -i -e '1i SlurmctldPort=16817' -e '1i AccountingStoragePort=16819' $directory/slurm.conf
    cat > $directory/slurmdbd.conf <<END
DbdHost=localhost
DbdPort=16819
SlurmUser=slurm
AuthType=auth/munge
PidFile=$directory/state/dbdpid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=imports
StorageUser=imports
StoragePass=imports
END
    # as the role slurmdbd has it: by default it listens on IPv4 alone
    ! grep -q EnableIPv6 $directory/slurm.conf || echo CommunicationParameters=EnableIPv6 >> $directory/slurmdbd.conf
    chmod 600 $directory/slurmdbd.conf
    chown -R slurm: $directory
    mariadb -e "DROP DATABASE IF EXISTS imports; CREATE DATABASE imports"
    mariadb -e "GRANT ALL ON imports.* TO imports@localhost IDENTIFIED BY 'imports'"
    slurmdbd -D > $directory/dbdlog 2>&1 &
    accounting=$!
    until sacctmgr -n show qos normal > /dev/null 2>&1; do
        kill -0 $accounting 2> /dev/null || {{ echo "$site: $(tail -n 3 $directory/dbdlog)"; exit 0; }}
        sleep 0.2
    done
    # what a deploy makes of policy: before slurmctld starts
    for qos in $(grep -oE ' QOS=[a-z-]+' $directory/slurm.conf | cut -d= -f2); do
        sacctmgr -i add qos $qos > /dev/null
    done
    slurmctld -D > $directory/log 2>&1 &
    daemon=$!
    # it answers when it has read everything, or it ends
    until timeout 10 scontrol show config > /dev/null 2>&1; do
        kill -0 $daemon 2> /dev/null || {{ echo "$site: $(grep -E 'fatal|error' $directory/log | tail -n 3)"; break; }}
        sleep 0.2
    done
    kill -KILL $daemon $accounting 2> /dev/null
    wait $daemon $accounting 2> /dev/null
done
mariadb -e "DROP DATABASE imports; DROP USER imports@localhost"
"""


def cases(os: str, directory: Path) -> dict[str, Case]:
    """The imports, and the golden files that this release can have."""
    sites = {}
    for site in SITES:
        made = read_request(InitRequest(directory / site.name, source=site))
        settings = {**made.carryover.direct_settings, **made.carryover.settings}
        sites[site.name] = Case(render_spec(made.cluster), VERSIONS[os], {}, settings=settings)
    golden = {f"golden-{name}": replace(case, version=VERSIONS[os]) for name, case in CASES.items() if has(os, case)}
    return sites | golden


def has(os: str, case: Case) -> bool:
    """Whether the packages of a release have what a cluster needs: their plugin for NVLink domains is in none."""
    return "nvlink_domains" not in case.spec


def rendered(os: str, directory: Path) -> dict[str, Mapping[str, str]]:
    """The configuration that a deploy would write, by site and by name of the golden files."""
    plays: list[dict[str, object]] = []
    controllers: dict[str, str] = {}
    hosts: dict[str, dict[str, object]] = {}
    clusters = directory / "clusters"
    clusters.mkdir()
    (directory / "roles").symlink_to(ROOT / "roles")
    for name, case in cases(os, directory).items():
        cluster = parse_spec(case.spec, "cluster.yml")
        controllers[name] = cluster.controllers[0].name
        hosts |= {node.name: defaults() for node in cluster.nodes}
        # one host renders for all, from what is known of the others
        plays += [{**case_play, "hosts": [controllers[name]]} for case_play in case.plays(name, clusters)]
        if not case.reports:
            store_hardware(clusters / name / "hardware.yml", {node.name: NODE for node in cluster.compute})
    done = play(directory, plays, hosts)
    assert done.status == 0, done.output
    shown = {(result.task, result.host): result.data.get("msg", {}) for result in done.results}
    return {name: {file: shown[f"Show {name}", host][file] for file in FILES} for name, host in controllers.items()}


def put(node: str, files: Mapping[str, Mapping[str, str]]) -> None:
    """The files of each site, in a directory of its own on a node; empty ones are none."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for site, texts in files.items():
            for file, text in texts.items():
                if text.strip():
                    entry = tarfile.TarInfo(f"{site}/{file}")
                    entry.size = len(text.encode())
                    archive.addfile(entry, io.BytesIO(text.encode()))
    unpack = f"rm -rf {WORK} && mkdir {WORK} && tar -xf - -C {WORK}"
    argv = ["podman", "exec", "-i", node, "sh", "-c", unpack]
    subprocess.run(argv, input=packed.getvalue(), check=True, capture_output=True, timeout=PATIENCE_S)


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A node with slurmctld of a release; of Debian 13's the one that is deployed."""
    if request.param == "debian13":
        yield request.getfixturevalue("deployed")
        return
    with fresh_cluster(f"{PREFIX}-imports", tmp_path_factory, "--compute", "1", os=request.param) as made:
        packages = "slurmctld slurmdbd slurm-client munge mariadb-server"
        made.root("ctl1", f"DEBIAN_FRONTEND=noninteractive apt-get install -qy {packages} >/dev/null 2>&1")
        made.root("ctl1", "systemctl start munge")
        yield made


@pytest.mark.parametrize(
    "lab",
    ["debian13", "debian12", "sid"],
    indirect=True,
)
def test_slurmctld_starts_on_every_import(lab: LabCluster, tmp_path: Path) -> None:
    put(f"{lab.name}-ctl1", rendered(lab.os, tmp_path))

    assert lab.root("ctl1", f"{TRY}rm -rf {WORK}") == ""
