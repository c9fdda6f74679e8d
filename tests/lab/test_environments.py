"""Environments of Python packages: built by a deploy, loaded by jobs on two nodes, switched and removed under a job."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit, wait_until

SITE = """
storage: [{name: software, type: local, source: /srv/shared/software, path: /opt/software, local: {shared: true}}]
"""
DECLARED = "modules_wheels: /opt/software/wheels\nenvironments: {sci: {packages: [numpy, attrs]}}\n"
WHERE = "/opt/deepopsctl/environments/sci"
SHOW = "import os, sys, time; time.sleep({}); import numpy; print(os.uname().nodename, sys.prefix)"
NODES = ("gpu01", "gpu02")


@pytest.fixture(scope="module")
def site(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster with a wheelhouse and one environment, which the deploy has locked; all is reverted."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before, settings_before = spec.read_text(encoding="utf-8"), settings.read_text(encoding="utf-8")
    deployed.root("ctl1", "mkdir -p /srv/shared/software")
    try:
        edit(spec, "components: [slurm]", "components: [storage, slurm, environment]")
        spec.write_text(spec.read_text(encoding="utf-8") + SITE, encoding="utf-8")
        edit(settings, "---\n", f"---\n{DECLARED}")
        deployed.deepopsctl("deploy", "storage", "environment")
        yield deployed
    finally:
        settings.write_text(settings_before, encoding="utf-8")
        deployed.deepopsctl("deploy", "environment", ok=False)
        spec.write_text(f"{before}storage: []\n", encoding="utf-8")
        deployed.deepopsctl("deploy", "storage", ok=False)
        spec.write_text(before, encoding="utf-8")
        for node in ("ctl1", *NODES):
            deployed.root(node, "rm -rf /opt/deepopsctl/environments", ok=False)
        deployed.root("ctl1", "rm -rf /srv/shared/software", ok=False)


def versions(site: LabCluster) -> list[str]:
    """The versions that have a lock, the default first."""
    listed = json.loads(site.deepopsctl("environments", "list", "--json").stdout)["environments"]
    return [each["version"] for each in sorted(listed, key=lambda each: not each["default"])]


def step(module: str, seconds: int = 0) -> str:
    """A shell command: a job on both nodes that loads a module and imports a package."""
    script = f"module load {module} && exec python -c {shlex.quote(SHOW.format(seconds))}"
    return f"srun --quiet -N2 -n2 --chdir=/ bash -lc {shlex.quote(script)}"


def test_a_job_on_two_nodes_loads_what_one_deploy_has_built(site: LabCluster) -> None:
    (version,) = versions(site)

    shown = site.user("ctl1", step("sci"))

    assert sorted(shown.splitlines()) == [f"{node} {WHERE}/{version}" for node in NODES]
    others = f"find {WHERE} ! -user root -o ! -type l -perm /022 | head"
    assert [site.root(node, others) for node in NODES] == ["", ""]
    assert site.parsed("deploy", "environment", "--full")["changes"] == []


def test_a_version_in_use_stays_until_its_job_has_ended(site: LabCluster) -> None:
    (old,) = versions(site)
    site.user("ctl1", f"nohup {step('sci', 600)} >/dev/null 2>&1 </dev/null & echo")
    wait_until("the job imports", lambda: site.holds("gpu02", f"grep -qs VIRTUAL_ENV={WHERE}/{old} /proc/*/environ"))
    edit(site.directory / SETTINGS, "[numpy, attrs]", "[numpy, attrs, six]")

    site.deepopsctl("deploy", "environment")
    new, kept = versions(site)
    refused = site.deepopsctl("environments", "remove", f"sci/{old}", ok=False)

    assert (new, kept) == (f"{old}.1", old)
    assert refused.returncode == 1
    assert f"gpu02: {WHERE}/{old}: job" in refused.stderr
    assert site.user("gpu01", f"bash -lc 'module load sci/{old}; python -c \"import attr\"; echo $VIRTUAL_ENV'") == (
        f"{WHERE}/{old}"
    )
    assert f"{WHERE}/{new}" in site.user("gpu01", "bash -lc 'module load sci; python -c \"import six\"; which python'")

    site.user("ctl1", "scancel --me; while squeue -h --me | grep -q .; do sleep 1; done")
    site.deepopsctl("environments", "remove", f"sci/{old}")

    assert versions(site) == [new]
    assert [site.root(node, f"ls -A {WHERE}") for node in NODES] == [new, new]


def test_what_is_not_declared_has_no_module_and_a_damage_is_repaired(site: LabCluster) -> None:
    (version,) = versions(site)
    site.root("gpu01", f"rm -r {WHERE}/{version}")

    site.deepopsctl("deploy", "environment")
    assert site.holds("gpu01", f"{WHERE}/{version}/bin/python -c 'import numpy'")

    edit(site.directory / SETTINGS, "environments: {sci", "others: {sci")
    site.deepopsctl("deploy", "environment")
    assert not site.holds("gpu01", "ls /opt/deepopsctl/environments/modulefiles/sci/*")
    site.deepopsctl("environments", "remove", f"sci/{version}")
    assert not site.holds("gpu01", f"ls -d {WHERE}/*")
