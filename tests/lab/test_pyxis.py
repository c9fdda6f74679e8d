"""Pyxis and Enroot: built against the deployed Slurm, jobs in containers, what is left, and another release of Slurm.

Their sources come from GitHub; where that can't be reached, DEEPOPSCTL_TEST_SOURCES names a directory that has them,
NAME-VERSION.tar.gz each. Of a clone, whatever gzip git has built in:
`git archive --format=tar --prefix=NAME-VERSION/ vVERSION | gzip -n`.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deepopsctl.files import sha256_of
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until
from tests.lab.smoke import validate
from tests.lab.test_upgrade import PACKAGES, WITHOUT, version
from tests.support.paths import ROOT
from tests.support.suite import Suite

SOURCES = os.environ.get("DEEPOPSCTL_TEST_SOURCES", "")
PLUGIN = "/usr/lib/pyxis/spank_pyxis.so"
JOBS = "/srv/jobs/slurm-jobs"
# of the node's own shell
MAKE_IMAGE = """\
mkdir -p tree/bin tree/etc && cp /bin/sh /bin/sleep tree/bin/
for each in $(ldd /bin/sh /bin/sleep | grep -o '/[^ :]*'); do
    mkdir -p tree/$(dirname $each); cp -L $each tree/$each
done
mksquashfs tree image.sqsh -quiet -no-progress
"""

pytestmark = [
    pytest.mark.timeout(5400),
    pytest.mark.skipif(
        not SOURCES, reason="DEEPOPSCTL_TEST_SOURCES names no directory with the tarballs of versions.yml"
    ),
]


def sources() -> dict[str, dict[str, str]]:
    """The pinned ones, as files."""
    pinned = yaml.safe_load((ROOT / "group_vars/all/versions.yml").read_text(encoding="utf-8"))["environment_pyxis"]
    return {
        name: {**entry, "source": str(Path(SOURCES, f"{name}-{entry['version']}.tar.gz"))}
        for name, entry in pinned.items()
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A cluster that wants Pyxis and has none yet."""
    with fresh_cluster(f"{PREFIX}-pyxis", tmp_path_factory, "--compute", "1", "--gpus", "a100:2") as made:
        spec = made.directory / "cluster.yml"
        edit(spec, "components: [nvidia, slurm]", "components: [slurm, environment]")
        text = spec.read_text(encoding="utf-8")
        spec.write_text(f"{text}job_directories: {{base: /srv/jobs, method: prolog}}\n", encoding="utf-8")
        values = {"environment_containers": ["pyxis"], "environment_pyxis": sources()}
        edit(made.directory / SETTINGS, "---\n", f"---\n{yaml.safe_dump(values)}")
        yield made


def test_a_deploy_without_the_packages_is_refused_with_the_command(cluster: LabCluster) -> None:
    refused = cluster.deepopsctl("deploy", ok=False)

    assert refused.returncode == 1
    assert "deepopsctl packages build pyxis --for debian13" in refused.stdout + refused.stderr


def test_slurm_loads_what_was_built_against_it(cluster: LabCluster) -> None:
    cluster.deepopsctl("packages", "build", "pyxis", "--for", "debian13")
    cluster.deepopsctl("deploy")
    # one directory of cgroups is mounted twice in a node of a lab: its hook of Enroot takes the wrong one
    cluster.root("gpu01", "chmod -x /etc/enroot/hooks.d/10-cgroups.sh")

    for node in ("ctl1", "gpu01"):
        assert "--container-image" in cluster.user(node, "srun --help")
    assert cluster.node_state("gpu01") == "idle"
    assert not any(cluster.changed(cluster.parsed("deploy")).values())


def test_another_build_restarts_no_daemon(cluster: LabCluster, tmp_path: Path) -> None:
    pinned = sources()["pyxis"]
    # the same files with another checksum are another build
    repacked = tmp_path / "pyxis.tar.gz"
    repacked.write_bytes(gzip.compress(gzip.decompress(Path(pinned["source"]).read_bytes()), compresslevel=1))
    edit(cluster.directory / SETTINGS, pinned["source"], str(repacked))
    edit(cluster.directory / SETTINGS, pinned["sha256"], sha256_of(repacked))
    versions = "dpkg-query -W slurm-wlm-pyxis $(test $(hostname) = ctl1 || echo enroot)"
    started = "systemctl show -P ExecMainStartTimestampMonotonic slurmdbd slurmctld slurmd"
    nodes = ("ctl1", "gpu01")
    before = {node: (cluster.root(node, versions).splitlines(), cluster.root(node, started)) for node in nodes}

    cluster.deepopsctl("packages", "build", "pyxis", "--for", "debian13")
    cluster.deepopsctl("deploy")

    for node, (old, since) in before.items():
        assert not set(old) & set(cluster.root(node, versions).splitlines())
        assert cluster.root(node, started) == since


def test_a_step_runs_in_an_image_with_the_jobs_devices_alone(cluster: LabCluster) -> None:
    result = validate(cluster, suite="containers")

    checks = {key: check["status"] for key, check in result.checks.items()}
    assert checks == {(f"containers-{name}", "gpu01"): "pass" for name in ("pyxis", "devices", "removed")}


def test_nothing_is_left_of_a_job_that_was_cancelled_while_it_ran(cluster: LabCluster) -> None:
    cluster.user("gpu01", MAKE_IMAGE)
    job = cluster.submit(
        "srun --container-image=$PWD/image.sqsh --container-name=x sleep 1000", "--nodelist=gpu01", "--mem=100"
    )
    wait_until("it runs in the container", lambda: cluster.holds("gpu01", f"ls -d {JOBS}/{job}/.enroot/data/pyxis_x"))

    cluster.user("ctl1", f"scancel {job}")

    wait_until("nothing is left", lambda: not cluster.root("gpu01", f"ls {JOBS}; ls /srv/jobs/slurm-pyxis"))
    assert not cluster.holds("gpu01", "pgrep -fx 'sleep 1000'")
    assert not cluster.holds("gpu01", "ls -d ~ubuntu/.local/share/enroot ~ubuntu/.cache/enroot")


def test_another_release_gets_its_own_pyxis_in_one_step(
    cluster: LabCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = Suite("sid", tmp_path_factory.mktemp("sid")).download(*PACKAGES, "libslurm-dev")
    cluster.deepopsctl("packages", "add", "slurm", "--for", "debian13", *map(str, files))
    upgrade = ("upgrade", "slurm", "--to", "26.05", *WITHOUT)
    refused = cluster.deepopsctl(*upgrade, "--check", ok=False)
    assert refused.returncode == 1
    assert "packages build pyxis --release 26.05 --for debian13" in refused.stdout + refused.stderr

    assert "MpiDefault=pmix, which the new packages lack" in refused.stdout + refused.stderr
    edit(cluster.directory / SETTINGS, "---\n", "---\nslurm_config: {MpiDefault: none}\n")
    cluster.deepopsctl("deploy", "slurm")

    cluster.deepopsctl(*upgrade, "--yes")

    assert version(cluster).startswith("26.05")
    assert cluster.root("gpu01", "dpkg-query -W -f '${Version}' slurm-wlm-pyxis").startswith("26.05+pyxis")
    assert cluster.user("ctl1", "srun --container-image=$PWD/image.sqsh -w gpu01 sh -c 'echo inside'") == "inside"
