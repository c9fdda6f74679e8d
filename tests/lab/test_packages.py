"""Slurm built from Debian's source package by the real command line, and deployed under a running job.

The build takes minutes of all cores; one of the same inputs in this user's cache is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, command, edit, fresh_cluster

NAME = f"{PREFIX}-packages"
NODES = ("ctl1", "cn01")
PINS = "/etc/apt/preferences.d/deepopsctl-packages"

# it may have to be built
pytestmark = pytest.mark.timeout(7200)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller and a compute node with the distribution's Slurm."""
    with fresh_cluster(NAME, tmp_path_factory, "--compute", "1") as made:
        made.deploy()
        yield made


@pytest.fixture(scope="module")
def version(cluster: LabCluster) -> str:
    """The packages are built; their version."""
    words = ("packages", "build", "slurm", "--release", "24.11", "--for", "debian13", "--json")
    done = command("-C", str(cluster.directory), *words, seconds=7200)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {"nvml", "pmix", "pam", "rest", "lua"} <= set(document["features"])
    return str(document["version"])


def installed(cluster: LabCluster, node: str) -> dict[str, str]:
    """{name: version} of Slurm's packages."""
    shown = cluster.root(node, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' '*slurm*' munge")
    rows = [line.split() for line in shown.splitlines()]
    return {row[0]: row[1] for row in rows if row[-1] == "installed"}


def test_a_deploy_replaces_the_distributions_slurm_under_a_running_job(cluster: LabCluster, version: str) -> None:
    job = cluster.submit("sleep 100000")
    cluster.wait_for_job(job, "RUNNING")
    edit(cluster.directory / SETTINGS, "---\n", "---\nslurm_install: repository\n")
    planned = cluster.deepopsctl("plan", "slurm").stdout
    assert version in planned
    assert "deepopsctl-packages.sources" in planned
    assert not cluster.holds("ctl1", f"test -e {PINS}")

    cluster.deploy()
    for node in NODES:
        packages = installed(cluster, node)
        assert {packages[name] for name in packages if name not in ("munge",)} == {version}
        # the distribution's version does not replace it
        assert "slurm" not in cluster.root(node, "apt-get update -qq; apt-get --simulate dist-upgrade")
    assert cluster.job_state(job) == "RUNNING"
    cluster.root("ctl1", f"scancel {job}")
    assert cluster.user("ctl1", "srun --quiet -n1 hostname") == NODES[1]

    assert set(cluster.changed(cluster.deploy()).values()) == {0}


def test_a_repository_of_a_release_that_slurm_can_not_go_to_is_refused(cluster: LabCluster, version: str) -> None:
    served = cluster.directory / "inventory" / "group_vars" / "all" / "packages.yml"
    before = served.read_text(encoding="utf-8")
    document = yaml.safe_load(before)
    for suite in document["deepops_package_repositories"]["Debian 13"].values():
        suite["release"] = "22.05"
    try:
        served.write_text(yaml.safe_dump(document), encoding="utf-8")
        summary = cluster.deploy(ok=False)
        assert {"Slurm does not go back from 24.11 to 22.05" in each["message"] for each in summary["failures"]} == {
            True
        }
        assert not any(cluster.changed(summary).values())
    finally:
        served.write_text(before, encoding="utf-8")


def test_an_archive_that_was_changed_is_not_installed(cluster: LabCluster, version: str) -> None:
    archive = next(cluster.directory.glob("packages/*.tar"))
    served = cluster.directory / "inventory" / "group_vars" / "all" / "packages.yml"
    before, text = archive.read_bytes(), served.read_text(encoding="utf-8")
    try:
        archive.write_bytes(before.replace(b"Label: deepopsctl", b"Label: deepopsctk"))
        # as a user could who can write to the cluster directory's packages and not to its key
        edit(served, "    sha256: ", "    sha256: 0")
        summary = cluster.deploy(ok=False)
        assert any("not signed by the key" in f"{each['message']} {each['hint']}" for each in summary["failures"])
    finally:
        archive.write_bytes(before)
        served.write_text(text, encoding="utf-8")
    cluster.deploy()


def test_without_the_setting_the_repository_is_withdrawn(cluster: LabCluster, version: str) -> None:
    edit(cluster.directory / SETTINGS, "slurm_install: repository\n", "")
    cluster.deploy()
    assert not cluster.holds("cn01", f"test -e {PINS}")
    assert installed(cluster, "cn01")["slurmd"] == version
    assert set(cluster.changed(cluster.deploy()).values()) == {0}


def test_the_directory_of_packages_is_private(cluster: LabCluster, version: str) -> None:
    packages = cluster.directory / "packages"
    assert packages.stat().st_mode & 0o777 == 0o700
    assert Path(packages / ".gitignore").read_text(encoding="utf-8") == "*\n"
