"""Another branch of a driver that is installed: under jobs, drained by deploy or by a person, newer and older.

550 is Debian's own. 551 is a stand-in: empty packages of the same names in a repository on the node, so that apt, dpkg,
Slurm and our code are real. A container has its host's kernel: nothing is unloaded, loaded or rebooted here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.faults import running_job, working
from tests.lab.harness import SETTINGS, LabCluster, actions, wait_until
from tests.lab.nvidia_stubs import site
from tests.support.paths import ROOT

VERSIONS = ROOT / "group_vars" / "all" / "versions.yml"
# what the old packages have that these lack goes with them
STAND_IN = r"""set -e
rm -rf /srv/drivers; mkdir -p /srv/drivers; cd /srv/drivers; arch=$(dpkg --print-architecture)
for name in libcuda1 libnvidia-ml1 nvidia-smi nvidia-persistenced; do
    mkdir -p $name/DEBIAN
    printf 'Package: %s\nVersion: 551.10-1\nArchitecture: %s\n' $name $arch > $name/DEBIAN/control
    printf 'Maintainer: Nobody <nobody@example.com>\nDescription: stand-in\n' >> $name/DEBIAN/control
done
printf 'Depends: libnvidia-ml1\n' >> nvidia-smi/DEBIAN/control
mkdir -p libnvidia-ml1/usr/lib/$(uname -m)-linux-gnu nvidia-persistenced/usr/lib/systemd/system
touch libnvidia-ml1/usr/lib/$(uname -m)-linux-gnu/libnvidia-ml.so.551.10
printf '[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n' \
    > nvidia-persistenced/usr/lib/systemd/system/nvidia-persistenced.service
for name in */; do
    deb=${name%/}.deb; dpkg-deb --build --root-owner-group $name $deb >/dev/null
    { dpkg-deb --field $deb; echo "Filename: ./$deb"; echo "Size: $(stat -c %s $deb)"
      echo "SHA256: $(sha256sum $deb | cut -d' ' -f1)"; echo; } >> Packages
done
echo 'deb [trusted=yes] file:/srv/drivers ./' > /etc/apt/sources.list.d/stand-in.list"""
INSTALLED = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' 'libcuda1*' '*nvidia*' | grep ' installed'"
CLEAN = f"""names=$({INSTALLED} | cut -d' ' -f1)
apt-mark unhold $names >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get -qq -y purge $names >/dev/null 2>&1
rm -rf /srv/drivers /etc/apt/sources.list.d/stand-in.list /etc/apt/*/deepopsctl-nvidia* \\
    /var/lib/deepopsctl/records/nvidia.*
scontrol update nodename=gpu01 state=resume"""


class Driver:
    """The driver of gpu01, as deploy makes it."""

    def __init__(self, cluster: LabCluster, catalogue: Path) -> None:
        self.cluster = cluster
        self.catalogue = catalogue
        settings = (f"@{catalogue}", "nvidia_driver_source=distro", "nvidia_driver_without_device=true")
        self._options = ["--limit", "gpu01", *(word for setting in settings for word in ("-e", setting))]

    def run(self, verb: str, branch: str, *settings: str, ok: bool = True) -> dict[str, Any]:
        """`deploy nvidia` or `plan nvidia` for a branch."""
        words = [word for setting in (f"nvidia_driver_branch={branch}", *settings) for word in ("-e", setting)]
        return self.cluster.parsed(verb, "nvidia", *self._options, *words, ok=ok)

    @property
    def branches(self) -> set[str]:
        """Of all its packages that have the driver's version."""
        versions = [line.split()[1] for line in self.cluster.root("gpu01", INSTALLED).splitlines()]
        return {version[:3] for version in versions if version.startswith("55")}

    @property
    def state(self) -> str:
        """Slurm's state and reason of the node."""
        return self.cluster.root("ctl1", "sinfo -h -n gpu01 -o '%T %E'")


@pytest.fixture(scope="module")
def driver(deployed: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Branch 550 installed, 551 available; the node is as it was before at the end."""
    versions = yaml.safe_load(VERSIONS.read_text(encoding="utf-8"))
    catalogue = {"deepops_nvidia_drivers": versions["deepops_nvidia_drivers"]}
    catalogue["deepops_nvidia_drivers"]["distro"]["Debian 13"]["branches"] = ["550", "551"]
    path = tmp_path_factory.mktemp("branch") / "catalogue.json"
    path.write_text(json.dumps(catalogue), encoding="utf-8")
    installed = Driver(deployed, path)
    try:
        installed.run("deploy", "550")
        deployed.root("gpu01", STAND_IN)
        yield installed
    finally:
        deployed.root("gpu01", CLEAN, ok=False)
        deployed.wait_until_idle()


def test_a_node_with_jobs_is_left_alone(driver: Driver) -> None:
    with running_job(driver.cluster, "gpu01"):
        refused = driver.run("deploy", "551", ok=False)

    (failure,) = refused["failures"]
    assert "is installed, branch 551 is wanted, and jobs run or may start here" in failure["message"]
    assert "nvidia_driver_drain" in failure["message"] + failure["hint"]
    assert driver.branches == {"550"}
    assert driver.cluster.node_state("gpu01") == "idle"


def test_deploy_drains_waits_no_longer_than_it_may_and_goes_on_where_it_stopped(driver: Driver) -> None:
    cluster = driver.cluster
    job = cluster.submit("until [ -e go ]; do sleep 0.5; done; rm go", "--nodelist=gpu01", "--mem=100M", "--gpus=1")
    cluster.wait_for_job(job, "RUNNING")

    planned = driver.run("plan", "551", "nvidia_driver_drain=true")
    late = driver.run("deploy", "551", "nvidia_driver_drain=true", "nvidia_driver_drain_wait=1", ok=False)

    assert {("node", "gpu01", "drain"), ("package", "nvidia-smi", "exchange")} <= actions(planned)
    assert f"jobs {job} still run here; the node stays drained" in late["failures"][0]["message"]
    assert driver.branches == {"550"}
    assert driver.state == "draining deepopsctl: the driver; deploy ends this"

    cluster.user("gpu01", "touch go")
    made = driver.run("deploy", "551", "nvidia_driver_drain=true")

    assert {
        ("package", "nvidia-smi", "exchange"),
        ("hold", "libcuda1", "hold"),
        ("node", "gpu01", "resume"),
    } <= actions(made)
    assert driver.branches == {"551"}
    assert "libcuda1" in cluster.root("gpu01", "apt-mark showhold").split()
    assert driver.cluster.node_state("gpu01") == "idle"
    assert cluster.job_state(job) == "COMPLETED"


def test_the_next_run_changes_nothing(driver: Driver) -> None:
    again = driver.run("deploy", "551", "nvidia_driver_drain=true")

    assert driver.cluster.changed(again) == {"gpu01": 0}


def test_an_older_branch_is_installed_again_and_a_drain_by_somebody_else_stays(driver: Driver) -> None:
    driver.cluster.root("ctl1", "scontrol update nodename=gpu01 state=drain reason='bad DIMM'")

    driver.run("deploy", "550", "nvidia_driver_drain=true")

    assert driver.branches == {"550"}
    assert driver.state == "drained bad DIMM"


@pytest.fixture
def declared(driver: Driver) -> Iterator[Driver]:
    """What the driver comes from is in the cluster directory, which is as it was before at the end."""
    cluster = driver.cluster
    settings = cluster.directory / SETTINGS
    before = settings.read_text(encoding="utf-8")
    site(
        cluster,
        {**json.loads(driver.catalogue.read_text(encoding="utf-8")), "nvidia_driver_source": "distro",
         "nvidia_driver_without_device": True},
    )  # fmt: skip
    # the test before leaves it drained
    cluster.root("ctl1", "scontrol update nodename=gpu01 state=resume", ok=False)
    yield driver
    settings.write_text(before, encoding="utf-8")
    settings.with_name("gpus.yml").unlink()


@pytest.mark.timeout(1800)
def test_an_upgrade_exchanges_it_after_the_job_and_declares_the_branch(declared: Driver) -> None:
    cluster, words = declared.cluster, ("upgrade", "nvidia", "--limit", "gpu01", "--to")
    settings = cluster.directory / SETTINGS

    refused = cluster.deepopsctl(*words, "999", "--yes", ok=False)
    with running_job(cluster, "gpu01") as job:
        plan = cluster.parsed(*words, "551", "--check")
        assert "nvidia_driver_branch" not in settings.read_text(encoding="utf-8")
        with working(cluster, *words, "551", "--yes") as upgrade:
            wait_until(
                "gpu01 is drained",
                lambda: upgrade.process.poll() is not None or declared.state.startswith("draining"),
                details=upgrade.stderr.read_text,
            )
            assert declared.branches == {"550"}, upgrade.stderr.read_text()
            cluster.root("gpu01", f"touch /tmp/go-{job}")
            code, document, shown = upgrade.end()

    assert refused.returncode == 1
    assert "has no driver branch 999" in refused.stderr
    assert set(plan["nodes"]) == {"gpu01"}
    assert {"libcuda1", "nvidia-smi"} <= set(plan["nodes"]["gpu01"])
    assert plan["busy"] == ["gpu01"]
    assert code == 0, shown
    assert document["checks"]
    assert declared.branches == {"551"}
    assert cluster.node_state("gpu01") == "idle"
    assert "nvidia_driver_branch: '551'" in settings.read_text(encoding="utf-8").replace('"', "'")
    assert cluster.parsed(*words, "551", "--yes")["runs"] == []
